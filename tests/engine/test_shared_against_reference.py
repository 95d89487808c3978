"""Nodes that jobs share: the engine against the plain reference, job by job and node by node."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Workload
from tests import strategies
from tests.engine.test_against_reference import ORDERINGS, cases, compared, name_of
from tests.examples import examples

BACKFILLS: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "easy"},
    {"backfill": "easy", "reservations": 3, "candidates": "smallest"},
    {"backfill": "conservative"},
]


@pytest.mark.parametrize("policy", BACKFILLS, ids=name_of)
@settings(max_examples=examples(100))
@given(
    case=cases(
        strategies.shared_clusters(),
        partial(strategies.shared_workloads, max_jobs=20),
        ("fcfs", "sjf", "wfp", "largest", "fairshare", "adaptive"),
        # Here `spread` is written down to the single node, and goes with outages.
        lambda cluster: strategies.rules(),
    )
)
def test_jobs_start_when_and_where_the_rules_say(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    simulation, reference = compared(policy=policy, **case)
    workload = case["workload"]
    placed = simulation.result().placements
    assert placed is not None
    where: dict[Any, list[int]] = {}
    last = {workload.job_id[job.row]: job.start_ms / 1000 for job in reference}
    for job_id, node, start_s in placed.select("job_id", "node", "start_s").rows():
        if start_s == last[job_id]:
            where.setdefault(job_id, []).append(node)
    for job in reference:
        if job.start_ms >= 0:
            assert sorted(where[workload.job_id[job.row]]) == list(job.nodes), workload.job_id[
                job.row
            ]


@pytest.mark.parametrize("policy", BACKFILLS, ids=name_of)
@settings(max_examples=examples(60))
@given(
    workload=strategies.crowded_workloads(),
    nodes=st.integers(1, 3),
    placement=st.sampled_from(("first-fit", "best-fit", "spread")),
)
def test_crowded_nodes(
    policy: dict[str, Any], workload: Workload, nodes: int, placement: str
) -> None:
    """Several jobs that pass in one pass share what is promised."""
    group = {"name": "a", "count": nodes, "cores": 8, "memory_gb": 16}
    cluster = Cluster.model_validate({"nodes": [group]})
    compared(workload, cluster, ORDERINGS["fcfs"], policy, placement=placement)
