"""Many maintenance windows: a pass looks at those that matter alone, and does as if it looked at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, generate
from hpctwin.model.cluster.cluster import Reservation
from hpctwin.simulation.running.incremental import OpenSimulation
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import BACKFILLS, SLURM, cases, compared
from tests.engine.test_shared_against_reference import EVERY
from tests.examples import each

ORDERS = ("fcfs", "sjf", "wfp")


@st.composite
def under_repair(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """A cluster with up to 40 windows, many of which are over early, overlap, touch, or come late."""
    cluster = draw(clusters)
    count = draw(st.integers(3, 40))
    start = strategies.numbers(draw, count, 0, 100)
    length = strategies.numbers(draw, count, 1, 20)
    first = strategies.numbers(draw, count, 0, cluster.node_count - 1)
    more = strategies.numbers(draw, count, 0, 3)
    last = np.minimum(first + more, cluster.node_count - 1)
    windows = tuple(
        Reservation(start=int(s), end=int(s + n), nodes=f"{a}-{b}")
        for s, n, a, b in zip(start, length, first, last, strict=True)
    )
    return cluster.model_copy(update={"reservations": windows})


def cases_of(
    clusters: st.SearchStrategy[Cluster],
    workloads: Callable[[Cluster], st.SearchStrategy[Workload]],
) -> st.SearchStrategy[dict[str, Any]]:
    """Everything else at once as well."""
    return cases(under_repair(clusters), workloads, ORDERS, lambda cluster: strategies.rules())


@settings(max_examples=examples(60))
@given(case=cases_of(strategies.clusters(cleanup=True), strategies.workloads))
@each("policy", BACKFILLS)
def test_jobs_start_as_in_the_reference(policy: dict[str, Any], case: dict[str, Any]) -> None:
    compared(policy=policy, **case)


@settings(max_examples=examples(60))
@given(
    case=cases_of(
        strategies.shared_clusters(cleanup=True), partial(strategies.shared_workloads, max_jobs=12)
    )
)
@each("policy", EVERY)
def test_jobs_start_as_in_the_reference_where_nodes_are_shared(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    compared(policy=policy, **case)


@settings(max_examples=examples(60))
@given(case=cases_of(strategies.clusters(resources=False), strategies.workloads))
@each("policy", SLURM)
def test_jobs_start_as_in_the_reference_where_particular_nodes_are_reserved(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    case["workload"] = case["workload"].replace(resources={})
    compared(policy=policy, **{**case, "placement": "contiguous"})


def repaired(nodes: int, windows: int, every: int) -> Cluster:
    """Windows one after the other, each of other nodes, and one over all of them."""
    found = [
        {"start": every * i, "end": every * i + every // 2, "nodes": f"{i % nodes}"}
        for i in range(windows)
    ]
    long = {"start": every, "end": every * windows, "nodes": f"{nodes - 1}"}
    return Cluster.model_validate(
        {"nodes": [{"name": "all", "count": nodes}], "reservations": [*found, long]}
    )


POLICIES = (
    "fcfs+easy", "sjf+easy", "wfp+conservative", "fcfs+slurm:bf_interval=1s,bf_resolution=1s@contiguous",
)  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_saved_and_forked_simulations_continue_identically(policy: str, tmp_path: Path) -> None:
    jobs = generate("poisson", jobs=200, nodes=16, seed=3)
    last_s = float(jobs.submit_ms[-1]) / 1000
    cluster = repaired(16, 300, max(2, int(last_s / 200)))
    whole = Simulation(jobs, cluster, policy)
    whole.advance()
    half = Simulation(jobs, cluster, policy)
    half.advance(last_s / 2)
    half.save(tmp_path / "half")
    fork, loaded = half.fork(), Simulation.load(tmp_path / "half")
    for one in (half, fork, loaded):
        one.advance()
        assert (one.column("start") == whole.column("start")).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_forecast_that_knows_all_comes_true_at_each_time_again(policy: str) -> None:
    jobs = generate("poisson", jobs=120, nodes=16, seed=4)
    cluster = repaired(16, 300, max(2, int(jobs.submit_ms[-1] / 200_000)))
    opened = OpenSimulation(Simulation(jobs, cluster, policy))
    told: dict[int, int] = {}
    # The fork looks ahead of one time after the other: its clock is put back in between.
    for row, at_ms in enumerate(jobs.submit_ms.tolist()):
        opened.arrive(row, at_ms)
        if row % 20 == 19 and row < 60:
            opened.advance_before(at_ms)
            waiting = np.concatenate([opened.waiting(), opened.on_their_way()]).astype(np.int64)
            opened.forecast(at_ms + 1, np.zeros(0, np.int64), waiting)
    opened.advance_before(int(jobs.submit_ms[-1]))
    waiting = np.concatenate([opened.waiting(), opened.on_their_way()]).astype(np.int64)
    start_ms, _ = opened.forecast(int(jobs.submit_ms[-1]) + 1, np.zeros(0, np.int64), waiting)
    told.update(zip(waiting.tolist(), start_ms.tolist(), strict=True))
    opened.finish()
    assert told
    assert {row: opened.simulation.column("start")[row] for row in told} == told
