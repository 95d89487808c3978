"""What is possible at all: bounds are below every schedule, and what is said to be attained is."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, generate, simulate
from hpctwin.learn.baselines.oracle import (
    Waiting,
    energy_ahead_j,
    least_energy_j,
    least_waiting,
    starts_ahead,
    waiting_ahead,
)
from hpctwin.metrics import TAU_S
from hpctwin.model import Mode, NodeGroup, Workload
from tests import by_hand
from tests.examples import examples
from tests.learn.test_many import ASLEEP, NODES, machine

METRICS = st.sampled_from(["mean_bounded_slowdown", "mean_wait_s"])
DRAWN = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 300), st.integers(1, 4)), min_size=1, max_size=5
)


def workload(jobs: list[tuple[int, int, int]]) -> Workload:
    return by_hand.jobs(*((submit, run, run + 1, nodes) for submit, run, nodes in sorted(jobs)))


def mean(metric: Waiting, jobs: Workload, start: Any) -> float:
    wait, run = start - jobs.submit_ms / 1000, jobs.runtime_ms / 1000
    if metric == "mean_wait_s":
        return float(wait.mean())
    return float(np.maximum((wait + run) / np.maximum(run, TAU_S), 1).mean())


def best_of_all(metric: Waiting, jobs: Workload, nodes: int) -> tuple[float, float]:
    """The optimum: some order of placing one after the other has it, as the metric falls with each start."""
    found = []
    for order in permutations(range(len(jobs))):
        start = starts_ahead(jobs, nodes, np.array(order))
        found.append((mean(metric, jobs, start), float((start + jobs.runtime_ms / 1000).max())))
    return min(found)


@given(jobs=DRAWN, order=st.randoms(use_true_random=False))
@settings(max_examples=examples(200))
def test_a_job_placed_ahead_never_has_more_nodes_than_exist(
    jobs: list[tuple[int, int, int]], order: Random
) -> None:
    given_jobs = workload(jobs)
    rows = list(range(len(given_jobs)))
    order.shuffle(rows)
    start = starts_ahead(given_jobs, 4, np.array(rows))
    end = start + given_jobs.runtime_ms / 1000
    assert (start >= given_jobs.submit_ms / 1000).all()
    for moment in start:
        running = (start <= moment) & (moment < end)
        assert given_jobs.nodes[running].sum() <= 4


@given(jobs=DRAWN, metric=METRICS)
@settings(max_examples=examples(60))
def test_no_schedule_passes_the_bound(jobs: list[tuple[int, int, int]], metric: Waiting) -> None:
    given_jobs = workload(jobs)
    optimum, until_s = best_of_all(metric, given_jobs, 4)
    bound = least_waiting(metric, given_jobs, 4, reached=optimum, until_s=until_s)
    assert bound <= optimum * (1 + 1e-9) + 1e-9
    # Nor does it if the time that has a price ends too soon, or what was reached is far off.
    again = least_waiting(metric, given_jobs, 4, reached=3 * optimum + 1, until_s=until_s / 3)
    assert again <= optimum * (1 + 1e-9) + 1e-9


def test_the_bound_of_equal_jobs_in_sequence_is_their_wait() -> None:
    jobs = workload([(0, 100, 4)] * 10)
    bound = least_waiting("mean_wait_s", jobs, 4, reached=450.0, until_s=1000.0)
    assert 420.0 < bound <= 450.0
    slowdown = least_waiting("mean_bounded_slowdown", jobs, 4, reached=5.5, until_s=1000.0)
    assert 5.0 < slowdown <= 5.5


@pytest.mark.parametrize("metric", ["mean_bounded_slowdown", "mean_wait_s"])
def test_full_knowledge_waits_less_than_none_and_more_than_the_bound(
    metric: Waiting,
) -> None:
    jobs = generate("lublin", jobs=200, nodes=64, seed=3)
    cluster = Cluster.uniform(64)
    reached, until_s = waiting_ahead(metric, jobs, cluster)
    bound = least_waiting(metric, jobs, 64, reached=reached, until_s=until_s)
    others = [simulate(jobs, 64, policy).summary()[metric] for policy in ("fcfs+easy", "sjf+easy")]
    assert bound <= reached <= min(others)


@pytest.mark.parametrize("asleep", [(), (ASLEEP,)])
def test_energy_known_ahead_is_that_of_each_nodes_gaps(asleep: tuple[Any, ...]) -> None:
    jobs = generate("poisson", jobs=60, nodes=NODES, seed=5, load=0.4)
    modes = {"base": Mode(power_w=200.0, idle_w=100.0)}
    group = NodeGroup(name="all", count=NODES, modes=modes, sleep=asleep)
    energy = simulate(jobs, Cluster(nodes=(group,)), "fcfs+easy").energy
    assert energy is not None
    total = 0.0
    for node in range(NODES):
        at = 0.0
        mine = sorted(
            (start, end)
            for start, end, first, count in energy.node_map.select(
                "start_s", "end_s", "first_node", "count"
            ).rows()
            if first <= node < first + count
        )
        for start, end in [*mine, (energy.now_s, energy.now_s)]:
            gap, last = start - at, start == energy.now_s
            cost = 100.0 * gap
            if asleep and last:
                off = min(gap, 60.0)
                cost = min(cost, 80.0 * off + 10.0 * (gap - off))
            elif asleep and gap >= 360.0:
                cost = min(cost, 80.0 * 60 + 10.0 * (gap - 360.0) + 150.0 * 300)
            total += cost + 200.0 * (end - start)
            at = end
    assert energy_ahead_j(energy) == pytest.approx(total, rel=1e-12)
    if not asleep:
        assert total == pytest.approx(energy.total_j, rel=1e-12)


def test_no_power_policy_draws_less_than_the_bound() -> None:
    jobs = generate("poisson", jobs=60, nodes=NODES, seed=5, load=0.4)
    bound = least_energy_j(jobs, machine())
    for power in ("none", "psus:0s", "psus:5m", "psas-ipm:5m"):
        energy = simulate(jobs, machine(), f"fcfs+easy~{power}").energy
        assert energy is not None
        assert bound < energy.total_j
        if power == "none":
            assert bound < energy_ahead_j(energy) < energy.total_j
