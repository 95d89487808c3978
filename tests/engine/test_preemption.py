"""Preemption and checkpoints: cases worked out by hand, and the engine against the plain reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.state import layout
from hpctwin.model import State
from hpctwin.model.requests.chunks import CHUNKS
from hpctwin.policies import make_policy
from tests import strategies
from tests.by_hand import (
    AFTER,
    AFTERANY,
    AFTEROK,
    cluster_of,
    edges,
    ends,
    jobs,
    labels,
    starts,
    states,
)
from tests.engine.examples import examples
from tests.engine.test_against_reference import (
    ORDERINGS,
    PBS,
    SLURM,
    as_reference,
    name_of,
)
from tests.engine.test_shared_against_reference import where_they_ran
from tests.reference import ReferenceJob, simulate_reference
from tests.reference.shared_places import ON_SHARED_ONLY


def tiers(nodes: int = 4, *, speed: float = 1.0, **preemption: Any) -> Cluster:
    """Partitions low (the default), mid and high, of rising tiers, on the same nodes."""
    of = {"low": {"tier": 0}, "mid": {"tier": 1}, "high": {"tier": 2}}
    of = {name: fields | preemption.pop(name, {}) for name, fields in of.items()}
    return cluster_of(
        nodes=[{"name": "n", "count": nodes, "speed": speed}],
        partitions=[{"name": name, "default": name == "low"} for name in of],
        preemption={"partitions": of, **preemption},
    )


def of_tiers(*rows: tuple[float, float, float, int, str], **columns: Any) -> Workload:
    """Jobs (submit, runtime, walltime, nodes, partition)."""
    return jobs(*(row[:4] for row in rows), partition=labels(*(row[4] for row in rows)), **columns)


BACKFILLS = ["none", "first-fit", "easy"]


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_job_of_a_higher_tier_starts_at_once_and_the_preempted_one_starts_again(run, backfill):
    workload = of_tiers((0, 20, 20, 3, "low"), (5, 10, 10, 2, "high"))
    result = run(workload, tiers(), backfill=backfill)
    assert starts(result) == [15, 5]
    assert ends(result) == [35, 15]
    assert states(result) == [State.COMPLETED] * 2
    assert [(job.requeues, job.preemptions, job.in_vain_ms) for job in result] == [
        (1, 1, 5000),
        (0, 0, 0),
    ]


def test_a_job_that_is_cancelled_ends_as_preempted_and_those_that_wait_for_it_know(run):
    workload = of_tiers(
        (0, 20, 20, 4, "low"), (0, 1, 1, 1, "low"), (0, 1, 1, 1, "low"), (5, 10, 10, 2, "high"),
        dependencies=edges((1, 0, AFTEROK, 0), (2, 0, AFTERANY, 0)),
    )  # fmt: skip
    result = run(workload, tiers(mode="cancel"))
    assert states(result) == [State.PREEMPTED, State.DEPENDENCY, State.COMPLETED, State.COMPLETED]
    assert ends(result) == [5, 5, 6, 15]
    assert [job.in_vain_ms for job in result] == [5000, 0, 0, 0]


def test_equal_and_lower_tiers_preempt_no_job(run):
    workload = of_tiers((0, 20, 20, 4, "mid"), (1, 1, 1, 1, "mid"), (2, 1, 1, 1, "low"))
    assert starts(run(workload, tiers())) == [0, 20, 20]


def test_no_job_is_preempted_in_vain(run):
    # Two nodes of the four are of the same tier: high needs three.
    workload = of_tiers((0, 20, 20, 2, "high"), (0, 9, 9, 2, "low"), (5, 5, 5, 3, "high"))
    result = run(workload, tiers())
    assert starts(result) == [0, 0, 20]


def test_off_means_that_a_partition_is_not_preempted(run):
    workload = of_tiers((0, 20, 20, 2, "low"), (0, 20, 20, 2, "mid"), (5, 5, 5, 2, "high"))
    assert starts(run(workload, tiers(low={"mode": "off"}))) == [0, 10, 5]


def test_the_lowest_tier_goes_first_then_the_narrowest(run):
    workload = of_tiers(
        (0, 50, 50, 1, "mid"), (0, 50, 50, 2, "low"), (0, 50, 50, 1, "low"), (5, 5, 5, 1, "high")
    )
    assert [job.preemptions for job in run(workload, tiers())] == [0, 0, 1, 0]


def test_the_youngest_goes_first_if_asked(run):
    workload = of_tiers((0, 50, 50, 1, "low"), (1, 50, 50, 3, "low"), (5, 5, 5, 1, "high"))
    result = run(workload, tiers(youngest_first=True))
    assert [job.preemptions for job in result] == [0, 1, 0]


def test_few_go_where_one_wide_job_suffices(run):
    # Taken by width: one of 1 node, then that of 3, which suffices alone.
    workload = of_tiers((0, 50, 50, 1, "low"), (0, 50, 50, 3, "low"), (5, 5, 5, 3, "high"))
    assert [job.preemptions for job in run(workload, tiers())] == [0, 1, 0]


def test_a_job_within_the_exempt_time_is_spared_until_its_end(run):
    workload = of_tiers((0, 50, 50, 4, "low"), (5, 5, 5, 1, "high"))
    result = run(workload, tiers(exempt=20))
    assert starts(result) == [25, 20]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("mode", ["requeue", "cancel"])
def test_the_nodes_of_a_preempted_job_are_cleaned_up_for_the_other(run, mode, backfill):
    workload = of_tiers(
        (0, 50, 50, 4, "low"), (5, 5, 5, 3, "high"), (6, 1, 1, 4, "low"), (7, 5, 5, 3, "high")
    )
    cluster = tiers(mode=mode).model_copy(update={"cleanup": 10.0})
    result = run(workload, cluster, backfill=backfill)
    # Low's nodes are clean at 15, those of the first of high at 30.
    assert [starts(result)[row] for row in (1, 3)] == [15, 30]
    assert (result[0].preemptions, result[0].in_vain_ms) == (1, 5000)
    if mode == "cancel":
        assert (states(result)[0], ends(result)[0]) == (State.PREEMPTED, 5)
    else:
        assert starts(result)[0] >= 45


def test_a_grace_comes_before_the_cleanup(run):
    workload = of_tiers((0, 50, 50, 2, "low"), (0, 12, 12, 2, "low"), (5, 5, 5, 4, "high"))
    cluster = tiers(grace=10, checkpoint=5).model_copy(update={"cleanup": 20.0})
    result = run(workload, cluster)
    # The first runs until 15, and its nodes are clean at 35; the second ends within its grace.
    assert starts(result) == [60, 0, 35]
    assert ends(result) == [95, 12, 40]
    assert [job.in_vain_ms for job in result] == [0, 0, 0]


def test_a_job_whose_nodes_are_cleaned_up_is_not_preempted(run):
    workload = of_tiers((0, 4, 50, 2, "low"), (0, 50, 50, 2, "low"), (5, 5, 5, 2, "high"))
    result = run(workload, tiers().model_copy(update={"cleanup": 10.0}))
    assert [job.preemptions for job in result] == [0, 1, 0]
    assert starts(result)[2] == 14


def test_a_job_cancelled_while_its_nodes_are_cleaned_up_is_not_requeued(run):
    workload = of_tiers(
        (0, 50, 50, 4, "low"), (5, 5, 5, 4, "high"), (6, 1, 1, 1, "low"),
        cancel_s=[9, -1, -1], dependencies=edges((2, 0, AFTERANY, 0)),
    )  # fmt: skip
    result = run(workload, tiers().model_copy(update={"cleanup": 10.0}))
    assert states(result)[0] == State.CANCELLED
    assert (starts(result)[0], ends(result)[0]) == (-1, 15)
    assert starts(result)[1:] == [15, 30]


def test_a_node_that_fails_during_the_cleanup_requeues_the_preempted_job_at_once(run):
    workload = of_tiers((0, 20, 20, 2, "low"), (5, 5, 5, 2, "high"))
    cluster = tiers(2).model_copy(
        update={
            "cleanup": 10.0,
            "failures": Cluster.model_validate(
                {
                    "nodes": [{"name": "n", "count": 2}],
                    "failures": {"outages": [{"node": 0, "start": 8, "duration": 1}]},
                }
            ).failures,
        }
    )
    result = run(workload, cluster)
    assert starts(result) == [24, 9]
    assert (result[0].requeues, result[0].preemptions) == (1, 1)


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_the_nodes_are_free_when_the_grace_is_over(run, backfill):
    workload = of_tiers((0, 50, 50, 4, "low"), (5, 5, 5, 3, "high"), (6, 4, 4, 1, "low"))
    result = run(workload, tiers(grace=10), backfill=backfill)
    assert starts(result)[:2] == [20, 15]
    assert result[0].in_vain_ms == 15_000


def test_a_job_that_ends_within_its_grace_was_not_preempted(run):
    workload = of_tiers((0, 12, 12, 4, "low"), (5, 5, 5, 3, "high"))
    result = run(workload, tiers(grace=10))
    assert starts(result) == [0, 12]
    assert [job.preemptions for job in result] == [0, 0]


def test_a_grace_that_runs_preempts_no_more_than_was_asked(run):
    # An end at 7 makes an instant within the grace of job 0.
    workload = of_tiers(
        (0, 50, 50, 2, "low"), (0, 50, 50, 1, "mid"), (0, 7, 7, 1, "high"), (5, 5, 5, 3, "high")
    )
    result = run(workload, tiers(grace=10))
    assert [job.preemptions for job in result] == [1, 0, 0, 0]
    assert starts(result)[3] == 15


def test_a_requeued_job_starts_again_no_sooner_than_allowed(run):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 5, 5, 2, "high"))
    result = run(workload, tiers(requeue_after=30))
    assert starts(result) == [35, 5]
    assert result[0].eligible_ms == 0


def test_a_requeued_job_that_waits_can_be_cancelled(run):
    workload = of_tiers((0, 20, 20, 4, "low"), (5, 5, 5, 2, "high"), cancel_s=[7, -1])
    result = run(workload, tiers(requeue_after=30))
    assert states(result) == [State.CANCELLED, State.COMPLETED]
    assert ends(result) == [7, 10]


def test_several_go_where_none_suffices_alone(run):
    workload = of_tiers((0, 50, 50, 1, "low"), (0, 50, 50, 1, "mid"), (0, 50, 50, 1, "mid"),
                        (0, 9, 9, 1, "high"), (5, 5, 5, 2, "high"))  # fmt: skip
    result = run(workload, tiers(4))
    assert [job.preemptions for job in result] == [1, 1, 0, 0, 0]
    assert starts(result)[4] == 5


def test_a_job_that_was_preempted_starts_elsewhere_at_once(run):
    cluster = cluster_of(
        nodes=[{"name": "a", "count": 1}, {"name": "b", "count": 1}],
        partitions=[{"name": "low", "default": True}, {"name": "high", "groups": ["a"]}],
        preemption={"partitions": {"high": {"tier": 2}}},
    )
    result = run(of_tiers((0, 20, 20, 1, "low"), (5, 5, 5, 1, "high")), cluster)
    assert starts(result) == [5, 5]
    assert [job.nodes for job in result] == [(1,), (0,)]


def test_a_checkpoint_is_where_a_job_begins_again(run):
    workload = of_tiers((0, 50, 50, 4, "low"), (25, 5, 5, 2, "high"))
    result = run(workload, tiers(checkpoint=10))
    # 20 of 25 seconds are kept.
    assert starts(result) == [30, 25]
    assert ends(result) == [60, 30]
    assert result[0].in_vain_ms == 5000


def test_a_job_says_itself_how_often_it_writes_checkpoints(run):
    workload = of_tiers(
        (0, 50, 50, 2, "low"),
        (0, 50, 50, 2, "low"),
        (25, 5, 5, 4, "high"),
        checkpoint_s=[20, 0, -1],
    )
    result = run(workload, tiers(checkpoint=10))
    assert ends(result) == [60, 80, 30]


def test_a_checkpoint_on_fast_nodes_keeps_more_of_the_work(run):
    workload = of_tiers((0, 100, 100, 4, "low"), (25, 10, 10, 2, "high"))
    result = run(workload, tiers(checkpoint=10, speed=2.0))
    # 40 s of work are kept, 60 are left: 30 s.
    assert starts(result) == [30, 25]
    assert ends(result) == [60, 30]


def test_a_job_whose_node_fails_continues_from_its_checkpoint_without_preemption(run):
    workload = jobs((0, 50, 50, 1), checkpoint_s=[20])
    cluster = cluster_of(
        nodes=[{"name": "n", "count": 1}],
        failures={"outages": [{"node": 0, "start": 45, "duration": 5}]},
    )
    result = run(workload, cluster)
    assert starts(result) == [50]
    assert ends(result) == [60]


def test_qos_preempt_those_that_they_name(run):
    cluster = cluster_of(
        nodes=[{"name": "n", "count": 3}],
        qos={"high": 9, "low": 1, "idle": 0},
        preemption={"qos": {"high": {"preempts": ["low", "idle"]}, "low": {"preempts": ["idle"]}}},
    )
    workload = jobs(
        (0, 50, 50, 1), (0, 50, 50, 1), (0, 50, 50, 1), (1, 5, 5, 1), (2, 5, 5, 1), (3, 5, 5, 1),
        qos=labels("low", None, "idle", "low", "high", "idle"),
    )  # fmt: skip
    result = run(workload, cluster)
    # Low takes idle's; high takes the lowest, low's: that of job 3 is as narrow, but came later.
    assert [job.preemptions for job in result] == [1, 0, 1, 0, 0, 0]
    assert starts(result)[3:5] == [1, 2]


def test_a_job_preempted_in_a_slurm_cycle_is_tried_again_only_in_the_next():
    # In the look two of each partition start, at most: the third of high's comes in the cycle.
    workload = of_tiers(
        *((0, 1, 1, 1, "high") for _ in range(3)), (0, 9, 9, 1, "mid"), (0, 9, 9, 1, "low")
    )
    policy = make_policy("fcfs", "slurm", settings={"partition_job_depth": 2})
    result = Simulation(workload, tiers(4, youngest_first=True), policy).run()
    # It takes mid's node, and mid does not take low's for that.
    assert result.jobs["preemptions"].to_list() == [0, 0, 0, 1, 0]


# --- against the reference -----------------------------------------------------------------------


def outcome(simulation: Simulation) -> list[tuple[int, ...]]:
    """State, eligible, start, end, requeues, preemptions and time in vain of each job."""
    state, cut = simulation.state["state"], simulation.state["cut"]
    found = []
    for row in range(len(state)):
        phase = int(state["phase"][row])
        ended = layout.COMPLETED <= phase < layout.UNSUBMITTED
        preempted = phase == layout.PREEMPTED
        start, end = int(state["start"][row] - cut["paused"][row]), int(state["end"][row])
        found.append(
            (
                0 if phase == layout.UNSUBMITTED else phase,
                int(state["eligible"][row]),
                start,
                end if ended else -1,
                int(state["requeues"][row]),
                int(cut["times"][row]) + preempted,
                int(cut["lost"][row]) + (end - start if preempted else 0),
            )
        )
    return found


def said(reference: list[ReferenceJob]) -> list[tuple[int, ...]]:
    return [
        (
            int(job.state),
            job.eligible_ms,
            job.start_ms,
            job.end_ms if int(job.state) >= layout.COMPLETED else -1,
            job.requeues,
            job.preemptions,
            job.in_vain_ms,
        )
        for job in reference
    ]


@st.composite
def preemptions(
    draw: st.DrawFn,
    cluster: Cluster,
    modes: tuple[str, ...] = ("requeue", "cancel"),
    of_classes: tuple[str, ...] = ("requeue", "requeue", "cancel", "off"),
) -> dict[str, Any]:
    """What is said of preemption, by partition if there are several."""
    time = st.sampled_from((0, 0, 0, 1, 5, 10))
    own = {
        "mode": st.one_of(st.none(), st.sampled_from(of_classes)),
        "grace": st.one_of(st.none(), time),
        "exempt": st.one_of(st.none(), time),
    }
    content: dict[str, Any] = {
        "mode": draw(st.sampled_from(modes)),
        "grace": draw(time),
        "exempt": draw(time),
        "requeue_after": draw(time),
        "youngest_first": draw(st.booleans()),
        "checkpoint": draw(st.sampled_from((None, None, 3, 10))),
    }
    names = [partition.name for partition in cluster.partitions]
    if len(names) > 1 and draw(st.booleans()):
        levels = draw(st.permutations(range(len(names))))
        content["partitions"] = {
            name: {"tier": level, **{k: draw(v) for k, v in own.items()}}
            for name, level in zip(names, levels, strict=True)
        }
        return content
    preempts = draw(st.sampled_from(({"high": ["low"]}, {"low": ["high"]})))
    content["qos"] = {
        name: {"preempts": preempts.get(name, []), **{k: draw(v) for k, v in own.items()}}
        for name in strategies.QOS
    }
    return content


def with_preemption(
    draw: st.DrawFn, cluster: Cluster, told: Callable[[Cluster], Any] = preemptions
) -> Cluster:
    """The cluster, where jobs preempt others as is told."""
    return Cluster.model_validate(
        {**cluster.model_dump(exclude_unset=True), "preemption": draw(told(cluster))}
    )


def with_checkpoints(draw: st.DrawFn, workload: Workload) -> Workload:
    """The jobs, of which some may say how often they write checkpoints."""
    if not draw(st.booleans()):
        return workload
    every = st.sampled_from((-1, 0, 2, 7))
    column = draw(st.lists(every, min_size=len(workload), max_size=len(workload)))
    return workload.replace(checkpoint_ms=1000 * np.array(column))


def case_of(draw: st.DrawFn, workload: Workload, cluster: Cluster) -> dict[str, Any]:
    """Jobs and a machine, under rules that are drawn."""
    rules = draw(strategies.rules(cluster))
    return {
        "workload": workload,
        "cluster": cluster,
        "placement": draw(st.sampled_from((*3 * (rules["placement"],), *ON_SHARED_ONLY))),
        "expected_ms": draw(strategies.expectations(workload)),
        **{name: rules[name] for name in ("overrun", "on_dependency_failure")},
    }


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(strategies.clusters(max_nodes=9, cleanup=True))
    workload = with_checkpoints(draw, draw(strategies.workloads(cluster)))
    return case_of(draw, workload, with_preemption(draw, cluster))


def busy(draw: st.DrawFn, content: dict[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Few nodes, three tiers, and long jobs of the lowest.

    Args:
        draw: draws the rest.
        content: what is said of preemption; it is by tiers.
        groups: the nodes.
    """
    content.pop("qos", None)
    for name, of in tiers().preemption.partitions.items():
        content.setdefault("partitions", {}).setdefault(name, {})["tier"] = of.tier
    size = draw(st.integers(8, 24))
    kind = strategies.numbers(draw, size, 0, 5)
    names = np.array(["low", "low", "low", "mid", "mid", "high"])[kind]
    runtime = strategies.numbers(draw, size, 1, 30) // np.where(names == "high", 5, 1)
    mids = (None, *([group["name"]] for group in groups))
    return {
        "workload": Workload.build(
            submit_s=np.sort(strategies.numbers(draw, size, 0, 25)),
            runtime_s=runtime,
            walltime_s=runtime + strategies.numbers(draw, size, 1, 8),
            nodes=strategies.numbers(draw, size, 1, 2 + len(groups)),
            partition=labels(*names.tolist()),
        ),
        "cluster": cluster_of(
            nodes=groups,
            partitions=[
                {"name": "low", "default": True},
                {"name": "mid", "groups": draw(st.sampled_from(mids))},
                {"name": "high"},
            ],
            preemption=content,
            cleanup=draw(st.sampled_from((0, 0, 2, 7))),
        ),
        "placement": draw(st.sampled_from(("first_fit", "best_fit", "spread"))),
        "expected_ms": None,
        "overrun": draw(st.sampled_from(("terminate", "continue"))),
        "on_dependency_failure": "cancel",
    }


