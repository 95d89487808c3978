"""Conservative backfilling by a plan that is kept gives what a plan made anew in each pass gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.state import array_allocation
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import ORDERINGS, compared


def crowded(seed: int, jobs: int = 150) -> Workload:
    """Jobs that end early, late or not at all as planned; some are cancelled while they wait."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 900, jobs))
    runtime = rng.integers(0, 20, jobs) * 20
    cancel = np.where(rng.random(jobs) < 0.1, submit + rng.integers(0, 4000, jobs), -1)
    return Workload.build(
        submit_s=submit,
        runtime_s=runtime,
        walltime_s=np.maximum(runtime, 1) * rng.choice([1, 1, 2, 5], jobs),
        nodes=rng.choice([1, 2, 3, 4, 8, 16, 30], jobs),
        cancel_s=cancel,
    )


def starts(simulation: Simulation, *, anew: bool) -> list[int]:
    """When all jobs start; with all that is not state forgotten after each instant, or not."""
    while simulation.advance(instants=1) != "done" if anew else simulation.advance() != "done":
        simulation.make_room()
    found: list[int] = simulation.state["state"]["start"].tolist()
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", ["fcfs", "wfp", "sjf", "fairshare"])
def test_a_kept_plan_equals_one_made_from_scratch(order: str, seed: int) -> None:
    workload, cluster = crowded(seed), Cluster.uniform(nodes=32)
    policy = f"{order}+conservative"
    kept = Simulation(workload, cluster, policy=policy)
    anew = Simulation(workload, cluster, policy=policy)
    assert starts(kept, anew=False) == starts(anew, anew=True)


@pytest.mark.parametrize("holes", [1, 3])
def test_starts_are_the_same_however_many_holes_of_the_plan_are_known(
    holes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, cluster = crowded(7, 500), Cluster.uniform(nodes=64)
    found = starts(Simulation(workload, cluster, policy="fcfs+conservative"), anew=False)
    monkeypatch.setattr(array_allocation, "HOLES", holes)
    array_allocation.scratch_piece.cache_clear()
    try:
        few = starts(Simulation(workload, cluster, policy="fcfs+conservative"), anew=False)
    finally:
        array_allocation.scratch_piece.cache_clear()
    assert found == few


@pytest.mark.parametrize("seed", range(3))
def test_overdue_jobs_and_maintenance_rebuild_the_plan(seed: int) -> None:
    workload = crowded(seed)
    rng = np.random.default_rng(seed)
    expected = workload.walltime_ms / 1000 * rng.choice([0.3, 1.0], len(workload))
    cluster = Cluster.model_validate(
        {
            "nodes": [{"name": "all", "count": 32}],
            "reservations": [{"start": 2000, "end": 2900, "groups": ["all"]}],
        }
    )
    found = []
    for anew in (False, True):
        simulation = Simulation(
            workload, cluster, policy="fcfs+conservative", expected_s=expected, overrun="continue"
        )
        found.append(starts(simulation, anew=anew))
    assert found[0] == found[1]


@settings(max_examples=examples(60))
@given(workload=strategies.simple_workloads(), order=st.sampled_from(["fcfs", "wfp", "sjf"]))
def test_a_kept_plan_is_what_the_reference_does(workload: Workload, order: str) -> None:
    compared(workload, Cluster.uniform(nodes=8), ORDERINGS[order], {"backfill": "conservative"})
