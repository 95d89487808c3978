"""DVFS modes that change while jobs run."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpctwin import Workload
from hpctwin.energy import Series
from hpctwin.errors import ConfigError, SimulationError, UnknownNameError
from hpctwin.model import CapWindow, Cluster, PowerCap
from hpctwin.policies import PowerPolicy
from tests.energy.powered import NODES, powered_simulation
from tests.energy.test_cases import jobs
from tests.strategies import simple_workloads

SPEEDS = {"base": 1.0, "slow": 0.7, "fast": 1.3}
MODES = {
    name: {"power_w": 100 + 100 * speed, "idle_w": 50 + 20 * speed, "speed": speed}
    for name, speed in SPEEDS.items()
}


def platform(nodes: int = NODES) -> Cluster:
    off = {"time": 4, "power_w": 60}
    sleep = [{"name": "off", "power_w": 7, "switch_off": off, "switch_on": off}]
    return Cluster.model_validate(
        {
            "nodes": [
                {"name": "a", "count": nodes - 2, "modes": MODES, "sleep": sleep},
                {"name": "b", "count": 2, "modes": MODES, "sleep": sleep},
            ]
        }
    )


def test_the_rest_of_a_job_takes_proportionally_longer() -> None:
    simulation = powered_simulation(
        jobs((0, 100, 2)).replace(walltime_ms=jobs((0, 500, 2)).walltime_ms), platform(4)
    )
    simulation.advance(40)
    simulation.set_mode("a", "slow")
    simulation.advance(60)
    simulation.set_mode("a", "fast")
    energy_s = 40 + 20 + ceil(1000 * (100 - 40 - 20 * 0.7) / 1.3) / 1000
    simulation.run()
    energy = simulation.result().energy
    assert energy.jobs["end_s"].to_list() == [pytest.approx(energy_s)]
    # 40 s at 200 W, 20 s at 170 W, the rest at 230 W, on two nodes.
    expected = 2 * (40 * 200 + 20 * 170 + (energy_s - 60) * 230)
    assert energy.jobs["energy_j"].to_list() == [pytest.approx(expected)]
    assert energy.state_s()["computing:slow"] == 40
    summary = simulation.result().summary()
    assert (summary["computing_node_s"], summary["computing_slow_node_s"]) == (80, 40)
    assert "computing_base_node_s" not in summary


def test_a_job_ends_at_its_walltime_if_it_becomes_too_slow_and_not_if_it_becomes_fast_again() -> (
    None
):
    for last, state, end_s in (
        ("slow", "walltime", 110),
        ("fast", "completed", 40 + 46 / 1.3 + 20),
    ):
        workload = jobs((0, 100, 1)).replace(walltime_ms=jobs((0, 110, 1)).walltime_ms)
        simulation = powered_simulation(workload, platform(4))
        simulation.advance(40)
        simulation.set_mode("a", "slow")
        simulation.advance(60)
        simulation.set_mode("a", last)
        simulation.run()
        row = simulation.result().energy.jobs.row(0, named=True)
        assert row["state"] == state
        assert row["end_s"] == pytest.approx(end_s, abs=0.002)


@given(
    workload=simple_workloads(nodes=NODES, max_jobs=12),
    changes=st.lists(
        st.tuples(st.integers(0, 150), st.sampled_from("ab"), st.sampled_from(list(SPEEDS))),
        max_size=5,
    ),
    kind=st.sampled_from(("none", "psus", "psas-ipm")),
)
def test_work_and_energy_are_kept_to_the_millisecond_through_all_changes(
    workload: Workload, changes: list[tuple[int, str, str]], kind: str
) -> None:
    nodes = platform()
    power = PowerPolicy(kind, None if kind == "none" else 5)
    simulation = powered_simulation(workload, nodes, power=power, overrun="continue", log=True)
    history: list[tuple[int, str, str]] = []
    for at, group, mode in sorted(changes):
        simulation.advance(at)
        simulation.set_mode(group, mode)
        history.append((round(1000 * simulation.now_s), group, mode))
    simulation.run()
    energy = simulation.result().energy
    assert (energy.spent_ms.sum(axis=0) == energy.spent_ms[:, 0].sum()).all()
    # The log, by node and mode, gives the same energy, and so do the jobs.
    watts = energy.watts
    node, state, start, end = energy.spans()
    assert (start < end).all()
    assert ((end - start) / 1000 * watts[state, node]).sum() == pytest.approx(energy.total_j)
    computing = [row for row, name in enumerate(energy.states) if name.startswith("computing")]
    assert energy.jobs["energy_j"].sum() == pytest.approx(energy.node_j[computing].sum())
    flat = Series.hourly([3.6e6, 3.6e6], "EUR")
    assert energy.cost(flat) == pytest.approx(energy.total_j)

    def speed(group: str, time: int) -> Fraction:
        modes = [mode for at, of, mode in history if of == group and at <= time]
        return Fraction(str(SPEEDS[modes[-1] if modes else "base"]))

    for job in energy.jobs.iter_rows(named=True):
        begin, finish = round(1000 * job["start_s"]), round(1000 * job["end_s"])
        rows = energy.node_map.filter(energy.node_map["job_id"] == job["job_id"])
        groups = set()
        for first, count in rows.select("first_node", "count").iter_rows():
            groups |= {"a" if one < NODES - 2 else "b" for one in range(first, first + count)}
        times = sorted({begin, finish, *(at for at, _, _ in history if begin < at < finish)})
        done = sum(
            (later - now) * min(speed(group, now) for group in groups)
            for now, later in pairwise(times)
        )
        # Rounded up to whole milliseconds at the end.
        assert -1e-6 <= done - round(1000 * job["runtime_s"]) < 2


def test_invalid_requests_are_reported() -> None:
    simulation = powered_simulation(jobs((0, 100, 1)), platform(4))
    with pytest.raises(UnknownNameError, match="'c'"):
        simulation.set_mode("c", "slow")
    with pytest.raises(UnknownNameError, match="'turbo'"):
        simulation.set_mode("a", "turbo")
    capped = powered_simulation(jobs((0, 100, 1)), platform(4), cap=PowerCap(9000))
    with pytest.raises(SimulationError, match="cap"):
        capped.set_mode("a", "slow")


@given(
    workload=simple_workloads(nodes=NODES, max_jobs=12),
    watts=st.integers(500, 1300),
    more=st.integers(0, 300),
    kind=st.sampled_from(("none", "psas-ipm")),
)
def test_lowered_modes_keep_the_cap_at_every_time(
    workload: Workload, watts: int, more: int, kind: str
) -> None:
    cap = PowerCap(watts, (CapWindow(15, 45, watts + more),), lower_modes=True)
    power = PowerPolicy(kind, None if kind == "none" else 5)
    try:
        simulation = powered_simulation(workload, platform(), power=power, cap=cap, log=True)
    except ConfigError:
        assume(False)
    assert simulation.advance(instants=5000) in ("done", "stepped")
    assert simulation.advance(instants=1) == "done"
    energy = simulation.result().energy
    assert energy.jobs["state"].is_in(["completed", "walltime"]).all()
    times, drawn = energy.power_over_time()
    for time, power_w in zip(times.tolist(), drawn.tolist(), strict=True):
        assert power_w <= cap.at(time) + 1e-6


def test_a_job_runs_slower_rather_than_not_at_all() -> None:
    # Four nodes at 200 W each are above 700 W, at 170 W they are not; idle ones draw 70 W or 64 W.
    workload = jobs((0, 70, 4), (200, 10, 1))
    workload = workload.replace(walltime_ms=workload.walltime_ms * 2)
    with pytest.raises(ConfigError, match="job 1"):
        powered_simulation(workload, platform(4), cap=PowerCap(700))
    cap = PowerCap(700, lower_modes=True)
    simulation = powered_simulation(workload, platform(4), cap=cap)
    simulation.run()
    energy = simulation.result().energy
    assert energy.jobs["end_s"].to_list() == [100, 210]
    assert simulation.modes == ["base", "base"]
    assert energy.jobs["energy_j"].to_list() == [4 * 170 * 100, 200 * 10]
