"""The experiment of PAS: what is promised of our policy, and what comes out of Table I."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from hpctwin.cli import main
from hpctwin.generate.pas import RESOURCES, failure_risk, pas, with_failures
from hpctwin.metrics import dependency_violations, resource_use, resource_utilization
from hpctwin.model import Dependencies, DependencyKind
from hpctwin.simulation import Result
from hpctwin_papers.pas.experiment import (
    METHODS,
    OURS,
    PUBLISHED,
    THEIRS,
    Row,
    compared,
    means,
    run_seed,
    wins,
)

SEEDS = 10


@pytest.fixture(scope="module")
def runs() -> tuple[list[Row], dict[str, Result]]:
    rows: list[Row] = []
    results: dict[str, Result] = {}
    for seed in range(SEEDS):
        own, results = run_seed(seed)
        rows += own
    return rows, results


@pytest.mark.parametrize("other", [THEIRS, "easy", "sjf", "fcfs", "pfm"])
def test_ours_beats_every_other_on_makespan_and_mean_wait_in_every_seed(
    runs: tuple[list[Row], dict[str, Result]], other: str
) -> None:
    assert wins(runs[0], OURS, other) == SEEDS


def test_no_dependency_is_violated_and_all_jobs_complete(
    runs: tuple[list[Row], dict[str, Result]],
) -> None:
    assert len(runs[0]) == SEEDS * len(METHODS)
    for row in runs[0]:
        assert row.dependency_violations == 0
        assert row.completed == row.jobs
        # The count is no matter of course: without being told, all but FCFS violate many.
        assert row.method == "fcfs" or row.violations_if_ignored > 10


def test_fcfs_comes_out_as_published_and_the_words_say_so(
    runs: tuple[list[Row], dict[str, Result]],
) -> None:
    fcfs = [row for row in runs[0] if row.method == "fcfs"]
    assert np.mean([row.makespan for row in fcfs]) == pytest.approx(
        PUBLISHED["fcfs"].makespan, rel=0.05
    )
    agrees = {one.what: one.agrees for one in compared(means(runs[0]))}
    assert agrees["fcfs, makespan, ms"]
    assert not agrees["pas-published, makespan, ms"]


def test_violations_are_counted_off_the_schedule() -> None:
    jobs = pl.DataFrame({"start_s": [0.0, 1.0, 2.0, None, 5.0], "end_s": [2.0, 3.0, 4.0, 4.0, 6.0]})
    edges = Dependencies.of(
        [
            (1, 0, DependencyKind.AFTEROK, 0),  # starts at 1, before the end at 2
            (1, 0, DependencyKind.AFTER, 0),  # fine, and the job counts once
            (2, 0, DependencyKind.AFTEROK, 0),  # starts at 2, as the other ends
            (3, 2, DependencyKind.AFTEROK, 0),  # never started
            (4, 2, DependencyKind.AFTEROK, 2000),  # at 5, with 2 s to wait after 4
        ]
    )
    assert dependency_violations(jobs, edges) == 2


def test_use_over_time_adds_up_to_the_utilization(
    runs: tuple[list[Row], dict[str, Result]],
) -> None:
    for method, result in runs[1].items():
        asked = result.workload.resources
        use = resource_use(result.jobs, asked, RESOURCES, bins=37)
        whole = resource_utilization(result.jobs, asked, RESOURCES)
        for name in RESOURCES:
            assert use[name].mean() == pytest.approx(whole[name]), method
            assert 0 <= use[name].min() <= use[name].max() <= 1 + 1e-9
        work = (asked["cpu"] * result.workload.runtime_ms).sum() / 1000
        end = float(result.jobs["end_s"].to_numpy().max())
        assert whole["cpu"] == pytest.approx(work / (end * RESOURCES["cpu"]))


def test_jobs_fail_as_often_and_as_predictably_as_asked() -> None:
    workload = pas(jobs=20_000, seed=3)
    risk = failure_risk(workload, 0.1)
    assert risk.mean() == pytest.approx(0.1)
    failing = with_failures(workload, 0.1, seed=4)
    again = with_failures(workload, 0.1, seed=4)
    assert failing.fails is not None
    assert again.fails is not None
    assert (failing.fails == again.fails).all()
    assert failing.fails.mean() == pytest.approx(0.1, abs=0.01)
    # Who is predicted to fail more does fail more: calibrated in each fifth of the jobs.
    for part in np.array_split(np.argsort(risk), 5):
        assert failing.fails[part].mean() == pytest.approx(risk[part].mean(), abs=0.025)
    assert not failure_risk(workload, 0.0).any()


def test_the_predictions_of_pfm_reduce_the_waits_of_completed_jobs_below_fcfs() -> None:
    for seed in range(3):
        (fcfs, pfm), _ = run_seed(seed, methods=("fcfs", "pfm"), failures=0.1)
        assert fcfs.failed == pfm.failed > 0
        assert fcfs.cancelled == pfm.cancelled > 0
        assert pfm.mean_wait_completed < fcfs.mean_wait_completed


def test_the_command_gives_a_row_per_method_and_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["experiment", "pas", "--seeds", "2", "--jobs", "200", "--json"])
    assert not ended.value.code
    rows = json.loads(capsys.readouterr().out)
    assert [(row["seed"], row["method"]) for row in rows] == [
        (seed, method) for seed in (0, 1) for method in METHODS
    ]
    wanted = {"method", "seed", "makespan", "mean_wait", "dependency_violations", "max_wait"}
    assert all(wanted <= row.keys() for row in rows)


def test_an_unknown_method_is_named_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["experiment", "pas", "--method", "pbs"])
    assert ended.value.code == 2
    assert "pas-published" in capsys.readouterr().err
