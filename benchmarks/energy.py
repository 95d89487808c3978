"""Speed of node power states: `python benchmarks/energy.py` prints the tables of docs/evidence/power.md.

The NASA workload needs HPCTWIN_TRACES; without it, the benchmark skips it and says so.
"""

from __future__ import annotations

import time

import numpy as np

from hpctwin import Simulation, Workload
from hpctwin.errors import WorkloadError
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from hpctwin_papers.spars.schedulers import SCHEDULERS, simulate_cell, workload

NODES, JOBS, UTILIZATION = 10_000, 100_000, 0.5


def show(name: str, **figures: float) -> None:
    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
    print(f"{name:44} {shown}", flush=True)


def nasa() -> None:
    """SPARS's six schedulers on its workload, from arrays in memory to energy by node and state."""
    try:
        jobs = workload()
    except WorkloadError as error:
        print(f"left out: {error}")
        return
    for scheduler in SCHEDULERS:
        times = []
        for _ in range(12):
            begin = time.perf_counter()
            energy = simulate_cell(jobs, scheduler, 1200)
            assert energy.total_j > 0
            times.append(1000 * (time.perf_counter() - begin))
        # The first one may compile.
        show(
            f"NASA, {len(jobs):,} jobs, 128 nodes: {scheduler}",
            median_ms=float(np.median(times[1:])),
            worst_ms=max(times[1:]),
        )


def large() -> None:
    """A large machine, half in use."""
    rng = np.random.default_rng(0)
    runtime = np.exp(rng.normal(7.5, 1.5, JOBS)).clip(10, 86_400)
    nodes = 2 ** rng.integers(0, 9, JOBS)
    span = float((runtime * nodes).sum()) / NODES / UTILIZATION
    jobs = Workload.build(
        submit_s=np.sort(rng.uniform(0, span, JOBS)),
        runtime_s=runtime,
        walltime_s=runtime * rng.uniform(1, 3, JOBS),
        nodes=nodes,
    )
    platform = Cluster.uniform(
        NODES, active_w=400, idle_w=150, sleep_w=9, off_s=120, off_w=100, on_s=300, on_w=250
    )
    for kind in ("none", "psus", "psas-auto", "psas-ipm"):
        begin = time.perf_counter()
        simulation = Simulation(
            jobs, platform, "fcfs", "easy", power=PowerPolicy(kind, 600 if kind != "none" else None)
        )
        energy = simulation.run().energy
        assert energy is not None
        show(
            f"{JOBS:,} jobs, {NODES:,} nodes: easy, {kind}",
            whole_s=time.perf_counter() - begin,
            energy_gj=energy.total_j / 1e9,
            mean_wait_s=float(energy.jobs["wait_s"].to_numpy().mean()),
        )


def main() -> None:
    nasa()
    large()


if __name__ == "__main__":
    main()
