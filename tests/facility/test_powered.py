"""Facilities of clusters whose nodes have power states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, generate, simulate
from hpctwin.errors import ConfigError
from hpctwin.facility import Facility, simulate_facility
from hpctwin.simulation.running.incremental import OpenSimulation
from tests.energy.powered import NODES, platforms
from tests.strategies import simple_workloads

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


def test_options_that_no_forecast_supports_are_rejected_by_name(tmp_path: Path) -> None:
    workload = generate("poisson", jobs=5, nodes=16, seed=3)
    mine = tmp_path / "mine.py"
    mine.write_text("def control(view):\n    return None\n")
    with pytest.raises(
        ConfigError,
        match="'b': streams and forecasts are not supported with a power control function",
    ):
        simulate_facility(facility(tmp_path, "fcfs", f"fcfs+easy~{mine}"), workload, "sgs-t")
