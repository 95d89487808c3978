"""What a stream costs: `python benchmarks/stream.py --jobs N [--json]`.

Jobs of the model `poisson` on 1,000 nodes under FCFS + EASY, made batch by batch, simulated and written
as Parquet; figures in seconds of wall time, and the most memory that the process had. With `--memory`
all jobs are made first, simulated in memory and summed up, for comparison.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin import Simulation, Workload, generate
from hpctwin.simulation import simulate_stream

NODES = 1000
BATCH = 1 << 18


def batches(jobs: int, size: int = BATCH) -> Iterator[Workload]:
    """Poisson arrivals without end: batches of the model, each with a seed of its own."""
    made, begin_ms = 0, 0
    while made < jobs:
        count = min(size, jobs - made)
        part = generate("poisson", jobs=count, nodes=NODES, load=0.85, seed=made // size)
        submit_ms = part.submit_ms + begin_ms
        yield part.replace(job_id=np.arange(made + 1, made + count + 1), submit_ms=submit_ms)
        made += count
        begin_ms = int(submit_ms[-1]) + 60_000


def streamed(jobs: int, folder: Path, batch: int) -> dict[str, Any]:
    """Through the engine, batch by batch."""
    result = simulate_stream(batches(jobs), NODES, "fcfs+easy", out=folder, batch=batch)
    size = sum(part.stat().st_size for part in folder.rglob("*.parquet"))
    return {**result.summary(), "disk_mib": size / 2**20}


def in_memory(jobs: int) -> dict[str, Any]:
    """All jobs at once."""
    workload = generate("poisson", jobs=jobs, nodes=NODES, load=0.85, seed=0)
    return Simulation(workload, NODES, "fcfs+easy").run().summary()


def peak_mib() -> float:
    """The most memory that the process had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--memory", action="store_true", help="not as a stream")
    parser.add_argument("--out", type=Path, help="keep the parts there")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    Simulation(generate("poisson", jobs=100, nodes=NODES), NODES, "fcfs+easy").run()  # compiled
    folder = asked.out or Path(tempfile.mkdtemp(prefix="stream-"))
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        if asked.memory:
            summary = in_memory(asked.jobs)
        else:
            summary = streamed(asked.jobs, folder, asked.batch)
    finally:
        if asked.out is None:
            shutil.rmtree(folder)
    found = {
        "jobs": summary["jobs"],
        "engine_s": summary["engine_s"],
        "total_s": time.perf_counter() - begin,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": peak_mib(),
        "disk_mib": summary.get("disk_mib", 0.0),
    }
    if asked.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:10} {value:,.1f}")


if __name__ == "__main__":
    main()
