"""Nodes that jobs share: the engine against the plain reference, job by job and node by node."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, make_policy
from hpctwin.policies import find_placement
from hpctwin.simulation.lowering.capacity import facts_of
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import ORDERINGS, cases, compared, name_of
from tests.reference import ReferenceJob, simulate_reference
from tests.reference.jobs import jobs_of

BACKFILLS: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "easy"},
    {"backfill": "easy", "reservations": 3, "candidates": "smallest"},
    {"backfill": "conservative"},
    {"backfill": "pack", "settings": {"patience": 20}},
    {"backfill": "pack", "settings": {"depth": 3, "patience": 0}},
    {"backfill": "pbs"},
    {
        "backfill": "pbs",
        "settings": {"strict_ordering": True, "backfill_depth": 2, "scheduler_iteration": 5},
    },
    {
        "backfill": "pbs",
        "settings": {"strict_ordering": True, "backfill_depth": 0, "round_robin": True},
    },
]
SLURM: dict[str, Any] = {
    "backfill": "slurm",
    "settings": {
        "default_queue_depth": 3,
        "sched_interval": 8,
        "batch_sched_delay": 2,
        "bf_interval": 4,
        "bf_resolution": 3,
        "bf_window": 20,
        "bf_max_job_test": 5,
        "bf_max_job_user": 2,
    },
}
ROUNDED_DOWN: dict[str, Any] = {
    "backfill": "slurm",
    "settings": {
        "batch_sched_delay": 0,
        "bf_interval": 1,
        "bf_resolution": 3,
        "bf_round_up": False,
        "bf_job_part_count_reserve": 2,
        "bf_licenses": True,
    },
}
EVERY = [*BACKFILLS, SLURM, ROUNDED_DOWN]


def compared_on_nodes(*case: Any, **more: Any) -> tuple[Simulation, list[ReferenceJob]]:
    """As `compared`, and jobs ran where the reference says."""
    simulation, reference = compared(*case, **more)
    assert where_they_ran(simulation, reference) == {
        job.row: list(job.nodes) for job in began(reference)
    }
    return simulation, reference


def began(reference: list[Any]) -> list[Any]:
    """The jobs that have begun, and did not lose their nodes since: of others it has what they held last."""
    return [job for job in reference if job.start_ms >= 0]


def where_they_ran(simulation: Any, reference: Any) -> dict[int, list[int]]:
    """The nodes of the last start of each job, by row."""
    placed = simulation.result().placements
    row_of = {job: row for row, job in enumerate(simulation.workload.job_id.tolist())}
    start_of = {job.row: job.start_ms / 1000 for job in reference}
    where: dict[int, list[int]] = {}
    for job, node, start_s in placed.select("job_id", "node", "start_s").rows():
        if start_s == start_of[row_of[job]]:
            where.setdefault(row_of[job], []).append(node)
    return {row: sorted(nodes) for row, nodes in where.items()}


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(100))
@given(
    case=cases(
        strategies.shared_clusters(cleanup=True),
        partial(strategies.shared_workloads, max_jobs=20),
        ("fcfs", "sjf", "wfp", "largest", "fairshare", "adaptive"),
        # Here `spread` is written down to the single node, and goes with outages.
        lambda cluster: strategies.rules(),
    )
)
def test_jobs_start_when_and_where_the_rules_say(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    compared_on_nodes(policy=policy, **case)


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(60))
@given(
    case=cases(
        strategies.shared_clusters(cleanup=True),
        partial(strategies.shared_workloads, max_jobs=20, owners=True),
        ("fcfs", "sjf"),
        lambda cluster: strategies.rules(),
    )
)
def test_some_jobs_share_nodes_with_those_of_their_user_or_account_only(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    compared_on_nodes(policy=policy, **case)


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(60))
@given(
    case=cases(
        strategies.shared_clusters(cleanup=True),
        partial(strategies.shared_workloads, max_jobs=15, several=True),
        ("fcfs", "sjf", "wfp", "fairshare"),
        lambda cluster: strategies.rules(),
    )
)
def test_tasks_of_several_kinds_are_placed_one_kind_after_the_other(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    compared_on_nodes(policy=policy, **case)


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_tasks_are_placed_on_nodes_of_one_group_if_a_job_asks_so(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True).flatmap(strategies.racked))
    several = data.draw(st.booleans())
    jobs = strategies.shared_workloads(cluster, max_jobs=15, several=several, grouped=True)
    placement = data.draw(st.sampled_from(("first-fit", "best-fit", "spread", "round-robin")))
    compared_on_nodes(data.draw(jobs), cluster, ORDERINGS["fcfs"], policy, placement=placement)


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_jobs_to_be_spread_use_as_many_nodes_as_they_can(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True).flatmap(strategies.racked))
    asked = {name: data.draw(st.booleans()) for name in ("grouped", "owners")}
    jobs = strategies.shared_workloads(cluster, max_jobs=20, spread=True, **asked)
    placement = data.draw(st.sampled_from(("first-fit", "best-fit", "spread", "tightest-run")))
    compared_on_nodes(data.draw(jobs), cluster, ORDERINGS["fcfs"], policy, placement=placement)


OFTEN = (
    "first-fit", "best-fit", "spread", "round-robin", "fragmentation", "tightest-run", "random",
)  # fmt: skip


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_jobs_get_what_they_ask_of_the_consumables_of_nodes(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    cluster = data.draw(strategies.shared_clusters().flatmap(strategies.stocked))
    what = {name: data.draw(st.booleans()) for name in ("several", "owners")}
    jobs = strategies.shared_workloads(cluster, max_jobs=15, **what)
    order = ORDERINGS[data.draw(st.sampled_from(("fcfs", "wfp", "fairshare")))]
    placement = data.draw(st.sampled_from(OFTEN))
    compared_on_nodes(data.draw(jobs), cluster, order, policy, placement=placement)


def gpus_had(simulation: Simulation, reference: list[Any]) -> dict[int, list[tuple[Any, ...]]]:
    """Of which GPU each job has had what since it began last, by its row."""
    shares = simulation.result().gpu_shares
    if shares is None:
        return {}
    columns = pl.col("node", "gpu", "share")
    had = {}
    for job in began(reference):
        of_job = pl.col("job_id") == simulation.workload.job_id[job.row]
        since = pl.col("start_s") == job.start_ms / 1000
        had[job.row] = shares.filter(of_job & since).select(columns).rows()
    return {row: gpus for row, gpus in had.items() if gpus}


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_parts_of_gpus_are_placed_on_single_gpus_as_the_rules_say(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True).flatmap(strategies.with_gpus))
    what = {name: data.draw(st.booleans()) for name in ("several", "owners")}
    jobs = strategies.shared_workloads(cluster, max_jobs=15, gpus=strategies.PARTS_OF_GPUS, **what)
    order = ORDERINGS[data.draw(st.sampled_from(("fcfs", "wfp")))]
    placement = data.draw(st.sampled_from(OFTEN))
    simulation, reference = compared_on_nodes(
        data.draw(jobs), cluster, order, policy, placement=placement
    )
    assert gpus_had(simulation, reference) == {
        job.row: list(job.gpus) for job in began(reference) if job.gpus
    }


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_gpus_of_several_types_on_one_node_are_had_as_the_rules_say(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    clusters = strategies.shared_clusters(cleanup=True).flatmap(strategies.with_types_of_gpus)
    cluster = data.draw(clusters)
    what = {name: data.draw(st.booleans()) for name in ("several", "owners")}
    gpus = data.draw(st.sampled_from(((1, 1, 2, 0), (1, 0.5, 0.25, 2, 1.5, 0))))
    jobs = strategies.typed_workloads(cluster, gpus=gpus, max_jobs=15, **what)
    order = ORDERINGS[data.draw(st.sampled_from(("fcfs", "wfp")))]
    placement = data.draw(st.sampled_from(OFTEN))
    simulation, reference = compared_on_nodes(
        data.draw(jobs), cluster, order, policy, placement=placement
    )
    assert gpus_had(simulation, reference) == {
        job.row: list(job.gpus) for job in began(reference) if job.gpus
    }


PLACEMENTS = (
    "weight", "round-robin", "contiguous", "fewest-switches", "fragmentation", "tightest-run", "whole-blocks",
    "communication-aware", "random",
)  # fmt: skip
PLACED = [
    pytest.param(placement, policy, id=f"{placement}-{name_of(policy)}")
    for placement in PLACEMENTS
    for policy in ({"backfill": "easy"}, {"backfill": "conservative"}, ROUNDED_DOWN)
]


@pytest.mark.parametrize(("placement", "policy"), PLACED)
@settings(max_examples=examples(40))
@given(data=st.data(), several=st.booleans())
def test_each_placement_goes_through_nodes_as_the_rules_say(
    placement: str, policy: dict[str, Any], data: st.DataObject, several: bool
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True).flatmap(strategies.connected))
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=15, several=several))
    compared_on_nodes(workload, cluster, ORDERINGS["fcfs"], policy, placement=placement)


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(60))
@given(
    case=cases(
        strategies.shared_clusters(cleanup=True),
        partial(strategies.shared_workloads, max_jobs=20),
        ("fcfs", "wfp"),
        lambda cluster: strategies.rules(),
    ),
    seed=st.integers(0, 2**62),
)
def test_nodes_are_drawn_with_the_seed(
    policy: dict[str, Any], case: dict[str, Any], seed: int
) -> None:
    compared_on_nodes(policy=policy, **case | {"placement": "random"}, seed=seed)


@pytest.mark.parametrize("policy", [{"backfill": "easy"}, {"backfill": "conservative"}, SLURM])
@settings(max_examples=examples(40))
@given(data=st.data(), several=st.booleans())
def test_only_jobs_that_communicate_get_whole_blocks(
    policy: dict[str, Any], data: st.DataObject, several: bool
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True).flatmap(strategies.connected))
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=15, several=several))
    size = len(workload)
    share = data.draw(
        st.lists(st.sampled_from((0.0, 0.09, 0.1, 1.0)), min_size=size, max_size=size)
    )

    def communicating(*about: Any) -> Any:
        facts = facts_of(*about)
        facts["communication"] = share
        return facts

    def told(*about: Any) -> Any:
        jobs = jobs_of(*about)
        for job in jobs:
            job.view.communication = share[job.row]
        return jobs

    with (
        mock.patch("hpctwin.simulation.state.base.facts_of", communicating),
        mock.patch("tests.reference.simulate.jobs_of", told),
    ):
        compared_on_nodes(
            workload, cluster, ORDERINGS["fcfs"], policy, placement="communication-aware"
        )


WHOLE = ("weight", "round-robin", "tightest-run", "fragmentation")
"""Placements that are defined on shared nodes only."""


def where_whole_jobs_ran(simulation: Simulation, reference: list[Any]) -> dict[int, list[int]]:
    """The nodes of the last start of each job, by row, from the node map."""
    node_map = simulation.result().node_map
    assert node_map is not None
    row_of = {job: row for row, job in enumerate(simulation.workload.job_id.tolist())}
    where: dict[int, list[int]] = {}
    for job, start_s, first, count in node_map.select(
        "job_id", "start_s", "first_node", "count"
    ).rows():
        if start_s == reference[row_of[job]].start_ms / 1000:
            where.setdefault(row_of[job], []).extend(range(first, first + count))
    return {row: sorted(nodes) for row, nodes in where.items()}


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
@settings(max_examples=examples(100))
@given(
    case=cases(
        strategies.clusters(max_nodes=6, cleanup=True).flatmap(strategies.connected),
        partial(strategies.workloads, max_jobs=20),
        ("fcfs", "sjf", "wfp", "largest", "fairshare", "adaptive"),
    ),
    placement=st.sampled_from(WHOLE),
)
def test_whole_nodes_are_planned_as_shared_ones_by_placements_of_these(
    policy: dict[str, Any], case: dict[str, Any], placement: str
) -> None:
    simulation, reference = compared(policy=policy, **case | {"placement": placement})
    assert not simulation.workload.shares_nodes
    assert where_whole_jobs_ran(simulation, reference) == {
        job.row: list(job.nodes) for job in began(reference)
    }


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_parts_of_gpus_that_are_not_modelled_strand_nothing(backfill: str) -> None:
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 3, "cores": 8}]})
    tasks = [1, 1, 1, 1, 3, 1]
    workload = Workload.build(
        submit_s=[0] * 6,
        runtime_s=[1] * 6,
        nodes=[1] * 6,
        chunks={"tasks": tasks, "gpus_per_task": [0, 0, 0, 0, 0.25, 0]},
    )
    simulation, reference = compared(
        workload, cluster, ORDERINGS["fcfs"], {"backfill": backfill}, placement="fragmentation"
    )
    assert where_they_ran(simulation, reference) == {job.row: list(job.nodes) for job in reference}


def leaves_most_memory(now: float, job: Any, node: Any) -> float:
    """A placement of one's own."""
    return node.cores + 0.25 * node.gpus - node.memory_gb + 0.125 * node.number * job.nodes


