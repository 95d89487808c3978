"""Slurm's rule with reservations of particular nodes, held against the plain reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hpctwin import Cluster, Simulation, Workload, generate
from hpctwin.simulation.running.incremental import OpenSimulation
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import ORDERINGS, SLURM, cases, compared, name_of
from tests.reference import ReferenceJob

ROUNDED_DOWN = {
    "backfill": "slurm",
    "settings": {"bf_interval": 1, "bf_resolution": 3, "bf_round_up": False, "bf_window": 40},
}
RULES = [*SLURM, ROUNDED_DOWN]


def last_nodes(simulation: Simulation, jobs: list[ReferenceJob]) -> dict[int, list[int]]:
    """The nodes on which each job ran the last time it started, by row."""
    where = simulation.result().node_map
    assert where is not None
    found: dict[int, list[int]] = {}
    rows = {job_id: row for row, job_id in enumerate(simulation.workload.job_id.tolist())}
    for one in where.to_dicts():
        row = rows[one["job_id"]]
        if jobs[row].start_ms == round(one["start_s"] * 1000):
            first = one["first_node"]
            found.setdefault(row, []).extend(range(first, first + one["count"]))
    return {row: sorted(nodes) for row, nodes in found.items()}


@pytest.mark.parametrize("policy", RULES, ids=name_of)
@pytest.mark.parametrize("order", ["fcfs", "wfp"])
@settings(max_examples=examples(40))
@given(workload=strategies.simple_workloads())
def test_jobs_start_when_and_where_the_reference_says(
    order: str, policy: dict[str, Any], workload: Workload
) -> None:
    simulation, reference = compared(
        workload, Cluster.uniform(nodes=8), ORDERINGS[order], policy, placement="contiguous"
    )
    assert last_nodes(simulation, reference) == {
        job.row: sorted(job.nodes) for job in reference if job.start_ms >= 0
    }


@pytest.mark.parametrize("policy", RULES, ids=name_of)
@settings(max_examples=examples(100))
@given(
    case=cases(
        strategies.clusters(cleanup=True),
        strategies.workloads,
        ("fcfs", "sjf", "wfp", "fairshare", "chain"),
    )
)
def test_everything_at_once(policy: dict[str, Any], case: dict[str, Any]) -> None:
    case["workload"] = case["workload"].replace(resources={})
    compared(policy=policy, **{**case, "placement": "contiguous"})


POLICY = "fcfs+slurm:bf_interval=1s,bf_resolution=1s@contiguous"


def test_saved_and_forked_simulations_continue_identically(tmp_path: Path) -> None:
    jobs = generate("poisson", jobs=120, nodes=16, seed=3)
    whole = Simulation(jobs, 16, POLICY)
    whole.advance()
    half = Simulation(jobs, 16, POLICY)
    half.advance(float(jobs.submit_ms[60]) / 1000)
    half.save(tmp_path / "half")
    fork, loaded = half.fork(), Simulation.load(tmp_path / "half")
    for one in (half, fork, loaded):
        one.advance()
        assert (one.column("start") == whole.column("start")).all()


def test_a_forecast_that_knows_all_comes_true() -> None:
    jobs = generate("poisson", jobs=120, nodes=16, seed=3)
    opened = OpenSimulation(Simulation(jobs, 16, POLICY))
    submit_ms = jobs.submit_ms[:60].tolist()
    for row, at_ms in enumerate(submit_ms):
        opened.arrive(row, at_ms)
    now_ms = submit_ms[-1]
    opened.advance_before(now_ms)
    waiting = np.concatenate([opened.waiting(), opened.on_their_way()]).astype(np.int64)
    assert len(waiting) > 5
    start_ms, _ = opened.forecast(now_ms + 1, np.zeros(0, np.int64), waiting)
    opened.finish()
    assert (start_ms == opened.simulation.column("start")[waiting]).all()
