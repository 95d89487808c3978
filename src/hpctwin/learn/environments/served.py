"""How the jobs of an episode were served, as all who are compared are judged."""

from __future__ import annotations

from typing import Any

import polars as pl

from hpctwin.metrics import with_job_metrics

__all__ = ["served"]


def served(jobs: pl.DataFrame) -> dict[str, Any]:
    """Means over the jobs that ran, and how many these are.

    Args:
        jobs: a result's table, or its columns of submission, start, end and nodes.

    Returns:
        ``mean_bounded_slowdown``, ``mean_wait_s``, ``mean_turnaround_s``, ``served``.
    """
    found = with_job_metrics(jobs).select("bounded_slowdown", "wait_s", "turnaround_s")
    means = found.mean().row(0, named=True)
    ran = len(found["bounded_slowdown"].drop_nulls())
    return {**{f"mean_{name}": value for name, value in means.items()}, "served": ran}
