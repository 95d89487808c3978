"""Export of a run as Evalys's CSV and as OpenMetrics.

OpenMetrics is written as text with a time at each sample, because the optional prometheus-client
writes only one time.
"""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np
import polars as pl

__all__ = ["write_evalys", "write_openmetrics"]


def write_evalys(file: BinaryIO, jobs: pl.DataFrame, held: pl.DataFrame | None) -> int:
    """Write the jobs that ran as Batsim does and Evalys reads (``JobSet.from_csv``).

    Args:
        file: File to write to.
        jobs: Jobs of a result.
        held: Its ``node_map`` or ``placements``; without it, the file has no node numbers.

    Returns:
        Number of jobs written.
    """
    ran = jobs.filter(pl.col("start_s").is_not_null() & pl.col("end_s").is_not_null())
    execution = pl.col("end_s") - pl.col("start_s")
    table = ran.select(
        pl.col("job_id"),
        pl.lit("w0").alias("workload_name"),
        pl.col("submit_s").alias("submission_time"),
        pl.col("nodes").alias("requested_number_of_resources"),
        pl.col("walltime_s").alias("requested_time"),
        (pl.col("state") == "completed").cast(pl.Int8).alias("success"),
        pl.col("start_s").alias("starting_time"),
        execution.alias("execution_time"),
        pl.col("end_s").alias("finish_time"),
        pl.col("wait_s").alias("waiting_time"),
        pl.col("turnaround_s").alias("turnaround_time"),
        (pl.col("turnaround_s") / pl.max_horizontal(execution, 0.001)).alias("stretch"),
    )
    if held is None:
        table = table.with_columns(allocated_resources=pl.lit(""))
    else:
        table = table.join(_allocated(held), on=["job_id", "starting_time"], how="left")
        table = table.with_columns(pl.col("allocated_resources").fill_null(""))
    table.write_csv(file)
    return len(table)


def _allocated(held: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes of each attempt as ranges of numbers: ``0-3 7``."""
    if "node" in held.columns:
        held = held.sort("job_id", "start_s", "node").with_columns(
            first_node=pl.col("node"), count=pl.lit(1)
        )
    last = pl.col("first_node") + pl.col("count") - 1
    run = pl.when(pl.col("count") > 1).then(
        pl.format("{}-{}", pl.col("first_node"), last)
    ).otherwise(pl.col("first_node").cast(pl.String))  # fmt: skip
    return (
        held.group_by("job_id", pl.col("start_s").alias("starting_time"), maintain_order=True)
        .agg(run.alias("runs"))
        .with_columns(pl.col("runs").list.join(" ").alias("allocated_resources"))
        .drop("runs")
    )


def write_openmetrics(file: BinaryIO, series: pl.DataFrame) -> int:
    """Write queue and cluster over time as OpenMetrics text, for a time-series database.

    There is a sample at each change, with its time. Names are ``hpctwin_`` and the column's name.

    Args:
        file: File to write to.
        series: Series of a result.

    Returns:
        Number of samples written.
    """
    written = 0
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
    time_s = np.round(series["time_s"].to_numpy(), 3)
    # One sample per time: the last value at that time.
    kept = np.append(time_s[1:] != time_s[:-1], True) if len(time_s) else np.zeros(0, bool)
    for name in series.columns:
        if name == "time_s" or not series[name].dtype.is_numeric():
            continue
        metric = f"hpctwin_{name}"
        text.write(f"# TYPE {metric} gauge\n")
        rows = pl.DataFrame({"time": time_s[kept], "value": series[name].fill_null(0).filter(kept)})
        lines = rows.select(pl.format(f"{metric} {{}} {{}}", "value", "time")).to_series()
        text.write("".join(f"{line}\n" for line in lines))
        written += len(rows)
    text.write("# EOF\n")
    text.detach()
    return written
