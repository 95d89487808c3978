"""Metrics by class of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics.jobs.jobs import expression, with_job_metrics
from hpctwin.metrics.registry import main_statistics
from hpctwin.model.text import format_duration

__all__ = ["By", "breakdown", "classed"]

By = Literal["size", "walltime", "user", "account", "partition", "state"]
"""Properties that divide jobs into classes."""

WALLTIME_EDGES_S = tuple(3600.0 * hours for hours in (0.5, 1, 2, 4, 8, 12, 24, 48, 96, 168))
"""Common limits of sites.

Jobs that request exactly the limit are the top of their class.
"""


def breakdown(jobs: pl.DataFrame, by: By, edges: Sequence[float] | None = None) -> pl.DataFrame:
    """Return metrics of each class of jobs.

    Args:
        jobs: Table of jobs of a result.
        by: Property of the classes. ``size`` is the number of requested nodes.
        edges: Upper ends of the classes, each within its class, ascending; only for ``size``
            (nodes) and ``walltime`` (seconds). Larger jobs form one more class. Default for sizes:
            1, 2, 4, 8, … up to the widest job; for walltimes: 30 min, 1, 2, 4, 8, 12 h, 1, 2, 4 and
            7 days.

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
    measured = classed(with_job_metrics(jobs), by, edges)
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

    Args:
        jobs: Table of jobs of a result.
        by: As in `breakdown`.
        edges: As in `breakdown`.

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
        raise ConfigError(f"edges {list(edges)} must be one or more rising numbers")
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
