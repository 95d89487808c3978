"""Suspended jobs: cases worked out by hand, and the engine against the plain reference."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation
from hpctwin.engine.state import layout
from hpctwin.model import State
from tests import strategies
from tests.by_hand import cluster_of, ends, labels, starts, states
from tests.engine.examples import examples
from tests.engine.test_against_reference import name_of
from tests.engine.test_preemption import (
    BACKFILLS,
    GROUPS,
    ORDERS,
    POLICIES,
    agree,
    busy,
    case_of,
    of_tiers,
    outcome,
    preemptions,
    said,
    sharing_tasks,
    simulations,
    tiers,
    with_preemption,
    with_tasks,
)
from tests.limit_strategies import slowed


def suspending(nodes: int = 4, **preemption: Any) -> Cluster:
    """As `tiers`; who is preempted is suspended."""
    return tiers(nodes, mode="suspend", **preemption)


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_suspended_job_continues_when_the_other_ends(run, backfill):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 10, 10, 3, "high"))
    result = run(workload, suspending(), backfill=backfill)
    assert starts(result) == [0, 5]
    assert ends(result) == [30, 15]
    assert states(result) == [State.COMPLETED] * 2
    assert [(job.requeues, job.preemptions, job.in_vain_ms) for job in result] == [
        (0, 1, 0),
        (0, 0, 0),
    ]


def test_its_walltime_stands_still_too(run):
    workload = of_tiers((0, 30, 20, 4, "low"), (5, 10, 10, 1, "high"))
    result = run(workload, suspending())
    assert states(result) == [State.WALLTIME, State.COMPLETED]
    assert ends(result) == [30, 15]


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_kept_resources_belong_to_no_other_job_of_its_tier(run, backfill):
    # Three of its nodes are idle, until it has ended at 30.
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 10, 10, 1, "high"), (6, 1, 1, 1, "low"))
    assert starts(run(workload, suspending(), backfill=backfill)) == [0, 5, 30]


def test_another_of_a_higher_tier_takes_what_a_suspended_job_keeps(run):
    workload = of_tiers(
        (0, 20, 20, 4, "low"), (5, 10, 10, 1, "high"), (6, 20, 20, 2, "mid"), (7, 3, 3, 1, "high")
    )
    result = run(workload, suspending())
    assert starts(result) == [0, 5, 6, 7]
    # It goes on when the last of them has ended.
    assert ends(result) == [41, 15, 26, 10]
    assert [job.preemptions for job in result] == [1, 0, 0, 0]


def test_a_job_that_suspended_another_is_suspended_in_its_turn(run):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 20, 20, 4, "mid"), (10, 5, 5, 2, "high"))
    result = run(workload, suspending())
    assert starts(result) == [0, 5, 10]
    assert ends(result) == [45, 30, 15]


def test_only_jobs_on_needed_nodes_are_suspended(run):
    workload = of_tiers((0, 20, 20, 1, "low"), (0, 20, 20, 3, "low"), (5, 5, 5, 1, "high"))
    result = run(workload, suspending())
    assert [job.preemptions for job in result] == [1, 0, 0]
    assert ends(result) == [25, 20, 10]


def test_a_suspended_job_that_is_cancelled_leaves_its_nodes(run):
    workload = of_tiers(
        (0, 50, 50, 4, "low"), (5, 20, 20, 1, "high"), (6, 5, 5, 3, "low"), (6, 5, 5, 1, "low"),
        cancel_s=[8, -1, -1, -1],
    )  # fmt: skip
    result = run(workload, suspending())
    assert states(result)[0] == State.CANCELLED
    assert starts(result) == [0, 5, 8, 13]
    assert ends(result)[0] == 8


def failing_at(node: int, start: int, duration: int, then: str = "requeue", **preemption: Any):
    """As `suspending`, with a node that fails."""
    outage = {"node": node, "start": start, "duration": duration}
    failures = {"outages": [outage], "on_failure": then}
    content = suspending(**preemption).model_dump(exclude_unset=True)
    return Cluster.model_validate({**content, "failures": failures})


@pytest.mark.parametrize(
    ("node", "then", "said_of"),
    [
        # High is on node 0, and continues if another node of low fails.
        (3, "requeue", [(15, 35, State.COMPLETED, 1), (5, 15, State.COMPLETED, 0)]),
        (3, "fail", [(0, 8, State.NODE_FAILURE, 0), (5, 15, State.COMPLETED, 0)]),
        # Both are on node 0; high starts first, on node 1.
        (0, "requeue", [(18, 38, State.COMPLETED, 1), (8, 18, State.COMPLETED, 1)]),
        (0, "fail", [(0, 8, State.NODE_FAILURE, 0), (5, 8, State.NODE_FAILURE, 0)]),
    ],
)
def test_a_node_that_fails_ends_suspended_jobs_too(run, node, then, said_of):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 10, 10, 1, "high"))
    result = run(workload, failing_at(node, 8, 2, then))
    found = zip(
        starts(result), ends(result), states(result), (j.requeues for j in result), strict=True
    )
    assert list(found) == said_of
    assert [job.preemptions for job in result] == [1, 0]


def test_a_job_continues_if_the_job_that_suspended_it_loses_another_node(run):
    workload = of_tiers((0, 20, 20, 2, "low"), (5, 10, 10, 3, "high"))
    # High had nodes 0 to 2.
    result = run(workload, failing_at(2, 8, 30))
    assert starts(result) == [0, 8]
    assert [job.requeues for job in result] == [0, 1]
    # It takes nodes 0, 1 and 3 at once, and low is suspended again.
    assert ends(result) == [33, 18]
    assert [job.preemptions for job in result] == [2, 0]


def test_a_suspended_job_that_lost_a_node_continues_from_its_checkpoint(run):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 10, 10, 1, "high"))
    result = run(workload, failing_at(3, 8, 2, checkpoint=3))
    # Three of the five seconds that it ran are kept.
    assert starts(result) == [15, 5]
    assert ends(result) == [32, 15]


def test_only_the_nodes_of_jobs_that_have_ended_are_cleaned_up(run):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 10, 10, 3, "high"), (6, 1, 1, 4, "low"))
    result = run(workload, suspending().model_copy(update={"cleanup": 10.0}))
    # Low continues at 25, when high's nodes are clean.
    assert starts(result) == [0, 5, 50]
    assert ends(result) == [40, 15, 51]


def test_a_job_cancelled_while_suspended_leaves_no_cleanup_behind(run):
    workload = of_tiers(
        (0, 50, 50, 4, "low"), (5, 20, 20, 1, "high"), (6, 5, 5, 3, "low"), cancel_s=[8, -1, -1]
    )
    result = run(workload, suspending().model_copy(update={"cleanup": 10.0}))
    assert starts(result) == [0, 5, 8]


def test_one_tier_is_suspended_and_another_waits_again(run):
    workload = of_tiers((0, 20, 20, 2, "low"), (0, 20, 20, 2, "mid"), (5, 5, 5, 4, "high"))
    result = run(workload, suspending(mid={"mode": "requeue"}))
    assert [job.requeues for job in result] == [0, 1, 0]
    assert starts(result) == [0, 10, 5]
    assert ends(result) == [25, 30, 10]


def test_a_job_that_waits_again_leaves_its_nodes_to_the_jobs_below(run):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 20, 20, 3, "mid"), (7, 5, 5, 2, "high"))
    result = run(workload, suspending(mid={"mode": "requeue"}))
    # High takes the node that mid left and one of mid's; when it has ended, mid suspends low anew.
    assert starts(result) == [0, 12, 7]
    assert ends(result) == [47, 32, 12]
    assert [job.requeues for job in result] == [0, 1, 0]
    assert [job.preemptions for job in result] == [2, 1, 0]


def test_no_job_is_suspended_during_the_grace_of_another(run):
    workload = of_tiers((0, 50, 50, 2, "low"), (0, 50, 50, 2, "mid"), (5, 5, 5, 4, "high"))
    result = run(workload, suspending(mid={"mode": "requeue", "grace": 10}))
    assert starts(result)[2] == 15
    assert ends(result)[0] == 55


def test_by_qos_too(run):
    cluster = cluster_of(
        nodes=[{"name": "n", "count": 3}],
        qos={"high": 9, "low": 1},
        preemption={"qos": {"high": {"preempts": ["low"]}, "low": {"mode": "suspend"}}},
    )
    workload = of_tiers((0, 20, 20, 3, ""), (5, 5, 5, 1, "")).replace(qos=labels("low", "high"))
    result = run(workload, cluster)
    assert starts(result) == [0, 5]
    assert ends(result) == [25, 10]


def limiting(**limit: Any) -> Cluster:
    """As `suspending`, with a node more and a limit of the lowest tier."""
    content = suspending(5).model_dump(exclude_unset=True)
    return Cluster.model_validate({**content, "limits": [{"partitions": ["low"], **limit}]})


LONG = ((0, 600, 600, 4, "low"), (60, 660, 660, 2, "high"), (60, 300, 300, 1, "low"))
"""The first is suspended from 60 to 720, and ends at 1260."""


def test_what_a_suspended_job_has_left_of_its_minutes_goes_down_to_nothing(run):
    more = ((610, 60, 2460, 1, "low"), (611, 60, 2400, 1, "low"))
    result = run(of_tiers(*LONG, *more), limiting(minutes={"nodes": 40}))
    # 40 node-minutes are left at 0 and 32 at 120; from 600 on none are, and never less.
    assert [start if start >= 0 else None for start in starts(result)] == [0, 60, 120, None, 611]
    assert ends(result)[0] == 1260


def test_a_suspended_job_uses_minutes_of_a_safe_limit_also_after_its_walltime(run):
    more = ((719, 60, 600, 1, "low"), (719, 60, 480, 1, "low"))
    limit = {"used_minutes": {"nodes": 60}, "decays": False, "safe": True}
    result = run(of_tiers(*LONG, *more), limiting(**limit))
    # 47 and 5 node-minutes have been used at 719, and nothing is left of the walltimes.
    assert [start if start >= 0 else None for start in starts(result)] == [0, 60, 60, None, 719]


# --- against the reference -----------------------------------------------------------------------


suspensions = partial(
    preemptions,
    modes=("suspend",),
    of_classes=("suspend", "suspend", "requeue", "cancel", "off"),
)
"""What is said of preemption; jobs of some class are suspended."""


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(strategies.clusters(max_nodes=9, cleanup=True))
    workload = draw(strategies.workloads(cluster))
    return case_of(draw, workload, with_preemption(draw, cluster, suspensions))


@st.composite
def busy_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Many are suspended, some several times; some jobs are cancelled, and some nodes fail."""
    content = draw(suspensions(tiers()))
    of_classes = content.setdefault("partitions", {})
    for name, modes in (
        ("low", ("suspend", "suspend", "requeue")),
        ("mid", ("suspend", "requeue", "cancel")),
        ("high", (None,)),
    ):
        of_classes.setdefault(name, {})["mode"] = draw(st.sampled_from(modes))
    case = busy(draw, content, GROUPS[: draw(st.integers(1, 2))])
    cancel_s = strategies.numbers(draw, len(case["workload"]), -9, 40)
    cancelled = case["workload"].replace(cancel_ms=np.where(cancel_s > 20, 1000 * cancel_s, -1))
    return {**case, "workload": cancelled, "cluster": failing(draw, case["cluster"])}


