"""Schedules with power states worked out by hand, held by the plain reference and by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from hpctwin import Workload
from hpctwin.energy import Orders, PowerView
from hpctwin.model import Cluster, Dependencies, DependencyKind
from hpctwin.policies import PowerPolicy
from tests.by_hand import labels
from tests.energy.adapter import outcome, powered, reference_outcome
from tests.reference.powered import simulate_powered_reference
from tests.strategies import ORDERS


def jobs(*rows: tuple[float, float, int], **columns: Any) -> Workload:
    """Of submit and runtime in seconds, and nodes; walltimes are the runtimes."""
    submit, runtime, nodes = zip(*rows, strict=True)
    return Workload.build(
        submit_s=submit, runtime_s=runtime, walltime_s=runtime, nodes=nodes, **columns
    )


def platform(*counts: int, sleeps: tuple[tuple[float, float], ...] = ((4, 7),)) -> Cluster:
    """Groups a, b, … of so many nodes, each with sleep states of (time to switch off, on)."""
    sleep = [
        {
            "name": f"s{depth}",
            "power_w": 10,
            "switch_off": {"time": off, "power_w": 50},
            "switch_on": {"time": on, "power_w": 150},
        }
        for depth, (off, on) in enumerate(sleeps)
    ]
    modes = {"base": {"power_w": 200, "idle_w": 100}}
    groups = [
        {"name": "abc"[number], "count": count, "modes": modes, "sleep": sleep}
        for number, count in enumerate(counts)
    ]
    return Cluster.model_validate({"nodes": groups})


def cluster(*counts: int, **content: Any) -> Cluster:
    groups = [{"name": "abc"[number], "count": count} for number, count in enumerate(counts)]
    return Cluster.model_validate({"nodes": groups, **content})


TWO_PARTITIONS = [
    {"name": "a", "groups": ["a"], "default": True},
    {"name": "b", "groups": ["b"]},
]


@dataclass(frozen=True)
class Case:
    """What is simulated, and what must come of it.

    ``starts`` are seconds by row; ``nodes`` what becomes of some: state and time (s) it begins.
    """

    name: str
    workload: Workload
    platform: Cluster
    power: PowerPolicy
    starts: list[float | None]
    nodes: dict[int, list[tuple[str, float]]] = field(default_factory=dict)
    order: str = "fcfs"
    backfill: str = "easy"
    options: dict[str, Any] = field(default_factory=dict)
    cluster: Cluster | None = None


OFF_AT_5 = [("idle", 0), ("switching_off 0", 5), ("sleeping 0", 9)]
ASLEEP = jobs((0, 1, 1), (100, 10, 3), (100, 10, 4), (100, 15, 1))
CASES = [
    Case(
        # Nodes 1 to 3 sleep when job 1 is given them at 100: it begins at 107, the head's reservation
        # is at 117, and job 3 could be over by then.
        "a-reservation-counts-with-when-what-was-just-started-begins",
        ASLEEP, platform(4), PowerPolicy("psus", 5), [0, 107, 122, 107],
    ),
    Case(
        "and-so-with-several-reservations",
        ASLEEP, platform(4), PowerPolicy("psus", 5), [0, 107, 122, 107],
        options={"reservations": 2},
    ),
    Case(
        "and-so-beside-a-resource-that-nobody-asks-for",
        ASLEEP, platform(4), PowerPolicy("psus", 5), [0, 107, 122, 107],
        cluster=cluster(4, resources={"licence": 1}),
    ),
    Case(
        "conservative-reservations-count-with-when-what-was-just-started-begins",
        ASLEEP, platform(4), PowerPolicy("psus", 5), [0, 107, 122, 107],
        backfill="conservative",
    ),
    Case(
        # Job 0 ends on node 0 at 50 and wants nothing of partition b, whose nodes sleep from 9 on.
        "without-backfilling-nodes-are-woken-for-a-job-that-nobody-blocks",
        jobs((0, 100, 2), (50, 10, 2), (60, 10, 1), partition=labels("a", "a", "b")),
        platform(2, 2), PowerPolicy("psas-ipm", 5), [0, 100, 67],
        nodes={3: OFF_AT_5}, backfill="none", cluster=cluster(2, 2, partitions=TWO_PARTITIONS),
    ),
    Case(
        "maintenance-wakes-nobody",
        jobs((0, 100, 1), (1, 100, 1), (50, 10, 1)),
        platform(1, 2), PowerPolicy("psas-ipm", 5), [0, 100, 200],
        nodes={1: OFF_AT_5, 2: OFF_AT_5},
        cluster=cluster(
            1, 2, partitions=TWO_PARTITIONS,
            reservations=[{"start": 60, "end": 80, "groups": ["b"]}],
        ),
    ),
    Case(
        "maintenance-keeps-nobody-on",
        jobs((0, 30, 1), (1, 10, 1)),
        platform(1, 2), PowerPolicy("psas-ipm", 5), [0, 30],
        nodes={1: OFF_AT_5, 2: OFF_AT_5},
        cluster=cluster(
            1, 2, partitions=TWO_PARTITIONS,
            reservations=[{"start": 6, "end": 80, "groups": ["b"]}],
        ),
    ),
    Case(
        "so-many-nodes-of-a-group-are-left-on-maintenance-or-not",
        jobs((0, 30, 1)),
        platform(4), PowerPolicy("psus", 5, keep=1), [0],
        nodes={1: [("idle", 0)], 2: OFF_AT_5, 3: OFF_AT_5},
        cluster=cluster(4, reservations=[{"start": 1000, "end": 1080, "nodes": "0-1"}]),
    ),
    Case(
        "best-fit-chooses-the-group-also-under-psas-auto",
        jobs((0, 10, 2)),
        platform(3, 2), PowerPolicy("psas-auto", 5), [0],
        nodes={3: [("computing", 0)], 4: [("computing", 0)]},
        options={"placement": "best-fit"},
    ),
    Case(
        "a-switching-off-that-takes-no-time-is-followed-by-the-next-timeout",
        jobs((0, 100, 1)),
        platform(2, sleeps=((1, 1), (0, 2), (1, 3))), PowerPolicy("psus", 5, deeper_s=(5, 5)), [0],
        nodes={
            1: [
                ("idle", 0), ("switching_off 0", 5), ("sleeping 0", 6), ("sleeping 1", 11),
                ("switching_off 2", 16), ("sleeping 2", 17),
            ]
        },
    ),
    Case(
        # Job 1 is given node 0 at 100 and would begin at 107; job 2 waits for its start.
        "a-job-cancelled-before-its-nodes-are-on-never-started-for-those-who-wait-for-it",
        jobs(
            (0, 1, 1), (100, 10, 1), (100, 10, 1),
            cancel_s=[-1, 102, -1],
            dependencies=Dependencies.of([(2, 1, DependencyKind.AFTER, 20_000)]),
        ),
        platform(1), PowerPolicy("psus", 5), [0, None, 129],
    ),
    Case(
        # Job 1 holds all nodes from 37 on; job 2, which comes before it in order, does not disturb that.
        "nodes-are-woken-for-the-reservations-of-conservative-backfilling",
        jobs((0, 37, 1), (10, 35, 4), (20, 31, 1)),
        platform(4, sleeps=((1, 7),)), PowerPolicy("psas-ipm", 5), [0, 37, 72],
        order="smallest", backfill="conservative",
    ),
    Case(
        # Off and on take 11 s: at 5 node 1 could be back at 16, which is when job 1 needs it.
        "a-node-that-could-only-just-be-back-stays-on",
        jobs((0, 16, 1), (1, 10, 2)),
        platform(2), PowerPolicy("psas-ipm", 5), [0, 16],
        nodes={1: [("idle", 0), ("computing", 16)]},
    ),
    Case(
        "a-node-that-is-back-sooner-is-switched-off-and-woken-in-time",
        jobs((0, 17, 1), (1, 10, 2)),
        platform(2), PowerPolicy("psas-ipm", 5), [0, 17],
        nodes={1: [*OFF_AT_5, ("switching_on 0", 10), ("computing", 17)]},
    ),
    Case(
        "the-last-of-the-idle-nodes-go-first-and-the-first-are-kept",
        jobs((0, 100, 1)),
        platform(4), PowerPolicy("psus", 5, keep=1), [0],
        nodes={1: [("idle", 0)], 2: OFF_AT_5, 3: OFF_AT_5},
    ),
    Case(
        # All four sleep at 20; woken for job 1, which is cancelled, they go on to be on, idle from 27.
        "what-has-begun-goes-on-to-its-end",
        jobs((0, 1, 1), (20, 10, 4), (60, 1, 1), cancel_s=[-1, 22, -1]),
        platform(4), PowerPolicy("psus", 5), [0, None, 67],
        nodes={
            3: [
                *OFF_AT_5, ("switching_on 0", 20), ("idle", 27), ("switching_off 0", 32),
                ("sleeping 0", 36),
            ]
        },
    ),
]  # fmt: skip


def check(case: Case, found: dict[str, Any]) -> None:
    ids = case.workload.job_id.tolist()
    starts = [found["jobs"][job][2] for job in ids]
    assert [None if start is None else start / 1000 for start in starts] == case.starts
    for node, wanted in case.nodes.items():
        past = [
            (s.state if isinstance(s.which, str) else f"{s.state} {s.which}", s.start / 1000)
            for s in found["nodes"][node]
        ]
        assert past == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference(case: Case) -> None:
    options = {name: value for name, value in case.options.items() if name != "placement"}
    if "placement" in case.options:
        options["placement"] = case.options["placement"].replace("-", "_")
    result = simulate_powered_reference(
        case.workload,
        case.platform,
        case.power,
        cluster=case.cluster,
        order=ORDERS[case.order],
        backfill=case.backfill,
        **options,
    )
    check(case, reference_outcome(case.workload, result))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_engine(case: Case) -> None:
    simulation = powered(
        case.workload,
        case.platform,
        case.power,
        cluster=case.cluster,
        order=case.order,
        backfill=case.backfill,
        **case.options,
    )
    simulation.run()
    check(case, outcome(simulation.result().energy))


def test_a_control_function_may_ask_for_a_time_that_is_no_whole_millisecond() -> None:
    def control(view: PowerView) -> Orders:
        return Orders(next_call_s=0.1 + 0.2 if view.now_s < 0.3 else None)

    simulation = powered(jobs((0, 100, 1)), platform(2), PowerPolicy("orders"), control=control)
    simulation.advance(200)
    assert simulation.result().energy.jobs["end_s"].to_list() == [100]


def test_a_speed_counts_as_its_decimals_say() -> None:
    # 21 s at seven tenths of the speed are 30 s, and not a millisecond more.
    modes = {"slow": {"power_w": 100, "speed": 0.7}}
    nodes = Cluster.model_validate({"nodes": [{"name": "n", "count": 1, "modes": modes}]})
    workload = Workload.build(submit_s=[0], runtime_s=[21], walltime_s=[60], nodes=[1])
    simulation = powered(workload, nodes, PowerPolicy())
    simulation.run()
    assert simulation.result().energy.jobs["end_s"].to_list() == [30]
