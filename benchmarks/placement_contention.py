"""Placements compared where jobs share a network: a fat tree of 1,000 nodes with half the links above.

python benchmarks/placement_contention.py [--seeds 6] [--jobs 1000] [--figure placements.png]

Two workloads: 125 all-to-all jobs of 8 nodes that fill the cluster, and days of jobs of 2 to 64 nodes, of
which four in ten communicate for half of their time. Six seeds or more give 95 % intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpctwin import Cluster, Workload, simulate
from hpctwin.metrics import mean_interval
from hpctwin.network.profiles import HomogeneousTask

PLACEMENTS = (
    "communication-aware", "fewest-switches", "whole-blocks", "contiguous", "first-fit", "spread",
    "random",
)  # fmt: skip
TREE = {
    "topology": "fat-tree",
    "children": [10, 10, 10],
    "parents": [1, 5, 5],
    "bandwidth": "10 GB/s",
    "latency": "1 us",
    "core_speed": "1 Gflop/s",
}
CLUSTER = Cluster(name="tree", nodes=[{"name": "node", "count": 1000}], network=TREE)
SPEED, BANDWIDTH = 1e9, 10e9
HOUR_S = 3600


def exchanges(seed: int, jobs: int) -> Workload:
    """Return 125 jobs of 8 nodes that exchange data, submitted in half a second."""
    draw = np.random.default_rng(seed)
    count = 125
    return Workload.build(
        submit_s=np.sort(draw.uniform(0, 0.5, count).round(3)),
        nodes=np.full(count, 8),
        walltime_s=np.full(count, 3600.0),
        runtime_s=np.full(count, 3600.0),
        profiles=[HomogeneousTask(cpu=0.0, com=com) for com in draw.uniform(5e8, 1.5e9, count)],
    )


def days(seed: int, jobs: int) -> Workload:
    """Return jobs of 2 to 64 nodes at a load of 0.85 if each was alone."""
    draw = np.random.default_rng(seed)
    nodes = 2 ** draw.integers(1, 7, jobs)
    length_s = draw.lognormal(np.log(2 * HOUR_S), 1.0, jobs).clip(60, 24 * HOUR_S)
    sends = draw.random(jobs) < 0.4
    profiles = [
        # At the pace of the node's own link, a job that sends takes half of its time for it.
        HomogeneousTask(
            cpu=SPEED * length * (0.5 if sending else 1.0),
            com=0.5 * BANDWIDTH * length / (size - 1) if sending else 0.0,
        )
        for length, size, sending in zip(length_s, nodes.tolist(), sends, strict=True)
    ]
    span_s = float((nodes * length_s).sum()) / (0.85 * CLUSTER.node_count)
    return Workload.build(
        submit_s=np.sort(draw.uniform(0, span_s, jobs)),
        nodes=nodes,
        walltime_s=10 * length_s,
        runtime_s=10 * length_s,
        profiles=profiles,
    )


WORKLOADS: dict[str, Callable[[int, int], Workload]] = {
    "125 all-to-all jobs": exchanges,
    "days of jobs": days,
}


def measured(workload: Workload, placement: str, seed: int) -> dict[str, float]:
    """Return when the last job ends, the mean turnaround, and how much longer jobs take that send."""
    result = simulate(
        workload, CLUSTER, "fcfs+easy", placement=placement, sharing="fair", seed=seed
    )
    jobs = result.jobs.sort("job_id")
    assert (jobs["state"] == "completed").all()
    run_s = (jobs["end_s"] - jobs["start_s"]).to_numpy()
    slowdown = [
        run / max(profile.cpu / SPEED, profile.com * (nodes - 1) / BANDWIDTH)
        for run, profile, nodes in zip(run_s, workload.profiles or (), workload.nodes, strict=True)
        if isinstance(profile, HomogeneousTask) and profile.com
    ]
    return {
        "end_s": float(jobs["end_s"].max()),
        "slowdown": float(np.mean(slowdown)),
        "turnaround_s": float(jobs["turnaround_s"].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs of the second workload")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name, make in WORKLOADS.items():
        print(f"{name:22} {'last end, s':>26} {'slowdown':>26} {'mean turnaround, s':>26}")
        found[name] = {}
        for placement in PLACEMENTS:
            runs = [
                measured(make(seed, given.jobs), placement, seed) for seed in range(given.seeds)
            ]
            found[name][placement] = runs
            cells = []
            for key in ("end_s", "slowdown", "turnaround_s"):
                mean, low, high = mean_interval([run[key] for run in runs])
                spread = "" if low is None or high is None else f" ({low:.4g} to {high:.4g})"
                cells.append(f"{mean:.4g}{spread}")
            print(f"{placement:22} " + " ".join(f"{cell:>26}" for cell in cells), flush=True)
    if given.figure:
        draw(found, given.figure)


def draw(found: dict[str, dict[str, list[dict[str, float]]]], path: Path) -> None:
    """Draw the mean slowdown for each placement, with the 95 % intervals of the means."""
    from hpctwin.report.figures.style import PALETTE, new_figure, save_figure

    figure = new_figure(3.2, title="Slowdown by placement")
    for ax, (name, runs) in zip(figure.subplots(1, 2, sharey=True), found.items(), strict=True):
        for row, placement in enumerate(runs):
            mean, low, high = mean_interval([run["slowdown"] for run in runs[placement]])
            ax.barh(row, mean, color=PALETTE[0], height=0.7)
            if low is not None and high is not None:
                ax.errorbar(mean, row, xerr=[[mean - low], [high - mean]], color="black", capsize=3)
        ax.set_yticks(range(len(runs)), list(runs))
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("mean slowdown of jobs that send")
        ax.grid(visible=False, axis="y")
    figure.axes[0].invert_yaxis()
    save_figure(figure, path)


if __name__ == "__main__":
    main()