GROUPS = [{"name": "a", "count": 3}, {"name": "b", "count": 2, "speed": 1.5}]


@st.composite
def busy_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Many are preempted, some several times."""
    return busy(draw, draw(preemptions(tiers())), GROUPS)


@st.composite
def impatient_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Many wait for others and some time more, and are cancelled about then."""
    case = draw(busy_cases())
    workload = case["workload"]
    size = len(workload)
    on = strategies.numbers(draw, size, 0, size - 1)
    delay = strategies.numbers(draw, size, 0, 12)
    kind = draw(st.sampled_from((AFTER, AFTERANY)))
    late = np.flatnonzero((on < np.arange(size)) & (strategies.numbers(draw, size, 0, 2) > 0))
    waits = edges(*((int(j), int(on[j]), kind, delay[j] + 0.5) for j in late))
    cancel = workload.submit_ms + 1000 * strategies.numbers(draw, size, 1, 30)
    cancel[strategies.numbers(draw, size, 0, 2) > 0] = -1
    return {**case, "workload": workload.replace(dependencies=waits, cancel_ms=cancel)}


POLICIES: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "easy"},
    {"backfill": "easy", "reservations": 2, "candidates": "smallest"},
    {"backfill": "conservative"},
    {"backfill": "pack"},
    {"backfill": "pack", "settings": {"depth": 4, "patience": 10}},
    *PBS,
    {"backfill": "pushdown"},
    {"backfill": "pushdown", "settings": {"parallel": "any", "adjacent": "any", "interval": 3}},
    *SLURM,
]
ORDERS = ("fcfs", "sjf", "wfp", "largest")


