"""Summary of a run as one flat dict of numbers; see ``docs/reference/metrics.md``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl

from hpctwin.metrics.summary.running import RunningSummary, Summary
from hpctwin.metrics.summary.sources import JobSource, JobTable

__all__ = ["Summary", "summarize", "summarize_jobs"]

_MANY = 1 << 20
"""Number of jobs from which jobs and time are summed up in parallel."""


def summarize(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
) -> Summary:
    """Return the summary of a run.

    Statistics of waiting, turnaround and slowdown are over the jobs that started and ended. Those
    over time are over the window from the first submission to the last end of a job that ran.
    Quantiles are interpolated linearly between neighbors.

    Args:
        jobs: Table of jobs of a result.
        lost: Attempts that node failures cut off.
        capacity: Nodes that are up, as a step function.
        nodes: Size of the cluster.

    Returns:
        Values that JSON can hold, by metric.
    """
    return summarize_jobs(JobTable(jobs), lost, capacity, nodes)


def summarize_jobs(
    jobs: JobSource, lost: pl.DataFrame, capacity: pl.DataFrame, nodes: int
) -> Summary:
    """Return `summarize` for jobs in a table or in arrays.

    Args:
        jobs: The jobs.
        lost: As in `summarize`.
        capacity: As in `summarize`.
        nodes: As in `summarize`.
    """
    running = RunningSummary(nodes, exact=True)
    if len(jobs) < _MANY:
        running.passed(jobs, lost, capacity)
        running.ended(jobs)
    else:
        # Neither needs the other's result, and both are mostly compiled code.
        with ThreadPoolExecutor(1) as beside:
            ended = beside.submit(running.ended, jobs)
            running.passed(jobs, lost, capacity)
            ended.result()
    return running.figures()
