"""Replaying workloads whose jobs share nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Workload, simulate
from hpctwin.simulation import replay
from hpctwin.simulation.result.result import Result
from tests import strategies
from tests.examples import examples

POWER = {"modes": {"base": {"power_w": 300, "idle_w": 100}}}


def machine(**group: Any) -> Cluster:
    about = {"name": "a", "count": 3, "cores": 8, "memory_gb": 16, **group}
    return Cluster.model_validate({"nodes": [about]})


def recorded(run: Result, *, nodes: bool) -> Workload:
    """The jobs with their starts, as text says where they ran."""
    where = {
        job: ",".join(map(str, there))
        for job, there in run.placements.group_by("job_id").agg("node").rows()
    }
    start = [-1.0 if s is None else s for s in run.jobs["start_s"].to_list()]
    return run.workload.replace(
        recorded_start_ms=np.array([round(1000 * s) if s >= 0 else -1 for s in start]),
        recorded_nodes=[where.get(job) for job in run.jobs["job_id"].to_list()] if nodes else None,
    )


@settings(max_examples=examples(40))
@given(
    workload=strategies.crowded_workloads(),
    policy=st.sampled_from(["fcfs+easy", "sjf+conservative"]),
)
def test_a_replay_has_the_placements_and_energy_of_the_run_that_was_recorded(
    workload: Workload, policy: str
) -> None:
    cluster = machine(**POWER)
    run = simulate(workload, cluster, policy)
    if not run.jobs["start_s"].is_not_null().any():
        return
    again = replay(recorded(run, nodes=True), cluster)
    assert not len(again.conflicts)
    assert run.placements is not None
    assert again.result.placements is not None
    lasting = run.placements.filter(pl.col("end_s") > pl.col("start_s"))
    assert again.result.placements.equals(lasting)
    assert again.result.energy is not None
    assert run.energy is not None
    assert again.result.energy.total_j == pytest.approx(run.energy.total_j, rel=1e-9)
    mine, theirs = again.result.summary(), run.summary()
    for name in ("utilization", "utilization_memory_gb", "mean_wait_s"):
        assert mine[name] == pytest.approx(theirs[name])


def test_jobs_without_recorded_nodes_are_placed_on_the_lowest_that_fit() -> None:
    workload = Workload.build(
        submit_s=[0, 0, 0, 5],
        runtime_s=[10, 10, 10, 10],
        nodes=[1, 1, 1, 1],
        recorded_start_s=[0, 0, 0, 5],
        chunks={"tasks": [3, 1, 2, 1], "cores_per_task": [3, 2, 1, 8], "exclusive": [0, 0, 1, 0]},
    )
    again = replay(workload, machine())
    assert again.conflicts.select("job_id", "what", "asked", "free").rows() == [(4, "room", 1, 0)]
    placed = again.result.placements
    assert placed is not None
    assert placed.select("job_id", "node", "cores").rows() == [
        (1, 0, 6), (1, 1, 3), (2, 0, 2), (3, 2, 8),
    ]  # fmt: skip


def test_impossible_records_on_shared_nodes_are_reported() -> None:
    workload = Workload.build(
        submit_s=[0] * 4,
        runtime_s=[10] * 4,
        nodes=[1] * 4,
        recorded_start_s=[0, 1, 2, 3],
        recorded_nodes=["0", "0", "2", None],
        chunks={"tasks": [1, 1, 1, 2], "cores_per_task": [6, 4, 8, 4]},
    )
    again = replay(workload, machine())
    # Jobs 1 and 2 had 10 cores of a node with 8; then 6 are free, and job 4 asks for 8.
    assert again.conflicts.select("time_s", "job_id", "what", "asked", "free").rows() == [
        (1.0, 2, "recorded nodes", 1.0, 0.0),
        (3.0, 4, "cores", 8.0, 6.0),
    ]
