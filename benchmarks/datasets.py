"""How long it takes to read and reschedule 1.5 million allocations in the shape of LAST (LLNL).

What was measured on their nodes is read too; the machine is Lassen, the policy FCFS with EASY. Prints CPU
seconds and peak memory. The first run writes the files (0.6 GB, made up) into the folder given.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from hpctwin import Simulation, generate, read_cluster
from hpctwin.formats.datasets import DATASETS, read_dataset

JOBS, DAYS, NODES = 1_500_000, 819, 792
EPOCH = 1_500_000_000


def write_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    history, nodes_of = DATASETS["lassen"].files
    submit = np.sort(rng.integers(0, DAYS * 86400, JOBS))
    run = np.clip(rng.lognormal(7.4, 1.6, JOBS), 30, 43200).astype(int)
    nodes = np.clip(np.exp(rng.exponential(0.9, JOBS)), 1, 256).astype(int)
    start = submit + rng.integers(0, 3600, JOBS)

    def dates(seconds: np.ndarray) -> pl.Series:
        return pl.from_epoch(pl.Series(seconds + EPOCH)).dt.strftime("%Y-%m-%d %H:%M:%S%.6f")

    known = {
        "allocation_id": np.arange(JOBS),
        "num_nodes": nodes,
        "begin_time": dates(start),
        "end_time": dates(start + run),
        "job_submit_time": dates(submit),
        "time_limit": np.ceil(run * rng.uniform(1, 3, JOBS) / 600).astype(int) * 600,
        "hashed_user_id": rng.integers(1, 300, JOBS),
        "hashed_user_group_id": rng.integers(1, 40, JOBS),
        "exit_status": np.zeros(JOBS, int),
    }
    pl.DataFrame(
        {
            c.name: known.get(c.name, pl.Series(["x"]).new_from_index(0, JOBS))
            for c in history.columns
        }
    ).write_csv(folder / history.name)
    measured = {
        "allocation_id": pl.Series(np.repeat(np.arange(JOBS), nodes)),
        "energy": pl.Series(np.repeat(run, nodes)) * 900,
        "gpu_energy": pl.Series(np.repeat(run, nodes)) * 500,
        "cpu_usage": pl.Series(np.repeat(run, nodes)) * 10**10,
    }
    rows = pl.LazyFrame(measured).with_columns(
        node_name=pl.format("lassen{}", 1 + pl.int_range(pl.len()) % NODES)
    )
    rows = rows.with_columns(
        pl.lit(0).alias(c.name)
        for c in nodes_of.columns
        if c.name not in measured and c.name != "node_name"
    )
    rows.select(c.name for c in nodes_of.columns).sink_csv(folder / nodes_of.name)
    print(
        f"offered load {(nodes * run).sum() / (NODES * DAYS * 86400):.2f}, {nodes.sum():,} rows of nodes"
    )


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / DATASETS["lassen"].main.name
    if not first.exists():
        write_files(folder)
        print("files written; run again")
        return
    cluster = read_cluster("lassen")
    Simulation(generate("poisson", jobs=5, nodes=NODES, seed=1), cluster).run()
    begin, wall = time.process_time(), time.monotonic()
    workload = read_dataset(first, DATASETS["lassen"])
    read = time.process_time()
    result = Simulation(workload, cluster, "fcfs+easy").run()
    end = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(workload):,} jobs read in {read - begin:.1f} s and scheduled anew in "
        f"{end - read:.1f} s of CPU "
        f"({time.monotonic() - wall:.1f} s together); peak {peak:.2f} GiB; utilization "
        f"{result.summary()['utilization']:.2f}; nodes known of "
        f"{sum(one is not None for one in workload.recorded_nodes or ()):,}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
