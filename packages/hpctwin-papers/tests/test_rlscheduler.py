"""RLScheduler's environment is ours: heuristics in it have the slowdowns that were published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlscheduler_reference import mean_slowdown

from hpctwin.cli import main
from hpctwin_papers.catalog import find_entry
from hpctwin_papers.entry import reproduce
from hpctwin_papers.rlscheduler import table as experiment


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "rlscheduler", *map(str, arguments)])
    code = left.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.traces
def test_heuristics_without_backfilling_are_as_published_to_the_last_digit(traces: Path) -> None:
    outcome = reproduce(find_entry("rlscheduler-table-5"))
    assert outcome.verdict == "agrees"
    for one in outcome.results.findings:
        assert round(one.obtained, 2) == one.expected, one.what


@pytest.mark.traces
@pytest.mark.parametrize("name", ["SJF", "FCFS"])
def test_with_backfilling_only_events_of_one_time_before_a_pass_differ(
    name: str, traces: Path
) -> None:
    published = dict(zip(experiment.HEURISTICS, experiment.ROWS["Lublin-2", True], strict=False))
    assert round(mean_slowdown("Lublin-2", name, together=False), 2) == published[name]
    ours = float(experiment.heuristic("Lublin-2", True, name).mean())
    assert ours == pytest.approx(mean_slowdown("Lublin-2", name, together=True), rel=1e-12)


def test_sequences_are_those_that_the_published_seed_draws() -> None:
    drawn = experiment.sequences()
    assert drawn[:4] == [1981, 2756, 4299, 8850]
    assert all(experiment.JOBS <= first < 10_000 - experiment.JOBS for first in drawn)


@pytest.mark.traces
@pytest.mark.parametrize("trace", ["Lublin-1", "Lublin-2", "HPC2N"])
def test_no_job_that_is_tested_is_trained_on(trace: str, traces: Path) -> None:
    first, last = experiment.trained_on(trace)
    assert 0 <= first < last <= len(experiment.case(trace).workload)
    assert last - first >= experiment.JOBS
    assert all(last <= one or one + experiment.JOBS <= first for one in experiment.sequences())


@pytest.mark.traces
def test_agents_are_trained_once(
    tmp_path: Path,
    traces: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "sequences", lambda: [1981])
    monkeypatch.setattr(experiment, "ROWS", {("HPC2N", False): experiment.ROWS["HPC2N", False]})
    monkeypatch.setattr(experiment, "IMITATED", ("sjf",))
    given = ("--steps", 64, "--out", tmp_path)
    assert run("--seeds", 1, *given, "--json") == 0
    (alone,) = json.loads(capsys.readouterr().out)
    (first,) = tmp_path.iterdir()
    made = first.stat().st_mtime_ns
    assert run("--seeds", 2, *given, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["heuristics"].keys() | {"RL"} == row["published"].keys()
    assert row["best"] in row["heuristics"]
    assert row["best_of_all"] in {**row["heuristics"], **row["others"]}
    # The first is not trained again, and each is told by itself beside the mean of all.
    assert len(row["agents"]) == len(row["more_each"]) == len(list(tmp_path.iterdir())) == 2
    assert row["agents"][:1] == alone["agents"]
    assert first.stat().st_mtime_ns == made
    best = row["heuristics"][row["best"]]
    above = [more["mean"] for more in row["more_each"]]
    assert above == pytest.approx([mean - best for mean in row["agents"]])
    assert row["more"]["mean"] == pytest.approx(sum(above) / 2)
    assert run("--seeds", 2, *given) == 0
    shown = capsys.readouterr().out
    assert "HPC2N" in shown
    assert "seed 0" in shown
    assert "seed 1" in shown
    assert run("--trace", "Lublin-3") == 2
