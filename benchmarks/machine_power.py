"""How long it takes to simulate Frontier with the power of its components, losses and CDUs at 15 s.

Prints CPU seconds and peak memory; the engine is compiled before. Jobs have usage every 15 s of CPU and GPU.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from hpctwin import Simulation, Workload, generate, read_cluster
from hpctwin.model.workload.jobs import Usage


def frontier_days(days: float, jobs: int, seed: int = 0) -> Workload:
    """Jobs of some days, from 1 to 5,600 nodes and some hours, with traces."""
    rng = np.random.default_rng(seed)
    runtime = np.minimum(rng.lognormal(8.2, 1.2, jobs), 86400 / 2)
    nodes = np.clip(np.exp(rng.normal(3.0, 2.0, jobs)), 1, 5600).astype(int)
    samples = np.ceil(runtime / 15).astype(int)
    return Workload.build(
        submit_s=np.sort(rng.uniform(0, days * 86400, jobs)),
        runtime_s=runtime,
        walltime_s=runtime * 1.5,
        nodes=nodes,
        usage={name: Usage.traces([rng.random(n) for n in samples], 15) for name in ("cpu", "gpu")},
        name=f"{days:g} days of Frontier, made up",
    )


def main() -> None:
    cluster = read_cluster("frontier")
    Simulation(generate("poisson", jobs=5, nodes=9472, seed=1), cluster).run()
    for days, jobs in ((0.5, 180), (15, 5324)):
        workload = frontier_days(days, jobs)
        begin = time.process_time()
        energy = Simulation(workload, cluster).run().energy
        simulated = time.process_time()
        table = energy.over_time(15)
        cdus = energy.cdus_over_time(15)
        cooled = energy.cooled(12.0, 15)
        end = time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{workload.name}: {jobs:,} jobs simulated in {simulated - begin:.2f} s, power of {len(table):,} "
            f"steps and {len(cdus.columns) - 1} CDUs, and cooling (PUE {cooled['pue'].mean():.3f}) in "
            f"{end - simulated:.2f} s; peak {peak:,.0f} MiB; mean "
            f"{table['total_w'].mean() / 1e6:.2f} MW"
        )


if __name__ == "__main__":
    sys.exit(main())
