"""Sizes of jobs under limits, power caps, maintenance and cluster-wide resources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_malleable import (
    at_times,
    both,
    cases,
    check_it_goes_on_the_same_when_forked_and_saved,
    drawn,
    places,
    stretches,
)
from tests.engine.examples import examples

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import PolicyError, SimulationError
from hpctwin_sizing import Sizes, SizeView, Sizing


def jobs(count: int = 2, **columns: Any) -> Workload:
    """Jobs of 40 s on 2 nodes, which may have 1 to 8 nodes and be suspended."""
    bounds = {"min_nodes": 1, "max_nodes": 8, "suspendable": 1} | columns.pop("malleable", {})
    given = {"submit_s": 0, "runtime_s": 40, "nodes": 2, "user": "ada"} | columns
    return Workload.build(
        malleable={name: [value] * count for name, value in bounds.items()},
        **{
            name: value if isinstance(value, (list, dict)) else [value] * count
            for name, value in given.items()
        },
    )


def cluster(**settings: Any) -> Cluster:
    return Cluster.model_validate({"nodes": [{"name": "n", "count": 8}], **settings})


@Sizing
def as_many_as_free(view: SizeView) -> Sizes:
    """Each job in order gets what is free, and keeps it."""
    free, sizes = view.free_nodes, {}
    for job in view.jobs:
        if not job.size and free >= job.min_nodes:
            sizes[job.job_id] = min(free, job.max_nodes)
            free -= sizes[job.job_id]
    return Sizes(sizes)


def test_a_limit_counts_the_nodes_that_jobs_have() -> None:
    machine = cluster(limits=[{"user": "ada", "nodes": 4}])
    sizing = at_times(j1=[(0, 3), (20, 1)], j2=[(0, 3), (10, 1), (15, 3)])
    result = simulate(jobs(), machine, sizing=sizing)
    # At 0 job 2 may not have 3 more; at 15 it may not have 2 more; at 20 job 1 gives 2 back.
    assert stretches(result, 1) == [(0, 20, 3), (20, 40, 1)]
    assert stretches(result, 2) == [(10, 20, 1), (20, 43.334, 3)]


def test_a_job_gets_no_more_nodes_than_a_limit_allows_one_job() -> None:
    for limit in ({"user": "ada", "nodes": 4}, {"account": "root", "per": "job", "nodes": 4}):
        result = simulate(jobs(1, account="root"), cluster(limits=[limit]), sizing=as_many_as_free)
        assert stretches(result) == [(0, 20, 4)]
    partition = {"name": "p", "default": True, "max_nodes": 5}
    assert stretches(
        simulate(jobs(1), cluster(partitions=[partition]), sizing=as_many_as_free)
    ) == [(0, 16, 5)]
    with pytest.raises(PolicyError, match="job 1: size is 6; it must be 1 to 5"):
        simulate(jobs(1), cluster(partitions=[partition]), sizing=at_times(j1=[(0, 6)]))


def test_cores_of_a_limit_go_with_the_nodes() -> None:
    machine = cluster(
        nodes=[{"name": "n", "count": 8, "cores": 4}], limits=[{"user": "ada", "cores": 12}]
    )
    assert stretches(simulate(jobs(1), machine, sizing=as_many_as_free)) == [(0, 26.667, 3)]


def test_nodes_that_a_job_may_not_have_go_to_others() -> None:
    partition = {"name": "p", "default": True, "max_jobs_per_user": 1}
    work = jobs(3, user=["ada", "ada", "ben"], malleable={"max_nodes": 4})
    result = simulate(work, cluster(partitions=[partition]), sizing=as_many_as_free)
    # The rule gives 4 nodes to jobs 1 and 2. Job 2 may not start, so that job 3 does.
    assert [stretches(result, job) for job in (1, 2, 3)] == [
        [(0, 20, 4)], [(20, 40, 4)], [(0, 20, 4)],
    ]  # fmt: skip


def test_a_job_that_may_never_start_waits_and_the_others_run() -> None:
    work = jobs(2, user=["ada", "ben"])
    machine = cluster(limits=[{"user": "ada", "per": "job", "walltime": 10}])
    seen = []

    @Sizing
    def sizing(view: SizeView) -> Sizes:
        seen.append([job.job_id for job in view.jobs])
        return as_many_as_free.rule(view)

    result = simulate(work, machine, sizing=sizing)
    assert result.jobs.sort("job_id")["state"].to_list() == ["waiting", "completed"]
    assert seen == [[2], []]
    with pytest.raises(SimulationError, match="1 pending job at 0 s"):
        simulate(work, machine, sizing=Sizing(lambda view: None))


def test_a_job_whose_use_is_exhausted_waits_at_the_end() -> None:
    limit = {"user": "ada", "used_minutes": {"nodes": 1}, "decays": False}
    sizing = at_times(j1=[(0, 2)], j2=[(0, 0), (40, 2)])
    result = simulate(jobs(), cluster(limits=[limit]), sizing=sizing)
    assert result.jobs.sort("job_id")["state"].to_list() == ["completed", "waiting"]


def test_a_power_cap_counts_the_nodes_that_jobs_have() -> None:
    power = {"modes": {"base": {"power_w": 300, "idle_w": 100}}}
    machine = cluster(nodes=[{"name": "n", "count": 8} | power], cap="1800W")
    # Idle nodes draw 800 W, so five may compute.
    assert stretches(simulate(jobs(1), machine, sizing=as_many_as_free)) == [(0, 16, 5)]
    sizing = at_times(j1=[(0, 3), (10, 4)], j2=[(0, 2), (5, 3), (20, 5)])
    result = simulate(jobs(), machine, sizing=sizing)
    assert stretches(result, 1) == [(0, 26.667, 3)]
    assert stretches(result, 2) == [(0, 26.667, 2), (26.667, 32.001, 5)]


def test_a_power_cap_does_not_limit_jobs_that_draw_no_more_than_idle_nodes() -> None:
    same = {"modes": {"base": {"power_w": 100, "idle_w": 100}}}
    machine = cluster(nodes=[{"name": "n", "count": 8} | same], cap="1kW")
    assert stretches(simulate(jobs(1), machine, sizing=as_many_as_free)) == [(0, 10, 8)]


def test_a_job_gets_no_nodes_until_a_maintenance_that_it_would_meet_is_over() -> None:
    machine = cluster(reservations=[{"name": "m", "start": 30, "end": 100, "nodes": "0-3"}])
    seen = {}

    @Sizing
    def sizing(view: SizeView) -> Sizes:
        seen[view.now_s] = view.nodes, view.free_nodes
        return as_many_as_free.rule(view)

    # On 8 nodes, 40 s on 2 take 10 s. Job 2 has four nodes until the maintenance is over.
    work = jobs(3, submit_s=[0, 15, 35], runtime_s=[40, 60, 20])
    result = simulate(work, machine, sizing=sizing)
    assert [stretches(result, job) for job in (1, 2, 3)] == [
        [(0, 10, 8)], [(15, 30, 8)], [(35, 45, 4)],
    ]  # fmt: skip
    assert seen[35] == (4, 4)
    grows = at_times(j1=[(0, 4), (10, 8), (100, 8)])
    result = simulate(jobs(1, runtime_s=200), machine, sizing=grows)
    # 170 s on 2 nodes are left at 10 s: too much before 30 s.
    assert stretches(result) == [(0, 100, 4)]


def test_a_job_holds_its_resources_on_any_number_of_nodes() -> None:
    work = jobs(resources={"license": [1, 1]})
    machine = cluster(resources={"license": 1})
    sizing = at_times(j1=[(0, 2), (10, 4), (20, 0), (30, 4)], j2=[(0, 2)])
    result = simulate(work, machine, sizing=sizing)
    # Job 1 cannot lose its license while it grows. Once it is suspended, job 2 has it.
    assert stretches(result, 1) == [(0, 10, 2), (10, 20, 4), (60, 65, 4)]
    assert stretches(result, 2) == [(20, 60, 2)]


def test_a_refused_job_that_may_not_be_suspended_keeps_its_nodes() -> None:
    work = jobs(resources={"license": [0, 1]}, malleable={"suspendable": 0})
    machine = cluster(resources={"license": 1}, limits=[{"user": "ada", "nodes": 5}])
    seen = []

    @Sizing
    def sizing(view: SizeView) -> Sizes:
        seen.append([(job.job_id, job.min_nodes, job.max_nodes) for job in view.jobs])
        sizes = {1: 2, 2: 2} if view.now_s < 10 else {1: 4, 2: 3}
        return Sizes(sizes, 10 if view.now_s < 10 else None)

    result = simulate(work, machine, sizing=sizing)
    # In this order, job 2 would not fit any more; then nor does job 1 on 4 nodes.
    assert seen[1:4] == [
        [(1, 1, 5), (2, 1, 5)], [(1, 1, 5), (2, 2, 2)], [(1, 2, 2), (2, 2, 2)],
    ]  # fmt: skip
    assert [stretches(result, job) for job in (1, 2)] == [[(0, 40, 2)], [(0, 40, 2)]]


# --- against the reference ---------------------------------------------------------------------

LIMITS: list[dict[str, Any]] = [
    {"user": "ada", "nodes": 3},
    {"user": "ben", "per": "job", "nodes": 2},
    {"account": "root", "nodes": 6},
    {"user": "cyd", "cores": 12},
    {"account": "root", "per": "user", "jobs": 1},
    {"qos": "low", "per": "user", "jobs": 1},
    {"qos": "low", "memory_gb": 64},
    {"qos": "high", "per": "job", "walltime": 30},
    {"partitions": "all", "per": "account", "nodes": 4},
]
TIMED: list[dict[str, Any]] = [
    {"user": "ada", "minutes": {"nodes": 2}},
    {"qos": "low", "minutes": {"nodes": 1}},
]


def ending(sizing: Sizing) -> Sizing:
    """The same up to 150 s; then each job in order gets its smallest size, if so many are free."""

    @Sizing
    def ended(view: SizeView) -> Sizes | None:
        if view.now_s < 150:
            return sizing.rule(view)
        free, sizes = view.free_nodes, {}
        for job in view.jobs:
            if not job.size and job.min_nodes <= free:
                sizes[job.job_id] = job.min_nodes
                free -= job.min_nodes
        return Sizes(sizes)

    return ended


@st.composite
def ruled_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Random jobs on clusters with limits, maintenance and resources."""
    case = draw(cases(ruled=True))
    known = LIMITS + (TIMED if case["overrun"] == "terminate" else [])
    chosen = draw(st.lists(st.sampled_from(known), max_size=3, unique_by=str))
    settings = case["cluster"].model_dump()
    settings |= {"limits": chosen, "qos": {"high": 2, "low": 1}}
    return case | {
        "cluster": Cluster.model_validate(settings),
        "sizing": ending(case["sizing"]),
    }


