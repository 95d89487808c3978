"""A month of 20,000 jobs that compute and communicate, on a fat tree of 1,000 nodes: at most 60 s.

python benchmarks/simgrid_month.py [--jobs 20000]

Jobs have 2 to 64 nodes and run for about 4 hours; their ranks exchange data all to all. Processor time
counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from hpctwin import Simulation, Workload, read_cluster
from hpctwin.network.profiles import HomogeneousTask
from simgrid_speed import PLATFORM

DAY_S = 86_400
HOURS = 3600


def workload(jobs: int) -> Workload:
    """Return the jobs."""
    draw = np.random.default_rng(7)
    nodes = 2 ** draw.integers(1, 7, jobs)
    length_s = draw.lognormal(np.log(2 * HOURS), 1.0, jobs).clip(60, 24 * HOURS)
    profiles = [
        # On links of 10 GB/s, half of the time for data if a job is alone.
        HomogeneousTask(cpu=seconds * 1e9, com=0.5 * seconds * 10e9 / (size - 1))
        for seconds, size in zip(length_s.tolist(), nodes.tolist(), strict=True)
    ]
    return Workload.build(
        submit_s=np.sort(draw.uniform(0, 30 * DAY_S, jobs)),
        nodes=nodes,
        walltime_s=3 * length_s,
        runtime_s=3 * length_s,
        profiles=profiles,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.xml"
        path.write_text(PLATFORM)
        cluster = read_cluster(path)
    jobs = workload(given.jobs)
    begin = time.process_time()
    result = Simulation(jobs, cluster, "fcfs+easy", sharing="simgrid").run()
    took = time.process_time() - begin
    table = result.jobs
    ended = (table["state"] == "completed").sum()
    goal = 60.0 * given.jobs / 20_000
    print(
        f"{given.jobs:,} jobs, {ended:,} completed, utilization {result.summary()['utilization']:.2f}: "
        f"{took:.1f} s, goal {goal:g} s {'met' if took <= goal else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
