"""Prediction intervals of jobs' runtime, power or memory, as known at submission.

Gradient boosting predicts quantiles. Their errors are corrected: each end is moved by a quantile of
its errors in earlier jobs of similar size, at a level that follows the misses.

Source:
    Romano, Patterson, Candès 2019, *Conformalized Quantile Regression*; Gibbs, Candès 2021,
    *Adaptive Conformal Inference Under Distribution Shift*, eq. 2.

Intervals with a guaranteed coverage, whatever the quality of the forecasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.prediction.known import History, Known
from hpctwin.learn.prediction.mixing import classes_by, held_out
from hpctwin.learn.prediction.models import QuantileBoosting
from hpctwin.learn.prediction.online import Training, bounded, learned

__all__ = ["WAYS", "Conformal", "check_coverage", "interval_scores", "intervals"]

FloatArray = npt.NDArray[np.float64]


class Conformal:
    """Online conformal prediction of the next residual from the last ones.

    Both ends of the interval are quantiles of the last residuals (split conformal prediction). The
    level of each end moves after every miss and every hit. Over time either end is therefore missed
    as often as it should be, even if the residuals drift.

    Source:
        Romano, Patterson, Candès 2019, *Conformalized Quantile Regression*, §3, for asymmetric
        ends; Gibbs, Candès 2021, *Adaptive Conformal Inference Under Distribution Shift*, eq. 2,
        for the levels.

    Args:
        coverage: Share of residuals that should be in the interval. The rest is split equally
            below and above it.
        window: Number of residuals that are remembered.
        step: Step of a level after a miss (γ).
    """

    def __init__(self, coverage: float, window: int, step: float) -> None:
        self.target = (1.0 - coverage) / 2.0
        self.step = step
        self.residuals: deque[float] = deque(maxlen=window)
        self.below = self.above = self.target
        self._sorted: FloatArray | None = None

    def __len__(self) -> int:
        """Return the number of remembered residuals."""
        return len(self.residuals)

    def learn(self, residual: float) -> None:
        """Record a new residual."""
        self.residuals.append(residual)
        self._sorted = None

    def missed(self, side: int) -> None:
        """Move the levels by the outcome of an earlier interval.

        Args:
            side: -1 if the true value was below the interval, 1 if above, 0 if inside.
        """
        self.below += self.step * (self.target - (side < 0))
        self.above += self.step * (self.target - (side > 0))

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return quantiles of the residuals; at least one must be known [levels].

        Levels below 0 or above 1 are for cases in which the range of all residuals is too narrow.
        There the quantiles continue linearly, by one range per 1.
        """
        if self._sorted is None:
            self._sorted = np.sort(np.array(self.residuals))
        count = len(self._sorted)
        # The next residual counts as one more value (Vovk, Gammerman, Shafer 2005).
        place = np.clip(np.array(levels) * (count + 1) - 1.0, 0.0, count - 1.0)
        beyond = np.maximum(np.array(levels) - 1.0, 0.0) + np.minimum(np.array(levels), 0.0)
        reach = self._sorted[-1] - self._sorted[0]
        found: FloatArray = np.interp(place, np.arange(count), self._sorted) + beyond * reach
        return found


Bounds = tuple[FloatArray, FloatArray]

_USUAL = Training()
WAYS = ("last", "quantiles", "conformal")
"""Names of all methods for intervals; see `intervals`."""

_LAST = 20
"""Number of the user's last jobs whose quantiles the simple baseline uses."""
_WINDOW, _STEP, _FEWEST, _LOWEST = 1000, 0.005, 20, -0.1
"""Constants of the correction, in this order:

- number of errors kept per class
- step of a level after a miss
- number of errors from which bounds are moved
- smallest level: below 0, bounds move further by that fraction of the errors' range
"""


def check_coverage(coverage: float) -> None:
    """Check that a coverage is possible.

    Raises:
        ConfigError: It is out of bounds.
    """
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage is {coverage:g}; it must be above 0 and below 1")


def intervals(
    known: Known,
    target: str = "runtime_s",
    coverage: float = 0.8,
    training: Training = _USUAL,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Bounds]:
    """Predict an interval of each job's target from what was known at its submission.

    - ``last``: quantiles of the user's last 20 jobs.
    - ``quantiles``: as predicted by gradient boosting.
    - ``conformal``: these, moved by their errors in ended jobs of the same size class.

    Args:
        known: The jobs, and when they end.
        target: Key of `Known.truth`.
        coverage: Fraction of jobs inside the interval, above 0 and below 1; equal fractions are
            below and above.
        training: Schedule of model training.
        progress: Function called with the share of work done.

    Returns:
        Lower and upper bounds by each of `WAYS`; NaN if nothing is known [jobs].

    Raises:
        ConfigError: The coverage is out of bounds, or scikit-learn is not installed.
        UnknownNameError: There is no such target.
    """
    check_coverage(coverage)
    if target not in known.truth:
        raise UnknownNameError(
            f"target that {known.workload.name} records", target, list(known.truth)
        )
    tail = (1.0 - coverage) / 2.0
    makers = {
        end: partial(QuantileBoosting, seed=training.seed, quantile=level)
        for end, level in (("low", tail), ("high", 1.0 - tail))
    }
    told = learned(known, target, makers, training, progress)
    plain = np.minimum(told["low"], told["high"]), np.maximum(told["low"], told["high"])
    return {
        "last": _of_last(known.by_user, known.truth[target], tail),
        "quantiles": plain,
        "conformal": _conformal(known, target, plain, coverage),
    }


