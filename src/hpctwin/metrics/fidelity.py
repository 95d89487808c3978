"""Simulated starts compared with recorded ones, and conflicts of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.metrics.jobs import By, classed
from hpctwin.model import MS_PER_S, Workload

__all__ = ["Fidelity", "capacity_conflicts", "fidelity"]

_FIGURES = {
    "jobs": pl.len().cast(pl.Int64),
    "recorded_wait_s": pl.col("recorded_wait_s").mean(),
    "simulated_wait_s": pl.col("simulated_wait_s").mean(),
    "median_error_s": pl.col("error_s").abs().median(),
    "p95_error_s": pl.col("error_s").abs().quantile(0.95, "linear"),
    "later_s": pl.col("error_s").mean(),
    "within_1min": (pl.col("error_s").abs() <= 60).mean(),
    "within_1h": (pl.col("error_s").abs() <= 3600).mean(),
}


@dataclass(frozen=True, eq=False)
class Fidelity:
    """Recorded and simulated starts of jobs.

    Args:
        jobs: A row for each job with both, with ``recorded_wait_s``, ``simulated_wait_s`` and
            ``error_s``: the simulated start minus the recorded one, in seconds.
        without: Number of jobs without a recorded start, or without a start in the simulation.
    """

    jobs: pl.DataFrame
    without: int

    def figures(self) -> dict[str, float]:
        """Return statistics over all jobs; times in seconds.

        ``jobs``; mean waits ``recorded_wait_s`` and ``simulated_wait_s``; median and 95th
        percentile of the absolute error, ``median_error_s`` and ``p95_error_s``, and the mean
        error, ``later_s``; shares of starts ``within_1min`` and ``within_1h``.
        """
        return self.jobs.select(value.alias(name) for name, value in _FIGURES.items()).row(
            0, named=True
        )

    def by(self, by: By) -> pl.DataFrame:
        """Return these statistics by class of jobs, ``bin``, in the order of `breakdown`."""
        frame = classed(self.jobs, by)
        found = frame.group_by("_order", "bin").agg(
            value.alias(name) for name, value in _FIGURES.items()
        )
        return found.sort(["_order", "jobs", "bin"], descending=[False, True, False]).drop("_order")


def fidelity(workload: Workload, jobs: pl.DataFrame) -> Fidelity:
    """Compare recorded starts with those of a result.

    Args:
        workload: The jobs, with recorded starts.
        jobs: Table of jobs of a result, of that workload.

    Raises:
        WorkloadError: No job has a recorded start.
    """
    recorded = np.where(
        workload.recorded_start_ms >= 0, workload.recorded_start_ms / MS_PER_S, np.nan
    )
    if np.isnan(recorded).all():
        raise WorkloadError(
            f"no job of {workload.name} has a recorded start to compare simulated starts with"
        )
    submitted = workload.submit_ms / MS_PER_S
    past = pl.DataFrame(
        {"job_id": workload.job_id, "_recorded": recorded, "_submitted": submitted}
    ).fill_nan(None)
    both = jobs.join(past, on="job_id", how="left", maintain_order="left").filter(
        pl.col("start_s").is_not_null(), pl.col("_recorded").is_not_null()
    )
    laid = both.with_columns(
        recorded_wait_s=pl.col("_recorded") - pl.col("_submitted"),
        simulated_wait_s=pl.col("start_s") - pl.col("submit_s"),
        error_s=pl.col("start_s") - pl.col("_recorded"),
    ).drop("_recorded", "_submitted")
    return Fidelity(laid, len(jobs) - len(laid))


# At equal times, ends free nodes first, then nodes leave or return, then jobs start. A job that
# runs for no time comes before other starts, because it holds no nodes for them.
_END, _CAPACITY, _MOMENTARY, _START = range(4)


def capacity_conflicts(
    jobs: pl.DataFrame, nodes: int, capacity: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return every start at which more nodes would be used than are up.

    Starts and ends are taken as given: a conflicting job counts as running, so that later jobs are
    judged as recorded. Starts at equal times are judged in the order of rows.

    Args:
        jobs: Jobs with starts, and ends if they have ended; jobs without a start are ignored.
        nodes: Size of the cluster, which holds before the first row of ``capacity``.
        capacity: Nodes that are up, as a step function; by default all of them.

    Returns:
        ``time_s`` (seconds), ``job_id``, ``nodes`` of the job, ``free_nodes`` = up − used before
        the start (negative if too many were used already) and ``excess`` = nodes − free, in order
        of time.
    """
    ran = jobs.filter(pl.col("start_s").is_not_null())
    start = ran["start_s"].cast(pl.Float64).to_numpy()
    end = ran["end_s"].cast(pl.Float64).fill_null(np.inf).to_numpy()
    width = ran["nodes"].cast(pl.Int64).to_numpy()
    holds = end > start
    # All nodes are up before the first row: the changes start from there.
    up = np.array([], np.int64) if capacity is None else capacity["nodes"].cast(pl.Int64).to_numpy()
    up_time = np.array([]) if capacity is None else capacity["time_s"].cast(pl.Float64).to_numpy()
    up_change = np.diff(up, prepend=nodes)

    time = np.concatenate((end[holds], up_time, start))
    phase = np.concatenate(
        (
            np.full(holds.sum(), _END),
            np.full(len(up), _CAPACITY),
            np.where(holds, _START, _MOMENTARY),
        )
    )
    change = np.concatenate((width[holds], up_change, np.where(holds, -width, 0)))
    row = np.concatenate((np.full(holds.sum() + len(up), -1), np.arange(len(ran))))
    order = np.lexsort((phase, time))
    free_after = nodes + np.cumsum(change[order])
    free_before = free_after - change[order]
    starts = order >= len(order) - len(ran)
    started, free = row[order][starts], free_before[starts]
    conflict = width[started] > free
    at, free = started[conflict], free[conflict]
    return pl.DataFrame(
        {
            "time_s": start[at],
            "job_id": ran["job_id"].gather(at),
            "nodes": width[at],
            "free_nodes": free,
            "excess": width[at] - free,
        }
    )
