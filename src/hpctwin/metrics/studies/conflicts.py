"""Conflicts of recorded starts with the simulated cluster."""

from __future__ import annotations

import numpy as np
import polars as pl

__all__ = ["capacity_conflicts"]

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
