"""What packing and pushing down promise: dependencies hold, resources suffice, nobody waits for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, parse_policy, simulate
from hpctwin.metrics import dependency_violations
from hpctwin.model import Category, Dependencies, DependencyKind
from tests.engine.examples import examples

NODES = 6
RESOURCES = {"cpu": 10, "disk_mbps": 7}
CLUSTER = Cluster.uniform(nodes=NODES, resources=RESOURCES)
POLICIES = [
    "adaptive+pack", "adaptive+pack:patience=5s", "adaptive+pack:depth=2", "wfp+pack", "pas+pushdown",
    "pas+pushdown:parallel=any,adjacent=any,interval=1s,promotion=1s", "pas+pushdown:interval=2s,places=1",
    "pfm+none", "adaptive+easy", "adaptive+conservative",
]  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn, jobs: int) -> Dependencies:
    """Any DAG: edges of all kinds along a random order of the jobs, with and without delays."""
    place = draw(st.permutations(range(jobs)))
    edges = {}
    for _ in range(draw(st.integers(0, 3 * jobs))):
        one, other = draw(st.integers(0, jobs - 1)), draw(st.integers(0, jobs - 1))
        if place[one] != place[other]:
            job, on = (one, other) if place[one] > place[other] else (other, one)
            kind = draw(st.sampled_from(DependencyKind))
            edges[job, on, kind] = draw(st.sampled_from((0, 0, 3000)))
    return Dependencies.of([(job, on, kind, delay) for (job, on, kind), delay in edges.items()])


@st.composite
def workloads(draw: st.DrawFn, size: int = 20, *, depend: bool = True) -> Workload:
    """Jobs in any state of need, submitted at any time: before, with or after those they wait for."""
    jobs = draw(st.integers(1, size))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=jobs, max_size=jobs))

    return Workload.build(
        submit_s=column(st.integers(0, 15)),
        runtime_s=column(st.integers(0, 12)),
        walltime_s=column(st.integers(1, 10)),
        nodes=column(st.integers(1, NODES)),
        priority=column(st.integers(1, 10)),
        resources={
            name: column(st.integers(0, amount + depend)) for name, amount in RESOURCES.items()
        },
        fails=[depend and one == 4 for one in column(st.integers(0, 4))],
        cancel_s=[-1 if one > 3 or not depend else 4 * one for one in column(st.integers(0, 30))],
        dependencies=draw(graphs(jobs)) if depend else None,
    )


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(60))
@given(workload=workloads(), hold=st.booleans())
def test_no_dependency_is_ever_violated_on_any_graph(
    policy: str, workload: Workload, hold: bool
) -> None:
    result = simulate(
        workload,
        CLUSTER,
        policy=parse_policy(policy),
        on_dependency_failure="hold" if hold else "cancel",
    )
    jobs = result.jobs
    assert dependency_violations(jobs, workload.dependencies) == 0
    start, end, state = (jobs[name].to_list() for name in ("start_s", "end_s", "state"))
    edges = workload.dependencies
    for job, on, kind, delay in zip(edges.job, edges.on, edges.kind, edges.delay_ms, strict=True):
        if start[job] is None:
            continue
        if kind == DependencyKind.AFTEROK:
            assert state[on] == "completed"
        came_true = end[on]
        if kind == DependencyKind.AFTER and start[on] is not None:
            came_true = start[on]
        assert start[job] >= came_true + delay / 1000


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(30))
@given(workload=workloads())
def test_a_failed_job_affects_the_jobs_behind_it_as_chosen(policy: str, workload: Workload) -> None:
    """Cancelled, all behind it on a chain of afterok come to their end; held, they stay pending."""
    for then, become in (("cancel", "dependency"), ("hold", "pending")):
        result = simulate(
            workload, CLUSTER, policy=parse_policy(policy), on_dependency_failure=then
        )
        state = result.jobs["state"].to_list()
        bad = {"failed", "walltime", "cancelled", "rejected", "dependency"}
        edges = workload.dependencies
        strict = edges.kind == DependencyKind.AFTEROK
        for job, on in zip(edges.job[strict], edges.on[strict], strict=True):
            if state[on] in bad:
                assert state[job] in (become, "cancelled", "rejected")
        assert ("dependency" in state) <= (then == "cancel")


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(30))
@given(workload=workloads())
def test_no_resource_is_ever_oversubscribed(policy: str, workload: Workload) -> None:
    jobs = simulate(workload, CLUSTER, policy=parse_policy(policy)).jobs
    ran = jobs["start_s"].is_not_null().to_numpy()
    start, end = jobs["start_s"].to_numpy()[ran], jobs["end_s"].to_numpy()[ran]
    needs = {"nodes": workload.nodes, **workload.resources}
    for name, total in {"nodes": NODES, **RESOURCES}.items():
        amount = needs[name][ran]
        for time in np.unique(start):
            assert amount[(start <= time) & (end > time)].sum() <= total


# --- waiting ----------------------------------------------------------------------------------

PATIENCE_S = 8


def bounds_s(simulation: Simulation, patience_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Each job's wait since it was eligible, and its bound of docs/reference/adaptive-policies.md."""
    workload, sim = simulation.workload, simulation.state
    eligible, start = sim["state"]["eligible"] / 1000, sim["state"]["start"] / 1000
    longest = workload.walltime_ms.max() / 1000
    rank = np.lexsort((workload.job_id, workload.submit_ms, eligible)).argsort()
    bound = np.zeros(len(workload))
    for job in range(len(workload)):
        over = eligible[job] + patience_s
        ahead = ((rank < rank[job]) & (start > over)).sum()
        bound[job] = patience_s + (ahead + 1) * longest
    return start - eligible, bound