def interval_scores(
    known: Known,
    target: str,
    found: Mapping[str, Bounds],
    by: Literal["all", "user", "size", "week"] = "all",
) -> pl.DataFrame:
    """Return how often intervals held, and how wide they were.

    The last 80 % of the jobs count.

    Args:
        known: The jobs.
        target: Predicted target.
        found: Bounds by method, from `intervals`.
        by: Property that defines the classes, in column ``bin``.

    Returns:
        A row for each class and method: ``bin``, ``way``, ``jobs``, ``held``, ``below`` and
            ``above`` (fractions of jobs in the interval, and on either side of it),
            ``median_factor`` (the median of upper over lower bound), ``mean_log2_width``.
    """
    truth = known.truth[target]
    ends = [bound for bounds in found.values() for bound in bounds]
    counted = held_out(truth, *ends)
    classes = classes_by(known, by)
    parts = []
    for way, (low, high) in found.items():
        factor = high / low
        jobs = pl.DataFrame(
            {
                **classes.select("bin", "_order").to_dict(),
                "below": (truth < low).astype(np.float64),
                "above": (truth > high).astype(np.float64),
                "factor": factor,
            }
        ).filter(pl.Series(counted))
        parts.append(
            jobs.group_by("bin", "_order").agg(
                pl.lit(way).alias("way"),
                pl.len().cast(pl.Int64).alias("jobs"),
                (1.0 - pl.col("below").mean() - pl.col("above").mean()).alias("held"),
                pl.col("below", "above").mean(),
                pl.col("factor").median().alias("median_factor"),
                pl.col("factor").log(2.0).mean().alias("mean_log2_width"),
            )
        )
    order = pl.col("way").replace_strict({way: n for n, way in enumerate(found)})
    return pl.concat(parts).sort("_order", "bin", order).drop("_order")


def _of_last(user: History, truth: FloatArray, tail: float) -> Bounds:
    """Return quantiles of the user's last jobs."""
    last = np.column_stack([user.last(truth, back) for back in range(1, _LAST + 1)])
    known = ~np.isnan(last).all(axis=1)
    low, high = (np.full(len(truth), np.nan) for _ in range(2))
    low[known], high[known] = np.nanquantile(last[known], [tail, 1.0 - tail], axis=1)
    return low, high


def _conformal(known: Known, target: str, plain: Bounds, coverage: float) -> Bounds:
    """Return the bounds, each moved by its errors in ended jobs of similar size."""
    jobs = known.workload
    truth = np.log2(known.truth[target])
    bounds = np.log2(np.column_stack(plain))
    size = np.log2(jobs.nodes).astype(np.int64).tolist()
    ends = known.end_ms
    by_end = np.flatnonzero(~np.isnan(truth) & ~np.isnan(bounds).any(axis=1))
    by_end = by_end[np.argsort(ends[by_end], kind="stable")]
    upto = np.searchsorted(ends[by_end], jobs.submit_ms, "right").tolist()
    lower: dict[int, Conformal] = {}
    upper: dict[int, Conformal] = {}
    said, moved = bounds.copy(), np.zeros(len(jobs), np.bool_)
    done = 0
    for row, now in enumerate(upto):
        for ended in by_end[done:now].tolist():
            one = size[ended]
            below = lower.setdefault(one, Conformal(coverage, _WINDOW, _STEP))
            above = upper.setdefault(one, Conformal(coverage, _WINDOW, _STEP))
            value = truth[ended]
            if moved[ended]:
                side = int(value > said[ended, 1]) - int(value < said[ended, 0])
                for each in (below, above):
                    each.missed(side)
                    # The limits keep a thousand jobs predicted at once from needing a thousand more
                    # to recover.
                    each.below, each.above = (
                        min(max(x, _LOWEST), 0.5) for x in (each.below, each.above)
                    )
            below.learn(value - bounds[ended, 0])
            above.learn(value - bounds[ended, 1])
        done = max(done, now)
        one = size[row]
        if one in lower and len(lower[one]) >= _FEWEST:
            low = bounds[row, 0] + lower[one].quantiles([lower[one].below])[0]
            high = bounds[row, 1] + upper[one].quantiles([1.0 - upper[one].above])[0]
            said[row], moved[row] = sorted((low, high)), True
    low, high = (bounded(np.exp2(said[:, end]), target, known.walltime_s) for end in (0, 1))
    return low, high
