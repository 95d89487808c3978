"""Agreement with other simulators: equal where their rule is ours, else the rule that differs, shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Workload, read_workload, simulate
from tests.golden.cqsim_rule import FCFS, SJF, WFP, simulate_cqsim

pytestmark = pytest.mark.traces

THETA = Cluster.uniform(nodes=4360)


@pytest.fixture(scope="module")
def theta(traces: Path) -> Workload:
    return read_workload(traces / "swf" / "theta_2022.swf.gz")


@pytest.fixture(scope="module")
def cut(theta: Workload) -> Workload:
    """Theta with runs longer than the request cut to it, as CQSim reads it."""
    return theta.replace(runtime_ms=np.minimum(theta.runtime_ms, theta.walltime_ms))


def first(workload: Workload, jobs: int) -> Workload:
    return workload.take(np.arange(jobs))


def starts(workload: Workload, order: str, backfill: str, **options: object) -> np.ndarray:
    return simulate(workload, THETA, order, backfill, **options).jobs["start_s"].to_numpy()


def golden_starts(golden: Path, name: str) -> np.ndarray:
    table = pl.read_csv(golden / name).sort("job_id")
    return (table["start"] - table["submit"].min()).to_numpy()


@pytest.mark.parametrize(
    ("jobs", "name", "order", "mean_wait_s"),
    [
        (1000, "cqsim_theta_1000_fcfs_nobf.csv", "fcfs", 23_824.198),
        (1000, "cqsim_theta_1000_wfp_nobf.csv", "wfp", 8_399.996),
        (23_911, "cqsim_theta_2022_fcfs_nobf.csv.gz", "fcfs", 159_516.201),
        (23_911, "cqsim_theta_2022_wfp_nobf.csv.gz", "wfp", 56_780.232),
    ],
)
def test_without_backfilling_every_job_starts_when_it_does_in_cqsim(
    cut: Workload, golden: Path, jobs: int, name: str, order: str, mean_wait_s: float
) -> None:
    workload = first(cut, jobs)
    ours = starts(workload, order, "none")
    np.testing.assert_array_equal(ours, golden_starts(golden, name))
    assert np.mean(ours - workload.submit_ms / 1000) == pytest.approx(mean_wait_s, abs=0.001)


def test_fcfs_starts_every_job_when_accasim_fifo_does(theta: Workload, golden: Path) -> None:
    ours = starts(first(theta, 1000), "fcfs", "none", overrun="continue")
    np.testing.assert_array_equal(ours, golden_starts(golden, "accasim_theta_1000_FIFO.csv"))


SCORES = {"fcfs": FCFS, "sjf": SJF, "wfp": WFP}


@pytest.mark.parametrize(
    ("jobs", "name", "order", "backfill"),
    [
        (1000, "cqsim_theta_1000_sjf_nobf.csv", "sjf", "none"),
        (1000, "cqsim_theta_1000_fcfs_easy.csv", "fcfs", "easy"),
        (1000, "cqsim_theta_1000_sjf_easy.csv", "sjf", "easy"),
        (1000, "cqsim_theta_1000_wfp_easy.csv", "wfp", "easy"),
        (1000, "cqsim_theta_1000_fcfs_cons.csv", "fcfs", "conservative"),
        (1000, "cqsim_theta_1000_default.csv", "fcfs", "conservative"),
        (23_911, "cqsim_theta_2022_fcfs_easy.csv.gz", "fcfs", "easy"),
    ],
)
def test_cqsim_is_its_written_rule_exactly(
    cut: Workload, golden: Path, jobs: int, name: str, order: str, backfill: str
) -> None:
    """What tests/golden/cqsim_rule.py says is CQSim's rule, gives CQSim's output job by job."""
    theirs = simulate_cqsim(first(cut, jobs), 4360, SCORES[order], backfill)
    np.testing.assert_array_equal(theirs, golden_starts(golden, name))


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_cqsims_rule_without_its_two_departures_is_ours(
    cut: Workload, order: str, backfill: str
) -> None:
    """Planned by walltimes, and one pass per instant, CQSim's EASY is our EASY, job by job."""
    theirs = simulate_cqsim(
        cut, 4360, SCORES[order], backfill, clairvoyant=False, single_events=False
    )
    ours = starts(cut, order, backfill)
    np.testing.assert_array_equal(ours, theirs)


def test_with_exact_walltimes_only_the_pass_after_each_event_separates_cqsim(
    cut: Workload,
) -> None:
    exact = first(cut, 1000).replace(walltime_ms=first(cut, 1000).runtime_ms)
    ours = starts(exact, "fcfs", "easy")
    batched = simulate_cqsim(exact, 4360, FCFS, "easy", single_events=False)
    np.testing.assert_array_equal(ours, batched)
    single = simulate_cqsim(exact, 4360, FCFS, "easy")
    differ = np.flatnonzero(single != ours)
    assert len(differ) < 600
    # The first to differ does so at a moment when several events coincide.
    times = np.minimum(single, ours)[differ]
    now = times.min()
    ends = ours + exact.runtime_ms / 1000
    together = np.sum(ends == now) + np.sum(exact.submit_ms / 1000 == now)
    assert together >= 2


def test_accasims_backfilling_breaks_the_head_jobs_reservation(
    theta: Workload, golden: Path
) -> None:
    """The first job that differs from our EASY is a head that AccaSim's EBF makes wait longer."""
    workload = first(theta, 1000)
    theirs = golden_starts(golden, "accasim_theta_1000_EBF.csv")
    ours = starts(workload, "fcfs", "easy", overrun="continue")
    differ = np.flatnonzero(theirs != ours)
    at = np.minimum(theirs, ours)[differ].min()
    submit, wall = workload.submit_ms / 1000, workload.walltime_ms / 1000
    end = theirs + workload.runtime_ms / 1000
    waiting = np.flatnonzero((submit <= at) & (theirs >= at))
    head = waiting[0]
    assert theirs[head] > ours[head]
    # By their own schedule and walltimes, the head had enough nodes before they started it.
    running = np.flatnonzero((theirs < at) & (end > at))
    free = 4360 - workload.nodes[running].sum()
    for planned in np.argsort(theirs[running] + wall[running]):
        free += workload.nodes[running[planned]]
        if free >= workload.nodes[head]:
            promised = (theirs + wall)[running[planned]]
            break
    assert theirs[head] > promised


@pytest.mark.parametrize(
    "scheduler", ["fcfs", "easy", "fcfs_psus", "easy_psus", "fcfs_psas", "easy_psas"]
)
def test_spars_waits_only_for_nodes_that_are_switched_off(golden: Path, scheduler: str) -> None:
    """Nodes always on, nobody waits; SPARS's first job to wait does so for a node to boot."""
    table = pl.read_csv(golden / f"spars_nasa20_t1200_{scheduler}.csv").sort("submit", "job_id")
    workload = Workload.build(
        job_id=table["job_id"],
        submit_s=table["submit"],
        runtime_s=table["runtime"],
        walltime_s=table["reqtime"],
        nodes=table["n_nodes"],
    )
    for backfill in ("none", "easy"):
        ours = simulate(workload, Cluster.uniform(nodes=128), "fcfs", backfill)
        assert ours.jobs["wait_s"].max() == 0
    late = table.filter(pl.col("start") > pl.col("submit")).sort("submit").row(0, named=True)
    boot_s, shutdown_s = 2700, 1800
    assert 0 < late["start"] - late["submit"] <= boot_s + shutdown_s
