"""Several predictions made one, by how far off each has been: only in jobs that had ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.learn.prediction.history import History
from hpctwin.learn.prediction.known import Known

__all__ = ["RATES", "ensemble", "hedge", "inaccuracy"]

FloatArray = npt.NDArray[np.float64]

_LAST = 2000
"""What a method's error is in general, its last so many tell."""
_SHRINK = 30
"""Errors in general count as so many of a group's own."""
_TRUST = 20.0
"""An ensemble's weights are exp(-_TRUST · past error)."""
RATES = (0.5, 2.0, 8.0)
"""So far `hedge` may trust past errors, in each of its mixtures."""
_WORST = 20.0
"""An error counts as so many doublings at most."""


def inaccuracy(predicted: FloatArray, truth: FloatArray) -> FloatArray:
    """How far off: 1 less the smaller over the larger of both (Tsafrir et al. 2007) [jobs]."""
    return 1.0 - np.minimum(predicted, truth) / np.maximum(predicted, truth)


def ensemble(known: Known, target: str, found: Mapping[str, FloatArray]) -> FloatArray:
    """The median of what methods say, weighted by their inaccuracy in the user's jobs so far [jobs].

    Args:
        known: the jobs.
        target: what is foretold.
        found: by each method [jobs].
    """
    truth = known.truth[target]
    errors = [inaccuracy(predicted, truth) for predicted in found.values()]
    values = np.array(list(found.values()))
    weight = _weights(values, [_past(known, known.by_user, error) for error in errors], _TRUST)
    # A median is one of what they say: runtimes come in lumps, and between two lumps there is nobody.
    order = np.argsort(values, axis=0)
    upto = np.cumsum(np.take_along_axis(weight, order, 0), axis=0)
    middle = np.argmax(upto >= 0.5 * upto[-1], axis=0)[None]
    median: FloatArray = np.take_along_axis(values, np.take_along_axis(order, middle, 0), 0)[0]
    return median


def hedge(known: Known, target: str, found: Mapping[str, FloatArray]) -> FloatArray:
    """The mean of what methods say, weighted so that the error of the logarithm becomes least [jobs].

    For each of `RATES` η the geometric mean of all, weighted by exp(-η e), e the past error of each in like
    jobs in doublings; and of these the mean by Hedge (Freund, Schapire 1997, *A Decision-Theoretic
    Generalization of On-Line Learning*): weights exp(-√(8 ln N / n) L / 20), L the sum of the errors (at most
    20 each) of each of the N in all n jobs that have ended. An error of the logarithm is convex. So, where
    each job has ended before the next is foretold, the mean error is above that of the best of the N by
    20 (√(2 ln N / n) + √(ln N / 8) / n) at most, whatever the jobs are (Cesa-Bianchi, Lugosi 2006,
    *Prediction, Learning, and Games*, thm. 2.3).

    Args:
        known: the jobs.
        target: what is foretold.
        found: by each method [jobs].
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
    """The mean error of a method in the jobs of a group that had ended, drawn towards that in all [jobs]."""
    general = np.nan_to_num(known.among_all.mean(error, _LAST), nan=0.5)
    count = group.sum((~np.isnan(error)).astype(np.float64))
    past: FloatArray = (group.sum(error) + _SHRINK * general) / (count + _SHRINK)
    return past


def _weights(values: FloatArray, past: Sequence[FloatArray], trust: float) -> FloatArray:
    """By past errors; 0 of who says nothing [methods, jobs]."""
    trusted = -trust * np.array(past)
    return np.where(np.isnan(values), 0.0, np.exp(trusted - np.max(trusted, axis=0)))


def _mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    total = weight.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = (np.nan_to_num(values) * weight).sum(axis=0) / total
    return np.where(total > 0.0, mean, np.nan)
