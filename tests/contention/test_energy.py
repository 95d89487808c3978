"""Energy of jobs that share the network: power follows the load of their ranks."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Sequence as Parts
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from hpctwin import Cluster, Simulation, Workload, read_cluster, simulate_stream
from hpctwin.contention.network import Network
from hpctwin.contention.phases import PhaseBuilder
from hpctwin.energy.accounts.outputs import energy_tables
from hpctwin.energy.prices.series import Series
from hpctwin.engine.network.records import RUNNING
from hpctwin.model import Failures, Outage
from hpctwin.network.profiles import Delay, HomogeneousTask, ParallelTask, Profile, Sequence
from hpctwin.policies import PowerPolicy
from tests.contention.test_network import SHARINGS, cases, profile_of
from tests.contention.test_saved import KINDS, TREE, jobs, some_jobs, times
from tests.energy.test_control import greedy

MODE = {"power_w": 200.0, "idle_w": 80.0, "min_load_w": 100.0}
POWERED = Cluster.model_validate(
    {**TREE.model_dump(), "nodes": [{"name": "node", "count": 8, "cores": 2, "modes": {"p": MODE}}]}
)


def one_job(profile: Profile, walltime_s: float = 60.0, nodes: int = 2) -> Workload:
    return Workload.build(
        submit_s=[0], nodes=[nodes], walltime_s=[walltime_s], runtime_s=[60], profiles=[profile]
    )


def job_j(profile: Profile, **options: Any) -> float:
    result = Simulation(one_job(profile, **options), POWERED, sharing="fair").run()
    assert result.energy is not None
    return float(result.energy.jobs["energy_j"][0])


def test_one_of_two_cores_is_half_the_load() -> None:
    # 150 W on each of two nodes: 100 W, and half of the way to 200 W
    assert job_j(HomogeneousTask(cpu=1e9, com=0.0)) == pytest.approx(2 * 150)


def test_a_network_that_holds_back_a_task_lowers_its_power() -> None:
    # 4 s for 1e9 flops, an eighth of what two cores could do
    com = np.array([[0.0, 4e9], [0.0, 0.0]])
    profile = ParallelTask(cpu=np.array([1e9, 1e9]), com=com)
    assert job_j(profile) == pytest.approx(2 * (4 * 100 + 100 * 1e9 / 2e9), rel=1e-3)


def test_waiting_and_sending_draw_idle_power() -> None:
    parts = (Delay(2.0), HomogeneousTask(cpu=1e9, com=0.0), Delay(1.0))
    assert job_j(Sequence(parts=parts)) == pytest.approx(2 * (3 * 80 + 150))
    sent = ParallelTask(cpu=None, com=np.array([[0.0, 2e9], [0.0, 0.0]]))
    assert job_j(sent) == pytest.approx(2 * 2.0 * 80, rel=1e-3)


def test_a_walltime_cuts_the_computation() -> None:
    assert job_j(HomogeneousTask(cpu=9e9, com=0.0), walltime_s=4.0) == pytest.approx(2 * 4 * 150)


def test_jobs_that_only_wait_draw_idle_power() -> None:
    parts = Delay(4.0), Sequence((Delay(1.0), Delay(0.5)), repeat=2)
    workload = Workload.build(
        submit_s=[0, 0, 0],
        nodes=[2] * 3,
        walltime_s=[60, 2, 60],
        runtime_s=[4, 3, 7],
        profiles=[*parts, None],
    )
    whole = Simulation(workload, POWERED, sharing="fair", log=True)
    energy = whole.run().energy
    assert energy is not None
    found = energy.jobs.sort("job_id")["energy_j"].to_list()
    assert found == [2 * 4.0 * 80, 2 * 2.0 * 80, 2 * 7.0 * 200]
    times, watts = energy.power_over_time()
    assert float(np.diff(times) @ watts[:-1]) == pytest.approx(energy.total_j)
    without = Simulation(workload, POWERED).run().energy
    assert without is not None
    assert without.jobs["energy_j"].sum() == 2 * (4 + 2 + 7) * 200


@pytest.mark.parametrize("batch", [1, 2])
def test_streams_of_jobs_that_only_wait(batch: int, tmp_path: Path) -> None:
    workload = Workload.build(
        submit_s=[0, 1, 2],
        nodes=[2] * 3,
        walltime_s=[60] * 3,
        runtime_s=[4] * 3,
        profiles=[Delay(4.0)] * 3,
    )
    streamed = simulate_stream(workload, POWERED, sharing="fair", out=tmp_path / "out", batch=batch)
    assert energies(streamed.jobs.collect()) == [2 * 4.0 * 80] * 3


def test_attempts_that_fail_count() -> None:
    failing = POWERED.model_copy(
        update={"failures": Failures(outages=(Outage(node=0, start=1.0, duration=0.5),))}
    )
    workload = one_job(HomogeneousTask(cpu=2e9, com=0.0), nodes=8)
    energy = Simulation(workload, failing, sharing="fair").run().energy
    assert energy is not None
    assert energy.jobs["energy_j"][0] == pytest.approx(8 * 150 * (1 + 2))


def test_wattages_of_a_platform(tmp_path: Path) -> None:
    path = tmp_path / "one.xml"
    path.write_text(
        """<?xml version='1.0'?><platform version="4.1"><zone id="W" routing="Full">
        <host id="n0" speed="1Gf,2Gf" core="2">
        <prop id="wattage_per_state" value="95:120:190,96:200"/></host></zone></platform>"""
    )
    cluster = read_cluster(path)
    modes = cluster.nodes[0].modes
    assert [(m.idle, m.at_min_load, m.power_w) for m in modes.values()] == [
        (95.0, 120.0, 190.0),
        (96.0, 96.0, 200.0),
    ]
    workload = one_job(HomogeneousTask(cpu=2e9, com=1.0), nodes=1)
    energy = Simulation(workload, cluster, sharing="simgrid").run().energy
    assert energy is not None
    assert energy.total_j == 2.0 * (120 + 0.5 * 70)


def test_clusters_without_a_power_model_have_no_energy() -> None:
    assert Simulation(one_job(HomogeneousTask(1e9, 0.0)), TREE, sharing="fair").run().energy is None


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=60, deadline=None)
@given(cases())
def test_counted_work_is_a_plain_sum_over_events(sharing: Any, case: Any) -> None:
    machine, starts = case
    builder, network = PhaseBuilder(machine, sharing), Network(machine, sharing, counts=True)
    hosts = len(machine.host_speed)
    flops, busy_s, now = np.zeros(hosts), np.zeros(hosts), 0.0

    def walk(until: float) -> None:
        nonlocal now
        while now < until and (network.running or until < math.inf):
            network.advance(now)
            then = min(network.next_s, until)
            if then == math.inf:
                return
            flops[:] += network.used()[:hosts] * (then - now)
            busy_s[computing(network, hosts)] += then - now
            now = then
            network.advance(now)

    for number, (start, where, phases) in sorted(enumerate(starts), key=lambda one: one[1][0]):
        walk(start)
        network.start(number, start, builder.build(profile_of(phases, len(where)), where))
    walk(math.inf)
    for job in network.running:
        network.stop(job, now)
    found = network.take_work(np.arange(hosts))
    np.testing.assert_allclose(found[0], flops, rtol=1e-6, atol=1.0)
    np.testing.assert_allclose(found[1], busy_s, rtol=1e-9, atol=1e-9)


def computing(network: Network, hosts: int) -> list[int]:
    """Hosts with a running task that computes on them."""
    state = network.state()
    loads, uses = state["loads"], state["uses"]["resource"]
    found: set[int] = set()
    for strand in state["strands"][state["strands"]["phase"] == RUNNING]:
        load = loads[strand["load"]]
        found |= {int(one) for one in uses[load["first"] : load["last"]] if one < hosts}
    return sorted(found)


def energies(table: pl.DataFrame) -> list[float]:
    return table.sort("job_id")["energy_j"].to_list()


@settings(max_examples=25, deadline=None)
@given(some_jobs, st.lists(st.floats(0.0, 3.0), max_size=4))
def test_sums_agree_also_if_interrupted_and_saved(given: Any, pauses: Parts[float]) -> None:
    workload = jobs(*given)
    energy = Simulation(workload, POWERED, sharing="fair", log=True).run().energy
    assert energy is not None
    computed = float(energy.node_j[1].sum())
    assert energy.jobs["energy_j"].sum() == pytest.approx(computed)
    times, watts = energy.power_over_time()
    assert float(np.diff(times) @ watts[:-1]) == pytest.approx(energy.total_j)
    assert energy.total_j <= float((energy.spent_ms * energy.watts).sum()) / 1000 + 1e-6
    one = Simulation(workload, POWERED, sharing="fair")
    with tempfile.TemporaryDirectory() as folder:
        for pause in pauses:
            one.advance(one.now_s + pause)
            one.result()
            one.save(f"{folder}/saved")
            one = Simulation.load(f"{folder}/saved")
    found = one.run().energy
    assert found is not None
    assert energies(found.jobs) == energies(energy.jobs)
    assert found.total_j == energy.total_j


NAPS = {
    "name": "off", "power_w": 5.0,
    "switch_off": {"time": 0.5, "power_w": 60.0}, "switch_on": {"time": 1.25, "power_w": 120.0},
}  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(some_jobs, st.lists(st.floats(0.0, 3.0), max_size=3))
def test_a_control_function_may_switch_nodes(given: Any, pauses: Parts[float]) -> None:
    """Jobs reach the network when their nodes are on; that has the same results if interrupted."""
    content = POWERED.model_dump()
    content["nodes"][0]["sleep"] = [NAPS]
    cluster = Cluster.model_validate(content)
    power = dataclasses.replace(PowerPolicy("orders"), control=greedy)
    workload = jobs(*given)
    whole = Simulation(workload, cluster, sharing="fair", power=power, log=True).run()
    assert whole.energy is not None
    one = Simulation(workload, cluster, sharing="fair", power=power)
    for pause in pauses:
        one.advance(one.now_s + pause)
        assert times(one.fork().run().jobs) == times(whole.jobs)
    found = one.run()
    assert found.energy is not None
    assert times(found.jobs) == times(whole.jobs)
    assert found.energy.total_j == whole.energy.total_j
    drawn_s, watts = whole.energy.power_over_time()
    assert float(np.diff(drawn_s) @ watts[:-1]) == pytest.approx(whole.energy.total_j)
    assert set(whole.jobs["state"]) <= {"completed", "walltime"}


def test_a_running_job_counts_up_to_now() -> None:
    simulation = Simulation(one_job(HomogeneousTask(4e9, 0.0)), POWERED, sharing="fair")
    simulation.advance(1.5)
    for _ in range(2):
        energy = simulation.result().energy
        assert energy is not None
        assert energy.jobs["energy_j"][0] == pytest.approx(2 * 1.5 * 150)
        assert energy.total_j == pytest.approx(1.5 * (2 * 150 + 6 * 80))


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_streams_have_the_same_energy(batch: int, tmp_path: Path) -> None:
    """And the same use of links; their power over time is not known before runs end."""
    workload = jobs(*[(0.4, k % len(KINDS), 20.0) for k in range(20)])
    options: dict[str, Any] = {"sharing": "fair", "log": True}
    result = Simulation(workload, POWERED, **options).run()
    streamed = simulate_stream(workload, POWERED, out=tmp_path, batch=batch, **options)
    energy, use = result.energy, result.link_use
    assert energy is not None
    assert use is not None
    assert energies(streamed.jobs.collect()) == pytest.approx(energies(energy.jobs))
    assert streamed.summary()["total_energy_j"] == pytest.approx(energy.total_j)
    for name, table in {**use.tables, **energy_tables(energy)}.items():
        if name == "power":
            assert streamed.cost(Series.hourly([0.1, 0.3], "EUR")) is None
        else:
            keys = table.columns[:3]
            found = pl.read_parquet(tmp_path / name / "*.parquet").sort(keys)
            assert_frame_equal(found, table.sort(keys))


def test_costs_are_those_of_the_energy() -> None:
    workload = jobs(*[(0.4, k % len(KINDS), 20.0) for k in range(20)])
    energy = Simulation(workload, POWERED, sharing="fair", log=True).run().energy
    assert energy is not None
    price = Series.hourly([0.1, 0.3], "EUR", step_s=3.0)
    costs = energy.state_costs(price)
    assert energy.job_costs(price).sum() == pytest.approx(costs[1])
    whole = Series.hourly([0.2], "EUR")
    assert energy.cost(whole) == pytest.approx(0.2 * energy.total_j / 3.6e6)