@pytest.mark.parametrize("order", ["adaptive", "ljf", "smallest", "wfp"])
@settings(max_examples=examples(300))
@given(workload=workloads(40, depend=False), patience=st.sampled_from([0, 1, PATIENCE_S, 40]))
def test_no_job_waits_longer_than_the_stated_bound(
    order: str, workload: Workload, patience: int
) -> None:
    simulation = Simulation(
        workload, CLUSTER, policy=parse_policy(f"{order}+pack:patience={patience}s")
    )
    simulation.advance()
    wait, bound = bounds_s(simulation, patience)
    assert (wait <= bound).all()


def adversary(stream: int) -> Workload:
    """A job that needs everything, and a stream of small ones that never lets the machine run empty."""
    return Workload.build(
        submit_s=[0, 1, *(1 + 2 * i for i in range(stream))],
        runtime_s=[3, 2, *[3] * stream],
        nodes=[1, NODES, *[1] * stream],
        priority=[5, 1, *[10] * stream],
        resources={"cpu": [2, RESOURCES["cpu"], *[2] * stream]},
    )


@pytest.mark.parametrize("stream", [50, 200, 800])
def test_an_adversary_that_never_stops_cannot_keep_a_job_waiting(stream: int) -> None:
    """The second job needs all; under the published policy it waits until the stream runs dry."""
    waits = {
        policy: simulate(adversary(stream), CLUSTER, policy=parse_policy(policy)).jobs["wait_s"][1]
        for policy in (
            f"adaptive+pack:patience={PATIENCE_S}s",
            "sjf+first-fit",
            "pas+pushdown:parallel=any,adjacent=any",
            "pas+pushdown",
        )
    }
    assert waits.pop(f"adaptive+pack:patience={PATIENCE_S}s") <= PATIENCE_S + 3
    assert all(wait >= 2 * stream - 3 for wait in waits.values()), waits


