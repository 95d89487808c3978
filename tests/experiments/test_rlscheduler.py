"""RLScheduler's environment is ours: heuristics in it have the slowdowns that were published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin.cli import main
from hpctwin.experiments import rlscheduler as experiment
from hpctwin.experiments.entries import make
from hpctwin.experiments.papers import find_entry
from tests.experiments.rlscheduler_reference import mean_slowdown


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "rlscheduler", *map(str, arguments)])
    code = left.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.traces
def test_heuristics_without_backfilling_are_as_published_to_the_last_digit(traces: Path) -> None:
    outcome = make(find_entry("rlscheduler-table-5"))
    assert outcome.verdict == "agrees"
    for one in outcome.made.findings:
        assert round(one.obtained, 2) == one.expected, one.what


@pytest.mark.traces
@pytest.mark.parametrize("name", ["SJF", "FCFS"])
def test_with_backfilling_what_differs_is_that_all_of_one_instant_comes_before_a_pass(
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
def test_agents_are_trained_before_what_is_tested_and_not_twice(
    tmp_path: Path,
    traces: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "sequences", lambda: [1981])
    monkeypatch.setattr(experiment, "ROWS", {("HPC2N", False): experiment.ROWS["HPC2N", False]})
    monkeypatch.setattr(experiment, "IMITATED", ("sjf",))
    given = ("--seeds", 1, "--steps", 64, "--out", tmp_path)
    assert run(*given, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["heuristics"].keys() | {"RL"} == row["published"].keys()
    assert row["best"] in {**row["heuristics"], **row["others"]}
    assert len(row["agents"]) == 1
    (path,) = tmp_path.iterdir()
    made = path.stat().st_mtime_ns
    assert run(*given) == 0
    assert "HPC2N" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == made
    assert run("--trace", "Lublin-3") == 2
