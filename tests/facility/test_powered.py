"""Facilities of clusters whose nodes have power states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, generate, simulate
from hpctwin.errors import ConfigError
from hpctwin.facility import Facility, simulate_facility
from hpctwin.model import PowerCap
from hpctwin.model.cluster.cluster import Failures
from hpctwin.simulation.running.incremental import OpenSimulation
from tests.energy.powered import NODES, joined, platforms
from tests.energy.test_against_reference import powers_of
from tests.energy.test_modes import platform
from tests.energy.test_outside_against_reference import platforms as modal
from tests.energy.test_outside_in_streams import capped
from tests.energy.test_preemption import urgent_cases
from tests.energy.test_shared_outside_against_reference import MACHINE as TASKS
from tests.engine.test_suspension import crowded_cases
from tests.examples import examples
from tests.strategies import shared_workloads, simple_workloads

MACHINE = """nodes:
  - name: n
    count: 16
    modes: {base: {power_w: 200, idle_w: 100}}
    sleep: [{power_w: 10, switch_off: {time: 4, power_w: 50}, switch_on: {time: 60, power_w: 150}}]
"""
POWERS = ("psus:5s", "psas-auto:0s", "psas-ipm:5s,deeper=6s", "none")


def facility(folder: Path, first: str, second: str) -> Facility:
    (folder / "machine.yaml").write_text(MACHINE)
    (folder / "facility.yaml").write_text(
        "clusters:\n"
        f"  - {{name: a, machine: machine.yaml, policy: '{first}'}}\n"
        f"  - {{name: b, machine: machine.yaml, policy: '{second}'}}\n"
    )
    return Facility.from_yaml(folder / "facility.yaml")


def test_two_clusters_with_power_states_are_simulated_with_their_energy(tmp_path: Path) -> None:
    place = facility(tmp_path, "fcfs+easy~psus:5m", "wfp+conservative~psas-ipm:5m")
    workload = generate("poisson", jobs=200, nodes=16, seed=3)
    result = simulate_facility(place, workload, "sgs-t")
    assert set(result.jobs["cluster"]) == {"a", "b"}
    energies = [one.energy for one in result.clusters.values()]
    assert all(energy is not None for energy in energies)
    total = sum(energy.total_j for energy in energies if energy is not None)
    assert result.summary()["energy_j"] == pytest.approx(total)


def test_a_cluster_that_is_done_draws_until_the_last_job_of_the_facility_has_ended(
    tmp_path: Path,
) -> None:
    workload = Workload.build(
        submit_s=[0, 0], runtime_s=[10, 1000], walltime_s=[10, 1000], nodes=[16, 16]
    )
    for power, after_j in (
        ("none", 990 * 100),
        # Idle for five seconds, on its way for four, then asleep.
        ("psus:5s", 5 * 100 + 4 * 50 + 981 * 10),
    ):
        place = facility(tmp_path, f"fcfs~{power}", "fcfs")
        energy = simulate_facility(place, workload, "round-robin").clusters["a"].energy
        assert energy is not None
        assert energy.total_j == 16 * (10 * 200 + after_j)
        assert energy.spent_ms.sum() == 16 * 1_000_000


@pytest.mark.parametrize("power", POWERS)
@given(
    workload=simple_workloads(nodes=NODES, max_jobs=12),
    machine=platforms(),
    backfill=st.sampled_from(("none", "first-fit", "easy", "conservative", "pack:patience=20s")),
)
def test_a_forecast_with_exact_runtimes_comes_true_if_no_job_arrives_later(
    power: str, workload: Workload, machine: Cluster, backfill: str
) -> None:
    site = OpenSimulation(Simulation(workload, machine, f"fcfs+{backfill}~{power}"))
    last = len(workload) - 1
    for row in range(len(workload)):
        now_ms = int(workload.submit_ms[row])
        if row == last:
            rows = np.array([row])
            start, end = site.forecast(now_ms, rows, rows)[:, 0].tolist()
        site.advance_before(now_ms)
        site.arrive(row, now_ms)
    site.finish()
    done = site.result().jobs.row(last, named=True)
    assert (start, end) == (round(1000 * done["start_s"]), round(1000 * done["end_s"]))
    whole = simulate(workload, machine, f"fcfs+{backfill}~{power}")
    assert site.result().jobs.equals(whole.jobs)


def comes_true(workload: Workload, machine: Cluster, policy: str) -> None:
    """Jobs arrive one by one, and the forecast of the last one is what happens."""
    site = OpenSimulation(Simulation(workload, machine, policy))
    arriving = np.flatnonzero(~site.rejected_mask())
    assume(len(arriving) > 0)
    for row in arriving.tolist():
        now_ms, rows = int(workload.submit_ms[row]), np.array([row])
        site.advance_before(now_ms)
        found = site.forecast(now_ms, rows, rows)[:, 0].tolist()
        site.arrive(row, now_ms)
    site.finish()
    done = site.result().jobs[arriving.tolist()]
    last = done.row(-1, named=True)
    if not last.get("preemptions"):  # the forecast is of its first run
        assert found == [round(1000 * last["start_s"]), round(1000 * last["end_s"])]
    assert done.equals(simulate(workload.take(arriving), machine, policy).jobs)


@pytest.mark.parametrize("shared", [False, True], ids=("whole", "shared"))
@settings(max_examples=examples(60))
@given(data=st.data(), backfill=st.sampled_from(("none", "easy", "conservative")))
def test_a_forecast_under_a_cap_that_lowers_modes_comes_true_if_no_job_arrives_later(
    shared: bool, data: st.DataObject, backfill: str
) -> None:
    machine = capped(data.draw, joined(data.draw(modal()), TASKS if shared else None))
    if shared:
        jobs = shared_workloads(TASKS, max_jobs=12, per_node=False, dependencies=False)
    else:
        jobs = simple_workloads(nodes=NODES, max_jobs=12)
    workload = data.draw(jobs)
    never = np.full(len(workload), -1)
    comes_true(workload.replace(cancel_ms=never), machine, f"fcfs+{backfill}")


@pytest.mark.parametrize("cases", [urgent_cases(), crowded_cases()], ids=("whole", "shared"))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_forecast_with_preemption_under_a_cap_that_lowers_modes_comes_true(
    cases: Any, data: st.DataObject
) -> None:
    case = data.draw(cases)
    # A forecast knows of no failure to come.
    cluster = case["cluster"].model_copy(update={"failures": Failures()})
    machine = joined(data.draw(powers_of(cluster)), cluster)
    never = np.full(len(case["workload"]), -1)
    workload = case["workload"].replace(cancel_ms=never, checkpoint_ms=np.zeros_like(never))
    comes_true(workload, capped(data.draw, machine), "fcfs+easy")


@pytest.mark.parametrize(
    ("known", "end_ms"),
    [
        # Until job 1 ends at 95.715 s, both run at 0.7 of the speed.
        (False, [105_715, 40_000]),
        # The scheduler expects the walltime, whatever the mode.
        (True, [150_000, 40_000]),
    ],
    ids=("oracle", "walltime"),
)
def test_a_forecast_knows_how_long_modes_are_lowered_if_it_knows_the_runtimes(
    known: bool, end_ms: list[int]
) -> None:
    workload = Workload.build(
        submit_s=[0, 10, 20], runtime_s=[70, 70, 20], walltime_s=[140, 140, 20], nodes=[2, 2, 1]
    )
    # Four nodes draw at most 680 W in the slow mode; idle ones draw 70 W or 64 W.
    machine = platform(4).model_copy(update={"cap": PowerCap(700, lower_modes=True)})
    site = OpenSimulation(Simulation(workload, machine), workload.walltime_ms if known else None)
    site.arrive(0, 0)
    rows = np.array([1])
    found = site.forecast(10_000, rows, rows)
    assert found[:, 0].tolist() == [10_000, end_ms[0]]
    assert site.forecast(10_000, rows, rows, latest_ms=9_999).tolist() == [[-1], [-1]]
    assert site.simulation.modes == ["base", "base"]
    rows = np.array([2])
    assert site.forecast(20_000, rows, rows)[:, 0].tolist() == [20_000, end_ms[1]]


@pytest.mark.parametrize("tasks", [False, True], ids=("whole", "shared"))
def test_a_job_that_only_a_forecast_has_is_slowed_down_like_others(tasks: bool) -> None:
    chunks = {"tasks": [2, 2], "cores_per_task": [8, 8]} if tasks else None
    workload = Workload.build(
        submit_s=[0, 10], runtime_s=[70, 70], walltime_s=[140, 140], nodes=[2, 2], chunks=chunks
    )
    machine = joined(platform(), TASKS if tasks else None)
    machine = machine.model_copy(update={"cap": PowerCap(830, lower_modes=True)})
    site = OpenSimulation(Simulation(workload, machine), spare=1)
    site.arrive(0, 0)
    rows = np.array([1])
    found = site.forecast(10_000, rows, rows)
    assert found[1, 0] > 90_000
    copies = site.tell(rows, np.array([10_000]))
    assert (site.forecast(10_000, copies, copies) == found).all()


def test_options_that_no_forecast_supports_are_rejected_by_name(tmp_path: Path) -> None:
    workload = generate("poisson", jobs=5, nodes=16, seed=3)
    mine = tmp_path / "mine.py"
    mine.write_text("def control(view):\n    return None\n")
    with pytest.raises(
        ConfigError,
        match="'b': forecasts are not supported with a power control function",
    ):
        simulate_facility(facility(tmp_path, "fcfs", f"fcfs+easy~{mine}"), workload, "sgs-t")