LEAVES_MOST_MEMORY = find_placement(leaves_most_memory)  # compiled once for all examples


@settings(max_examples=examples(60))
@given(data=st.data(), backfill=st.sampled_from(("easy", "conservative", "first-fit")))
def test_a_custom_function_scores_shared_nodes_by_their_free_resources(
    data: st.DataObject, backfill: str
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True))
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=15))
    policy = make_policy("fcfs", backfill, placement=LEAVES_MOST_MEMORY)
    simulation = Simulation(workload, cluster, policy)
    simulation.run()
    reference = simulate_reference(
        workload, cluster, backfill=backfill, placement="scored", place=leaves_most_memory
    )
    assert where_they_ran(simulation, reference) == {
        job.row: list(job.nodes) for job in reference if job.start_ms >= 0
    }
    assert [job.start_ms for job in reference] == simulation.column("start").tolist()


def test_a_job_starts_on_the_nodes_it_was_promised_though_another_scores_less_by_then() -> None:
    group = {"name": "a", "count": 2, "cores": 8, "memory_gb": 16}
    closed = [{"start": 0, "end": 8}]
    cluster = Cluster.model_validate({"nodes": [group], "reservations": closed})
    chunks = {"tasks": [1, 1, 3], "cores_per_task": [1, 0.5, 1], "memory_gb_per_task": [0, 4, 0]}
    workload = Workload.build(submit_s=[0] * 3, runtime_s=[5] * 3, nodes=[1] * 3, chunks=chunks)
    simulation = Simulation(
        workload, cluster, make_policy("fcfs", "conservative", placement=LEAVES_MOST_MEMORY)
    )
    simulation.run()
    reference = simulate_reference(
        workload, cluster, backfill="conservative", placement="scored", place=leaves_most_memory
    )
    assert where_they_ran(simulation, reference) == {0: [0], 1: [0], 2: [1]}
    assert [job.nodes for job in reference] == [(0,), (0,), (1,)]


