"""Jobs all of whose nodes have one value of something, as PBS's ``place=group=rack``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, Workload, replay, simulate
from hpctwin.errors import WorkloadError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model import Category
from hpctwin.rms.emulated.agenda import arrivals

MACHINE = Cluster.model_validate(
    {
        "nodes": [
            {"name": "a", "count": 3, "cores": 8, "features": ["ib", "rack=r1"]},
            {"name": "b", "count": 2, "cores": 8, "features": ["rack=r2"]},
            {"name": "c", "count": 1, "cores": 8},
        ]
    }
)


def placed(tmp_path: Path, *requests: str) -> list[tuple[int, float, list[int]]]:
    """When each job starts, and its nodes; they come one a second and run for 100 s."""
    path = tmp_path / "jobs.csv"
    rows = [f"{n},100,{request}" for n, request in enumerate(requests)]
    path.write_text("submit_s,runtime_s,request\n" + "".join(f"{row}\n" for row in rows))
    found = simulate(read_workload(path), MACHINE, "fcfs+easy@first-fit").placements
    assert found is not None
    grouped = found.group_by("job_id", "start_s", maintain_order=True).agg("node").sort("job_id")
    return [(job, start, nodes) for job, start, nodes in grouped.rows()]


def test_a_job_is_placed_on_the_smallest_set_that_fits_or_waits_for_one(tmp_path: Path) -> None:
    assert placed(
        tmp_path,
        "select=2:ncpus=8 place=group=rack",
        "select=2:ncpus=8 place=group=rack",
        "select=2:ncpus=8 place=group=rack",  # two nodes are free, in two sets
        "select=1:ncpus=8 place=group=rack",
        "select=1:ncpus=4+1:ncpus=8 place=group=rack",
    ) == [
        (1, 0, [3, 4]),
        (2, 1, [0, 1]),
        (3, 100, [3, 4]),
        (4, 3, [5]),
        (5, 101, [0, 1]),
    ]  # fmt: skip


def test_one_that_no_set_could_hold_may_have_all_nodes(tmp_path: Path) -> None:
    assert placed(tmp_path, "select=4:ncpus=8 place=group=rack") == [(1, 0, [0, 1, 2, 3])]


def test_tables_hold_it_a_replay_goes_by_it_and_whole_nodes_refuse_it(tmp_path: Path) -> None:
    asks = {"submit_s": [0], "runtime_s": [10], "nodes": [1], "group_by": Category.of(["rack"])}
    jobs = Workload.build(**asks, chunks={"tasks": [2], "cores_per_task": [8]})
    assert write_workload(jobs, tmp_path / "jobs.parquet") == ()
    again = read_workload(tmp_path / "jobs.parquet")
    assert again.group_by.labels == ("rack",)
    assert any("group by" in told for told in write_workload(jobs, tmp_path / "jobs.swf"))
    replayed = replay(again.replace(recorded_start_ms=np.array([0])), MACHINE).result.placements
    assert replayed is not None
    assert replayed["node"].to_list() == [3, 4]
    with pytest.raises(WorkloadError, match="group_by is 'rack', but it requests whole nodes"):
        Workload.build(**asks)


@pytest.mark.parametrize("name", ["rack=r1", "7", "my rack"])
def test_an_unknown_name_of_groups_is_rejected_with_a_known_one(name: str) -> None:
    asks = {"submit_s": [0], "runtime_s": [10], "nodes": [1], "chunks": {"tasks": [2]}}
    with pytest.raises(WorkloadError, match=f"group_by is '{name}'; .*, such as rack if"):
        Workload.build(**asks, group_by=Category.of([name]))


def test_an_emulated_cluster_rejects_jobs_whose_nodes_are_of_one_group() -> None:
    asks = {"submit_s": [0], "runtime_s": [10], "nodes": [1], "chunks": {"tasks": [2]}}
    with pytest.raises(WorkloadError, match=r"job 1: 'group_by' \(rack\) is not supported"):
        arrivals(Workload.build(**asks, group_by=Category.of(["rack"])), 0.0)
