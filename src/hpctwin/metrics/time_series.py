"""The system over time: step functions, means, and use of resources."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.metrics.levels import COUNTS, levels, up_nodes
from hpctwin.model import Dependencies, DependencyKind
from hpctwin.model.arguments import check_arguments

__all__ = [
    "binned",
    "dependency_violations",
    "durations_s",
    "integrals",
    "resample",
    "resource_use",
    "resource_utilization",
    "series",
]

FloatArray = npt.NDArray[np.float64]


_LEVELS = (*COUNTS, "free_nodes", "up_nodes")


@check_arguments()
def series(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    *,
    from_s: float | None = None,
    until_s: float | None = None,
) -> pl.DataFrame:
    """Return queue and cluster as step functions: a row holds until the next row.

    A job is queued from its eligible time to its start, or to its end if it never started. A job
    that was requeued after a node failure is queued again between its attempts. ``used_nodes``
    includes lost attempts. ``free_nodes`` = max(0, up − used): a late job may keep its nodes into a
    maintenance, so that more are used than are up. ``utilization`` = used / (used + free), 0 if
    both are 0.

    Args:
        jobs: Table of jobs of a result.
        lost: Attempts that node failures cut off.
        capacity: Nodes that are up, as a step function; its first row also holds before.
        from_s: Time of the first row, in seconds, unless there is an earlier one.
        until_s: Time of the last row, in seconds; default the last change. Later changes are
            omitted.

    Returns:
        Columns ``time_s`` (seconds, ascending), ``queue_length`` (jobs), ``queued_nodes``,
        ``running_jobs``, ``used_nodes``, ``free_nodes``, ``up_nodes`` (integers) and
        ``utilization`` (0 to 1). The first row is the first submission, or the first change if that
        is earlier. Without jobs and ``from_s``, no rows.
    """
    pieces = []
    for piece in levels(jobs, lost):
        held = piece.time_s[1:] > piece.time_s[:-1]
        pieces.append(np.vstack([piece.time_s[:-1], piece.counts])[:, held])
    time_s, *counts = np.concatenate([np.zeros((1 + len(COUNTS), 0)), *pieces], axis=1)
    first = _least(from_s, jobs["submit_s"].min(), *time_s[:1].tolist())
    if first is None:
        return _empty()
    last_change = _least(*time_s[-1:].tolist()) if until_s is None else until_s
    last = first if last_change is None else max(first, last_change)
    # Rows without a change remain at both ends and wherever the capacity changes.
    rows = np.union1d(time_s, np.append(capacity["time_s"], [first, last]))
    rows = rows[(first <= rows) & (rows <= last)]
    place = np.searchsorted(time_s, rows, side="right")
    levels_ = [np.append(0, count)[place].astype(np.int64) for count in counts]
    up = up_nodes(capacity)(rows).astype(np.int64)
    levels_ += [np.maximum(up - levels_[-1], 0), up]
    changed = np.any(np.diff(levels_, axis=1), axis=0)
    kept = np.concatenate([[True], changed[:-1], [True]]) if len(rows) > 1 else [True]
    columns = dict(zip(("time_s", *_LEVELS), (rows, *levels_), strict=True))
    return pl.DataFrame(columns).filter(kept).with_columns(_utilization())


@check_arguments()
def resample(series: pl.DataFrame, step_s: float) -> pl.DataFrame:
    """Return time-weighted means of a series over bins of equal width.

    Bins begin at multiples of ``step_s``. The first and the last are averaged over the part that
    the series covers. ``utilization`` is that of the means: used / (used + free).

    Args:
        series: A result of `series`.
        step_s: Width of a bin, in seconds.

    Returns:
        The columns of ``series`` as floats, with ``time_s`` the begin of the bin (or its covered
        part), and ``span_s``, the seconds covered. Mean · span summed over bins is the integral of
        the series.

    Raises:
        ConfigError: ``step_s`` is not above 0.
    """
    if not step_s > 0:
        raise ConfigError(f"step_s is {step_s:g}; it must be above 0")
    time = series["time_s"].to_numpy()
    if not len(time) or time[-1] <= time[0]:
        return _empty(pl.Float64).with_columns(span_s=pl.lit(0.0)).clear()
    inner = np.arange(np.floor(time[0] / step_s) + 1, np.ceil(time[-1] / step_s)) * step_s
    edges = np.concatenate(([time[0]], inner, [time[-1]]))
    spans = np.diff(edges)
    columns = {"time_s": edges[:-1]}
    for name in _LEVELS:
        level = series[name].to_numpy().astype(np.float64)
        columns[name] = np.maximum(integrals(time, level, edges) / spans, 0.0)
    return pl.DataFrame(columns).with_columns(_utilization(), span_s=pl.Series(spans))


def integrals(time_s: FloatArray, level: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the integral of a step function over each bin; arguments as in `binned`."""
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(time_s))))
    # Between rows the integral is a straight line, so interpolating it is exact.
    return np.diff(np.interp(edges, time_s, area))


