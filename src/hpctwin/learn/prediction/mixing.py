"""Combination of predictions by their past errors in ended jobs.

S-RAPS's score of predictions, as priorities (Maiterth et al., SC25-W, §4.4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.prediction.history import History
from hpctwin.learn.prediction.known import Known
from hpctwin.model import Workload

__all__ = ["RANKED", "RATES", "ensemble", "hedge", "inaccuracy", "ranked"]

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
            f"{workload.name} has no predicted_{name}; hpctwin predictor apply writes it where the trace "
            "tells of it"
        )
    return np.where(np.isnan(found), np.nanmean(found), found)


FloatArray = npt.NDArray[np.float64]

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

    Args:
        known: The jobs.
        target: Predicted target.
        found: Predictions by method [jobs].
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

    Args:
        known: The jobs.
        target: Predicted target.
        found: Predictions by method [jobs].
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