@settings(max_examples=examples(200), deadline=None)
@given(case=ruled_cases())
def test_under_rules_of_the_cluster_the_engine_equals_the_reference(case: dict[str, Any]) -> None:
    ran = both(case)
    if ran is not None and case["placement"] != "spread":
        at = places(ran[0])
        for row, past in ran[1].past.items():
            for one in past:
                assert at[row, one.start] == set(one.nodes) or one.start == one.end


@settings(max_examples=examples(60), deadline=None)
@given(case=ruled_cases(), times=st.lists(st.integers(0, 120), min_size=1, max_size=2))
def test_under_rules_of_the_cluster_it_continues_identically_when_forked_or_saved(
    case: dict[str, Any], times: list[int]
) -> None:
    check_it_goes_on_the_same_when_forked_and_saved(case, times)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30), st.integers(1, 40), st.integers(1, 4), st.integers(0, 4), st.booleans()
        ),
        min_size=1, max_size=8,
    ),
    st.integers(4, 7), st.integers(0, 99),
)  # fmt: skip
def test_a_cap_on_equal_nodes_is_a_limit_on_their_number(
    some: list[tuple[int, int, int, int, bool]], most: int, seed: int
) -> None:
    submit, runtime, nodes, more, suspendable = zip(*some, strict=True)
    work = Workload.build(
        submit_s=submit, runtime_s=runtime, nodes=nodes, account=["all"] * len(some),
        malleable={
            "min_nodes": [1] * len(some),
            "max_nodes": [one + other for one, other in zip(nodes, more, strict=True)],
            "suspendable": suspendable,
        },
    )  # fmt: skip
    group = {"name": "n", "count": 8, "modes": {"base": {"power_w": 300, "idle_w": 100}}}
    sizing = ending(drawn(seed))
    capped, limited = (
        simulate(work, cluster(nodes=[group], **rule), sizing=sizing)
        for rule in (
            {"cap": f"{800 + 200 * most}W"},
            {"limits": [{"account": "all", "nodes": most}], "accounts": [{"name": "all"}]},
        )
    )
    assert capped.stretches.equals(limited.stretches)
    assert capped.jobs.equals(limited.jobs)
