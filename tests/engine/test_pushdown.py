"""The paper's policy in the engine against the plain one, and what it promises."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.passes import kept_of
from hpctwin.engine.queue import pushdown_lists
from hpctwin.errors import ConfigError
from hpctwin.model import Dependencies, DependencyKind
from hpctwin.policies import make_policy, pas
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import cases, compared
from tests.engine.test_shared_against_reference import compared_on_nodes
from tests.reference import JobView, simulate_reference

NODES, CPU = 4, 6
SCORE = pas(memory=1e6)  # compiled once for all examples


@st.composite
def workloads(draw: st.DrawFn, size: int = 25) -> Workload:
    """Jobs of few milliseconds, many of which are blocked, wait for others, or never fit."""
    jobs = draw(st.integers(1, size))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=jobs, max_size=jobs))

    edges = [
        (job, on, DependencyKind.AFTEROK, 0)
        for job in range(1, jobs)
        for on in sorted(
            draw(st.sets(st.integers(0, job - 1), max_size=2)) if draw(st.booleans()) else ()
        )
    ]
    submit = column(st.one_of(st.just(0), st.integers(0, 12)))
    return Workload.build(
        submit_s=[ms / 1000 for ms in submit],
        runtime_s=[ms / 1000 for ms in column(st.integers(0, 9))],
        walltime_s=[ms / 1000 for ms in column(st.integers(1, 9))],
        nodes=column(st.integers(1, NODES)),
        priority=column(st.integers(1, 10)),
        resources={"cpu": column(st.integers(0, CPU + (draw(st.integers(0, 9)) == 9)))},
        fails=[one == 5 for one in column(st.integers(0, 5))],
        # A job may be submitted before those it waits for.
        dependencies=Dependencies.of(edges),
    )


def numbers() -> st.SearchStrategy[SimpleNamespace]:
    return st.builds(
        SimpleNamespace,
        parallel=st.sampled_from((2, None, 1, 3)),
        adjacent=st.sampled_from((1, None, 2)),
        places=st.sampled_from((4, 1, 0)),
        attempts=st.sampled_from((3, 0, 1)),
        every=st.sampled_from((4, 1, 3)),
        interval=st.sampled_from((0.001, 0.002, 0.005)),
        promotion=st.sampled_from((0.001, 0.003, 0.0)),
    )


@settings(max_examples=examples(100))
@given(workload=workloads(), chosen=numbers())
def test_the_engine_does_what_the_plain_policy_does_in_every_cycle(
    workload: Workload, chosen: SimpleNamespace
) -> None:
    cluster = Cluster.uniform(nodes=NODES, resources={"cpu": CPU})
    policy = make_policy(SCORE, "pushdown", settings=vars(chosen))
    simulation = Simulation(workload, cluster, policy=policy)
    simulation.advance()
    sim, push = simulation.state, kept_of(simulation.state, "pushdown")
    plain = simulate_reference(
        workload, cluster, order=equation_1, backfill="pushdown", settings=policy.numbers()
    )
    for job in plain:
        found = (
            *(sim["state"][name][job.row] for name in ("start", "end", "phase")),
            *(push[name][job.row] for name in ("pushed", "risen")),
        )  # fmt: skip
        counted = (job.pushed, job.risen) if job.eligible_ms >= 0 else (0, 0)
        assert found == (job.start_ms, job.end_ms, job.state, *counted), f"job {job.row}"


def equation_1(now: float, job: JobView) -> float:
    """Calculated priority, eq. 1; less comes first, so its negative."""
    return -(job.priority + 100 / (1000 * job.walltime + 1) - job.cpu / 20 - 0.0 / 50)


def blocked_jobs() -> Workload:
    """A long job that takes nearly all, and six that do not fit beside it."""
    return Workload.build(
        submit_s=[0] * 7,
        runtime_s=[0.1] + [0.001] * 6,
        nodes=[1] * 7,
        priority=[100, 6, 5, 4, 3, 2, 1],
        resources={"cpu": [CPU - 1] + [2] * 6},
    )


def queue(simulation: Simulation, which: Any) -> list[int]:
    """Jobs of a list of pushdown, first to last."""
    after, jobs = kept_of(simulation.state, "pushdown")["next"], len(simulation.workload)
    found, at = [], int(after[jobs + which])
    while at < jobs:
        found.append(at)
        at = int(after[at])
    return found


def test_blocked_jobs_go_four_down_and_after_three_pushdowns_aside() -> None:
    """The paper's numbers, cycle by cycle, by hand."""
    cluster = Cluster.uniform(nodes=10, resources={"cpu": CPU})
    simulation = Simulation(blocked_jobs(), cluster, "pas", "pushdown")
    seen = []
    for _ in range(7):
        simulation.advance(instants=1)
        seen.append(
            (
                simulation.snapshot()["now_s"],
                queue(simulation, pushdown_lists.MAIN),
                queue(simulation, pushdown_lists.ASIDE),
                kept_of(simulation.state, "pushdown")["pushed"][:7].tolist(),
            )
        )
    # Each of 1 to 5 goes behind four others, so that after five looks the order is as before and job 1,
    # which this cycle has looked at, is first again; job 6 is looked at when those five are aside.
    queued = [1, 2, 3, 4, 5, 6]
    assert seen == [
        (0.000, queued, [], [0, 1, 1, 1, 1, 1, 0]),
        (0.001, queued, [], [0, 2, 2, 2, 2, 2, 0]),
        (0.002, queued, [], [0, 3, 3, 3, 3, 3, 0]),
        (0.003, [6], [1, 2, 3, 4, 5], [0, 4, 4, 4, 4, 4, 1]),
        (0.004, [6], [1, 2, 3, 4, 5], [0, 4, 4, 4, 4, 4, 2]),
        (0.005, [6], [1, 2, 3, 4, 5], [0, 4, 4, 4, 4, 4, 3]),
        (0.006, [], [1, 2, 3, 4, 5, 6], [0, 4, 4, 4, 4, 4, 4]),
    ]
    simulation.advance()
    start_ms = simulation.column("start").tolist()
    assert start_ms == [0, 100, 100, 101, 101, 102, 102]  # two at once
    assert kept_of(simulation.state, "pushdown")["blocked"][1:7].tolist() == [1] * 6  # by CPU


