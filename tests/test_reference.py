"""What the plain reference keeps on random workloads, and what its orderings see."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model import Cluster, State
from tests.by_hand import jobs, labels, starts
from tests.reference import JobView, ReferenceJob, simulate_reference
from tests.strategies import (
    ORDERS,
    clusters,
    expectations,
    orders,
    rules,
    simple_workloads,
    workloads,
)

EIGHT = Cluster.uniform(nodes=8)

# --- fair share


def test_usage_grows_while_jobs_run_and_halves_with_the_half_life():
    cluster = Cluster.uniform(nodes=2, fairshare={"half_life": 10, "shares": {"ada": 3}})
    workload = jobs((0, 10, 10, 2), (20, 1, 1, 1), (20, 1, 1, 1), user=labels("ada", "ada", "ben"))
    seen: dict[tuple[float, float], tuple[float, float]] = {}

    def order(now: float, job: JobView) -> float:
        seen[now, job.user] = (job.usage, job.fairshare)
        return job.submit

    simulate_reference(workload, cluster, order=order)
    assert seen[0, 0] == (0, 1)
    # Two nodes for one half-life, then one half-life of decay.
    usage, factor = seen[20, 0]
    assert usage == pytest.approx(2 / (math.log(2) / 10) * 0.5 * 0.5)
    assert factor == pytest.approx(2 ** -(1 / 0.75))
    assert seen[20, 1] == (0, 1)


# --- on random workloads -----------------------------------------------------------------------


@given(st.data())
def test_nothing_is_used_twice(data):
    cluster = data.draw(clusters())
    workload = data.draw(workloads(cluster))
    result = simulate_reference(
        workload,
        cluster,
        order=ORDERS[data.draw(orders())],
        expected_ms=data.draw(expectations(workload)),
        **data.draw(rules(cluster)),
    )
    for job in result:
        assert (job.start_ms >= 0) == bool(job.nodes)
        if job.start_ms >= 0:
            assert int(workload.submit_ms[job.row]) <= job.eligible_ms <= job.start_ms
            assert job.start_ms <= job.end_ms
            assert len(job.nodes) == workload.nodes[job.row]
        assert job.state not in (State.RUNNING, State.WAITING)
    ran = [job for job in result if job.start_ms >= 0]
    for job in ran:
        then = [other for other in ran if other.start_ms <= job.start_ms < other.end_ms]
        nodes = [node for other in then for node in other.nodes]
        assert len(nodes) == len(set(nodes))
        for name, amounts in workload.resources.items():
            assert sum(amounts[other.row] for other in then) <= cluster.resources[name]


def first_promises(
    simulate: Callable[[Callable[[int, list[tuple[int, int]]], None]], list[ReferenceJob]],
    among: slice = slice(None),
) -> list[tuple[int, int]]:
    """First promised start, and start, of the jobs that got a promise.

    ``among`` selects the reservations of each pass that are looked at.
    """
    promised: dict[int, int] = {}

    def observe(now: int, reservations: list[tuple[int, int]]) -> None:
        for row, start in reservations[among]:
            promised.setdefault(row, start)

    result = simulate(observe)
    return [(start, result[row].start_ms) for row, start in promised.items()]


@given(simple_workloads(), st.sampled_from((1, 2, 60)))
def test_easy_with_fcfs_keeps_its_first_promise_to_the_head(workload, k):
    # The head gets the first reservation of a pass; the others of k > 1 are no promises, since
    # the head may move up and into their way.
    for promise, start in first_promises(
        lambda observe: simulate_reference(workload, EIGHT, reservations=k, observer=observe),
        slice(1),
    ):
        assert start <= promise


@given(simple_workloads(), orders())
def test_conservative_keeps_its_first_promise_in_any_order(workload, order):
    for promise, start in first_promises(
        lambda observe: simulate_reference(
            workload, EIGHT, backfill="conservative", order=ORDERS[order], observer=observe
        )
    ):
        assert start <= promise


@given(simple_workloads())
def test_all_jobs_start_in_order_without_backfill(workload):
    times = starts(simulate_reference(workload, EIGHT, backfill="none"))
    assert times == sorted(times)
