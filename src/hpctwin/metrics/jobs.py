"""Metrics of single jobs, by class of jobs, and of fairness.

Sources: D. G. Feitelson, L. Rudolph, U. Schwiegelshohn, K. C. Sevcik, P. Wong, "Theory and practice
in parallel job scheduling", JSSPP 1997 (bounded slowdown); D. Zotkin, P. J. Keleher, "Job-length
estimation and performance in backfilling schedulers", HPDC 1999 (per processor); R. Jain, D. Chiu,
W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared
computer systems", DEC-TR-301, 1984; G. Sabin, P. Sadayappan, "Unfairness metrics for space-sharing
parallel job schedulers", JSSPP 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics.registry import (
    JOB_METRICS,
    TAU_S,
    JobMetric,
    Maximum,
    Mean,
    ServedJobs,
    Statistic,
    check_tau,
    main_statistics,
)
from hpctwin.model.arguments import check_arguments
from hpctwin.model.text import format_duration

__all__ = [
    "By",
    "breakdown",
    "classed",
    "expression",
    "jain",
    "served",
    "unfair_delay",
    "weighted_values",
    "with_job_metrics",
]


@check_arguments()
def with_job_metrics(jobs: pl.DataFrame, tau_s: float = TAU_S) -> pl.DataFrame:
    """Add each job's metrics as columns; null if the job has no start or no end.

    The columns are those of `hpctwin.metrics.registry.JOB_METRICS`, such as ``wait_s`` and
    ``slowdown``; docs/reference/metrics.md has their formulas. For a job that ran again after a node failure,
    start and run are those of its last attempt.

    Args:
        jobs: Table of jobs of a result.
        tau_s: Threshold τ of bounded slowdowns, in seconds.

    Returns:
        The jobs in the same order with these columns added.

    Raises:
        ConfigError: ``tau_s`` is not above 0.
    """
    nodes = jobs["nodes"].to_numpy()
    times = "submit_s", "start_s", "end_s"
    submit, start, end = (jobs[name].cast(pl.Float64).to_numpy() for name in times)
    # Jobs that never started have an end too (canceled, rejected), but no turnaround.
    end = np.where(np.isnan(start), np.nan, end)
    each = ServedJobs(submit, start, end, nodes, tau_s=check_tau(tau_s))
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


@check_arguments()
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


By = Literal["size", "walltime", "user", "account", "partition", "state"]
"""Properties that divide jobs into classes."""

WALLTIME_EDGES_S = tuple(3600.0 * hours for hours in (0.5, 1, 2, 4, 8, 12, 24, 48, 96, 168))
"""Common limits of sites.

