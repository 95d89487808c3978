"""Samples of measurements with their times, made into samples at equal steps from each job's start."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from hpctwin.model.workload.frame import USE_STEP

__all__ = ["at_steps"]


def at_steps(
    rows: pl.LazyFrame,
    key: str,
    since_s: pl.Expr,
    step_s: float,
    values: Mapping[str, pl.Expr],
) -> pl.LazyFrame:
    """Lists of samples by job, and the column of their steps.

    A sample counts in the step in which it was taken, several in one as their mean. Where there is none
    the one before it holds, at the beginning the first.

    Args:
        rows: a row for each measurement.
        key: the column that tells the job.
        since_s: seconds since the job began; measurements before it are left out.
        step_s: of the lists, seconds.
        values: what is measured, by the name that it gets.
    """
    step = (since_s / step_s).floor().cast(pl.Int64)
    known = rows.select(key, step.alias("_step"), *(v.alias(name) for name, v in values.items()))
    known = known.filter(pl.col("_step") >= 0).drop_nulls()
    each = known.group_by(key, "_step").agg(pl.col(*values).mean()).sort(key, "_step")
    later = pl.col("_step").shift(-1).over(key)
    first = pl.when(pl.col("_step") == pl.col("_step").min().over(key)).then(0).otherwise("_step")
    times = (later.fill_null(pl.col("_step") + 1) - first).alias("_times")
    held = each.with_columns(times).with_columns(
        pl.col(name).repeat_by("_times") for name in values
    )
    lists = held.group_by(key, maintain_order=True).agg(pl.col(name).explode() for name in values)
    return lists.with_columns(pl.lit(float(step_s)).alias(name + USE_STEP) for name in values)
