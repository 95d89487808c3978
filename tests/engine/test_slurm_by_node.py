"""Slurm's rule with reservations of particular nodes, held against the plain reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from hpctwin import Cluster, Simulation, Workload
from tests import strategies
from tests.engine.test_against_reference import ORDERINGS, SLURM, cases, compared, name_of
from tests.examples import examples
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
