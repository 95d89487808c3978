"""Metrics of single jobs: waiting time, turnaround and the slowdowns.

Sources: D. G. Feitelson, L. Rudolph, U. Schwiegelshohn, K. C. Sevcik, P. Wong, "Theory and practice
in parallel job scheduling", JSSPP 1997 (bounded slowdown); D. Zotkin, P. J. Keleher, "Job-length
estimation and performance in backfilling schedulers", HPDC 1999 (per processor).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.metrics.registry import (
    JOB_METRICS,
    TAU_S,
    JobMetric,
    Maximum,
    Mean,
    ServedJobs,
    Statistic,
)

__all__ = ["expression", "served", "weighted_values", "with_job_metrics"]


def with_job_metrics(jobs: pl.DataFrame, tau_s: float = TAU_S) -> pl.DataFrame:
    """Add each job's metrics as columns; null if the job has no start or no end.

    The columns are those of `hpctwin.metrics.registry.JOB_METRICS`, such as ``wait_s`` and
    ``slowdown``; docs/reference/metrics.md has their formulas. For a job that ran again after a node failure,
    start and run are those of its last attempt.

    Args:
        jobs: Table of jobs of a result.
        tau_s: The bound τ, in seconds.

    Returns:
        The jobs in the same order with these columns added.

    Raises:
        ConfigError: ``tau_s`` is not above 0.
    """
    if not tau_s > 0:
        raise ConfigError(f"tau_s is {tau_s:g}, it must be above 0")
    nodes = jobs["nodes"].to_numpy()
    times = "submit_s", "start_s", "end_s"
    submit, start, end = (jobs[name].cast(pl.Float64).to_numpy() for name in times)
    # Jobs that never started have an end too (canceled, rejected), but no turnaround.
    end = np.where(np.isnan(start), np.nan, end)
    each = ServedJobs(submit, start, end, nodes, tau_s=tau_s)
    return jobs.with_columns(
        pl.col(*times).cast(pl.Float64),
        *(_column(metric, each).alias(metric.name) for metric in JOB_METRICS),
    )


def _column(metric: JobMetric, jobs: ServedJobs) -> pl.Series:
    """Return a metric of each job; null if it, or a time that it needs, is undefined."""
    values = jobs[metric]
    null = np.isnan(values) & np.isnan(jobs.end_s)
    if metric.where is not None:
        null |= ~metric.where(jobs)
    return pl.Series(values).set(pl.Series(null), None)


def served(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs that started and ended, which time statistics are about."""
    return jobs.filter(pl.col("start_s").is_not_null() & pl.col("end_s").is_not_null())


def expression(statistic: Statistic) -> pl.Expr:
    """Return the expression of a statistic over the columns of `with_job_metrics`."""
    if isinstance(statistic, Mean):
        values, weights = weighted_values(statistic)
        if statistic.weights is None:
            return values.mean()
        return pl.when(weights.sum() > 0).then(values.sum() / weights.sum())
    column = pl.col(statistic.values.name)
    if isinstance(statistic, Maximum):
        return column.max()
    return column.median() if statistic.share == 0.5 else column.quantile(statistic.share, "linear")


def weighted_values(mean: Mean) -> tuple[pl.Expr, pl.Expr]:
    """Return the values of a mean times their weights, and the weights.

    The mean is the ratio of their sums.
    """
    values = pl.col(mean.values.name)
    if mean.weights is None:
        return values, values.is_not_null().cast(pl.Float64)
    weights = pl.when(values.is_not_null()).then(mean.weights.name)
    return values * weights, weights
