"""Jobs whose tasks are of several kinds, as PBS's ``select=2:ncpus=8+1:ngpus=4``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Workload, replay, simulate
from hpctwin.errors import WorkloadError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model import Category
from hpctwin.model.demand import totals_asked
from hpctwin.model.requests.chunks import Tasks, more_tasks_text, read_more_tasks

MACHINE = Cluster.model_validate(
    {
        "nodes": [
            {"name": "thin", "count": 2, "cores": 16, "memory_gb": 64, "gpus": 0},
            {"name": "fat", "count": 1, "cores": 32, "memory_gb": 256, "gpus": 4},
        ]
    }
)


def table(tmp_path: Path, *rows: str) -> Path:
    """Jobs by submit time, run time and request."""
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,runtime_s,request\n" + "".join(f"{row}\n" for row in rows))
    return path


def built(more: str | None, **columns: Any) -> Workload:
    """One job, of which the first task asks for four cores."""
    chunks = {"tasks": [1], "cores_per_task": [4], **columns.pop("chunks", {})}
    return Workload.build(
        submit_s=[0],
        runtime_s=[10],
        nodes=columns.pop("nodes", [1]),
        chunks=chunks,
        more_tasks=Category.of([more]),
    )


def test_chunks_of_several_kinds_are_placed_where_each_fits(tmp_path: Path) -> None:
    jobs = read_workload(
        table(
            tmp_path,
            "0,100,select=2:ncpus=8:mem=16gb+1:ncpus=32:ngpus=4",
            "1,10,select=1:ncpus=32",
            "2,10,select=1:ncpus=16",
            "3,10,select=1:ncpus=4+1:ncpus=4 place=scatter",
        )
    )
    result = simulate(jobs, MACHINE, "fcfs+easy")
    assert result.jobs["start_s"].to_list() == [0, 100, 2, 100]
    assert result.placements is not None
    assert result.placements.select("job_id", "node", "cores", "memory_gb", "gpus").rows() == [
        (1, 0, 16, 32, 0),
        (1, 2, 32, 0, 4),
        (3, 1, 16, 0, 0),
        (2, 2, 32, 0, 0),
        (4, 0, 4, 0, 0),
        (4, 1, 4, 0, 0),
    ]


def test_chunks_of_several_kinds_on_one_node_are_one_row_of_placements(tmp_path: Path) -> None:
    jobs = read_workload(
        table(
            tmp_path,
            "0,10,select=1:ncpus=4:ngpus=1+2:ncpus=2:mem=8gb:ngpus=1",
            "1,10,select=2:ncpus=4+1:ngpus=1 place=excl",
        )
    )
    placed = simulate(jobs, MACHINE, "fcfs+none").placements
    assert placed is not None
    assert placed.select("job_id", "node", "start_s", "cores", "memory_gb", "gpus").rows() == [
        (1, 2, 0, 8, 16, 3),
        (2, 0, 10, 16, 64, 0),
        (2, 2, 10, 32, 256, 4),
    ]


def test_nodes_are_tried_by_number_if_the_placement_leaves_no_capacity_for_a_later_kind() -> None:
    machine = Cluster.model_validate(
        {"nodes": [{"name": "n", "count": 2, "cores": 8}, {"name": "m", "count": 1, "cores": 4}]}
    )
    # Spread has the two first tasks on two nodes, on neither of which the second kind finds room.
    jobs = built("1:cores=8", chunks={"tasks": [2]})
    placed = simulate(jobs, machine, "fcfs+easy@spread").placements
    assert placed is not None
    assert placed.select("node", "cores").rows() == [(0, 8.0), (1, 8.0)]


def test_a_job_that_no_empty_cluster_holds_is_rejected() -> None:
    result = simulate(built("1:cores=64"), MACHINE)
    assert result.jobs["state"].to_list() == ["rejected"]
    assert result.rejection_reasons == {"need more cores per task than any node has (32)": 1}
    scattered = built("1:cores=1+2:cores=1", chunks={"tasks_per_node": [1]})
    assert simulate(scattered, MACHINE).jobs["state"].to_list() == ["rejected"]


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet"])
def test_tables_hold_the_further_kinds(name: str, tmp_path: Path) -> None:
    jobs = read_workload(table(tmp_path, "0,5,select=1:ncpus=2+3:ncpus=4:mem=1gb", "1,5,-n 4"))
    assert write_workload(jobs, tmp_path / name) == ()
    again = read_workload(tmp_path / name)
    assert [again.more_tasks.labels[0], *again.more_tasks.codes] == [
        "3:cores=4.0:memory_gb=1.0", 0, -1
    ]  # fmt: skip
    assert totals_asked(again)["cores"].tolist() == [14, 4]
    assert any("more tasks" in told for told in write_workload(jobs, tmp_path / "jobs.swf"))


@pytest.mark.parametrize(
    "kinds",
    [(Tasks(1),), (Tasks(2, 0.5, 2.25), Tasks(1, 0.0, 0.0, 0.25)), (Tasks(9, 1e-3, 1e9, 3.0),)],
)
def test_further_kinds_read_back_as_written(kinds: tuple[Tasks, ...]) -> None:
    assert read_more_tasks(more_tasks_text(kinds)) == kinds


@pytest.mark.parametrize(
    "text", ["", "x", "0:cores=1", "1:cores=0", "1:cores=-1", "1:cpus=3", "1+", "1:cores=1e999"]
)
def test_an_unknown_kind_of_tasks_is_reported_with_the_valid_ones(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"such as 1:cores=32:memory_gb=64:gpus=4"):
        read_more_tasks(text)


def test_further_kinds_without_a_first_and_with_least_nodes_are_rejected() -> None:
    with pytest.raises(WorkloadError, match=r"job 1: more_tasks is '1', but tasks .of the first"):
        built("1", chunks={"tasks": [0]})
    with pytest.raises(WorkloadError, match="its tasks differ, and it requests at least 2 nodes"):
        built("1", chunks={"tasks": [2]}, nodes=[2])


@pytest.mark.parametrize(
    ("recorded", "exclusive", "held"),
    [
        (None, 0, [(0, 16.0, 0.0), (1, 8.0, 0.0), (2, 4.0, 2.0)]),
        ("0,1,2", 0, [(0, 16.0, 0.0), (1, 8.0, 0.0), (2, 4.0, 2.0)]),
        ("1,2", 0, [(1, 16.0, 0.0), (2, 12.0, 2.0)]),
        ("1,2", 1, [(1, 16.0, 0.0), (2, 32.0, 4.0)]),
    ],
)
def test_a_replay_has_each_kind_of_tasks_on_the_recorded_nodes_or_on_the_lowest(
    recorded: str | None, exclusive: int, held: list[tuple[int, float, float]]
) -> None:
    jobs = built(
        "2:cores=2:gpus=1", chunks={"tasks": [3], "cores_per_task": [8], "exclusive": [exclusive]}
    )
    jobs = jobs.replace(recorded_start_ms=np.array([0]), recorded_nodes=[recorded])
    again = replay(jobs, MACHINE)
    assert not len(again.conflicts)
    placed = again.result.placements
    assert placed is not None
    assert placed.select("node", "cores", "gpus").rows() == held


def test_a_replay_reports_the_tasks_of_all_kinds_that_did_not_fit() -> None:
    jobs = built("3:cores=2:gpus=2", chunks={"tasks": [2], "cores_per_task": [16]})
    again = replay(jobs.replace(recorded_start_ms=np.array([0])), MACHINE)
    assert again.conflicts.select("what", "asked", "free").rows()[-1] == ("room", 5.0, 4.0)
