"""Batsim's result files, read back by the rules of Evalys."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from hpctwin import Cluster, Workload, generate, read_cluster, read_workload, simulate
from hpctwin.cli.app import main
from hpctwin.model import Failures
from hpctwin.report.pages.run import write_run

MACHINE_STATES = [
    "time", "nb_sleeping", "nb_switching_on", "nb_switching_off", "nb_idle", "nb_computing",
]  # fmt: skip
FILES = ("jobs", "schedule", "machine_states", "pstate_changes", "consumed_energy")
SLEEP: dict[str, Any] = {
    "name": "off", "power_w": 5.0,
    "switch_off": {"time": 6, "power_w": 70}, "switch_on": {"time": 20, "power_w": 80},
}  # fmt: skip
TWO_GROUPS = Cluster.model_validate(
    {
        "name": "two",
        "nodes": [
            {"name": "a", "count": 4, "sleep": [SLEEP], "mode": "fast",
             "modes": {"slow": {"power_w": 60, "idle_w": 40, "speed": 0.5},
                       "fast": {"power_w": 100, "idle_w": 50}}},
            {"name": "b", "count": 2, "modes": {"x": {"power_w": 200, "idle_w": 90}},
             "sleep": [{"name": "nap", "power_w": 9.0, "switch_off": {"time": 3, "power_w": 70},
                        "switch_on": {"time": 4, "power_w": 80}}, SLEEP]},
        ],
    }
)  # fmt: skip
FOUR = Workload.build(submit_s=[10, 20, 400, 900], runtime_s=[100, 50, 100, 30], nodes=[4, 2, 6, 1])


def exported(
    folder: Path, workload: Workload, cluster: Cluster, *policy: str, **options: Any
) -> Any:
    """Result of a simulation, and Batsim's files of it by name."""
    result = simulate(workload, cluster, *policy, log=True, **options)
    write_run(result, folder / "run", {})
    with pytest.raises(SystemExit, match="0"):
        main(["export", str(folder / "run"), "--batsim", str(folder / "out")])
    found = {name: folder / f"out_{name}.csv" for name in FILES}
    return result, {name: pl.read_csv(path) for name, path in found.items() if path.exists()}


