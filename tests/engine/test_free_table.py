"""Conservative backfilling on shared nodes with long queues: the table of free cores changes no start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.state import array_allocation
from hpctwin.model import Category
from tests.engine.examples import BOUNDS
from tests.engine.test_against_reference import ORDERINGS
from tests.engine.test_shared_against_reference import compared_on_nodes

CLUSTERS: dict[str, dict[str, Any]] = {
    "cores": {"nodes": [{"name": "a", "count": 5, "cores": 4}]},
    "outages": {
        "nodes": [{"name": "a", "count": 3, "cores": 8}, {"name": "b", "count": 2, "cores": 2}],
        "failures": {"outages": [{"node": 1, "start": 90, "duration": 500}]},
    },
    "maintenance": {
        "nodes": [{"name": "a", "count": 4, "cores": 8, "memory_gb": 16}],
        "reservations": [{"start": 300, "end": 500}],
    },
}


def crowded(jobs: int, seed: int, *, memory: bool = False) -> Workload:
    """Many more jobs than fit: most of a few tasks of one core, some exclusive, most end early."""
    rng = np.random.default_rng(seed)
    runtime = rng.integers(1, 90, jobs)
    chunks: dict[str, Any] = {
        "tasks": rng.choice([1, 1, 2, 3, 5, 8], jobs),
        "cores_per_task": rng.choice([1, 1, 1, 2], jobs),
        "exclusive": rng.random(jobs) < 0.1,
    }
    if memory:
        chunks["memory_gb_per_task"] = rng.choice([0, 0, 1, 2], jobs)
    return Workload.build(
        submit_s=np.sort(rng.integers(0, 200, jobs)),
        runtime_s=runtime,
        walltime_s=runtime * rng.choice([1, 1, 2, 4], jobs),
        cancel_s=np.where(rng.random(jobs) < 0.05, 300, -1),
        nodes=np.ones(jobs, int),
        user=Category.of([f"u{i}" for i in rng.integers(0, 5, jobs)]),
        chunks=chunks,
    )


@contextmanager
def without_table() -> Iterator[None]:
    """No cluster is small enough for the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_allocation, "WIDEST_TABLE", -1)
        array_allocation.scratch_piece.cache_clear()
        yield
    array_allocation.scratch_piece.cache_clear()


def scratch_of(simulation: Simulation, name: str) -> np.ndarray:
    """An array that is derived from the state."""
    scratch = simulation.state._scratch
    return scratch.piece.seen(scratch.memory, name)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("order", ["fcfs", "sjf", "wfp"])
def test_long_queues_get_the_reservations_of_the_reference(order: str, cluster: str) -> None:
    # With array bounds checked another workload is compared than without.
    workload = crowded(60, seed=int(BOUNDS), memory=cluster == "maintenance")
    shape = Cluster.model_validate(CLUSTERS[cluster])
    compared_on_nodes(workload, shape, ORDERINGS[order], {"backfill": "conservative"})


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    "policy",
    ["fcfs+conservative", "wfp+conservative@best-fit", "sjf+conservative@spread", "fcfs+easy:9"],
)
def test_the_table_changes_no_start_and_no_node(policy: str, cluster: str) -> None:
    shape = Cluster.model_validate(CLUSTERS[cluster])
    for seed in range(2):
        workload = crowded(250, seed, memory=cluster == "maintenance")
        with_table = Simulation(workload, shape, policy=policy)
        with_table.advance()
        assert len(scratch_of(with_table, "free_cores")) > 0
        with without_table():
            plain = Simulation(workload, shape, policy=policy)
            plain.advance()
            assert len(scratch_of(plain, "free_cores")) == 0
        assert with_table.result().placements.equals(plain.result().placements)


def test_the_table_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a long queue it is there, and holds what is free on each node."""
    simulation = Simulation(
        crowded(250, 1), Cluster.model_validate(CLUSTERS["cores"]), policy="fcfs+conservative"
    )
    simulation.advance(150)
    rooms, sums = scratch_of(simulation, "rooms")[0], scratch_of(simulation, "sums")
    assert rooms["table"] == 1
    rows = sums["cells"][: rooms["sums"]]
    assert sorted(rows) == list(range(len(rows)))
    free = scratch_of(simulation, "free_cores")[rows]
    assert (free >= 0).all()
    assert (free.sum(1) == sums["cores"][: rooms["sums"]]).all()