def failing(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """The cluster, of which nodes may fail at whole seconds, also for no longer than a moment."""
    node, start = st.integers(0, cluster.node_count - 1), st.integers(0, 60)
    rows = st.lists(st.tuples(node, start, st.sampled_from((1, 5, 20))), max_size=4)
    outages = [dict(zip(("node", "start", "duration"), row, strict=True)) for row in draw(rows)]
    then = draw(st.sampled_from(("requeue", "requeue", "fail")))
    content = cluster.model_dump(exclude_unset=True)
    return Cluster.model_validate({**content, "failures": {"outages": outages, "on_failure": then}})


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(60))
@given(case=cases(), order=st.sampled_from(ORDERS))
def test_everything_at_once(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    simulation, reference = simulations(case, policy, order)
    simulation.advance()
    assert outcome(simulation) == said(reference)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(60))
@given(case=busy_cases(), order=st.sampled_from(ORDERS))
def test_on_a_busy_cluster(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    simulation, reference = simulations(case, policy, order)
    simulation.advance()
    assert outcome(simulation) == said(reference)


@st.composite
def crowded_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Few shared nodes, three tiers, and long jobs of the lowest; some jobs are cancelled."""
    return sharing_tasks(draw, draw(busy_cases()))


@st.composite
def timed(draw: st.DrawFn, cases: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """Longer jobs, under limits of minutes."""
    case = draw(cases)
    limits = []
    for _ in range(draw(st.integers(1, 2))):
        whose = draw(st.sampled_from(({"account": "root"}, {"partitions": ["low", "mid"]})))
        amount = {draw(st.sampled_from(("nodes", "cores"))): draw(st.sampled_from((2, 5, 12, 30)))}
        ways = {name: draw(st.booleans()) for name in ("safe", "decays")}
        limits.append(
            whose | draw(st.sampled_from(({"minutes": amount}, {"used_minutes": amount, **ways})))
        )
    content = case["cluster"].model_dump(exclude_unset=True)
    overrun = "terminate" if case["overrun"] == "continue" else case["overrun"]
    return case | {
        "workload": slowed(case["workload"], draw(st.sampled_from((3, 10, 40)))),
        "cluster": Cluster.model_validate({**content, "limits": limits}),
        "expected_ms": None,
        "overrun": overrun,
    }


@settings(max_examples=examples(60))
@given(
    case=st.one_of(busy_cases(), crowded_cases(), timed(busy_cases()), timed(crowded_cases())),
    stops=st.lists(st.integers(0, 60), max_size=4),
)
def test_a_stopped_forked_and_saved_run_continues_identically(
    case: dict[str, Any], stops: list[int]
) -> None:
    whole, _ = simulations(case, {"backfill": "easy"}, "fcfs")
    parts, _ = simulations(case, {"backfill": "easy"}, "fcfs")
    whole.advance()
    for stop in sorted(stops):
        parts.advance(stop)
        parts = parts.fork()
    with TemporaryDirectory() as folder:
        parts.save(Path(folder) / "simulation")
        parts = Simulation.load(Path(folder) / "simulation", policy=parts.policy)
    parts.advance()
    assert outcome(parts) == outcome(whole)
    assert parts.result().stretches.equals(whole.result().stretches)


@settings(max_examples=examples(60))
@given(case=busy_cases(), backfill=st.sampled_from(("easy", "slurm")))
def test_nothing_is_left_over_and_stretches_add_up_to_what_jobs_ran(
    case: dict[str, Any], backfill: str
) -> None:
    simulation, _ = simulations(case, {"backfill": backfill}, "fcfs")
    simulation.advance()
    sim = simulation.state
    assert (sim["beneath"] == -1).all()
    assert not sim["cut"]["tried"].any()
    assert not sim["cut"]["covered"].any()
    stock = sim["stock"][: sim.pools]
    assert (stock["free"] + stock["down"]).tolist() == sim["amount"][: sim.pools].tolist()
    result = simulation.result()
    assert result.stretches is not None
    figures = result.summary()
    capacity = result.cluster.node_count * figures["makespan_s"]
    assert figures["held_node_s"] <= capacity + 1e-6
    assert figures["resizes"] == 0
    suspended = result.jobs.filter(pl.col("suspended_s") > 0)
    length = (pl.col("end_s") - pl.col("start_s")).sum()
    ran = result.stretches.group_by("job_id").agg(ran_s=length)
    lost = result.lost.group_by("job_id").agg(lost_s=length)
    told = suspended.join(ran, on="job_id").join(lost, on="job_id", how="left")
    last_s = (pl.col("end_s") - pl.col("start_s")).fill_null(0.0)
    whole_s = last_s + pl.col("lost_s").fill_null(0.0)
    apart = told.select(apart=whole_s - pl.col("suspended_s") - pl.col("ran_s"))["apart"]
    assert (apart.abs() < 1e-9).all()


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(60))
@given(case=timed(busy_cases()), order=st.sampled_from(ORDERS))
def test_under_limits_of_minutes(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    simulation, reference = simulations(case, policy, order)
    simulation.advance()
    assert outcome(simulation) == said(reference)


# --- where nodes are shared ----------------------------------------------------------------------


def sharing_suspended(nodes: int = 1, **preemption: Any) -> Cluster:
    """As `suspending`, of nodes with four cores, 8 GB and two GPUs."""
    of = suspending(nodes, **preemption)
    groups = [of.nodes[0].model_copy(update={"cores": 4, "gpus": 2, "memory_gb": 8})]
    return of.model_copy(update={"nodes": tuple(groups)})


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_on_a_shared_node_only_jobs_with_needed_cores_are_suspended(run, backfill):
    workload = with_tasks((0, 20, 1, 3, "low"), (0, 20, 1, 1, "low"), (5, 10, 1, 2, "high"))
    result = run(workload, sharing_suspended(), backfill=backfill)
    assert starts(result) == [0, 0, 5]
    assert ends(result) == [30, 20, 15]
    assert [job.preemptions for job in result] == [1, 0, 0]


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_cores_of_a_suspended_job_belong_to_no_other_job_of_its_tier(run, backfill):
    # One of its cores is idle until 15.
    workload = with_tasks((0, 20, 1, 4, "low"), (5, 10, 1, 3, "high"), (6, 5, 1, 1, "low"))
    assert starts(run(workload, sharing_suspended(), backfill=backfill)) == [0, 5, 30]


def test_a_suspended_job_keeps_its_memory(run):
    workload = with_tasks((0, 20, 1, 4, "low"), (5, 10, 1, 4, "high"))
    asked = workload.chunks
    for low_gb, start in ((4.0, 5), (5.0, 20)):
        memory = {**asked, "memory_gb_per_task": np.array([low_gb, 4.0])}
        assert starts(run(workload.replace(chunks=memory), sharing_suspended()))[1] == start


def test_a_suspended_job_keeps_its_gpus(run):
    workload = with_tasks((0, 20, 1, 4, "low"), (5, 10, 1, 4, "high"))
    for gpus, start in ((1.0, 5), (2.0, 20)):
        asked = {**workload.chunks, "gpus_per_task": np.array([gpus, 1.0])}
        assert starts(run(workload.replace(chunks=asked), sharing_suspended()))[1] == start


def test_a_job_on_several_nodes_continues_when_its_cores_are_free_on_all(run):
    workload = with_tasks(
        (0, 20, 2, 4, "low"), (5, 10, 1, 4, "high"), (6, 20, 1, 4, "high"), (7, 3, 1, 1, "low")
    )
    result = run(workload, sharing_suspended(2))
    assert starts(result) == [0, 5, 6, 41]
    assert ends(result) == [41, 15, 26, 44]


def test_on_shared_nodes_a_job_that_suspended_another_is_suspended_in_its_turn(run):
    workload = with_tasks((0, 20, 1, 4, "low"), (5, 20, 1, 3, "mid"), (10, 5, 1, 4, "high"))
    result = run(workload, sharing_suspended())
    assert starts(result) == [0, 5, 10]
    assert ends(result) == [45, 30, 15]


def test_a_job_with_an_exclusive_node_is_suspended_and_continues_alone(run):
    workload = with_tasks((0, 20, 1, 1, "low"), (5, 10, 1, 1, "high"), (6, 4, 1, 1, "low"))
    alone = {**workload.chunks, "exclusive": np.array([1.0, 0.0, 0.0])}
    no_memory = suspending(1)
    groups = [no_memory.nodes[0].model_copy(update={"cores": 4})]
    cluster = no_memory.model_copy(update={"nodes": tuple(groups)})
    result = run(workload.replace(chunks=alone), cluster)
    assert starts(result) == [0, 5, 30]
    assert ends(result) == [30, 15, 34]


def test_a_job_with_an_exclusive_node_keeps_the_memory_it_requests(run):
    workload = with_tasks((0, 20, 1, 1, "low"), (5, 10, 1, 1, "mid"), (7, 5, 1, 1, "high"))
    for memory_gb, start in ((4.0, 7), (4.5, 15)):
        asked = {
            **workload.chunks,
            "exclusive": np.array([1.0, 1.0, 0.0]),
            "memory_gb_per_task": np.array([2.0, 2.0, memory_gb]),
        }
        result = run(workload.replace(chunks=asked), sharing_suspended())
        assert starts(result) == [0, 5, start]


@st.composite
def shared_cases(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(strategies.shared_clusters(cleanup=True))
    if draw(st.booleans()):
        cluster = draw(strategies.stocked(cluster))
    what = {name: draw(st.booleans()) for name in ("several", "owners")}
    workload = draw(strategies.shared_workloads(cluster, max_jobs=20, **what))
    chunks = workload.chunks
    alone = np.where(workload.more_tasks.codes >= 0, 0.0, chunks["exclusive"])
    workload = workload.replace(chunks={**chunks, "exclusive": alone})
    return case_of(draw, workload, with_preemption(draw, cluster, suspensions))


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(60))
@given(case=shared_cases(), order=st.sampled_from(ORDERS))
def test_everything_at_once_on_shared_nodes(
    policy: dict[str, Any], case: dict[str, Any], order: str
) -> None:
    agree(case, policy, order)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(60))
@given(case=crowded_cases(), order=st.sampled_from(ORDERS))
def test_on_busy_shared_nodes(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    agree(case, policy, order)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(60))
@given(case=timed(crowded_cases()), order=st.sampled_from(ORDERS))
def test_under_limits_of_minutes_on_shared_nodes(
    policy: dict[str, Any], case: dict[str, Any], order: str
) -> None:
    agree(case, policy, order)


@settings(max_examples=examples(60))
@given(case=st.one_of(crowded_cases(), shared_cases()), backfill=st.sampled_from(("easy", "slurm")))
def test_no_node_has_more_in_use_than_it_has_and_all_comes_back(
    case: dict[str, Any], backfill: str
) -> None:
    simulation, _ = simulations(case, {"backfill": backfill}, "fcfs")
    simulation.advance()
    sim = simulation.state
    assert not sim["cut"]["tried"].any()
    held = (sim["state"]["phase"] == layout.RUNNING).any()
    assert held or (sim["left"] == sim["whole"]).all()
    result = simulation.result()
    placed, cluster = result.placements, result.cluster
    assert placed is not None
    has = [group for group in cluster.nodes for _ in range(group.count)]
    chunks = result.workload.chunks
    alone = pl.Series(result.workload.job_id[(chunks["tasks"] == 0) | (chunks["exclusive"] > 0)])
    for row in placed.iter_rows(named=True):
        at = (pl.col("start_s") <= row["start_s"]) & (pl.col("end_s") > row["start_s"])
        here = placed.filter(at & (pl.col("node") == row["node"]))
        # Who has a node alone has what others keep besides.
        apart = here.filter(~pl.col("job_id").is_in(alone.implode()))
        for name, of in (("cores", here), ("memory_gb", apart), ("gpus", apart)):
            there = getattr(has[row["node"]], name)
            if any(getattr(group, name) is not None for group in cluster.nodes):
                assert of[name].sum() <= (there or 0) + 1e-9
