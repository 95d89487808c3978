"""Errors of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.learn.prediction.known import Known
from hpctwin.learn.prediction.mixing import inaccuracy
from hpctwin.metrics.jobs import classed

__all__ = ["HELD_OUT", "classes_by", "held_out", "scores", "scores_by"]

FloatArray = npt.NDArray[np.float64]

HELD_OUT = 0.8
"""Fraction of jobs that count.

Each job is predicted before it is learned from. The first fifth, when least is known, does not
count.
"""
_WEEK_MS = 7 * 86_400_000


def scores(known: Known, target: str, predicted: Mapping[str, FloatArray]) -> pl.DataFrame:
    """Return the errors of each method over the last 80 % of the jobs.

    Args:
        known: The jobs.
        target: Predicted target.
        predicted: Predictions by method [jobs].

    Returns:
        A row for each method:

        - ``method`` and ``jobs``
        - ``accuracy``: mean of the smaller over the larger of prediction and truth (Tsafrir et al.
          2007)
        - ``mean_absolute_error``, in s, W or GB
        - ``median_factor``: median of the larger over the smaller
        - ``mean_log2_error``: mean of log2 of the larger over the smaller
        - ``too_short``: fraction of jobs whose true value exceeded the prediction
    """
    return _scored(known, target, predicted, pl.Series("bin", ["all"] * len(known.workload))).drop(
        "bin"
    )


def scores_by(
    known: Known, target: str, predicted: Mapping[str, FloatArray], by: Literal["user", "size"]
) -> pl.DataFrame:
    """Return the errors of each method for each user, or for each class of sizes.

    Users with the most jobs come first.

    Args:
        known: The jobs.
        target: Predicted target.
        predicted: Predictions by method [jobs].
        by: Property that defines the classes, in column ``bin``.
    """
    classes = classes_by(known, by)
    table = _scored(known, target, predicted, classes["bin"])
    if by == "user":
        return table.sort("jobs", "bin", "method", descending=[True, False, False])
    order = classes.select("bin", "_order").unique()
    return table.join(order, on="bin").sort("_order", "method").drop("_order")


def _scored(
    known: Known, target: str, predicted: Mapping[str, FloatArray], classes: pl.Series
) -> pl.DataFrame:
    truth = known.truth[target]
    counted = held_out(truth, *predicted.values())
    parts = []
    for name, foretold in predicted.items():
        factor = 1.0 / (1.0 - inaccuracy(foretold, truth))
        jobs = pl.DataFrame(
            {
                "bin": classes,
                "method": [name] * len(truth),
                "accuracy": 1.0 / factor,
                "mean_absolute_error": np.abs(foretold - truth),
                "median_factor": factor,
                "mean_log2_error": np.log2(factor),
                "too_short": (foretold < truth).astype(np.float64),
            }
        ).filter(pl.Series(counted))
        parts.append(
            jobs.group_by("bin", "method", maintain_order=True).agg(
                pl.len().cast(pl.Int64).alias("jobs"),
                pl.col("accuracy", "mean_absolute_error").mean(),
                pl.col("median_factor").median(),
                pl.col("mean_log2_error", "too_short").mean(),
            )
        )
    return pl.concat(parts)


def held_out(truth: FloatArray, *predicted: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which of the last 80 % of jobs have truth and all predictions [jobs]."""
    counted: npt.NDArray[np.bool_] = np.arange(len(truth)) >= round((1 - HELD_OUT) * len(truth))
    counted &= ~np.isnan(np.array([truth, *predicted])).any(axis=0)
    return counted


def classes_by(known: Known, by: Literal["all", "user", "size", "week"]) -> pl.DataFrame:
    """Return the class of each job, ``bin``, and its order among classes, ``_order``."""
    jobs = known.workload
    if by == "all":
        return pl.DataFrame({"bin": ["all"] * len(jobs)}).with_columns(_order=pl.lit(0))
    if by == "week":
        week = pl.Series((jobs.submit_ms - jobs.submit_ms[0]) // _WEEK_MS)
        return pl.DataFrame({"bin": week.cast(pl.String), "_order": week})
    return classed(pl.DataFrame({"nodes": jobs.nodes, "user": jobs.user.to_series("user")}), by)
