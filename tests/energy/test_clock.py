"""The clock begins at the first submission with all nodes on and idle."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Workload, make_policy
from hpctwin.energy import Orders, PowerView
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Reservation
from hpctwin.policies import PowerPolicy
from tests.energy.powered import (
    NODES,
    energy_of,
    platforms,
    power_policies,
    powered_simulation,
    uniform,
)
from tests.energy.test_cases import jobs
from tests.strategies import simple_workloads

SWITCHING = ("psus", "psas-auto", "psas-ipm")
LATE_S = 1_000_000
TOO_WIDE = (0, 1, 1000)
"""A job at time zero that no cluster here can run: the clock begins with it."""


def slept_until(time_s: float, timeout_s: float) -> float:
    """Energy in J of a node of `uniform` that is idle from time zero, and sleeps up to a time."""
    return timeout_s * 100 + 4 * 50 + (time_s - timeout_s - 4) * 10


@pytest.mark.parametrize("kind", SWITCHING)
def test_nodes_are_switched_off_before_the_first_job_comes(kind: str) -> None:
    # Of four nodes one is woken when the job comes, in 7 s at 150 W; it computes for 10 s.
    energy = energy_of(jobs(TOO_WIDE, (LATE_S, 10, 1)), uniform(4), power=PowerPolicy(kind, 1200))
    assert energy.jobs["start_s"].to_list() == [None, LATE_S + 7]
    asleep = 3 * slept_until(LATE_S + 17, 1200)
    assert energy.total_j == slept_until(LATE_S, 1200) + 7 * 150 + 10 * 200 + asleep
    assert energy.state_s()["idle"] == 4 * 1200


@pytest.mark.parametrize("kind", ["spars-auto", "spars-ipm"])
def test_the_published_manager_switches_off_before_the_first_job_too(kind: str) -> None:
    power = PowerPolicy(kind, 1200)
    energy = energy_of(jobs(TOO_WIDE, (LATE_S, 10, 1)), uniform(4), "fcfs", "none", power=power)
    asleep = 3 * slept_until(LATE_S + 17, 1200)
    assert energy.total_j == slept_until(LATE_S, 1200) + 7 * 150 + 10 * 200 + asleep


def test_a_deeper_sleep_and_nodes_kept_on_begin_before_the_first_job() -> None:
    off = {"time": 2, "power_w": 50}
    states = [
        {"name": name, "power_w": watts, "switch_off": off, "switch_on": off}
        for name, watts in (("suspend", 20), ("off", 5))
    ]
    group = {"name": "n", "count": 3, "modes": {"base": {"power_w": 100}}, "sleep": states}
    platform = Cluster.model_validate({"nodes": [group]})
    power = PowerPolicy("psus", 60, deeper_s=(600,), keep=1)
    energy = energy_of(jobs(TOO_WIDE, (LATE_S, 10, 1)), platform, power=power)
    # Node 0 stays on: it computes, and nobody else is idle meanwhile. The others go down in two steps.
    sleeping = 62 + 600 + 2
    other = 60 * 100 + 2 * 50 + 600 * 20 + 2 * 50 + (LATE_S + 10 - sleeping) * 5
    assert energy.total_j == (LATE_S + 10) * 100 + 2 * other


def test_a_timeout_of_nothing_leaves_on_what_a_job_takes_at_time_zero() -> None:
    workload = jobs((0, 10, 3), (50, 10, 1))
    for simulation in (
        powered_simulation(workload, uniform(4), power=PowerPolicy("psus", 0)),
        powered_simulation(workload, uniform(4)).fork(make_policy(power=PowerPolicy("psus", 0))),
        powered_simulation(workload, uniform(4), power=PowerPolicy("psus", 0)).fork(
            make_policy("sjf", power=PowerPolicy("psus", 0))
        ),
    ):
        simulation.run()
        assert simulation.result().energy.jobs.sort("job_id")["start_s"].to_list() == [0, 57]


@pytest.mark.parametrize("at_s", [0, 30, 5000])
def test_a_fork_before_the_first_event_switches_nodes_off_as_from_the_start(
    at_s: float,
) -> None:
    workload = jobs((LATE_S, 10, 1))
    new = powered_simulation(workload, uniform(4), power=PowerPolicy("psus", 1200))
    new.run()
    other = powered_simulation(workload, uniform(4))
    other.advance(at_s)
    fork = other.fork(make_policy("sjf", power=PowerPolicy("psus", 1200)))
    fork.run()
    assert fork.result().energy.total_j == new.result().energy.total_j
    same = powered_simulation(workload, uniform(4), power=PowerPolicy("psus", 1200))
    same.advance(at_s)
    same = same.fork()
    same.run()
    assert same.result().energy.total_j == new.result().energy.total_j


def test_a_fork_keeps_what_was_switched_before_anything_happened() -> None:
    simulation = powered_simulation(jobs((100, 10, 1)), uniform(4), power=PowerPolicy("orders"))
    simulation.switch(off=range(4))
    fork = simulation.fork()
    fork.advance(150)
    assert fork.node_states == ["sleeping:off"] * 4


@pytest.mark.parametrize("kind", SWITCHING)
def test_maintenance_before_the_first_job_changes_no_timeout(kind: str) -> None:
    cluster = uniform(4).model_copy(
        update={
            "reservations": (
                Reservation(start=0, end=30, nodes="0-1"),
                Reservation(start=50, end=1500, nodes="0"),
                Reservation(start=700, end=2000),
            )
        }
    )
    energy = energy_of(jobs(TOO_WIDE, (LATE_S, 10, 1)), cluster, power=PowerPolicy(kind, 1200))
    assert energy.jobs["start_s"].to_list() == [None, LATE_S + 7]
    asleep = 3 * slept_until(LATE_S + 17, 1200)
    assert energy.total_j == slept_until(LATE_S, 1200) + 7 * 150 + 10 * 200 + asleep


@pytest.mark.parametrize("kind", SWITCHING)
def test_timeouts_run_out_after_the_last_event_while_a_job_is_still_to_come(kind: str) -> None:
    # In the fork the second job never comes: all nodes go to sleep after the first, and then it ends.
    workload = jobs((0, 100, 1), (LATE_S, 10, 1))
    simulation = powered_simulation(workload, uniform(4), power=PowerPolicy(kind, 300))
    simulation.advance(0)
    fork = simulation.fork(arrivals=False)
    assert fork.advance() == "done"
    assert fork.node_states == ["sleeping:off"] * 4
    assert fork.now_s == 404
    used = 100 * 200 + 300 * 100 + 4 * 50
    assert fork.result().energy.total_j == used + 3 * slept_until(404, 300)


def test_the_clock_stops_with_the_last_job_whatever_timeouts_run() -> None:
    simulation = powered_simulation(jobs((0, 100, 1)), uniform(4), power=PowerPolicy("psus", 300))
    assert simulation.advance(5000) == "done"
    assert simulation.result().energy.total_j == 100 * (200 + 3 * 100)


def test_a_job_with_a_late_begin_time_finds_all_nodes_asleep() -> None:
    begin = np.array([float(LATE_S)])
    energy = energy_of(jobs((5, 10, 1)), uniform(4), power=PowerPolicy("psus", 1200), begin_s=begin)
    # At 5 s the job is submitted, and all nodes begin to be idle.
    asleep = 3 * slept_until(LATE_S + 12, 1200)
    assert energy.total_j == slept_until(LATE_S - 5, 1200) + 7 * 150 + 10 * 200 + asleep


@pytest.mark.parametrize("begin_s", [float("nan"), float("inf"), 1e300])
def test_an_invalid_begin_time_is_rejected(begin_s: float) -> None:
    with pytest.raises(ConfigError, match="job 1: begin_s is"):
        energy_of(jobs((0, 10, 1)), uniform(4), begin_s=np.array([begin_s]))


def test_a_begin_time_before_zero_delays_no_job() -> None:
    energy = energy_of(jobs((3, 10, 1)), uniform(4), begin_s=np.array([-50.0]))
    assert energy.jobs["start_s"].to_list() == [3]


def test_a_control_function_is_asked_again_before_the_first_job() -> None:
    asked = []

    def off_at_600(view: PowerView) -> Orders:
        asked.append(view.now_s)
        if view.now_s < 600:
            return Orders(next_call_s=view.now_s + 300)
        return Orders(off=view.nodes("idle"), on=view.nodes("sleeping") if view.waiting else ())

    energy = energy_of(
        jobs(TOO_WIDE, (LATE_S, 10, 4)), uniform(4), power=PowerPolicy("orders"), control=off_at_600
    )
    assert sorted(set(asked))[:3] == [0, 300, 600]
    assert energy.total_j == 4 * (slept_until(LATE_S, 600) + 7 * 150 + 10 * 200)


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=10),
    power=power_policies(SWITCHING),
    late_s=st.sampled_from((0, 3, 17, 500)),
    backfill=st.sampled_from(("none", "easy", "conservative")),
)
def test_jobs_that_all_come_later_take_the_same_time_and_energy(
    platform: Cluster, workload: Workload, power: PowerPolicy, late_s: int, backfill: str
) -> None:
    late = workload.replace(submit_ms=workload.submit_ms + 1000 * late_s)
    one = energy_of(workload, platform, "fcfs", backfill, power=power)
    other = energy_of(late, platform, "fcfs", backfill, power=power)
    assert (one.spent_ms == other.spent_ms).all()
    assert other.begin_s == one.begin_s + (late_s if len(late) else 0)


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=10),
    power=power_policies(SWITCHING),
    late_s=st.sampled_from((0, 3, 17, 500)),
    backfill=st.sampled_from(("none", "easy", "conservative")),
)
def test_an_event_that_changes_nothing_changes_no_energy(
    platform: Cluster, workload: Workload, power: PowerPolicy, late_s: int, backfill: str
) -> None:
    """A job that no cluster could hold makes an instant, and nothing else."""
    size = len(workload) + 1
    late = Workload.build(
        submit_s=workload.submit_ms / 1000 + late_s,
        runtime_s=workload.runtime_ms / 1000,
        walltime_s=workload.walltime_ms / 1000,
        nodes=workload.nodes,
        job_id=np.arange(1, size),
    )
    first_s = float(late.submit_ms.min(initial=1 << 40)) / 1000
    with_event = Workload.build(
        submit_s=[first_s, *(late.submit_ms / 1000)],
        runtime_s=[1, *(late.runtime_ms / 1000)],
        walltime_s=[1, *(late.walltime_ms / 1000)],
        nodes=[1000, *late.nodes],
        job_id=[size, *range(1, size)],
    )
    one = energy_of(late, platform, "fcfs", backfill, power=power)
    other = energy_of(with_event, platform, "fcfs", backfill, power=power)
    assert (one.spent_ms == other.spent_ms).all()


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=25, unique=True
    ),
    timeout=st.sampled_from((0, 1, 5, 12, 40)),
    late_s=st.sampled_from((0, 1, 20, 100, 10_000)),
)
def test_energy_is_what_plain_arithmetic_makes_of_the_schedule(
    rows: list[tuple[int, int]], timeout: int, late_s: int
) -> None:
    """Of jobs of one node each: from when a node was free to its next start nothing else is needed."""
    workload = jobs(*((late_s + submit, runtime, 1) for submit, runtime in rows))
    simulation = powered_simulation(workload, uniform(), power=PowerPolicy("psus", timeout))
    simulation.run()
    energy = simulation.result().energy
    held = defaultdict(list)
    for row in energy.node_map.iter_rows(named=True):
        held[row["first_node"]].append((row["start_s"], row["end_s"]))
    total = 0.0
    for node in range(NODES):
        free = min(late_s + submit for submit, _ in rows)
        for start, end in sorted(held[node]):
            gap = start - free
            if gap <= timeout:
                total += gap * 100
            else:
                asleep = gap - timeout - 4 - 7
                assert asleep >= 0
                total += timeout * 100 + 4 * 50 + asleep * 10 + 7 * 150
            total += (end - start) * 200
            free = end
        gap = simulation.now_s - free
        total += min(gap, timeout) * 100
        total += min(max(gap - timeout, 0), 4) * 50
        total += max(gap - timeout - 4, 0) * 10
    assert energy.total_j == pytest.approx(total, abs=1e-6)