def binned(
    time_s: FloatArray, level: FloatArray, edges: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the time-weighted mean, and the peak, of a step function in each bin.

    Args:
        time_s: Begin of each step, ascending [rows]; the last row is the end.
        level: Level from each time on [rows].
        edges: Edges of the bins, ascending, none before the first row or after the last [bins + 1].

    Returns:
        Means and peaks [bins].
    """
    means = integrals(time_s, level, edges) / np.diff(edges)
    # The level that holds at the begin of a bin, and the levels that begin in it.
    begins = np.searchsorted(time_s, edges[:-1], side="right") - 1
    ends = np.searchsorted(time_s, edges[1:], side="left")
    pairs = np.column_stack([begins, np.maximum(ends, begins + 1)]).ravel()
    peaks = np.maximum.reduceat(np.append(level, -np.inf), pairs)[::2]
    return means, peaks.astype(np.float64)


@check_arguments()
def durations_s(series: pl.DataFrame, start_s: float, end_s: float) -> FloatArray:
    """Return how long each row of a series holds within a window, in seconds."""
    time = np.append(series["time_s"].to_numpy(), end_s)
    widths: FloatArray = np.diff(np.clip(time, start_s, end_s))
    return widths


def _utilization() -> pl.Expr:
    present = pl.col("used_nodes") + pl.col("free_nodes")
    ratio = pl.col("used_nodes") / present
    return pl.when(present > 0).then(ratio).otherwise(0.0).alias("utilization")


def _least(*values: object) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return min(numbers, default=None)


def _empty(dtype: type[pl.DataType] = pl.Int64) -> pl.DataFrame:
    levels = dict.fromkeys(_LEVELS, dtype)
    return pl.DataFrame(schema={"time_s": pl.Float64, **levels, "utilization": pl.Float64})


@check_arguments()
def resource_use(
    jobs: pl.DataFrame,
    asked: Mapping[str, npt.NDArray[np.int64]],
    capacity: Mapping[str, float],
    *,
    bins: int = 200,
    until_s: float | None = None,
) -> pl.DataFrame:
    """Return the share of each resource in use, as exact means over equal time spans.

    Args:
        jobs: Table of jobs of a result.
        asked: Amount that each job takes while it runs, by resource [jobs].
        capacity: Total amount, by resource.
        bins: Number of spans, from the first submission to ``until_s``.
        until_s: End of the last span, in seconds; default the last end.

    Returns:
        ``time_s``, the begin of a span, and a column for each resource, 0 to 1.

    Raises:
        ConfigError: ``bins`` is below 1.
    """
    if bins < 1:
        raise ConfigError(f"bins is {bins}; it must be at least 1")
    start, end, ran = _spans(jobs)
    first = float(jobs["submit_s"].to_numpy().min()) if len(jobs) else 0.0
    last = max(end, default=first) if until_s is None else until_s
    if not last > first:
        last = first + 1.0
    edges = np.linspace(first, last, bins + 1)
    columns = {"time_s": edges[:-1]}
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    time = time[order]
    for name, total in capacity.items():
        amount = asked[name][ran].astype(np.float64)
        level = np.cumsum(np.concatenate([amount, -amount])[order])
        held = integrals(time, level, edges) if len(time) else np.zeros(bins)
        columns[name] = np.maximum(held, 0.0) / (np.diff(edges) * total)
    return pl.DataFrame(columns)


@check_arguments()
def resource_utilization(
    jobs: pl.DataFrame,
    asked: Mapping[str, npt.NDArray[np.int64]],
    capacity: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of each resource in use, from first submission to last end.

    Args:
        jobs: Table of jobs of a result.
        asked: Amount that each job takes while it runs, by resource [jobs].
        capacity: Total amount, by resource.
    """
    start, end, ran = _spans(jobs)
    if not len(end):
        return dict.fromkeys(capacity, 0.0)
    span = float(end.max()) - float(jobs["submit_s"].to_numpy().min())
    return {
        name: float((asked[name][ran] * (end - start)).sum() / (total * span)) if span > 0 else 0.0
        for name, total in capacity.items()
    }


@check_arguments()
def dependency_violations(jobs: pl.DataFrame, dependencies: Dependencies) -> int:
    """Return how many jobs started before a job that they depend on had ended.

    The count uses only the schedule, whatever the simulator knew of dependencies. It counts jobs
    whose ``afterok`` or ``afterany`` prerequisite had not ended, or whose ``after`` prerequisite
    had not started.

    Args:
        jobs: Table of jobs of a result, in the order of the workload's rows.
        dependencies: Dependencies between those rows.
    """
    start = jobs["start_s"].fill_null(np.inf).to_numpy()
    end = jobs["end_s"].fill_null(np.inf).to_numpy()
    job, on = dependencies.job, dependencies.on
    after = dependencies.kind == DependencyKind.AFTER
    ready = np.where(after, np.minimum(start[on], end[on]), end[on])
    ready = ready + dependencies.delay_ms / 1000
    # Half a millisecond: seconds are rounded, and the engine counts milliseconds.
    early = start[job] < ready - 0.0005
    return len(np.unique(job[early & np.isfinite(start[job])]))


def _spans(jobs: pl.DataFrame) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Return start and end of the jobs that ran, and which jobs these are."""
    ran = (jobs["start_s"].is_not_null() & jobs["end_s"].is_not_null()).to_numpy()
    start = jobs["start_s"].to_numpy()[ran].astype(np.float64)
    end = jobs["end_s"].to_numpy()[ran].astype(np.float64)
    return start, end, ran
