"""Jobs that lie on as many nodes as they can, as Slurm's ``--spread-job``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, Workload, replay, simulate
from hpctwin.errors import WorkloadError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model import Category

MACHINE = Cluster.model_validate({"nodes": [{"name": "n", "count": 6, "cores": 8}]})
ASKED = (
    ("tasks=1 cores=8", [(0, 8)]),
    ("tasks=1 cores=8", [(1, 8)]),
    ("tasks=4 spread", [(2, 1), (3, 1), (4, 1), (5, 1)]),
    ("tasks=8 spread", [(2, 5), (3, 1), (4, 1), (5, 1)]),
    ("tasks=4 cores=2 spread", [(2, 2), (3, 2), (4, 2), (5, 2)]),
    ("tasks=7 nodes=2", [(3, 4), (4, 3)]),
    ("tasks=3 spread", [(4, 1), (5, 2)]),
    ("tasks=1 spread", [(5, 1)]),
)
"""What jobs ask for, one after the other, and the CPUs that a real Slurm 22.05 gives them on its six nodes.

Seen with ``cons_tres``; the first two of 8 CPUs for those that had all of n1's and n2's memory there, and two
nodes at least for ``-N2``.
"""


def jobs() -> Workload:
    rows = [dict(part.partition("=")[::2] for part in asked.split()) for asked, _ in ASKED]
    return Workload.build(
        submit_s=np.arange(len(rows)),
        runtime_s=[100] * len(rows),
        nodes=[int(row.get("nodes", 1)) for row in rows],
        chunks={
            "tasks": [int(row["tasks"]) for row in rows],
            "cores_per_task": [int(row.get("cores", 1)) for row in rows],
            "spread_job": ["spread" in row for row in rows],
        },
    )


@pytest.mark.parametrize("placement", ["first-fit", "tightest-run"])
def test_jobs_get_the_nodes_that_slurm_gives_them(placement: str) -> None:
    placed = simulate(jobs(), MACHINE, f"fcfs+easy@{placement}").placements
    assert placed is not None
    found = {
        job: part.select("node", "cores").rows()
        for (job,), part in placed.sort("job_id", "node").group_by(["job_id"], maintain_order=True)
    }
    assert found == {row + 1: where for row, (_, where) in enumerate(ASKED)}


def test_tables_hold_it_and_a_replay_goes_by_it(tmp_path: Path) -> None:
    workload = jobs().replace(recorded_start_ms=1000 * np.arange(len(ASKED)))
    for name in ("jobs.parquet", "jobs.csv"):
        assert write_workload(workload, tmp_path / name) == ()
        again = read_workload(tmp_path / name)
        assert again.chunks["spread_job"].tolist() == workload.chunks["spread_job"].tolist()
    placed = replay(again, MACHINE).result.placements
    assert placed is not None
    assert placed.filter(placed["job_id"] == 4).select("node", "cores").rows() == ASKED[3][1]


def test_words_and_requests_are_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "submit_s,runtime_s,tasks,spread_job,request\n0,5,2,true,\n0,5,2,FALSE,\n0,5,,,-n 3 --spread-job\n"
    )
    assert read_workload(path).chunks["spread_job"].tolist() == [1, 0, 1]


def test_tasks_of_several_kinds_are_not_spread() -> None:
    asks = {"submit_s": [0], "runtime_s": [10], "nodes": [1]}
    with pytest.raises(
        WorkloadError, match=r"its tasks differ, and it sets spread_job: .* not modeled"
    ):
        Workload.build(
            **asks,
            chunks={"tasks": [2], "spread_job": [1]},
            more_tasks=Category.of(["1:cores=4"]),
        )
