"""Nodes that jobs share: the engine against the plain reference, job by job and node by node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.engine.test_against_reference import ORDERINGS, compared, name_of
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
@given(data=st.data())
def test_jobs_start_when_and_where_the_rules_say(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    """Groups, partitions, resources, maintenance, failures, dependencies, cancellations, predictions."""
    cluster = data.draw(strategies.shared_clusters())
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=20))
    rules = data.draw(strategies.rules())
    options = {name: rules[name] for name in ("overrun", "on_dependency_failure")}
    options["placement"] = rules["placement"].replace("_", "-")
    options["expected_ms"] = data.draw(strategies.expectations(workload))
    order = data.draw(st.sampled_from(["fcfs", "sjf", "wfp", "largest", "fairshare", "adaptive"]))
    simulation, reference = compared(workload, cluster, ORDERINGS[order], policy, **options)
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