def simulations(
    case: dict[str, Any], policy: dict[str, Any], order: str
) -> tuple[Simulation, list[ReferenceJob]]:
    """The engine's, not begun, and what the reference says."""
    case = dict(case)
    if policy["backfill"] == "pushdown" and order == "wfp":
        order = "sjf"  # it wants priorities that do not change
    placement, expected = case.pop("placement"), case.pop("expected_ms")
    chosen = make_policy(ORDERINGS[order], **policy, placement=placement.replace("_", "-"))
    simulation = Simulation(
        **case,
        policy=chosen,
        expected_s=None if expected is None else [ms / 1000 for ms in expected],
    )
    reference = simulate_reference(
        **case,
        placement=placement,
        expected_ms=expected,
        order=as_reference(chosen.order),
        backfill=chosen.backfill,
        reservations=chosen.setting("reservations") or 1,
        candidate_order=as_reference(chosen.candidates),
        depth=chosen.setting("depth") or 0,
        patience_ms=round(1000 * (chosen.setting("patience") or 0)),
        settings=chosen.numbers(),
    )
    return simulation, reference


def test_nothing_happens_when_a_job_would_have_been_released_that_is_cancelled_before() -> None:
    # Job 1 would come into the queue at 17.5, as job 2 still runs.
    workload = of_tiers(
        (0, 10, 10, 1, "low"), (0, 5, 5, 1, "low"), (0, 30, 30, 1, "low"),
        dependencies=edges((1, 0, AFTERANY, 7.5)), cancel_s=[-1, 12, -1],
    )  # fmt: skip
    for cluster in (tiers(), cluster_of(nodes=[{"name": "n", "count": 4}])):
        simulation = Simulation(workload, cluster, policy="fcfs+slurm")
        simulation.advance(12)
        before = simulation.state.clock.instants
        simulation.advance(29)
        assert simulation.state.clock.instants == before
        assert simulation.state.clock.releases == 0


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(90))
@given(case=cases(), order=st.sampled_from(ORDERS))
def test_everything_at_once(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    simulation, reference = simulations(case, policy, order)
    simulation.advance()
    assert outcome(simulation) == said(reference)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(90))
