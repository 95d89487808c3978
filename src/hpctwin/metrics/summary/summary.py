"""A whole run as one flat dictionary of numbers. Definitions are in ``docs/metrics.md``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl

from hpctwin.metrics.summary.running import RunningSummary, Summary
from hpctwin.metrics.summary.sources import JobSource, JobTable

__all__ = ["Summary", "summarize", "summarize_jobs"]

_MANY = 1 << 20
"""From so many jobs on, jobs and time are gone through beside each other."""


def summarize(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
) -> Summary:
    """Sum up a run.

    Statistics of waiting, turnaround and slowdown are over the jobs that started and ended.
    Those over time are over the window from the first submission to the last end of a job
    that ran. Quantiles are interpolated linearly between neighbours.

    Args:
        jobs: a result's jobs.
        lost: attempts that node failures cut off.
        capacity: nodes that are up, as a step function.
        nodes: size of the machine.

    Returns:
        Values that JSON can hold, by metric.
    """
    return summarize_jobs(JobTable(jobs), lost, capacity, nodes)


def summarize_jobs(
    jobs: JobSource, lost: pl.DataFrame, capacity: pl.DataFrame, nodes: int
) -> Summary:
    """As `summarize`, of jobs in a table or in arrays.

    Args:
        jobs: the jobs.
        lost: as there.
        capacity: as there.
        nodes: as there.
    """
    running = RunningSummary(nodes, exact=True)
    if len(jobs) < _MANY:
        running.passed(jobs, lost, capacity)
        running.ended(jobs)
    else:
        # Neither asks what the other has found, and both are mostly compiled code.
        with ThreadPoolExecutor(1) as beside:
            ended = beside.submit(running.ended, jobs)
            running.passed(jobs, lost, capacity)
            ended.result()
    return running.figures()
