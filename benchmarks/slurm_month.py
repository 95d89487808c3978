"""A month of a site under Slurm's own scheduler: 200,000 jobs, 1,000 nodes, nine tenths busy.

    python benchmarks/slurm_month.py [--jobs N]

Prints for each policy the processor time of the engine, jobs a second, and the mean wait. Published for
comparison: FastSim, a simulator made of Slurm's own code, 23 jobs a second.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from hpctwin import Simulation, Workload

NODES = 1_000
DAYS = 30
POLICIES = (
    "fcfs+easy",
    "fcfs+slurm",
    "multifactor:size=100+slurm",
    "fcfs+slurm:bf_max_job_test=100",
    "fcfs+slurm@contiguous",
)


def month(jobs: int) -> Workload:
    """Mostly narrow jobs of some minutes to days; walltimes up to six times too long."""
    rng = np.random.default_rng(2)
    nodes = np.clip(np.round(2 ** rng.exponential(1.2, jobs)), 1, 256).astype(int)
    runtime = np.clip(rng.lognormal(7.2, 1.3, jobs), 10, 2 * 86_400)
    runtime *= 0.9 * NODES * DAYS * 86_400 / (runtime * nodes).sum()
    walltime = np.ceil(np.clip(runtime * rng.uniform(1, 6, jobs), 60, 4 * 86_400) / 60) * 60
    return Workload.build(
        submit_s=np.floor(np.sort(rng.uniform(0, DAYS * 86_400, jobs))),
        runtime_s=np.round(np.minimum(runtime, walltime)),
        walltime_s=walltime,
        nodes=nodes,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    workload = month(parser.parse_args().jobs)
    for policy in POLICIES:
        simulation = Simulation(workload, NODES, policy)
        simulation.advance(instants=1)  # compiled
        begin = time.process_time()
        simulation.advance()
        took = time.process_time() - begin
        wait = simulation.result().summary()["mean_wait_s"]
        print(
            f"{policy}: {took:.2f} s, {len(workload) / took:,.0f} jobs/s, mean wait {wait:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