def test_jobs_have_the_names_of_their_profiles(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(
        """{"nb_res": 4, "profiles": {"short": {"type": "delay", "delay": 3}, "n": {"type": "delay",
        "delay": 4}, "both": {"type": "composed", "seq": ["short", "n"]}}, "jobs": [
        {"id": 1, "subtime": 0, "res": 1, "walltime": 9, "profile": "both"},
        {"id": 2, "subtime": 0, "res": 1, "walltime": 9, "profile": "n"},
        {"id": 3, "subtime": 0, "res": 9, "walltime": 9, "profile": "short"}]}"""
    )
    jobs = read_workload(tmp_path / "w.json")
    result, files = exported(tmp_path, jobs, Cluster.uniform(nodes=4))
    assert files["jobs"].sort("job_id")["profile"].to_list() == ["both", "n", "short"]
    assert result.jobs["profile"].to_list() == ["both", "n", "short"]
    plain = exported(tmp_path / "plain", FOUR, TWO_GROUPS)[0]
    assert "profile" not in plain.jobs.columns


def members(text: object) -> set[int]:
    """Numbers in an interval set: ``0-3 7``."""
    runs = [part.split("-") for part in str(text).split()]
    found = [number for run in runs for number in range(int(run[0]), int(run[-1]) + 1)]
    assert len(found) == len(set(found))
    return set(found)


def check_states(states: pl.DataFrame, nodes: int) -> None:
    """As evalys.mstates: the columns are there, and all rows have the same sum."""
    assert states.columns == MACHINE_STATES
    assert len(states) > 0
    assert states["time"].is_sorted()
    assert states["time"].n_unique() == len(states)
    assert set(states.select(pl.sum_horizontal(MACHINE_STATES[1:])).to_series()) == {nodes}
    assert min(states[name].min() for name in MACHINE_STATES) >= 0


def pstates_of(changes: pl.DataFrame, nodes: int) -> dict[int, list[tuple[float, int]]]:
    """As evalys.pstates: power states of each machine, which begin at time 0."""
    assert changes.columns == ["time", "machine_id", "new_pstate"]
    assert changes["time"].is_sorted()
    found: dict[int, list[tuple[float, int]]] = {}
    for time, machines, state in changes.iter_rows():
        for machine in members(machines):
            assert machine in found or time == 0, "no row at time 0"
            found.setdefault(machine, []).append((time, state))
    assert set(found) == set(range(nodes))
    for states in found.values():
        for before, after in pairwise(states):
            assert before[0] < after[0]
            assert before[1] != after[1]
    return found


def test_jobs_and_schedule_have_batsims_columns_and_all_jobs(tmp_path: Path) -> None:
    workload = Workload.build(
        submit_s=[0, 0, 1, 1], runtime_s=[10, 10, 10, 4], nodes=[2, 9, 2, 1], walltime_s=[99, 99, 5, 5],
        fails=[0, 0, 0, 1], job_id=["a", "b", "c", "d"],
    )  # fmt: skip
    _, files = exported(tmp_path, workload, Cluster.uniform(nodes=4, active_w=100, idle_w=10))
    assert files["jobs"].columns == [
        "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources",
        "requested_time", "success", "final_state", "starting_time", "execution_time", "finish_time",
        "waiting_time", "turnaround_time", "stretch", "allocated_resources", "consumed_energy",
        "metadata",
    ]  # fmt: skip
    found = {row["job_id"]: row for row in files["jobs"].sort("job_id").iter_rows(named=True)}
    assert [row["final_state"] for row in found.values()] == [
        "COMPLETED_SUCCESSFULLY", "REJECTED", "COMPLETED_WALLTIME_REACHED", "COMPLETED_FAILED",
    ]  # fmt: skip
    assert [row["success"] for row in found.values()] == [1, 0, 0, 0]
    assert found["b"]["starting_time"] is None
    assert found["a"]["consumed_energy"] == 2000
    schedule = files["schedule"].row(0, named=True)
    expected = {
        "nb_jobs": 4, "nb_jobs_finished": 3, "nb_jobs_success": 1, "nb_jobs_killed": 1,
        "nb_jobs_rejected": 1, "success_rate": 0.25, "makespan": found["d"]["finish_time"],
        "nb_computing_machines": 4, "nb_machine_switches": 0, "nb_grouped_switches": 0,
    }  # fmt: skip
    assert {name: schedule[name] for name in expected} == expected
    assert [*schedule] == sorted(schedule)


def test_machines_switch_sleep_and_compute_as_in_the_run(tmp_path: Path) -> None:
    _, files = exported(tmp_path, FOUR, TWO_GROUPS, "fcfs+easy", power="psus:30s")
    check_states(files["machine_states"], 6)
    assert files["machine_states"].rows()[:6] == [
        (10.0, 0, 0, 0, 2, 4), (20.0, 0, 0, 0, 0, 6), (70.0, 0, 0, 0, 2, 4), (100.0, 0, 0, 2, 0, 4),
        (103.0, 2, 0, 0, 0, 4), (110.0, 2, 0, 0, 4, 0),
    ]  # fmt: skip
    assert files["machine_states"].row(-1) == (950.0, 5, 0, 0, 1, 0)
    # Modes are 0 (slow) and 1 (fast), or 0 (x); then sleep states.
    states = pstates_of(files["pstate_changes"], 6)
    assert states[1] == [(0.0, 1), (140.0, -2), (146.0, 2), (400.0, -1), (420.0, 1), (550.0, -2),
                         (556.0, 2)]  # fmt: skip
    assert states[4][:5] == [(0.0, 0), (100.0, -2), (103.0, 1), (400.0, -1), (404.0, 0)]
    assert files["pstate_changes"].rows()[:4] == [
        (0.0, "4-5", 0), (0.0, "0-3", 1), (100.0, "4-5", -2), (103.0, "4-5", 1),
    ]  # fmt: skip
    schedule = files["schedule"].row(0, named=True)
    assert (schedule["nb_machine_switches"], schedule["nb_grouped_switches"]) == (19, 5)
    assert schedule["time_sleeping"] == 3930.0


def test_energy_is_that_of_the_run(tmp_path: Path) -> None:
    result, files = exported(tmp_path, FOUR, TWO_GROUPS, "fcfs+easy", power="psus:30s")
    energy = files["consumed_energy"]
    assert energy.columns == ["time", "energy", "event_type", "wattmin", "epower"]
    assert energy.rows()[:5] == [
        (10.0, 0.0, "s", 380.0, None), (20.0, 5800.0, "s", 380.0, 580.0),
        (70.0, 45800.0, "e", 380.0, 800.0), (100.0, 63200.0, "p", 340.0, 580.0),
        (103.0, 64820.0, "p", 218.0, 540.0),
    ]  # fmt: skip
    assert energy["energy"][-1] == pytest.approx(result.summary()["total_energy_j"])
    assert energy["event_type"].value_counts(sort=True).height == 3
    assert energy.filter(pl.col("event_type") == "e").height == 4
    assert (energy["epower"].drop_nulls() >= energy["wattmin"].min()).all()


def test_without_a_power_model_nothing_switches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = generate("poisson", jobs=200, nodes=16, seed=3)
    _, files = exported(tmp_path, workload, Cluster.uniform(16), placement="contiguous")
    assert "consumed_energy" not in files
    assert "not written: the run has no power over time" in capsys.readouterr().out
    check_states(files["machine_states"], 16)
    assert files["pstate_changes"].rows() == [(0.0, "0-15", 0)]
    times = files["machine_states"]["time"].diff().shift(-1)
    computing = (times * files["machine_states"]["nb_computing"]).sum()
    jobs = files["jobs"]
    assert computing == pytest.approx(
        (jobs["execution_time"] * jobs["requested_number_of_resources"]).sum()
    )
    for row in jobs.iter_rows(named=True):
        assert len(members(row["allocated_resources"])) == row["requested_number_of_resources"]


def test_shared_nodes_compute_while_any_job_is_on_them(tmp_path: Path) -> None:
    cluster = Cluster.model_validate({"nodes": [{"name": "n", "count": 2, "cores": 4}]})
    workload = Workload.build(
        submit_s=[0, 5, 30, 30], runtime_s=[10, 10, 5, 5], nodes=[1] * 4,
        chunks={"tasks": [1] * 4, "cores_per_task": [2, 2, 4, 4]},
    )  # fmt: skip
    _, files = exported(tmp_path, workload, cluster)
    check_states(files["machine_states"], 2)
    busy = files["machine_states"].select("time", "nb_computing").rows()
    assert busy == [(0.0, 1), (15.0, 0), (30.0, 2), (35.0, 0)]


def test_numbers_of_batsims_platform_come_back(tmp_path: Path) -> None:
    path = tmp_path / "platform.xml"
    path.write_text(
        '<platform version="4.1"><zone id="w" routing="Full">'
        '<host id="n0" speed="100Mf,80Mf,1e-9Mf,0.5f,0.05f" pstate="0">'
        '<prop id="wattage_per_state" value="95:190,90:150,9:9,100:100,125:125"/>'
        '<prop id="sleep_pstates" value="2:3:4"/></host></zone></platform>'
    )
    workload = Workload.build(submit_s=[0, 500], runtime_s=[10, 10], nodes=[1, 1])
    _, files = exported(tmp_path, workload, read_cluster(path), power="psus:60s")
    assert [state for _, state in pstates_of(files["pstate_changes"], 1)[0]] == [0, -2, 2, -1, 0]


def test_attempts_that_failures_ended_are_events_too(tmp_path: Path) -> None:
    cluster = TWO_GROUPS.model_copy(
        update={"failures": Failures.model_validate({"mtbf": 900.0, "mttr": 60.0})}
    )
    workload = generate("poisson", jobs=60, nodes=6, mean_runtime_s=400, seed=2)
    result, files = exported(tmp_path, workload, cluster, seed=1)
    assert len(result.lost) > 0
    check_states(files["machine_states"], 6)
    pstates_of(files["pstate_changes"], 6)
    energy = files["consumed_energy"]
    starts = energy.filter(pl.col("event_type") == "s").height
    assert starts == len(result.lost) + result.jobs["start_s"].count()
    assert energy["energy"].is_sorted()


def test_a_run_without_jobs_that_start_has_all_files(tmp_path: Path) -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[5], nodes=[99])
    _, files = exported(tmp_path, workload, TWO_GROUPS)
    assert files["jobs"]["final_state"].to_list() == ["REJECTED"]
    check_states(files["machine_states"], 6)
    pstates_of(files["pstate_changes"], 6)
