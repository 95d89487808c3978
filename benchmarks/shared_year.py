"""A year in the shape of IN2P3's computing centre in 2024, or a part of it: small jobs on shared nodes.

Usage: ``python benchmarks/shared_year.py [JOBS] [BACKFILL] [--stream] [--json]``. 44 million jobs are the
year: 312 machines with 46,000 hardware threads, 3 GB each; 93 % of the jobs ask for one, others for 2 to 16.
Fewer jobs are the first days of it. In memory it prints what the engine takes; as a stream what all of it
takes, jobs made, simulated, summed up and written. CPU seconds of all threads, and peak memory; the engine is
compiled before.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin import Cluster, Simulation, Workload
from hpctwin.simulation import simulate_stream

DAY_S, LOAD = 86400, 0.85
JOBS_A_DAY = round(44e6 / 366)
CLUSTER = Cluster.model_validate(
    {
        "name": "in2p3",
        "nodes": [
            {"name": "large", "count": 200, "cores": 160, "memory_gb": 480},
            {"name": "small", "count": 112, "cores": 125, "memory_gb": 375},
        ],
    }
)
CHUNKS = ("tasks", "cores_per_task", "memory_gb_per_task")


def day(number: int) -> dict[str, Any]:
    """Jobs that come by day more than by night, of lognormal lengths, 2, 3 or 4 GB a core."""
    rng = np.random.default_rng((1, number))
    jobs = JOBS_A_DAY
    cores = np.where(rng.random(jobs) < 0.93, 1, rng.choice([2, 4, 8, 8, 16], jobs))
    memory = rng.choice([2.0, 3.0, 3.0, 4.0], jobs)
    threads = sum(group.count * (group.cores or 0) for group in CLUSTER.nodes)
    runtime = np.minimum(rng.lognormal(0, 1.2, jobs), 50)
    runtime = np.maximum(runtime * LOAD * threads * DAY_S / (cores * runtime).sum(), 1)
    submit = rng.uniform(0, DAY_S, jobs)
    # One in three comes in the working hours of its day.
    by_day = rng.random(jobs) < 1 / 3
    submit[by_day] = rng.uniform(8, 18, by_day.sum()) * 3600
    columns = {
        "submit_s": number * DAY_S + submit,
        "runtime_s": runtime,
        "walltime_s": runtime * rng.uniform(1, 5, jobs),
        "nodes": np.ones(jobs),
        "tasks": np.ones(jobs),
        "cores_per_task": cores,
        "memory_gb_per_task": cores * memory,
    }
    order = np.argsort(submit)
    return {name: column[order] for name, column in columns.items()}


def days(jobs: int) -> Iterator[dict[str, Any]]:
    """The first jobs of the year, day by day."""
    for first in range(0, jobs, JOBS_A_DAY):
        count = min(JOBS_A_DAY, jobs - first)
        columns = {name: column[:count] for name, column in day(first // JOBS_A_DAY).items()}
        yield {"job_id": np.arange(first + 1, first + count + 1), **columns}


def workload_of(columns: dict[str, Any]) -> Workload:
    """Some of the jobs."""
    chunks = {name: columns.pop(name) for name in CHUNKS}
    return Workload.build(**columns, chunks=chunks)


def in_memory(jobs: int, backfill: str) -> dict[str, float]:
    """All jobs at once; what the engine takes."""
    parts = list(days(jobs))
    workload = workload_of({name: np.concatenate([p[name] for p in parts]) for name in parts[0]})
    simulation = Simulation(workload, CLUSTER, "fcfs", backfill)
    begun = time.process_time()
    simulation.advance()
    took = time.process_time() - begun
    wait_s = (simulation.column("start") - workload.submit_ms) / 1000
    return {"cpu_s": took, "mean_wait_s": wait_s.mean(), "max_wait_s": wait_s.max()}


def streamed(jobs: int, backfill: str) -> dict[str, float]:
    """Day by day; what all of it takes."""
    with tempfile.TemporaryDirectory(prefix="shared-year-") as folder:
        begun, cpu = time.perf_counter(), time.process_time()
        found = simulate_stream(map(workload_of, days(jobs)), CLUSTER, "fcfs", backfill, out=folder)
        took = {"cpu_s": time.process_time() - cpu, "total_s": time.perf_counter() - begun}
        size = sum(part.stat().st_size for part in Path(folder).rglob("*.parquet"))
    figures = found.summary()
    kept = ("engine_s", "mean_wait_s", "max_wait_s", "utilization", "utilization_memory_gb")
    return {**took, "disk_mib": size / 2**20, **{name: figures[name] for name in kept}}


def peak_mib() -> float:
    """The most memory that the process had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Simulate once and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("jobs", nargs="?", type=float, default=440e3)
    parser.add_argument("backfill", nargs="?", default="easy")
    parser.add_argument("--stream", action="store_true", help="day by day, results to disk")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    Simulation(workload_of(next(days(10))), CLUSTER, "fcfs", asked.backfill).run()  # compiled
    jobs = int(asked.jobs)
    run = streamed if asked.stream else in_memory
    found = {"jobs": jobs, **run(jobs, asked.backfill), "peak_mib": peak_mib()}
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:22} {value:,.2f}")


if __name__ == "__main__":
    main()
