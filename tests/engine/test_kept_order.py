"""Slurm's looks by an order that is kept from pass to pass give what scoring all that wait gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from hpctwin import Cluster, Simulation, Workload
from hpctwin.policies import formula, make_policy
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import ORDERINGS, SLURM, compared
from tests.engine.test_race import CHANGING, NOT, crowded, racing, simulated
from tests.examples import each

MEETING = {
    **CHANGING,
    "lines that meet often": formula("nodes * 100 - wait * nodes / walltime"),
    "steps": formula("floor(nodes / 4) - min(wait / 3600, 1)"),
    "nothing known": formula("-nodes * sqrt(wait)"),
}
RULES: list[dict[str, Any]] = [
    {"backfill": "slurm"},
    {
        "backfill": "slurm",
        "settings": {
            "default_queue_depth": 7, "sched_interval": 600, "sched_min_interval": 50,
            "bf_interval": 120, "bf_max_job_test": 30, "bf_max_job_start": 3,
        },
    },
]  # fmt: skip


@pytest.mark.parametrize("rules", RULES, ids=["as it is", "less often"])
@pytest.mark.parametrize("order", sorted(MEETING))
def test_jobs_start_identically_with_and_without_a_kept_order(
    order: str, rules: dict[str, Any]
) -> None:
    policy = make_policy(MEETING[order], **rules)
    workload = crowded(len(order))
    stops = [700.0, 1500.0, 1501.0, 4000.0, None]
    assert (
        simulated(workload, policy, (NOT, 4), stops)[0]
        == simulated(workload, policy, (NOT, NOT), stops)[0]
    )


@pytest.mark.parametrize("order", ["wfp", "multifactor", "lines that meet often"])
def test_a_requeued_or_removed_job_is_in_the_queue_once(order: str) -> None:
    outages = [{"node": n, "start": 200 + 310 * n, "duration": 900} for n in range(20)]
    cluster = Cluster.model_validate(
        {
            "nodes": [{"name": "all", "count": 32}],
            "failures": {"outages": outages, "on_failure": "requeue"},
        }
    )
    policy = make_policy(MEETING[order], "slurm", settings={"default_queue_depth": 5})
    found = []
    for lines in (4, NOT):
        with racing(NOT, lines):
            simulation = Simulation(crowded(3), cluster, policy)
            simulation.advance(2500.0)
            fork = simulation.fork()
            for one in (simulation, fork):
                one.advance()
                found.append(one.state["state"]["start"].tolist())
    assert simulation.state["state"]["requeues"].max() > 0
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize("order", ["wfp", "multifactor", "fairshare", "formula", "adaptive"])
@settings(max_examples=examples(40))
@given(workload=strategies.simple_workloads())
@each("policy", SLURM)
def test_jobs_start_as_in_the_reference(
    order: str, policy: dict[str, Any], workload: Workload
) -> None:
    with racing(NOT, 1):
        compared(workload, Cluster.uniform(nodes=8), ORDERINGS[order], policy)
