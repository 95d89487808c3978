"""How long a million jobs of 1 to 64 cores take on 1,000 nodes of 64 cores and 256 GB under EASY.

Usage: ``python benchmarks/shared_nodes.py [JOBS] [LOAD] [job | core]``: each job is one task of all its
cores, or has a task for each core. Prints CPU seconds and peak memory; the engine is compiled before.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from hpctwin import Cluster, Simulation, Workload

NODES, CORES, MEMORY_GB = 1000, 64, 256


def made_up(jobs: int, load: float, per: str, seed: int = 1) -> Workload:
    """Jobs that come evenly, of lognormal lengths with a median of 18 minutes and of 1, 2 or 4 GB a core."""
    rng = np.random.default_rng(seed)
    cores = rng.integers(1, CORES + 1, jobs)
    runtime = np.minimum(rng.lognormal(7, 1.5, jobs), 86400) + 1
    memory = rng.choice([1, 2, 4], jobs)
    span = (cores * runtime).sum() / (NODES * CORES * load)
    one = np.ones(jobs)
    chunks = {"tasks": one, "cores_per_task": cores, "memory_gb_per_task": cores * memory}
    if per == "core":
        chunks = {"tasks": cores, "cores_per_task": one, "memory_gb_per_task": memory}
    return Workload.build(
        submit_s=np.sort(rng.uniform(0, span, jobs)),
        runtime_s=runtime,
        walltime_s=runtime * rng.uniform(1, 5, jobs),
        nodes=one,
        chunks=chunks,
    )


def main(jobs: str = "1e6", load: str = "0.9", per: str = "job") -> None:
    """Simulate once and print what it took."""
    group = {"name": "node", "count": NODES, "cores": CORES, "memory_gb": MEMORY_GB}
    cluster = Cluster.model_validate({"nodes": [group]})
    workload = made_up(int(float(jobs)), float(load), per)
    Simulation(workload.take(np.arange(10)), cluster, "fcfs+easy").run()
    before = time.process_time()
    simulation = Simulation(workload, cluster, "fcfs+easy")
    made = time.process_time()
    simulation.advance()
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"made in {made - before:.2f} s, simulated in {done - made:.2f} s, at most {peak:.2f} GB")
    jobs_frame = simulation.result().jobs
    print(f"mean wait {jobs_frame['wait_s'].mean():.1f} s of {len(jobs_frame):,} jobs")


if __name__ == "__main__":
    main(*sys.argv[1:])