Jobs that request exactly the limit are the top of their class.
"""


@check_arguments()
def breakdown(
    jobs: pl.DataFrame,
    by: By,
    edges: Sequence[float] | None = None,
    *,
    tau_s: float = TAU_S,
) -> pl.DataFrame:
    """Return metrics of each class of jobs.

    Args:
        jobs: Table of jobs of a result.
        by: Property of the classes. ``size`` is the number of requested nodes.
        edges: Upper ends of the classes, each within its class, ascending; only for ``size``
            (nodes) and ``walltime`` (seconds). Larger jobs form one more class. Default for sizes:
            1, 2, 4, 8, … up to the widest job; for walltimes: 30 min, 1, 2, 4, 8, 12 h, 1, 2, 4 and
            7 days.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Returns:
        A row for each class with jobs, sizes and walltimes ascending, others by descending
        node-hours:

        - ``bin``: label; *unknown* for jobs without one;
        - ``jobs``: number of all jobs;
        - ``ran_jobs``: number of jobs that started and ended;
        - the main statistics of `hpctwin.metrics.METRICS` over the latter; null if there are none;
        - ``node_hours``: nodes · run over the latter, in hours.

    Raises:
        UnknownNameError: ``by`` is none of the above.
        ConfigError: ``edges`` are not ascending, or were given for labels.
    """
    measured = classed(with_job_metrics(jobs, tau_s), by, edges)
    ran = measured["run_s"].is_not_null()
    statistics = measured.with_columns(
        # The wait of a running job is known, but its other metrics are not.
        wait_s=pl.when(ran).then("wait_s"),
        node_hours=pl.col("nodes") * pl.col("run_s") / 3600,
    )
    return (
        statistics.group_by("_order", "bin")
        .agg(
            jobs=pl.len().cast(pl.Int64),
            ran_jobs=pl.col("run_s").count().cast(pl.Int64),
            **{name: expression(statistic) for name, statistic in main_statistics().items()},
            node_hours=pl.col("node_hours").sum(),
        )
        .sort(["_order", "node_hours", "bin"], descending=[False, True, False])
        .drop("_order")
    )


def classed(jobs: pl.DataFrame, by: By, edges: Sequence[float] | None = None) -> pl.DataFrame:
    """Return jobs with their class, ``bin``, and the order of the class, ``_order``.

    Raises:
        UnknownNameError, ConfigError: As in `breakdown`.
    """
    if by not in get_args(By):
        raise UnknownNameError("breakdown", by, get_args(By))
    if by in ("size", "walltime"):
        column = "nodes" if by == "size" else "walltime_s"
        ends = _checked(edges) if edges is not None else _default_edges(by, jobs[column])
        names = _size_names(ends) if by == "size" else _walltime_names(ends)
        # The class is the number of edges below the value.
        order = pl.Series(ends, dtype=pl.Float64).search_sorted(
            jobs[column].cast(pl.Float64), side="left"
        )
        names_of = pl.Series(names, dtype=pl.String).gather(order)
        return jobs.with_columns(_order=order.cast(pl.Int64), bin=names_of)
    if edges is not None:
        raise ConfigError(f"edges are for size and walltime, not for {by}")
    label = pl.col(by).cast(pl.String) if by in jobs.columns else pl.lit(None, pl.String)
    return jobs.with_columns(_order=pl.lit(0, pl.Int64), bin=label.fill_null("unknown"))


def _checked(edges: Sequence[float]) -> list[float]:
    ends = [float(edge) for edge in edges]
    if not ends or ends != sorted(set(ends)):
        raise ConfigError(f"edges {list(edges)} must be one or more increasing numbers")
    return ends


def _default_edges(by: By, values: pl.Series) -> list[float]:
    if by == "walltime":
        return list(WALLTIME_EDGES_S)
    largest = values.max()
    widest = int(largest) if isinstance(largest, int | float) else 1
    return [float(2**power) for power in range((widest - 1).bit_length() + 1)]


def _size_names(ends: list[float]) -> list[str]:
    names = []
    below = 0
    for end in ends:
        first, last = below + 1, int(end)
        names.append(f"{last}" if first >= last else f"{first}–{last}")
        below = last
    return [*names, f"> {below}"]


def _walltime_names(ends: list[float]) -> list[str]:
    texts = [format_duration(end) for end in ends]
    between = [f"{low} – {high}" for low, high in pairwise(texts)]
    return [f"≤ {texts[0]}", *between, f"> {texts[-1]}"]


def jain(values: npt.ArrayLike) -> float | None:
    """Return Jain's fairness index (Σx)² / (n · Σx²).

    It is 1 if all values are equal, and 1/n if one party has all.

    Args:
        values: Amount of each party, in any unit, 0 or more.

    Returns:
        The index in [1/n, 1]; 1 if all values are 0, None if there are none.

    Raises:
        ConfigError: A value is negative or not finite.
    """
    # Parties come in any order, and the last digit of sums depends on it.
    shares = np.sort(np.asarray(values, np.float64))
    if not len(shares):
        return None
    least, largest = shares[0], shares[-1]  # NaN sorts last
    if not (least >= 0 and largest < np.inf):
        raise ConfigError("Jain's index is defined for finite values of 0 or more only")
    if largest == 0:
        return 1.0
    # The index has no unit; scaling keeps the squares of huge and tiny values in range.
    scaled = shares / largest
    return float(min(1.0, scaled.sum() ** 2 / (len(scaled) * np.square(scaled).sum())))


@check_arguments()
def unfair_delay(jobs: pl.DataFrame, fair_start_s: npt.ArrayLike) -> dict[str, float | int | None]:
    """Return how much later jobs started than they would have without later arrivals.

    A job's fair start is the start that it would have if no job came after it. Its unfair delay is
    max(0, start − fair start) (Sabin & Sadayappan 2005).

    Args:
        jobs: Table of jobs of a result.
        fair_start_s: Fair start of each row of ``jobs``, in seconds; NaN if not known.

    Returns:
        ``judged_jobs``, the number of jobs with a start and a fair start; over these
        ``mean_unfair_delay_s``, ``max_unfair_delay_s`` and ``share_unfairly_delayed`` (0 to 1),
        None if there are none.

    Raises:
        ConfigError: ``fair_start_s`` and ``jobs`` differ in length.
    """
    fair = np.asarray(fair_start_s, np.float64)
    if fair.shape != (len(jobs),):
        raise ConfigError(f"fair_start_s has shape {fair.shape}, expected ({len(jobs)},)")
    start = jobs["start_s"].cast(pl.Float64).to_numpy()
    delay = np.maximum(start - fair, 0.0)
    delay = delay[np.isfinite(delay)]
    judged = len(delay)
    return {
        "judged_jobs": judged,
        "mean_unfair_delay_s": float(delay.mean()) if judged else None,
        "max_unfair_delay_s": float(delay.max()) if judged else None,
        "share_unfairly_delayed": float((delay > 0).mean()) if judged else None,
    }
