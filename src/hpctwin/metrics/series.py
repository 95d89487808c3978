"""The system over time: exact step functions, and their means over equal bins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError

__all__ = ["resample", "series", "widths_s"]

FloatArray = npt.NDArray[np.float64]

_COUNTS = ("queue_length", "queued_nodes", "running_jobs", "used_nodes")
_LEVELS = (*_COUNTS, "free_nodes", "up_nodes")


def series(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    *,
    until_s: float | None = None,
) -> pl.DataFrame:
    """Queue and machine as step functions: each row holds from its time to the next row's.

    A job queues from when it is eligible to its start, or to its end if it never started; one
    that was requeued after a node failure queues again between its attempts. ``used_nodes``
    includes lost attempts. ``free_nodes`` = max(0, up − used): a job that is late may keep its
    nodes into a maintenance, so that more are used than are up. ``utilization`` =
    used / (used + free), 0 where there is neither.

    Args:
        jobs: a result's jobs.
        lost: attempts that node failures cut off.
        capacity: nodes that are up, as a step function; its first row also holds before.
        until_s: where the last row lies, seconds; the last change if left out. Later changes
            are left out.

    Returns:
        Columns ``time_s`` (seconds, rising), ``queue_length`` (jobs), ``queued_nodes``,
        ``running_jobs``, ``used_nodes``, ``free_nodes``, ``up_nodes`` (integers) and
        ``utilization`` (0 to 1). The first row is the first submission, or the first change if
        that is earlier. Without jobs, no rows.
    """
    changes = _changes(jobs, lost)
    first = _least(jobs["submit_s"].min(), changes["time_s"].min())
    if first is None:
        return _empty()
    last_change = _least(changes["time_s"].max()) if until_s is None else until_s
    last = first if last_change is None else max(first, last_change)
    up = capacity.select(
        pl.col("time_s").cast(pl.Float64), up_nodes=pl.col("nodes").cast(pl.Int64)
    ).sort("time_s")
    # Rows without a change at both ends and wherever the capacity changes.
    marks = pl.concat([up["time_s"], pl.Series("time_s", [first, last], dtype=pl.Float64)])
    still = pl.DataFrame({"time_s": marks}).with_columns(
        pl.lit(0, pl.Int64).alias(name) for name in _COUNTS
    )
    levels = (
        pl.concat([changes, still])
        .group_by("time_s")
        .agg(pl.col(_COUNTS).sum())
        .sort("time_s")
        .with_columns(pl.col(_COUNTS).cum_sum())
        .filter(pl.col("time_s").is_between(first, last))
        .join_asof(up, on="time_s", strategy="backward")
        .with_columns(pl.col("up_nodes").backward_fill())
        .with_columns(free_nodes=(pl.col("up_nodes") - pl.col("used_nodes")).clip(lower_bound=0))
        .select("time_s", *_LEVELS)
    )
    changed = pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in _LEVELS)
    at_ends = pl.col("time_s").is_in([first, last])
    return levels.filter(changed | at_ends).with_columns(_utilization())


def resample(series: pl.DataFrame, step_s: float) -> pl.DataFrame:
    """Time-weighted means of a series over bins of equal width.

    Bins begin at multiples of ``step_s``. The first and the last are averaged over the part that
    the series covers. ``utilization`` is that of the means: used / (used + free).

    Args:
        series: a result of `series`.
        step_s: width of a bin, seconds.

    Returns:
        The columns of ``series`` as floats, ``time_s`` being where the bin (or its covered part)
        begins, and ``span_s``, the seconds covered; mean · span summed over bins is the
        integral of the series.

    Raises:
        ConfigError: ``step_s`` is not above 0.
    """
    if not step_s > 0:
        raise ConfigError(f"step_s is {step_s:g}, it must be above 0")
    time = series["time_s"].to_numpy()
    if not len(time) or time[-1] <= time[0]:
        return _empty(pl.Float64).with_columns(span_s=pl.lit(0.0)).clear()
    inner = np.arange(np.floor(time[0] / step_s) + 1, np.ceil(time[-1] / step_s)) * step_s
    edges = np.concatenate(([time[0]], inner, [time[-1]]))
    spans = np.diff(edges)
    columns = {"time_s": edges[:-1]}
    for name in _LEVELS:
        level = series[name].to_numpy().astype(np.float64)
        area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(time))))
        # Between rows the integral is a straight line, so interpolating it is exact.
        means = np.diff(np.interp(edges, time, area)) / spans
        columns[name] = np.maximum(means, 0.0)
    return pl.DataFrame(columns).with_columns(_utilization(), span_s=pl.Series(spans))


def widths_s(series: pl.DataFrame, start_s: float, end_s: float) -> FloatArray:
    """How long each row of a series holds within a window, seconds."""
    time = np.append(series["time_s"].to_numpy(), end_s)
    widths: FloatArray = np.diff(np.clip(time, start_s, end_s))
    return widths


def _changes(jobs: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """By how much each event raises the counts, one row per event."""
    leave = pl.coalesce("start_s", "end_s")
    queued = jobs.lazy().with_columns(leave_s=leave).filter(
        pl.col("state") != "rejected",
        pl.col("eligible_s").is_not_null(),
        # Recorded starts may lie before the submission, cancellations before eligibility.
        pl.col("leave_s").is_null() | (pl.col("leave_s") >= pl.col("eligible_s")),
    )  # fmt: skip
    started = jobs.lazy().filter(pl.col("start_s").is_not_null())
    events = [
        _event(queued, "eligible_s", queued=1),
        _event(queued, "leave_s", queued=-1),
        _event(started, "start_s", running=1),
        _event(started, "end_s", running=-1),
        _event(lost.lazy(), "start_s", queued=-1, running=1),
        _event(lost.lazy(), "end_s", queued=1, running=-1),
    ]
    return pl.concat(events).collect()


def _event(of: pl.LazyFrame, at: str, *, queued: int = 0, running: int = 0) -> pl.LazyFrame:
    nodes = pl.col("nodes").cast(pl.Int64)
    return of.select(
        time_s=pl.col(at).cast(pl.Float64),
        queue_length=pl.lit(queued, pl.Int64),
        queued_nodes=nodes * queued,
        running_jobs=pl.lit(running, pl.Int64),
        used_nodes=nodes * running,
    ).drop_nulls("time_s")


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