@pytest.mark.parametrize("policy", EVERY, ids=name_of)
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


DEEP = [
    {"backfill": "conservative"},
    {"backfill": "easy", "reservations": 20},
    {"backfill": "pbs", "settings": {"strict_ordering": True, "backfill_depth": 30}},
    {
        "backfill": "slurm",
        "settings": {"batch_sched_delay": 0, "bf_interval": 1, "bf_resolution": 3},
    },
]


@pytest.mark.parametrize("policy", DEEP, ids=name_of)
@settings(max_examples=examples(30))
@given(
    workload=st.booleans().flatmap(
        lambda owners: strategies.crowded_workloads(max_jobs=40, min_jobs=25, owners=owners)
    ),
    nodes=st.integers(2, 5),
    order=st.sampled_from(("fcfs", "sjf")),
)
def test_plans_of_many_jobs(
    policy: dict[str, Any], workload: Workload, nodes: int, order: str
) -> None:
    """What all nodes have together, and what stays scarce on each, says where a start need not be sought."""
    group = {"name": "a", "count": nodes, "cores": 8, "memory_gb": 16}
    cluster = Cluster.model_validate({"nodes": [group]})
    compared_on_nodes(workload, cluster, ORDERINGS[order], policy)


@settings(max_examples=examples(90))
@given(data=st.data(), nodes=st.integers(1, 3))
def test_a_job_that_waits_for_long_starts_where_capacity_is_free_first(
    data: st.DataObject, nodes: int
) -> None:
    """When each node has room for it is kept, and reckoned anew where somebody came or went."""
    workload = data.draw(strategies.passed_workloads(nodes))
    group = {"name": "a", "count": nodes, "cores": 8}
    cluster = Cluster.model_validate({"nodes": [group]})
    simulation, reference = compared(workload, cluster, ORDERINGS["fcfs"], {"backfill": "easy"})
    assert where_they_ran(simulation, reference) == {job.row: list(job.nodes) for job in reference}
