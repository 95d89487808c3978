"""The engine against the plain reference simulator, job by job, on random workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.engine.state import layout
from hpctwin.policies import (
    BUILT_IN,
    Ordering,
    adaptive,
    formula,
    make_policy,
    multifactor,
    pas,
)
from tests import strategies
from tests.engine.examples import examples
from tests.reference import ReferenceJob, simulate_reference

# Fair-share factors are rounded, and multifactor goes without: equal use by two users is equal in theory
# only, and which of them rounding puts first is not what is compared here.
ORDERINGS = {
    **BUILT_IN,
    "fairshare": formula("floor(0.5 - fairshare * 1000000)"),
    "multifactor": multifactor(size=700, partition=300, qos=200, fairshare=0),
    "formula": formula("nodes - wait/walltime"),
    "chain": formula("nodes - chain"),
    # As above: the power of a fair-share factor is rounded.
    "adaptive": adaptive(fairshare=0),
    "pas": pas(),
}
SLURM: list[dict[str, Any]] = [
    {"backfill": "slurm"},
    {
        "backfill": "slurm",
        "settings": {"bf_interval": 2, "bf_window": 20, "bf_resolution": 4, "bf_max_job_test": 3},
    },
    {
        "backfill": "slurm",
        "settings": {
            "default_queue_depth": 2,
            "sched_interval": 3,
            "sched_min_interval": 1,
            "batch_sched_delay": 2,
            "bf_interval": 5,
            "bf_max_job_user": 1,
            "bf_max_job_start": 1,
            "bf_min_age_reserve": 4,
        },
    },
    {
        "backfill": "slurm",
        "settings": {
            "partition_job_depth": 2,
            "batch_sched_delay": 0,
            "bf_interval": 1,
            "bf_resolution": 3,
            "bf_round_up": False,
            "bf_job_part_count_reserve": 1,
            "bf_licenses": True,
        },
    },
]
PBS: list[dict[str, Any]] = [
    {"backfill": "pbs"},
    {"backfill": "pbs", "settings": {"strict_ordering": True, "round_robin": True}},
    {
        "backfill": "pbs",
        "settings": {"strict_ordering": True, "backfill_depth": 0, "scheduler_iteration": 5},
    },
    {
        "backfill": "pbs",
        "settings": {
            "strict_ordering": True,
            "backfill_depth": 3,
            "by_queue": False,
            "scheduler_iteration": 2,
        },
    },
]
BACKFILLS: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "easy"},
    {"backfill": "easy", "reservations": 2},
    {"backfill": "easy", "reservations": 3, "candidates": "smallest"},
    {"backfill": "easy", "candidates": "wfp"},
    {"backfill": "conservative"},
    {"backfill": "pack", "settings": {"patience": 20}},
    {"backfill": "pack", "settings": {"depth": 3, "patience": 0}},
    {"backfill": "pack"},
    *SLURM,
    *PBS,
]


def name_of(policy: dict[str, Any]) -> str:
    return "-".join(str(value) for value in policy.values() if str(value))


def as_reference(order: Ordering | None) -> Any:
    """The same compiled function, so that rounding is the same too."""
    if order is None:
        return None
    return lambda now, job: order.compiled(
        now, JobView(*(getattr(job, name) for name in JobView._fields))
    )


def compared(
    workload: Workload, cluster: Cluster, order: Ordering, policy: dict[str, Any], **options: Any
) -> tuple[Simulation, list[ReferenceJob]]:
    placement = options.pop("placement", "first-fit")
    chosen = make_policy(order, **policy, placement=placement)
    expected = options.pop("expected_ms", None)
    simulation = Simulation(
        workload,
        cluster,
        policy=chosen,
        expected_s=None if expected is None else [ms / 1000 for ms in expected],
        **options,
    )
    simulation.advance()
    reference = simulate_reference(
        workload,
        cluster,
        order=as_reference(chosen.order),
        backfill=chosen.backfill,
        reservations=chosen.setting("reservations") or 1,
        candidate_order=as_reference(chosen.candidates),
        placement=placement.replace("-", "_"),
        depth=chosen.setting("depth") or 0,
        patience_ms=round((chosen.setting("patience") or 0) * 1000),
        settings=chosen.numbers(),
        expected_ms=expected,
        **options,
    )
    state = simulation.state["state"]
    names = ("state", "eligible", "start", "end", "requeues")
    for row, job in enumerate(reference):
        flag = int(state["phase"][row])
        eligible, start, end = (int(state[name][row]) for name in names[1:4])
        mine = (
            0 if flag == layout.UNSUBMITTED else flag,
            eligible,
            start,
            end if flag >= layout.COMPLETED else -1,
            int(state["requeues"][row]),
        )
        ended = int(job.state) >= layout.COMPLETED
        theirs = (
            int(job.state),
            job.eligible_ms,
            job.start_ms,
            job.end_ms if ended else -1,
            job.requeues,
        )
        assert dict(zip(names, mine, strict=True)) == dict(zip(names, theirs, strict=True)), (
            f"job {workload.job_id[row]} of {[workload.job_id[i] for i in range(len(workload))]}"
        )
    return simulation, reference


@pytest.mark.parametrize("policy", BACKFILLS, ids=name_of)
@pytest.mark.parametrize("order", sorted(ORDERINGS))
@settings(max_examples=examples(15))
@given(workload=strategies.simple_workloads())
def test_every_ordering_and_backfill_on_a_uniform_cluster(
    order: str, policy: dict[str, Any], workload: Workload
) -> None:
    compared(workload, Cluster.uniform(nodes=8), ORDERINGS[order], policy)


@st.composite
def cases(
    draw: st.DrawFn,
    clusters: st.SearchStrategy[Cluster],
    workloads: Callable[[Cluster], st.SearchStrategy[Workload]],
    orders: Sequence[str],
    rules: Callable[[Cluster], st.SearchStrategy[dict[str, Any]]] = strategies.rules,
) -> dict[str, Any]:
    """Groups, partitions, resources, maintenance, failures, dependencies, cancellations, predictions."""
    cluster = draw(clusters)
    workload = draw(workloads(cluster))
    chosen = draw(rules(cluster))
    return {
        "workload": workload,
        "cluster": cluster,
        **{name: chosen[name] for name in ("overrun", "on_dependency_failure")},
        "placement": chosen["placement"].replace("_", "-"),
        "expected_ms": draw(strategies.expectations(workload)),
        "order": ORDERINGS[draw(st.sampled_from(orders))],
    }


@pytest.mark.parametrize("policy", BACKFILLS, ids=name_of)
@settings(max_examples=examples(100))
@given(
    case=cases(
        strategies.clusters(cleanup=True),
        strategies.workloads,
        ("fcfs", "sjf", "wfp", "largest", "fairshare", "multifactor", "chain", "adaptive"),
    )
)
def test_everything_at_once(policy: dict[str, Any], case: dict[str, Any]) -> None:
    compared(policy=policy, **case)
