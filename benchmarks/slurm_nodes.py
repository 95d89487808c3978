"""Which nodes a real Slurm chose, start by start, and which the simulator would with the same parts free.

    python benchmarks/slurm_nodes.py FOLDER RUN [PLACEMENT …]

A run is one of 1,000 jobs that ``slurm_shared.py run FOLDER RUN`` has written: ``mixed-builtin.1``, say. Its
log tells in which order jobs started and ended: before each start, the jobs that run have what Slurm says
that they held, and the one that starts is laid by our placement.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import mixed_jobs
from hpctwin.model import Cluster, Workload
from hpctwin.rms.site_folder import import_site
from hpctwin.rms.slurm.listing.allocations import parts_held
from hpctwin.simulation import Simulation
from hpctwin.simulation.running.incremental import Running, begin_at

NOBODY = np.zeros(0, np.int64)
JOB = re.compile(r"JobId=(\d+)(?:_\d+\((\d+)\))?")
PLACEMENTS = ("tightest-run", "best-fit", "first-fit")


def lines_of(log: Path, rows: dict[int, int]) -> list[tuple[bool, int]]:
    """Starts (true) and ends of jobs, by their rows, in the order in which Slurm says them."""
    found = []
    for line in log.read_text().splitlines():
        job = JOB.search(line)
        row = rows.get(int(job[2] or job[1])) if job else None
        starts = "Allocate JobId" in line or "Started JobId" in line
        if row is not None and (starts or line.endswith(" done")):
            found.append((starts, row))
    return found


def held_of(
    row: dict[str, Any], workload: Workload, number: int
) -> tuple[list[int], np.ndarray | None]:
    """The nodes of a job, and what it held of each; its GPUs as asked: rows of ended jobs do not say."""
    parts = parts_held(row, mixed_jobs.SHARING)
    nodes = [int(name[1:]) - 1 for name in parts]
    chunks = workload.chunks
    if chunks["exclusive"][number]:
        return nodes, None
    tasks = [
        max(1, round(part.cores / chunks["cores_per_task"][number])) for part in parts.values()
    ]
    if chunks["tasks"][number] == workload.nodes[number]:
        tasks = [1] * len(nodes)
    gpus = chunks["gpus_per_task"][number]
    return nodes, np.array(
        [(p.cores, p.memory_gb, gpus * n) for p, n in zip(parts.values(), tasks, strict=True)]
    )


def laid(
    workload: Workload, cluster: Cluster, placement: str, runs: dict[int, Any], row: int
) -> set[int]:
    """The nodes that a job would have beside those that run."""
    rows = np.sort([*runs, row])
    some = workload.take(rows)
    place = {number: at for at, number in enumerate(rows.tolist())}
    simulation = Simulation(some, cluster, f"fcfs+none@{placement}")
    nodes = tuple(np.array(held[0]) for held in runs.values())
    ends = np.full(len(runs), 10**9)
    at = np.array([place[number] for number in runs], np.int64)
    running = Running(at, np.zeros(len(runs), np.int64), ends, nodes)
    begin_at(simulation, 1000, running, NOBODY, NOBODY, [held[1] for held in runs.values()])
    ahead = simulation.fork()
    ahead.advance(1)
    placed = ahead.result().placements
    return set(placed.filter(placed["job_id"] == some.job_id[place[row]])["node"].to_list())


def tell(folder: Path, name: str, placement: str) -> None:
    """How many starts are on the same nodes, by what the jobs ask for."""
    jobs = mixed_jobs.loaded(folder, name)
    cluster = import_site("slurm", folder / f"{name}.site").site.cluster
    machine = cluster.model_copy(update={"limits": [], "accounts": [], "qos": []})
    workload = mixed_jobs.workload_of(jobs)
    asked = [mixed_jobs.submissions()[job["submission"]].asks for job in jobs]
    plain = workload.replace(
        submit_ms=np.zeros(len(jobs), np.int64), dependencies=type(workload.dependencies).of([])
    )
    runs: dict[int, Any] = {}
    same, count = Counter[str](), Counter[str]()
    for starts, row in lines_of(
        folder / f"{name}.log", {job["job_id"]: row for row, job in enumerate(jobs)}
    ):
        if not starts:
            runs.pop(row, None)
            continue
        held = held_of(jobs[row], workload, row)
        kind = re.sub(r"\d+", "#", " ".join(word.partition("=")[0] for word in asked[row]))
        count[kind] += 1
        same[kind] += laid(plain, machine, placement, runs, row) == set(held[0])
        runs[row] = held
    print(f"{name}, {placement}: {same.total()} of {count.total()} starts on the same nodes")
    for kind in sorted(count):
        print(f"  {kind}: {same[kind]} of {count[kind]}")


if __name__ == "__main__":
    where, run, *placements = sys.argv[1:]
    for one in placements or PLACEMENTS:
        tell(Path(where), run, one)