@settings(max_examples=examples(100))
@given(data=st.data())
def test_later_jobs_cannot_move_a_job_past_its_bound(data: st.DataObject) -> None:
    """The same jobs with any others after them: those there first stay within the bound they had."""
    first = data.draw(workloads(8, depend=False))
    extra = data.draw(st.integers(1, 60))
    # Arrivals as an adversary would have them: short, small, and dense.
    gap = data.draw(st.sampled_from([0.5, 1.0, 2.0]))
    last = int(first.submit_ms.max()) / 1000
    more = Workload.build(
        submit_s=[*(first.submit_ms / 1000), *(last + gap * i for i in range(1, extra + 1))],
        runtime_s=[*(first.runtime_ms / 1000), *[2] * extra],
        walltime_s=[*(first.walltime_ms / 1000), *[2] * extra],
        nodes=[*first.nodes, *[1] * extra],
        resources={
            name: [*amount, *[data.draw(st.integers(0, 3))] * extra]
            for name, amount in first.resources.items()
        },
    )
    simulation = Simulation(
        more, CLUSTER, policy=parse_policy(f"adaptive+pack:patience={PATIENCE_S}s")
    )
    simulation.advance()
    start = simulation.column("start") / 1000
    eligible = simulation.column("eligible") / 1000
    longest = more.walltime_ms.max() / 1000
    # However many come, only those of the first can be ahead of one of the first.
    assert (start - eligible)[: len(first)].max() <= PATIENCE_S + len(first) * longest


# --- what the adaptive ordering does ------------------------------------------------------------


def starts(policy: str, workload: Workload, nodes: int = 1) -> list[float]:
    jobs = simulate(workload, Cluster.uniform(nodes=nodes), policy=parse_policy(policy)).jobs
    return jobs["start_s"].to_list()


def test_the_user_with_less_use_is_first_unless_fair_share_is_off() -> None:
    """User a runs for 100 s; then one job of a and, later, one of b wait."""
    workload = Workload.build(
        submit_s=[0, 1, 2],
        runtime_s=[100, 10, 10],
        nodes=[1] * 3,
        user=Category.of(["a", "a", "b"]),
    )
    assert starts("adaptive+pack", workload) == [0, 110, 100]
    assert starts("adaptive:fairshare=0+pack", workload) == [0, 100, 110]


def test_a_job_rises_by_the_whole_chain_behind_it_not_only_the_next() -> None:
    """Jobs 1 and 2 are alike but for what waits for them: one long job, or a longer chain of short ones."""
    edges = [(3, 1, DependencyKind.AFTEROK, 0)]
    edges += [(i + 1, i, DependencyKind.AFTEROK, 0) for i in range(4, 12)]
    edges += [(4, 2, DependencyKind.AFTEROK, 0)]
    workload = Workload.build(
        submit_s=[0] * 13,
        runtime_s=[5, 20, 20, 60, *[10] * 9],
        nodes=[1] * 13,
        dependencies=Dependencies.of(edges),
    )
    _, one, two, *_ = starts("adaptive+pack", workload)
    assert two < one
    assert (
        starts("adaptive:chain=0+pack", workload)[1] < starts("adaptive:chain=0+pack", workload)[2]
    )


def test_as_many_jobs_run_at_once_as_the_resources_hold() -> None:
    workload = Workload.build(
        submit_s=[0] * 10, runtime_s=[4] * 10, nodes=[1] * 10, resources={"cpu": [1] * 10}
    )
    cluster = Cluster.uniform(nodes=10, resources={"cpu": 10})
    jobs = simulate(workload, cluster, "adaptive", "pack").jobs
    assert jobs["start_s"].to_list() == [0] * 10


def test_the_job_that_fits_free_resources_best_starts_first() -> None:
    """Much CPU is free and little disk: the job that asks for CPU goes before a smaller one for disk."""
    workload = Workload.build(
        submit_s=[0, 1, 1],
        runtime_s=[10] * 3,
        nodes=[1] * 3,
        resources={"cpu": [0, 9, 2], "disk_mbps": [4, 0, 3]},
    )
    cluster = Cluster.uniform(nodes=2, resources=RESOURCES)
    for backfill, start in (("pack", [0, 1, 11]), ("first-fit", [0, 11, 1])):
        assert simulate(workload, cluster, "adaptive", backfill).jobs["start_s"].to_list() == start
