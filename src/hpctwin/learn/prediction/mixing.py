"""Predictions combined by their past errors in ended jobs, and scores of predictions.

S-RAPS's score of predictions, as priorities (Maiterth et al., SC25-W, §4.4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.prediction.known import History, Known
from hpctwin.metrics.jobs import classed
from hpctwin.model import Workload

__all__ = [
    "HELD_OUT",
    "RANKED",
    "RATES",
    "classes_by",
    "ensemble",
    "hedge",
    "held_out",
    "inaccuracy",
    "ranked",
    "scores",
    "scores_by",
]

FloatArray = npt.NDArray[np.float64]

RANKED = ("nodes", "runtime_s", "node_w", "memory_gb")
"""Features of a score: the nodes asked for, and predictions."""


def ranked(workload: Workload, coefficients: Mapping[str, float]) -> Workload:
    """Return the jobs with their scores as priorities, for the ordering ``priority``.

    A score is S = Σ α exp(1 / √(x + 1)) over some features x of the job. With α above 0, the
    smaller feature comes first.

    Args:
        workload: The jobs, with predictions.
        coefficients: α by the names of `RANKED`. Missing predicted runtimes are replaced by
            walltimes, other missing predictions by their mean.

    Raises:
        UnknownNameError: There is no such feature.
        ConfigError: A feature has no predictions, or there are no coefficients.
    """
    if not coefficients:
        raise ConfigError(f"a score needs coefficients of one or more of {', '.join(RANKED)}")
    score = np.zeros(len(workload))
    for name, alpha in coefficients.items():
        score += alpha * np.exp(1.0 / np.sqrt(_feature(workload, name) + 1.0))
    return workload.replace(priority=score)


def _feature(workload: Workload, name: str) -> npt.NDArray[np.float64]:
    if name not in RANKED:
        raise UnknownNameError("feature of a score", name, RANKED)
    if name == "nodes":
        return workload.nodes.astype(np.float64)
    if name == "runtime_s":
        return workload.predicted_runtime_s
    found = workload.predicted.get(name)
    if found is None or np.isnan(found).all():
        raise ConfigError(
            f"{workload.name} has no column predicted_{name}; hpctwin predictor apply adds it to a "
            f"trace that records {name}"
        )
    return np.where(np.isnan(found), np.nanmean(found), found)


_LAST = 2000
"""Number of a method's last errors in all jobs that count."""
_SHRINK = 30
"""Number of a group's errors that the errors in all jobs count as."""
_TRUST = 20.0
"""Factor of weights in an ensemble: exp(-_TRUST · past error)."""
RATES = (0.5, 2.0, 8.0)
"""Factors of past errors in the mixtures of `hedge`."""
_WORST = 20.0
"""Largest error that counts, in doublings."""


def inaccuracy(predicted: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the inaccuracy: 1 minus the smaller over the larger value [jobs].

    Source: Tsafrir et al. 2007.
    """
    return 1.0 - np.minimum(predicted, truth) / np.maximum(predicted, truth)


def ensemble(known: Known, target: str, found: Mapping[str, FloatArray]) -> FloatArray:
    """Return the weighted median of the predictions [jobs].

    Weights follow each method's inaccuracy in the user's ended jobs.
    """
    truth = known.truth[target]
    errors = [inaccuracy(predicted, truth) for predicted in found.values()]
    values = np.array(list(found.values()))
    weight = _weights(values, [_past(known, known.by_user, error) for error in errors], _TRUST)
    # A median is one of the predictions: runtimes cluster, and a mean would fall between the
    # clusters.
    order = np.argsort(values, axis=0)
    upto = np.cumsum(np.take_along_axis(weight, order, 0), axis=0)
    middle = np.argmax(upto >= 0.5 * upto[-1], axis=0)[None]
    median: FloatArray = np.take_along_axis(values, np.take_along_axis(order, middle, 0), 0)[0]
    return median


def hedge(known: Known, target: str, found: Mapping[str, FloatArray]) -> FloatArray:
    """Return the weighted mean of the predictions, for the least log error [jobs].

    For each η of `RATES`, there is the geometric mean of all methods with weights exp(-η e). The
    past error e of each method in similar jobs is in doublings. These means are mixed by Hedge
    (Freund, Schapire 1997, *A Decision-Theoretic Generalization of On-Line Learning*) with weights
    exp(-√(8 ln N / n) L / 20). L is the sum of the errors (at most 20 each) of each of the N means
    in all n ended jobs.

    The error of the logarithm is convex. If each job has ended before the next is predicted, the
    mean error is above that of the best of the N by at most this bound, for any jobs:
    20 (√(2 ln N / n) + √(ln N / 8) / n). Source: Cesa-Bianchi, Lugosi 2006, *Prediction, Learning,
    and Games*, thm. 2.3.
    """
    truth = np.log2(known.truth[target])
    values = np.log2(np.array(list(found.values())))
    past = [_past(known, known.by_like, np.abs(value - truth)) for value in values]
    mixed = np.array([_mean(values, _weights(values, past, rate)) for rate in RATES])
    error = np.minimum(np.abs(mixed - truth), _WORST)
    ended = np.maximum(known.among_all.sum((~np.isnan(truth)).astype(np.float64)), 1.0)
    rate = np.sqrt(8.0 * np.log(len(RATES)) / ended) / _WORST
    lost = [rate * known.among_all.sum(one) for one in error]
    return np.exp2(_mean(mixed, _weights(mixed, lost, 1.0)))


def _past(known: Known, group: History, error: FloatArray) -> FloatArray:
    """Return a method's mean past error in the group, shrunk towards all jobs [jobs]."""
    general = np.nan_to_num(known.among_all.mean(error, _LAST), nan=0.5)
    count = group.sum((~np.isnan(error)).astype(np.float64))
    past: FloatArray = (group.sum(error) + _SHRINK * general) / (count + _SHRINK)
    return past


def _weights(values: FloatArray, past: Sequence[FloatArray], trust: float) -> FloatArray:
    """Return weights by past errors; 0 without a prediction [methods, jobs]."""
    trusted = -trust * np.array(past)
    return np.where(np.isnan(values), 0.0, np.exp(trusted - np.max(trusted, axis=0)))


def _mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    total = weight.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = (np.nan_to_num(values) * weight).sum(axis=0) / total
    return np.where(total > 0.0, mean, np.nan)


HELD_OUT = 0.8
"""Fraction of jobs that count.

Each job is predicted before it is learned from. The first fifth, when least is known, does not
count.
"""
_WEEK_MS = 7 * 86_400_000


def scores(known: Known, target: str, predicted: Mapping[str, FloatArray]) -> pl.DataFrame:
    """Return the errors of each method over the last 80 % of the jobs.

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