@pytest.mark.parametrize("order", ["wfp", "fairshare", "nodes - chain"])
def test_a_priority_that_changes_while_jobs_wait_is_rejected(order: str) -> None:
    with pytest.raises(ConfigError, match="priority of a job once"):
        make_policy(order, "pushdown")


KINDS: list[dict[str, Any]] = [
    {"parallel": "any", "adjacent": "any", "interval": 1},
    {"interval": 2, "every": 1, "promotion": 3},
    {"parallel": 3, "adjacent": 2, "interval": 1, "places": 1, "attempts": 1, "every": 3, "promotion": 1},
]  # fmt: skip
ORDERS = ("fcfs", "sjf", "largest", "pas")


@pytest.mark.parametrize("chosen", KINDS, ids=str)
@settings(max_examples=examples(90))
@given(case=cases(strategies.clusters(cleanup=True), strategies.workloads, ORDERS))
def test_with_failures_maintenance_limits_and_all_kinds_of_dependencies(
    chosen: dict[str, Any], case: dict[str, Any]
) -> None:
    compared(policy={"backfill": "pushdown", "settings": chosen}, **case)


@pytest.mark.parametrize("chosen", KINDS, ids=str)
@settings(max_examples=examples(90))
@given(data=st.data())
def test_on_shared_nodes(chosen: dict[str, Any], data: st.DataObject) -> None:
    clusters = strategies.shared_clusters(cleanup=True)
    if data.draw(st.booleans()):
        clusters = clusters.flatmap(strategies.stocked)
    what = {name: data.draw(st.booleans()) for name in ("several", "owners")}
    jobs = partial(strategies.shared_workloads, max_jobs=20, **what)
    case = data.draw(cases(clusters, jobs, ORDERS, lambda cluster: strategies.rules()))
    policy = {"backfill": "pushdown", "settings": chosen}
    compared_on_nodes(policy=policy, **case)
