"""What nodes have besides cores, memory and GPUs, and jobs use up: scratch space, FPGAs and the like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Simulation, Workload, replay, simulate
from hpctwin.cli import main
from hpctwin.errors import ConfigError, TraceError, WorkloadError
from hpctwin.formats import read_workload, write_workload

YAML = """
nodes:
  - {name: plain, count: 2, cores: 8}
  - {name: fast, count: 2, cores: 8, consumables: {fpga: 2, tmp: 800G}}
"""


@pytest.fixture
def machine(tmp_path: Path) -> Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(YAML)
    return Cluster.from_yaml(path)


def jobs(tmp_path: Path, *requests: str) -> Workload:
    """They come one a second and run for 100 s."""
    path = tmp_path / "jobs.csv"
    rows = [f'{n},100,"{request}"' for n, request in enumerate(requests)]
    path.write_text("submit_s,runtime_s,request\n" + "".join(f"{row}\n" for row in rows))
    return read_workload(path)


def lie(placed: pl.DataFrame | None, *columns: str) -> list[tuple[object, ...]]:
    assert placed is not None
    return placed.sort("job_id", "node").select("job_id", "start_s", "node", *columns).rows()


@pytest.mark.parametrize(
    ("backfill", "fourth"), [("none", 100), ("first-fit", 3), ("easy", 3), ("conservative", 3)]
)
def test_jobs_wait_for_consumables_while_cores_are_free(
    machine: Cluster, tmp_path: Path, backfill: str, fourth: float
) -> None:
    workload = jobs(
        tmp_path,
        "-N 1 --gres=fpga:2",
        "-N 1 --gres=fpga:1,tmp:500G",
        "-N 1 --gres=fpga:1,tmp:400G",  # either is there, not both
        "select=1:ncpus=1:fpga=1",
    )
    ran = simulate(workload, machine, f"fcfs+{backfill}@first-fit")
    assert lie(ran.placements, "cores", "fpga", "tmp") == [
        (1, 0, 2, 1, 2, 0),
        (2, 1, 3, 1, 1, 500 * 2**30),
        (3, 100, 2, 1, 1, 400 * 2**30),
        (4, fourth, 2 if fourth > 3 else 3, 1, 1, 0),
    ]
    assert ran.summary()["utilization_fpga"] > 0


def test_tables_saved_simulations_streams_and_replays_hold_them(
    machine: Cluster, tmp_path: Path
) -> None:
    workload = jobs(
        tmp_path, *["-N 1 --gres=fpga:2", "-N 2 --gres=tmp:500G", "select=1:ncpus=2+1:fpga=1"] * 3
    )
    assert write_workload(workload, tmp_path / "jobs.parquet") == ()
    again = read_workload(tmp_path / "jobs.parquet")
    assert again.consumables["fpga"].tolist() == [2, 0, 0] * 3
    assert again.more_tasks.labels == ("1:cores=1.0:fpga=1.0",)
    assert any("consumables" in told for told in write_workload(workload, tmp_path / "jobs.swf"))
    whole = Simulation(again, machine, "fcfs", "easy").run()
    halfway = Simulation(again, machine, "fcfs", "easy")
    halfway.advance(50)
    halfway.save(tmp_path / "half.npz")
    loaded = Simulation.load(tmp_path / "half.npz").run()
    assert whole.placements is not None
    assert loaded.placements is not None
    assert loaded.placements.equals(whole.placements)
    starts = np.rint(whole.jobs["start_s"].to_numpy() * 1000).astype(np.int64)
    replayed = replay(again.replace(recorded_start_ms=starts), machine)
    assert not len(replayed.conflicts)
    assert replayed.result.placements is not None
    assert replayed.result.placements["fpga"].sum() == whole.placements["fpga"].sum()
    crowded = replay(again.replace(recorded_start_ms=np.zeros(9, np.int64)), machine)
    assert "room" in crowded.conflicts["what"].to_list()


def test_whole_nodes_must_have_what_is_asked_of_each(machine: Cluster) -> None:
    asks = {"submit_s": [0, 0, 0], "runtime_s": [10] * 3, "nodes": [2, 1, 3]}
    workload = Workload.build(**asks, consumables={"fpga": [1, 0, 1]})
    ran = simulate(workload, machine, "fcfs+easy")
    assert ran.jobs["state"].to_list() == ["completed", "completed", "rejected"]
    assert ran.jobs["start_s"].to_list()[:2] == [0, 0]


def test_resources_that_no_node_has_are_reported_and_too_large_requests_rejected(
    machine: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = (
        "jobs request consumable 'nic', which no node .* such as consumables: {nic: 2} .*fpga, tmp"
    )
    with pytest.raises(ConfigError, match=told):
        simulate(jobs(tmp_path, "-N 1 --gres=nic:1"), machine, "fcfs+easy")
    jobs(tmp_path, "-N 1 --gres=fpga:3", "-N 3 --gres=fpga:1", "-N 2 --gres=fpga:2")
    arguments = ["simulate", tmp_path / "jobs.csv", "--cluster", tmp_path / "cluster.yaml"]
    with pytest.raises(SystemExit, match="0"):
        main([str(argument) for argument in arguments])
    says = capsys.readouterr().err
    assert "need more fpga per task than any node has (2)" in says
    assert "have more tasks than fit" in says


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("consumables: {fpga: -1}", "it must be 0 or more, not -1"),
        ("consumables: {fpga: lots}", "'lots' is not an amount, such as 2, 100G or 100gb"),
        ("consumables: {cores: 4}", "consumable 'cores': the name is reserved"),
        ("consumables: {'my disk': 4}", "consumable 'my disk': the name is not valid"),
        ("consumables: {tmp: 1.0e+30}", "consumables.tmp: it must be .* or less, not 1e"),
        ("consumable: {tmp: 1}", "consumable"),
    ],
)
def test_wrong_consumables_of_nodes_are_rejected(tmp_path: Path, group: str, why: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"nodes:\n  - {{name: a, count: 1, cores: 8, {group}}}\n")
    with pytest.raises(ConfigError, match=why):
        Cluster.from_yaml(path)


@pytest.mark.parametrize(
    ("column", "cell", "why"),
    [
        ("consumable_fpga", "-1", "found '-1', expected a number, 0 or more, up to 1e"),
        ("consumable_fpga", "many", "found 'many', expected a number"),
        ("consumable_", "1", "consumable '': the name is not valid"),
        ("consumable_cores", "1", "consumable 'cores': the name is reserved"),
        ("more_tasks", "1:fpga=x", "is not a valid group of tasks"),
        ("more_tasks", "1:fpga=1:cores=2", "is not a valid group of tasks"),
    ],
)
def test_wrong_columns_are_rejected(tmp_path: Path, column: str, cell: str, why: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"submit_s,runtime_s,tasks,{column}\n0,10,1,{cell}\n")
    with pytest.raises(TraceError, match=why):
        read_workload(path)


def test_a_task_may_ask_for_a_consumable_alone() -> None:
    asks = {"submit_s": [0], "runtime_s": [10], "nodes": [1]}
    nothing = {"tasks": [1], "cores_per_task": [0]}
    Workload.build(**asks, chunks=nothing, consumables={"fpga": [1]})
    with pytest.raises(WorkloadError, match="request no cores, memory or GPUs"):
        Workload.build(**asks, chunks=nothing, consumables={"fpga": [0]})
