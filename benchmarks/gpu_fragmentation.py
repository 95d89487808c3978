"""Alibaba's 8,152 pods on its 1,213 GPU nodes (cluster-trace-gpu-v2023), placed one after the other.

Usage: ``python benchmarks/gpu_fragmentation.py [SEEDS]``. As in Weng et al. (USENIX ATC 2023) pods are drawn
from the trace until they ask for 1.3 times the GPUs there are, come one by one and stay; what does not fit is
left out. Prints for each placement which share of all GPUs is held, and which is fragmented, when pods that
ask for 80, 90, 100 and 130 % of them have come: means over the seeds. Reads ``jobs_csv/alibaba_gpu_v2023_*``
in ``HPCTWIN_TRACES``. Parts of GPUs lie on single GPUs, as in the paper.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from hpctwin import Cluster, Simulation, Workload, read_cluster

PLACEMENTS = ("spread", "round-robin", "first-fit", "best-fit", "fragmentation")
ARRIVED = (0.8, 0.9, 1.0, 1.3)
STEPS = 130


def arriving(folder: Path, gpus: float, seed: int) -> tuple[Workload, np.ndarray]:
    """Pods drawn until they ask for so many GPUs, one a second, that stay; and what has been asked for."""
    pods = pl.read_csv(folder / "alibaba_gpu_v2023_pod_list_default.csv")
    pods = pods.with_columns(gpus=pl.col("num_gpu") * pl.col("gpu_milli") / 1000)
    drawn = np.random.default_rng(seed).integers(0, len(pods), 4 * len(pods))
    asked = np.cumsum(pods["gpus"].to_numpy()[drawn])
    size = int(np.searchsorted(asked, gpus)) + 1
    some = pods[drawn[:size]]
    workload = Workload.build(
        submit_s=np.arange(size),
        runtime_s=np.full(size, 1e8),
        nodes=np.ones(size),
        chunks={
            "tasks": np.ones(size),
            "cores_per_task": some["cpu_milli"].to_numpy() / 1000,
            "memory_gb_per_task": some["memory_mib"].to_numpy() / 1024,
            "gpus_per_task": some["gpus"].to_numpy(),
        },
    )
    return workload, asked[:size]


def placed(workload: Workload, cluster: Cluster, placement: str, at: np.ndarray) -> np.ndarray:
    """GPUs that are held, and fragmented, after so many pods [2, points]."""
    simulation = Simulation(workload, cluster, "fcfs", "first-fit", placement=placement)
    simulation.advance(len(workload))
    result = simulation.result()
    assert result.placements is not None
    start, gpus = result.placements["start_s"].to_numpy(), result.placements["gpus"].to_numpy()
    found = result.fragmentation(STEPS)
    lost = np.interp(at, found["time_s"], found["fragmented_gpus"])
    return np.array([[gpus[start <= point].sum() for point in at], lost])


def main(seeds: str = "3") -> None:
    """Place, and print a table."""
    folder = Path(os.environ["HPCTWIN_TRACES"]) / "jobs_csv"
    cluster = read_cluster(folder / "alibaba_gpu_v2023_openb_node_list_gpu_node.csv")
    total = sum(group.count * (group.gpus or 0) for group in cluster.nodes)
    print(f"{cluster.node_count:,} nodes, {total:,.0f} GPUs; held / fragmented, % of all GPUs")
    print("come, % of all GPUs ", *(f"{100 * share:14.0f}" for share in ARRIVED), "   CPU s")
    for placement in PLACEMENTS:
        begun = time.process_time()
        sums = np.zeros((2, len(ARRIVED)))
        for seed in range(int(seeds)):
            workload, asked = arriving(folder, max(ARRIVED) * total, seed)
            at = np.searchsorted(asked, np.array(ARRIVED) * total).astype(float)
            sums += placed(workload, cluster, placement, np.minimum(at, len(workload) - 1))
        held, lost = 100 * sums / (int(seeds) * total)
        cells = (f"{one:7.2f} /{two:5.2f}" for one, two in zip(held, lost, strict=True))
        print(f"{placement:20}", *cells, f"{time.process_time() - begun:8.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
