"""Several policies compared: paired differences with intervals, and Kiviat scores.

Each policy meets the same jobs (common random numbers). The difference on one workload is one
value, and differences between workloads cancel out (A. M. Law, Simulation Modeling and Analysis,
5th ed., 2015, chapters 10 and 11).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.metrics.summary import Summary

__all__ = [
    "MeanInterval",
    "PairedChange",
    "kiviat_area",
    "kiviat_scores",
    "mean_interval",
    "mean_summaries",
    "min_sample_size",
    "paired_change",
    "paired_differences",
]

_RESAMPLES = 10_000
_AT_ONCE = 1 << 22
_NORMAL = NormalDist()


class MeanInterval(NamedTuple):
    """A mean with its confidence interval.

    Args:
        mean: Mean of the values.
        low, high: Ends of the interval; None if there are too few values for one.
    """

    mean: float
    low: float | None
    high: float | None


def min_sample_size(level: float = 0.95) -> int:
    """Return how many values an interval needs: 6 for 95 %.

    Resampled means never leave the range of the values. If each of n values is on either side of
    the true value with equal chances, all are on one side with probability 2^(1 − n).

    Args:
        level: Share of intervals that include the true value, above 0 and below 1.

    Raises:
        ConfigError: The level is not such a share.
    """
    if not 0 < level < 1:
        raise ConfigError(
            f"the level of an interval must be between 0 and 1, such as 0.95; not {level}"
        )
    return 1 + math.ceil(-math.log2(1 - level))


def mean_interval(
    values: npt.ArrayLike, *, level: float = 0.95, resamples: int = _RESAMPLES, seed: int = 0
) -> MeanInterval:
    """Return the mean of independent values, with a bootstrap interval.

    The interval consists of quantiles of means of resampled values, widened for small samples. This
    is the expanded percentile interval of T. C. Hesterberg, "What teachers should know about the
    bootstrap", The American Statistician 69 (4), 2015. For normal values it is as wide as Student's
    interval.

    Args:
        values: [values], in any unit; for example differences of pairs.
        level: Share of intervals that include the true value, above 0 and below 1.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The same for the same values, whatever their order; without ends for fewer than
        `min_sample_size`.

    Raises:
        ConfigError: There is no value, one is not finite, or the level is not a share.
    """
    # The last digit of sums depends on the order, and so do the resamples.
    data = np.sort(np.asarray(values, np.float64).ravel())
    if not len(data) or not np.isfinite(data).all():
        raise ConfigError("an interval needs at least one value, and only finite values")
    mean, count = float(data.mean()), len(data)
    if count < min_sample_size(level):
        return MeanInterval(mean, None, None)
    tail = _NORMAL.cdf(-math.sqrt(count / (count - 1)) * _student(level, count - 1))
    random = np.random.default_rng(seed)
    at_once = max(1, _AT_ONCE // count)
    means = np.concatenate(
        [
            data[random.integers(count, size=(min(at_once, resamples - done), count))].mean(axis=1)
            for done in range(0, resamples, at_once)
        ]
    )
    low, high = np.quantile(means, [tail, 1 - tail])
    return MeanInterval(mean, float(low), float(high))


def _student(level: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t (Abramowitz and Stegun, 26.7.5).

    The error is at most 0.0015 from 5 degrees of freedom on. SciPy has it exactly, and nothing else
    here needs SciPy.
    """
    z = _NORMAL.inv_cdf(0.5 + level / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


class PairedChange(NamedTuple):
    """Change between paired values, absolute and relative, with confidence intervals.

    Args:
        difference: Mean difference of the pairs, with its interval.
        ratio: Geometric mean of the ratios of the pairs, with its interval, always above 0; all
            None if a value is not above 0.
        lower, higher: Number of pairs with a negative and a positive difference.
    """

    difference: MeanInterval
    ratio: MeanInterval | tuple[None, None, None]
    lower: int
    higher: int


def paired_change(
    before: npt.ArrayLike, after: npt.ArrayLike, *, level: float = 0.95
) -> PairedChange:
    """Return the change between paired values, such as a metric of two policies per workload.

    A ratio is averaged by logarithms. So a change of −50 % and one of +100 % cancel out, and no end
    of an interval is below −100 %. The ends do not depend on which policy comes first.

    Args:
        before: Values before the change [pairs].
        after: Values after it, of the same pairs [pairs].
        level: Level of the intervals, above 0 and below 1.

    Raises:
        ConfigError: There is no pair, or a value is not finite.

    Example:
        >>> change = paired_change([2.0, 4.0], [4.0, 2.0])
        >>> change.ratio[0], change.difference.mean
        (1.0, 0.0)
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    difference = second - first
    ratio: MeanInterval | tuple[None, None, None] = (None, None, None)
    if (first > 0).all() and (second > 0).all():
        logs = mean_interval(np.log(second) - np.log(first), level=level)
        ratio = MeanInterval(*(None if one is None else math.exp(one) for one in logs))  # type: ignore[arg-type]
    return PairedChange(
        mean_interval(difference, level=level),
        ratio,
        int((difference < 0).sum()),
        int((difference > 0).sum()),
    )


def paired_differences(
    runs: Sequence[Mapping[str, Summary]],
    metrics: Iterable[str] | None = None,
    *,
    level: float = 0.95,
) -> pl.DataFrame:
    """Return the changes of each policy against the first, over several workloads.

    Args:
        runs: One for each workload or seed: summaries by policy, of the same policies each time.
        metrics: Keys of summaries; by default every metric that is a number.
        level: Level of the intervals, above 0 and below 1.

    Returns:
        A row for each policy but the first and each metric:

        - ``policy``, ``against``, ``metric``;
        - ``pairs``: number of workloads on which both have the metric;
        - ``before``, ``after``: means of the first policy and of this one over these workloads;
        - ``difference``, ``low``, ``high``: mean difference and its interval, of `mean_interval`;
          without ends (null) if there are too few pairs;
        - ``ratio``, ``ratio_low``, ``ratio_high``: geometric mean of the ratios and its interval,
          of `paired_change`; null if a value is not above 0;
        - ``lower``, ``higher``: number of pairs with a negative and a positive difference.

    Raises:
        ConfigError: There is no run, or runs differ in their policies.
    """
    names = list(runs[0]) if runs else []
    if not names or any(list(run) != names for run in runs):
        raise ConfigError("differences compare policies; each run must have the same policies")
    asked = _numbers(runs) if metrics is None else list(metrics)
    rows = []
    for name in names[1:]:
        for metric in asked:
            both = [(run[names[0]].get(metric), run[name].get(metric)) for run in runs]
            pairs = np.array([pair for pair in both if None not in pair], np.float64).reshape(-1, 2)
            if not len(pairs):
                continue
            change = paired_change(*pairs.T, level=level)
            rows.append(
                (name, names[0], metric, len(pairs), *map(float, pairs.mean(axis=0)),
                 *change.difference, *change.ratio, change.lower, change.higher)
            )  # fmt: skip
    return pl.DataFrame(rows, _SCHEMA, orient="row")


_SCHEMA = {
    "policy": pl.String, "against": pl.String, "metric": pl.String, "pairs": pl.Int64,
    "before": pl.Float64, "after": pl.Float64, "difference": pl.Float64,
    "low": pl.Float64, "high": pl.Float64,
    "ratio": pl.Float64, "ratio_low": pl.Float64, "ratio_high": pl.Float64,
    "lower": pl.Int64, "higher": pl.Int64,
}  # fmt: skip


def mean_summaries(runs: Sequence[Mapping[str, Summary]]) -> dict[str, Summary]:
    """Return means of each policy's numeric metrics over several workloads.

    Args:
        runs: One for each workload or seed: summaries by policy, of the same policies each time.

    Returns:
        Means by policy. If a workload does not have a metric, it is the mean over the others.
    """
    means: dict[str, Summary] = {}
    for name in runs[0] if runs else ():
        for key in _numbers(runs):
            known = [value for run in runs if isinstance(value := run[name].get(key), (int, float))]
            if known:
                means.setdefault(name, {})[key] = float(np.mean(known))
    return means


def _numbers(runs: Sequence[Mapping[str, Summary]]) -> list[str]:
    """Return metrics that are numbers wherever known, in the order of the summaries."""
    kinds: dict[str, set[type]] = {}
    for run in runs:
        for summary in run.values():
            for key, value in summary.items():
                kinds.setdefault(key, set()).add(type(value))
    return [
        key
        for key, found in kinds.items()
        if found & {int, float} and found <= {int, float, type(None)}
    ]


FloatArray = npt.NDArray[np.float64]


def kiviat_scores(raw: FloatArray, larger_is_better: npt.NDArray[np.bool_]) -> FloatArray:
    """Return each metric scaled from 0 (worst) to 1 (best); all 1 if values are equal.

    Args:
        raw: Values [compared, metrics].
        larger_is_better: Direction of each metric [metrics].
    """
    low, high = raw.min(axis=0), raw.max(axis=0)
    # Rounding differences must not span the whole axis.
    differ = high - low > 1e-9 * np.abs(high)
    score = np.where(larger_is_better, raw - low, high - raw) / np.where(differ, high - low, 1.0)
    return np.where(differ, score, 1.0)


def shares_of_best(raw: FloatArray, larger_is_better: npt.NDArray[np.bool_]) -> FloatArray:
    """Return each metric as a share of the best value: 1 for the best, 0.5 for half as good.

    Args:
        raw: Values [compared, metrics], 0 or more.
        larger_is_better: Direction of each metric [metrics].
    """
    best = np.where(larger_is_better, raw.max(axis=0), raw.min(axis=0))
    small, large = np.minimum(raw, best), np.maximum(raw, best)
    return np.where(large > 0, small / np.where(large > 0, large, 1.0), 1.0)


def kiviat_area(scores: FloatArray) -> FloatArray:
    """Return the area of the polygon of each row of scores, with axes at equal angles.

    It depends on the order of the axes. Five axes with 1 on all give 2.378.

    Args:
        scores: Scores of `kiviat_scores` [compared, metrics].
    """
    around = np.roll(scores, -1, axis=1)
    area: FloatArray = 0.5 * math.sin(2 * math.pi / scores.shape[1]) * (scores * around).sum(axis=1)
    return area