@given(case=st.one_of(busy_cases(), impatient_cases()), order=st.sampled_from(ORDERS))
def test_on_a_busy_cluster(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    simulation, reference = simulations(case, policy, order)
    simulation.advance()
    assert outcome(simulation) == said(reference)


# --- where nodes are shared ----------------------------------------------------------------------


def sharing(nodes: int = 2, **preemption: Any) -> Cluster:
    """As `tiers`, of nodes with four cores and two GPUs."""
    of = tiers(nodes, **preemption)
    groups = [of.nodes[0].model_copy(update={"cores": 4, "gpus": 2})]
    return of.model_copy(update={"nodes": tuple(groups)})


def with_tasks(*rows: tuple[float, float, int, int, str], **columns: Any) -> Workload:
    """Jobs (submit, runtime, tasks, cores of a task, partition)."""
    _, _, tasks, cores, names = zip(*rows, strict=True)
    return jobs(
        *((submit, runtime, runtime, 1) for submit, runtime, *_ in rows),
        chunks={"tasks": tasks, "cores_per_task": cores},
        partition=labels(*names),
        **columns,
    )


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_only_jobs_in_the_way_on_a_shared_node_are_preempted(run, backfill):
    workload = with_tasks(
        (0, 20, 1, 3, "low"), (0, 20, 1, 1, "low"), (0, 20, 1, 4, "mid"),
        (5, 10, 1, 2, "high"), (6, 10, 1, 1, "high"),
    )  # fmt: skip
    result = run(workload, sharing(), backfill=backfill)
    # The one with three cores goes for both of them; that with one core need not.
    assert [job.preemptions for job in result] == [1, 0, 0, 0, 0]
    assert starts(result) == [16, 0, 0, 5, 6]
    assert [job.nodes for job in result] == [(1,), (1,), (0,), (1,), (1,)]


def test_a_job_on_shared_nodes_waits_for_the_grace_of_those_in_its_way(run):
    workload = with_tasks((0, 50, 1, 4, "low"), (0, 50, 1, 4, "mid"), (5, 5, 1, 2, "high"))
    result = run(workload, sharing(grace=10))
    assert starts(result)[2] == 15
    assert [job.preemptions for job in result] == [1, 0, 0]


def test_a_checkpoint_on_shared_nodes_keeps_the_work_of_the_slowest(run):
    workload = with_tasks((0, 100, 1, 4, "low"), (25, 10, 1, 4, "high"))
    result = run(workload, sharing(1, checkpoint=10, speed=2.0))
    # 40 s of work are kept, 60 are left: 30 s.
    assert starts(result) == [30, 25]
    assert ends(result) == [60, 30]


@st.composite
def shared_cases(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(strategies.shared_clusters(cleanup=True))
    if draw(st.booleans()):
        cluster = draw(strategies.stocked(cluster))
    what = {name: draw(st.booleans()) for name in ("several", "owners")}
    workload = draw(strategies.shared_workloads(cluster, max_jobs=20, **what))
    return {
        "workload": with_checkpoints(draw, workload),
        "cluster": with_preemption(draw, cluster),
        "placement": draw(st.sampled_from(("first_fit", "best_fit", "spread", "random"))),
        "expected_ms": draw(strategies.expectations(workload)),
        "overrun": draw(st.sampled_from(("terminate", "continue"))),
        "on_dependency_failure": "cancel",
    }


def sharing_tasks(draw: st.DrawFn, case: dict[str, Any]) -> dict[str, Any]:
    """The case, where jobs ask for tasks and share nodes of four cores and two GPUs."""
    workload, size = case["workload"], len(case["workload"])
    cluster = case["cluster"]
    groups = [group.model_copy(update={"cores": 4, "gpus": 2}) for group in cluster.nodes]
    asked = {
        "tasks": np.maximum(strategies.numbers(draw, size, 0, 4), np.arange(size) == 0),
        "cores_per_task": strategies.numbers(draw, size, 1, 3),
        "gpus_per_task": strategies.numbers(draw, size, 0, 1),
    }
    left_open = {name: np.full(size, value) for name, value in CHUNKS.items()}
    return {
        **case,
        "workload": workload.replace(
            nodes=np.ones(size, np.int64),
            chunks=left_open | {name: column.astype(float) for name, column in asked.items()},
        ),
        "cluster": cluster.model_copy(update={"nodes": tuple(groups)}),
    }


@st.composite
def crowded_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Few shared nodes, three tiers, and long jobs of the lowest."""
    return sharing_tasks(draw, draw(busy_cases()))


def check_nodes(simulation: Simulation, reference: list[ReferenceJob]) -> None:
    """Jobs ran last where the reference says."""
    where = where_they_ran(simulation, reference)
    for job in reference:
        if job.start_ms < 0:
            continue
        if job.requeues:
            # It may have been put back when it had just begun, and have begun again at that time.
            assert set(where[job.row]) >= set(job.nodes)
        else:
            assert where[job.row] == list(job.nodes)


def agree(case: dict[str, Any], policy: dict[str, Any], order: str) -> None:
    """All jobs go as the reference says, and lie where it says."""
    simulation, reference = simulations(case, policy, order)
    simulation.advance()
    assert outcome(simulation) == said(reference)
    check_nodes(simulation, reference)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(90))
@given(case=shared_cases(), order=st.sampled_from(ORDERS))
def test_everything_at_once_on_shared_nodes(
    policy: dict[str, Any], case: dict[str, Any], order: str
) -> None:
    agree(case, policy, order)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(90))
@given(case=crowded_cases(), order=st.sampled_from(ORDERS))
def test_on_busy_shared_nodes(policy: dict[str, Any], case: dict[str, Any], order: str) -> None:
    agree(case, policy, order)


@settings(max_examples=examples(60))
@given(
    case=st.one_of(cases(), busy_cases(), shared_cases(), crowded_cases()),
    policy=st.sampled_from(POLICIES),
    times=st.lists(st.integers(0, 60), min_size=1, max_size=2),
)
def test_saved_and_forked_in_the_middle_it_continues_identically(
    case: dict[str, Any], policy: dict[str, Any], times: list[int]
) -> None:
    simulation, reference = simulations(case, policy, "fcfs")
    with TemporaryDirectory() as folder:
        for time in sorted(times):
            simulation.advance(time)
            twin = simulation.fork()
            simulation.advance()
            twin.save(Path(folder) / "simulation")
            simulation = Simulation.load(Path(folder) / "simulation", policy=simulation.policy)
    simulation.advance()
    assert outcome(simulation) == said(reference)
