"""Simulations of a past beside what was recorded, and what each assumption costs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Workload, generate, simulate
from hpctwin.errors import WorkloadError
from hpctwin.metrics.comparison import fidelity
from hpctwin.sweep.assumptions import PARTS, check_past

MACHINE = Cluster.uniform(16)


def past(policy: str, machine: Cluster = MACHINE, late_s: float = 0.0) -> Workload:
    """Jobs with the starts that a policy gave them."""
    workload = generate("poisson", jobs=250, nodes=14, load=1.1, seed=3)
    jobs = simulate(workload, machine, policy).jobs
    assert jobs["job_id"].to_list() == workload.job_id.tolist()
    starts = np.rint(1000 * (jobs["start_s"].to_numpy() + late_s)).astype(np.int64)
    return workload.replace(recorded_start_ms=starts)


def test_a_past_that_the_policy_made_is_met_exactly_and_nothing_gains() -> None:
    found = check_past(past("wfp+easy"), MACHINE, "wfp+easy")
    figures = found.taken.figures()
    assert (figures["jobs"], figures["median_error_s"], figures["p95_error_s"]) == (250, 0, 0)
    assert figures["within_1min"] == 1
    assert (found.instead["gain_s"] <= 0).all()
    assert not found.refused


def test_where_jobs_share_nodes_other_placements_are_tried() -> None:
    rng = np.random.default_rng(4)
    machine = Cluster.model_validate({"nodes": [{"name": "n", "count": 6, "cores": 8}]})
    asked = Workload.build(
        submit_s=np.sort(rng.uniform(0, 4000, 150)),
        runtime_s=rng.uniform(60, 900, 150),
        walltime_s=np.full(150, 900.0),
        nodes=np.ones(150),
        chunks={"tasks": np.ones(150), "cores_per_task": rng.choice([1, 2, 3, 6, 8], 150)},
    )
    starts = simulate(asked, machine, "fcfs+none@spread").jobs.sort("job_id")["start_s"].to_numpy()
    recorded = asked.replace(recorded_start_ms=np.rint(1000 * starts).astype(np.int64))
    found = check_past(recorded, machine, "fcfs+none@tightest-run")
    first = found.instead.row(0, named=True)
    assert (first["assumption"], first["taken"], first["instead"]) == (
        "placement",
        "tightest-run",
        "spread",
    )
    assert (first["median_error_s"], first["p95_error_s"]) == (0, 0)


@pytest.mark.parametrize(
    ("policy", "assumption", "instead"),
    [("sjf+easy", "ordering", "sjf"), ("fcfs+none", "backfill", "none")],
)
def test_what_was_wrongly_assumed_is_what_gains_most(
    policy: str, assumption: str, instead: str
) -> None:
    found = check_past(past(policy), MACHINE, "fcfs+easy")
    first = found.instead.row(0, named=True)
    assert (first["assumption"], first["instead"]) == (assumption, instead)
    assert first["median_error_s"] == first["p95_error_s"] == 0
    assert first["gain_s"] == found.taken.figures()["median_error_s"] > 0


def test_nodes_that_were_down_are_noticed() -> None:
    found = check_past(past("fcfs+easy", Cluster.uniform(14)), Cluster.uniform(16), "fcfs+easy")
    first = found.instead.row(0, named=True)
    assert (first["assumption"], first["taken"], first["instead"]) == ("nodes up", "16", "14")


def test_starts_that_take_their_time_are_noticed() -> None:
    found = check_past(past("fcfs+easy", late_s=90.0), MACHINE, "fcfs+easy")
    first = found.instead.row(0, named=True)
    assert (first["assumption"], first["instead"]) == ("starts take", "90 s")
    assert found.taken.figures()["later_s"] == -90


def test_classes_hold_all_jobs_and_their_errors() -> None:
    workload = past("sjf+easy")
    found = fidelity(workload, simulate(workload, MACHINE, "fcfs+easy").jobs)
    by_size = found.by("size")
    assert by_size["jobs"].sum() == len(found.jobs) == 250
    whole = (by_size["later_s"] * by_size["jobs"]).sum() / 250
    assert whole == pytest.approx(found.figures()["later_s"])


def test_jobs_without_a_recorded_start_are_counted_and_a_past_without_any_is_rejected() -> None:
    workload = past("fcfs+easy")
    starts = workload.recorded_start_ms.copy()
    starts[:20] = -1
    result = simulate(workload, MACHINE, "fcfs+easy").jobs
    found = fidelity(workload.replace(recorded_start_ms=starts), result)
    assert (found.without, len(found.jobs)) == (20, 230)
    with pytest.raises(WorkloadError, match=r"no job of .* has a recorded start"):
        fidelity(workload.replace(recorded_start_ms=np.full(250, -1)), result)


def test_a_fit_before_each_part_is_tested_on_later_values() -> None:
    """A site with 14 nodes up of 16, whose starts take 20 s."""
    found = check_past(past("fcfs+easy", Cluster.uniform(14), late_s=20.0), MACHINE, "fcfs+easy")
    rolling = found.rolling.to_dicts()
    assert len(rolling) == PARTS - 1
    assert sum(row["jobs"] for row in rolling) + 250 // PARTS + 1 == 250
    for row in rolling[1:]:
        assert (row["assumption"], row["instead"], row["delay_s"]) == ("nodes up", "14", 20.0)
        assert row["error_s"] == 0.0
        assert row["within_1min"] == 1.0
        assert row["taken_error_s"] > 0.0


def test_a_fit_does_not_know_later_values() -> None:
    """All that was recorded from a time on is otherwise; what was fitted until then stays."""
    workload = past("fcfs+easy", Cluster.uniform(14), late_s=20.0)
    middle_ms = int(workload.submit_ms[170])
    other = np.random.default_rng(1).integers(0, 10**7, 250)
    starts = workload.recorded_start_ms
    shuffled = np.where(
        starts >= middle_ms, np.maximum(workload.submit_ms, middle_ms) + other, starts
    )
    fitted = ["from_s", "assumption", "instead", "delay_s"]
    tables = [
        check_past(one, MACHINE, "fcfs+easy").rolling.select(fitted)
        for one in (workload, workload.replace(recorded_start_ms=shuffled))
    ]
    early = [table.filter(pl.col("from_s") <= middle_ms / 1000).to_dicts() for table in tables]
    assert early[0] == early[1]
    assert len(early[0]) == 4
    assert early[0][-1]["instead"] == "14"
