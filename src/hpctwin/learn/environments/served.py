"""Metrics of an episode's jobs, by which all policies are compared."""

from __future__ import annotations

from typing import Any

import polars as pl

from hpctwin.metrics import with_job_metrics

__all__ = ["served"]


def served(jobs: pl.DataFrame) -> dict[str, Any]:
    """Return means over the jobs that ran, and the number of these jobs.

    Args:
        jobs: Table of a result, or its columns of submission, start, end and nodes.

    Returns:
        ``mean_bounded_slowdown``, ``mean_wait_s``, ``mean_turnaround_s``, ``served``.
    """
    found = with_job_metrics(jobs).select("bounded_slowdown", "wait_s", "turnaround_s")
    means = found.mean().row(0, named=True)
    ran = len(found["bounded_slowdown"].drop_nulls())
    return {**{f"mean_{name}": value for name, value in means.items()}, "served": ran}
