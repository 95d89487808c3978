"""Published tables and figures: every one has a verdict, and none that differs is without a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpctwin.cli import main
from hpctwin.errors import WorkloadError
from hpctwin_papers.catalog import ENTRIES, find_entry
from hpctwin_papers.entry import Entry, reproduce
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results

PAGE = Path(__file__).parents[3] / "docs/evidence/published/report.md"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", *map(str, arguments)])
    code = left.value.code
    assert isinstance(code, int)
    return code


@dataclass(frozen=True, eq=False)
class Given(Experiment[None, None]):
    """Gives what was made before, or fails."""

    result: Results | WorkloadError
    title = "nothing"

    def points(self) -> Sequence[None]:
        return [None]

    def run(self, point: None, progress: Progress) -> None:
        if isinstance(self.result, WorkloadError):
            raise self.result

    def results(self, found: Sequence[None]) -> Results:
        assert isinstance(self.result, Results)
        return self.result


def entry(made: Results | WorkloadError | None, because: str = "") -> Entry:
    experiment = None if made is None else Given(made)
    return Entry("x", paper="A", shows="y", because=because, experiment=experiment)


def test_a_verdict_follows_from_the_numbers() -> None:
    near, far = (Finding("n", 100, here, 0.05, entries=("x",)) for here in (104, 106))
    assert reproduce(entry(Results([near]), "some reason")).verdict == "agrees"
    assert reproduce(entry(Results([near]), "some reason")).because == ""
    assert reproduce(entry(Results([near, far]), "some reason")).verdict == "differs"
    assert reproduce(entry(Results([near, far]), "some reason")).because == "some reason"
    assert reproduce(entry(Results())).verdict == "drawn"
    assert reproduce(entry(None, "no data")).verdict == "cannot be made"
    assert Finding("of nothing", 0, 0, 0.0).agrees
    assert not Finding("of nothing", 0, 1, 0.5).agrees


def test_an_entry_without_its_trace_names_it() -> None:
    outcome = reproduce(entry(WorkloadError("put nasa.swf there")))
    assert (outcome.verdict, outcome.because) == ("cannot be made", "put nasa.swf there")


def test_a_difference_without_a_known_reason_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    far = Results([Finding("n", 100, 106, 0.05, entries=("x",))])
    monkeypatch.setitem(ENTRIES, "x", entry(far))
    assert run("run", "x") == 1
    monkeypatch.setitem(ENTRIES, "x", entry(far, "another machine"))
    assert run("run", "x") == 0
    assert "x differs: another machine" in capsys.readouterr().out


def test_the_papers_have_their_tables_and_figures() -> None:
    assert len(ENTRIES) == 29
    assert {one.paper for one in ENTRIES.values()} == {
        "SPARS",
        "PAS",
        "SchedTwin",
        "CQSim+",
        "S-RAPS",
        "RLScheduler",
        "CarbonScaler",
        "CarbonFlex",
    }
    for one in ENTRIES.values():
        assert one.experiment is not None or one.because, one.name


def test_two_jobs_that_end_at_one_time_are_one_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", "spars-figure-1", "--out", tmp_path, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "agrees"
    assert [one["obtained"] for one in told["findings"]] == [10.0, 15.0]
    assert (tmp_path / "spars-figure-1.png").read_bytes().startswith(b"\x89PNG")
    report = (tmp_path / "report.md").read_text()
    assert "![spars figure 1](spars-figure-1.png)" in report
    assert json.loads((tmp_path / "results.json").read_text()) == [told]


@pytest.mark.traces
def test_the_forms_of_fcfs_have_the_published_energies_and_waits(traces: Path) -> None:
    outcome = reproduce(find_entry("spars-figure-4"))
    fcfs = [one for one in outcome.results.findings if one.what.startswith("fcfs")]
    assert len(fcfs) == 6
    assert all(one.agrees for one in fcfs)


def test_a_wrong_name_is_reported_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "spars-figure-5") == 2
    assert "Did you mean 'spars-figure-4'?" in capsys.readouterr().err
    assert run("list", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == len(ENTRIES)


def test_the_command_is_found_by_its_plural_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main(["experiments", "list"])
    assert left.value.code == 0
    assert capsys.readouterr().out == told


def test_the_page_in_the_documentation_is_of_these_entries() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == list(ENTRIES)
    for image in re.findall(r"\]\(([\w-]+\.png)\)", page):
        assert (PAGE.parent / image).is_file(), image
