"""DVFS modes of nodes whose jobs share the network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, simulate_stream
from hpctwin.contention.network import Network
from hpctwin.contention.phases import PhaseBuilder
from hpctwin.network.profiles import HomogeneousTask, ParallelTask, Profile, Sequence
from tests.contention.reference import Machine
from tests.contention.test_energy import energies, one_job
from tests.contention.test_network import SHARINGS, machines
from tests.contention.test_saved import POLICIES, TREE, jobs, some_jobs, times

MODES = {
    "fast": {"power_w": 200.0, "idle_w": 80.0, "min_load_w": 100.0},
    "slow": {"power_w": 120.0, "idle_w": 60.0, "speed": 0.5},
}


def clusters(modes: Any = MODES, **more: Any) -> Cluster:
    """The tree as two groups of four nodes with modes."""
    groups = [{"name": name, "count": 4, "cores": 2, "modes": modes} for name in ("a", "b")]
    return Cluster.model_validate({**TREE.model_dump(), "nodes": groups, **more})


def run(simulation: Simulation, *changes: tuple[float, str, str]) -> Simulation:
    """Run a simulation, and change modes at these times."""
    for time_s, group, mode in changes:
        simulation.advance(time_s)
        simulation.set_mode(group, mode)
    simulation.advance()
    return simulation


def test_a_slower_mode_stretches_the_computation() -> None:
    workload = one_job(HomogeneousTask(cpu=4e9, com=0.0))
    simulation = run(Simulation(workload, clusters(), sharing="fair"), (1.0, "a", "slow"))
    result = simulation.result()
    assert times(result.jobs) == [(1, 0.0, 7.0, "completed")]
    assert result.energy is not None
    # One of two cores: half of the way from the smallest load to all cores
    assert energies(result.energy.jobs) == [pytest.approx(2 * (150 + 6 * 90))]
    idle_j = 6 * 80 + 2 * 6 * 60 + 4 * 6 * 80
    assert result.energy.total_j == pytest.approx(2 * (150 + 6 * 90) + idle_j)


def test_modes_of_other_nodes_and_of_senders_do_not_matter() -> None:
    workload = one_job(HomogeneousTask(cpu=4e9, com=0.0))
    simulation = run(Simulation(workload, clusters(), sharing="fair"), (1.0, "b", "slow"))
    assert times(simulation.result().jobs) == [(1, 0.0, 4.0, "completed")]
    sends = one_job(ParallelTask(cpu=None, com=np.array([[0.0, 4e9], [0.0, 0.0]])))
    simulation = run(Simulation(sends, clusters(), sharing="fair"), (1.0, "a", "slow"))
    assert times(simulation.result().jobs)[0][2] == pytest.approx(4.0, abs=0.002)


def test_a_task_held_back_by_its_network_is_slower_only_if_its_cores_are() -> None:
    both = ParallelTask(cpu=np.array([1e9, 1e9]), com=np.array([[0.0, 4e9], [0.0, 0.0]]))
    quarter = {**MODES, "slow": {**MODES["slow"], "speed": 0.125}}
    for modes, end_s in ((MODES, 4.0), (quarter, 2.0 + 4.0)):
        simulation = Simulation(one_job(both), clusters(modes), sharing="fair")
        found = times(run(simulation, (2.0, "a", "slow")).result().jobs)
        assert found[0][2] == pytest.approx(end_s, abs=0.002)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 3.0), st.sampled_from(["fast", "slow"])), max_size=5))
def test_computation_is_the_integral_of_the_speed(steps: list[tuple[float, str]]) -> None:
    parts: tuple[Profile, ...] = (HomogeneousTask(cpu=1e9, com=0.0),) * 4
    simulation = Simulation(one_job(Sequence(parts)), clusters(), sharing="fair")
    left, now, speed = 4.0, 0.0, 1.0
    for pause, mode in steps:
        pause = round(pause, 3)
        if left <= pause * speed:
            break
        left, now = left - pause * speed, now + pause
        run_to = simulation.advance(now)
        assert run_to == "reached"
        simulation.set_mode("a", mode)
        speed = 1.0 if mode == "fast" else 0.5
    assert times(simulation.run().jobs)[0][2] == pytest.approx(now + left / speed, abs=0.0021)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=40, deadline=None)
@given(machines(), st.data(), st.floats(0.01, 5.0), st.floats(0.1, 4.0))
def test_the_rest_of_shared_computation_takes_longer_by_the_factor(
    sharing: Any, machine: Machine, data: Any, change_s: float, factor: float
) -> None:
    hosts = len(machine.host_speed)
    ranks = st.lists(st.integers(0, hosts - 1), min_size=1, max_size=4)
    many = data.draw(st.lists(st.tuples(ranks, st.floats(1e8, 1e10)), min_size=1, max_size=6))
    builder, ends = PhaseBuilder(machine, sharing), []
    for changes in (False, True):
        network, found = Network(machine, sharing, counts=True), []
        for number, (where, flops) in enumerate(many):
            task = HomogeneousTask(cpu=flops, com=0.0)
            network.start(number, 0.0, builder.build(task, where))
        if changes:
            found += network.advance(change_s)
            network.set_speed(np.arange(hosts), factor, change_s)
            capacity = machine.host_cores * machine.host_speed * factor
            assert (network.used()[:hosts] <= capacity * (1 + 1e-9)).all()
        found += network.advance(np.inf)
        ends.append({one.job: one.time_s for one in found})
        done = sum(flops * len(where) for where, flops in many)
        assert network.take_work(np.arange(hosts))[0].sum() == pytest.approx(done)
    for number, end_s in ends[0].items():
        later_s = change_s + (end_s - change_s) / factor if end_s > change_s else end_s
        assert ends[1][number] == pytest.approx(later_s, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(some_jobs, st.sampled_from(POLICIES[:2]), st.sampled_from(["simgrid", "fair"]))
def test_a_mode_from_the_beginning_is_a_slower_cluster(
    given: Any, policy: str, sharing: Any
) -> None:
    workload = jobs((0.0, 1, 60.0), *given)
    slowed = Simulation(workload, clusters(), policy, sharing=sharing)
    for group in ("a", "b"):
        slowed.set_mode(group, "slow")
    half = {**TREE.model_dump()["network"], "core_speed": "0.5 Gflop/s"}
    slower = Simulation(workload, clusters(network=half), policy, sharing=sharing)
    assert times(slowed.run().jobs) == times(slower.run().jobs)


@settings(max_examples=20, deadline=None)
@given(
    some_jobs, st.sampled_from(POLICIES), st.lists(
        st.tuples(
            st.floats(0.01, 2.0), st.sampled_from(["a", "b"]), st.sampled_from(["fast", "slow"]),
        ), min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_sums_agree_and_runs_may_be_saved(
    given: Any, policy: str, changes: list[tuple[float, str, str]]
) -> None:
    workload = jobs((0.0, 1, 60.0), *given)
    one, other = (
        Simulation(workload, clusters(), policy, sharing="fair", log=log) for log in (True, False)
    )
    for pause, group, mode in changes:
        for simulation in (one, other):
            simulation.advance(simulation.now_s + pause)
            simulation.set_mode(group, mode)
        fork = other.fork()
        fork.set_mode("b", "slow")
        fork.result()
        with tempfile.TemporaryDirectory() as folder:
            other.save(f"{folder}/saved")
            other = Simulation.load(f"{folder}/saved")
    results = [simulation.run() for simulation in (one, other)]
    assert times(results[0].jobs) == times(results[1].jobs)
    energy, found = (result.energy for result in results)
    assert energy is not None
    assert found is not None
    assert energies(energy.jobs) == energies(found.jobs)
    assert energy.total_j == found.total_j
    computing = [row for row, name in enumerate(energy.states) if name.startswith("computing")]
    assert energy.jobs["energy_j"].sum() == pytest.approx(energy.node_j[computing].sum(), abs=1e-6)
    drawn_s, watts = energy.power_over_time()
    assert float(np.diff(drawn_s) @ watts[:-1]) == pytest.approx(energy.total_j)


def test_a_cap_lowers_modes(tmp_path: Path) -> None:
    capped = clusters(cap={"watts": 900, "lower_modes": True})
    workload = jobs((0.0, 1, 60.0), (0.0, 1, 60.0))  # three nodes each
    simulation = Simulation(workload, capped, sharing="fair")
    alone = Simulation(workload, clusters(), sharing="fair")
    found = times(simulation.run().jobs)
    assert found[0][2] > times(alone.run().jobs)[0][2]
    assert {change.mode for change in simulation.outside.changes} == {"fast", "slow"}
    stepped = Simulation(workload, capped, sharing="fair")
    while stepped.advance(instants=1) == "stepped":
        stepped.save(tmp_path / "saved")
        stepped = Simulation.load(tmp_path / "saved")
    assert times(stepped.run().jobs) == found


@settings(max_examples=10, deadline=None)
@given(some_jobs, st.sampled_from(POLICIES), st.sampled_from([1, 2, 5]))
def test_a_stream_under_a_cap_that_lowers_modes_is_as_in_memory(
    given: Any, policy: str, batch: int
) -> None:
    capped = clusters(cap={"watts": 1000, "lower_modes": True})
    workload = jobs((0.0, 1, 60.0), *given)
    whole = Simulation(workload, capped, policy, sharing="fair").run()
    assert whole.energy is not None
    with tempfile.TemporaryDirectory() as folder:
        streamed = simulate_stream(
            workload, capped, policy, sharing="fair", out=folder, batch=batch
        )
        found = streamed.jobs.collect().sort("job_id")
    assert times(found) == times(whole.jobs)
    assert energies(found) == pytest.approx(energies(whole.energy.jobs))
    assert streamed.summary()["total_energy_j"] == pytest.approx(whole.energy.total_j)
