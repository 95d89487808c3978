"""AccaSim beside ours on jobs that share nodes: the same starts, and how long each takes.

    python3.9 -m venv accasim && accasim/bin/pip install accasim
    python benchmarks/accasim.py --accasim accasim/bin/python [--jobs 20000] [--load 0.9] [--json]

AccaSim 1.1.3 does not run under Python 3.10 and later. One workload, as SWF for AccaSim and as tasks for us:
a task for each core of a job, on 1,000 nodes of 64 cores and 256 GB, first come first served without
backfilling, nodes by number (AccaSim's FIFO with FirstFit; ours ``fcfs+none@first-fit``). CPU seconds of
making the simulation and running it; AccaSim reads its file as it goes on. ``--backfill easy`` runs AccaSim's
EBF, which keeps no reservation (docs/evidence/validation.md): where jobs wait, its starts are others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from hpctwin import Cluster, Simulation, Workload
from shared_nodes import CORES, MEMORY_GB, NODES, made_up

ACCASIM = """
import json, logging, sys, time
from accasim.base.simulator_class import Simulator
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
from accasim.base.allocator_class import FirstFit
scheduler = {"none": FirstInFirstOut, "easy": EASYBackfilling}[sys.argv[1]]
simulator = Simulator("jobs.swf", "system.json", scheduler(FirstFit()), statistics_output=False,
                      show_statistics=False, RESULTS_FOLDER_PATH="out", LOG_LEVEL="ERROR")
begin = time.process_time()
simulator.start_simulation()
print(json.dumps({"cpu_s": time.process_time() - begin}))
"""


def whole_seconds(workload: Workload) -> Workload:
    """As AccaSim takes it."""
    times = {
        name: np.ceil(getattr(workload, name) / 1000).astype(np.int64) * 1000
        for name in ("submit_ms", "runtime_ms", "walltime_ms")
    }
    return workload.replace(**times)


def write_for_accasim(workload: Workload, folder: Path) -> None:
    """Its input files; memory is in GB for each core."""
    with (folder / "jobs.swf").open("w") as file:
        for row in range(len(workload)):
            tasks = int(workload.chunks["tasks"][row])
            memory = int(workload.chunks["memory_gb_per_task"][row])
            submit, run, wall = (
                int(getattr(workload, name)[row]) // 1000
                for name in ("submit_ms", "runtime_ms", "walltime_ms")
            )
            file.write(
                f"{row + 1} {submit} -1 {run} {tasks} -1 -1 {tasks} {wall} {memory} 1 1 1 1 1 1 -1 -1\n"
            )
    system = {
        "groups": {"node": {"core": CORES, "mem": MEMORY_GB}},
        "resources": {"node": NODES},
        "equivalence": {"processor": {"core": 1}},
    }
    (folder / "system.json").write_text(json.dumps(system))
    (folder / "out").mkdir()
    (folder / "run.py").write_text(ACCASIM)


def theirs(workload: Workload, python: Path, backfill: str) -> tuple[float, np.ndarray]:
    """CPU seconds, and when each job started, s [jobs]."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_for_accasim(workload, folder)
        done = subprocess.run(
            [python, "run.py", backfill], cwd=folder, capture_output=True, text=True, check=True
        )
        start = np.full(len(workload), -1)
        for line in (folder / "out/sched-jobs.swf").read_text().splitlines():
            job, rest = line.split(";", 1)
            clock = rest.rsplit("__", 1)[1].split(";", 1)[0]
            start[int(job) - 1] = int(np.datetime64(clock.replace(" ", "T"), "s").astype(np.int64))
    return float(json.loads(done.stdout.splitlines()[-1])["cpu_s"]), start


def ours(workload: Workload, backfill: str) -> tuple[float, np.ndarray]:
    """CPU seconds, and when each job started, s [jobs]."""
    group = {"name": "node", "count": NODES, "cores": CORES, "memory_gb": MEMORY_GB}
    cluster = Cluster.model_validate({"nodes": [group]})
    policy = f"fcfs+{backfill}@first-fit"
    Simulation(workload.take(np.arange(10)), cluster, policy).run()
    begin = time.process_time()
    simulation = Simulation(workload, cluster, policy)
    simulation.advance()
    spent = time.process_time() - begin
    return spent, simulation.column("start") // 1000


def main() -> None:
    """Run both and tell the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--accasim", type=Path, required=True, help="a Python that has AccaSim")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--backfill", choices=("none", "easy"), default="none")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    workload = whole_seconds(made_up(asked.jobs, asked.load, "core"))
    our_s, our_start = min(
        (ours(workload, asked.backfill) for _ in range(3)), key=lambda run: run[0]
    )
    their_s, their_start = theirs(workload, asked.accasim.absolute(), asked.backfill)
    found = {
        "jobs": asked.jobs,
        "backfill": asked.backfill,
        "equal_starts": int((our_start == their_start).sum()),
        "accasim_s": round(their_s, 2),
        "hpctwin_s": round(our_s, 4),
        "ratio": round(their_s / our_s),
    }
    print(json.dumps(found) if asked.json else "\n".join(f"{k:13} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
