"""A year in the shape of IN2P3's computing centre in 2024, or a part of it: small jobs on shared nodes.

Usage: ``python benchmarks/shared_year.py [JOBS] [BACKFILL]``. 44 million jobs are the year: 312 machines with
46,000 hardware threads, 3 GB each; 93 % of the jobs ask for one, others for 2 to 16. Fewer jobs are as much
less of the year. Prints CPU seconds and peak memory; the engine is compiled before.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from hpctwin import Cluster, Simulation, Workload

YEAR_S, YEAR_JOBS, LOAD = 366 * 86400, 44e6, 0.85
CLUSTER = Cluster.model_validate(
    {
        "name": "in2p3",
        "nodes": [
            {"name": "large", "count": 200, "cores": 160, "memory_gb": 480},
            {"name": "small", "count": 112, "cores": 125, "memory_gb": 375},
        ],
    }
)


def made_up(jobs: int, seed: int = 1) -> Workload:
    """Jobs that come by day more than by night, of lognormal lengths, 2, 3 or 4 GB a core."""
    rng = np.random.default_rng(seed)
    span = YEAR_S * jobs / YEAR_JOBS
    cores = np.where(rng.random(jobs) < 0.93, 1, rng.choice([2, 4, 8, 8, 16], jobs))
    memory = rng.choice([2.0, 3.0, 3.0, 4.0], jobs)
    threads = sum(group.count * (group.cores or 0) for group in CLUSTER.nodes)
    runtime = np.minimum(rng.lognormal(0, 1.2, jobs), 50)
    runtime = np.maximum(runtime * LOAD * threads * span / (cores * runtime).sum(), 1)
    submit = rng.uniform(0, span, jobs)
    # One in three comes in the working hours of its day.
    by_day = rng.random(jobs) < 1 / 3
    submit[by_day] = (submit[by_day] // 86400) * 86400 + rng.uniform(8, 18, by_day.sum()) * 3600
    return Workload.build(
        submit_s=np.sort(submit),
        runtime_s=runtime,
        walltime_s=runtime * rng.uniform(1, 5, jobs),
        nodes=np.ones(jobs),
        chunks={
            "tasks": np.ones(jobs),
            "cores_per_task": cores,
            "memory_gb_per_task": cores * memory,
        },
    )


def main(jobs: str = "4.4e6", backfill: str = "easy") -> None:
    """Simulate once and print what it took."""
    begun = time.process_time()
    workload = made_up(int(float(jobs)))
    Simulation(workload.take(np.arange(10)), CLUSTER, "fcfs", backfill).run()
    generated = time.process_time()
    simulation = Simulation(workload, CLUSTER, "fcfs", backfill)
    made = time.process_time()
    simulation.advance()
    done = time.process_time()
    wait_s = (simulation.column("start") - workload.submit_ms) / 1000
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(workload):,} jobs of {workload.span_s / 86400:.1f} days under fcfs+{backfill}:")
    print(f"generated in {generated - begun:.1f} s, made in {made - generated:.1f} s, simulated in "
          f"{done - made:.1f} s, at most {peak:.2f} GB")  # fmt: skip
    print(f"mean wait {wait_s.mean():.1f} s, the longest {wait_s.max():.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
