"""Accuracy of hindcasts, and the coverage of intervals that chance allows at best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.jobs import classed
from hpctwin.twin.forecast.accuracy import WEEK_S
from hpctwin.twin.forecast.forecaster import COVERAGE

__all__ = ["LEFT_OUT", "By", "Steadiness", "hindcast_scores", "steadiness"]

FloatArray = npt.NDArray[np.float64]

By = Literal["all", "size", "week", "asked"]
"""Property that divides forecasts into classes."""

LEFT_OUT = 0.2
"""Share of forecasts excluded at the beginning, because the least is known then."""
_ROUNDING_S = 1e-3
_MANY, _NEAR = 100, 0.02
"""Minimum size of a class, and largest distance of its coverage if it is steady."""
_HOUR_S = 3600.0


def hindcast_scores(said: pl.DataFrame, by: By = "all") -> pl.DataFrame:
    """Return the accuracy of `hindcast`'s forecasts, next to that of their rivals.

    Only rows in which the forecast and all rivals have values count.

    Args:
        said: Rows of `hindcast`; the first fifth is excluded, because the least is known then.
        by: All together, by size class, by week, or at submission and later.

    Returns:
        A row for each class:

        - ``bin`` (name of the class), ``forecasts`` (their number);
        - ``covered``: share of intervals that include the wait;
        - ``width_s``: median width of the intervals;
        - ``width_ratio``, ``mean_width_ratio``: median and mean width divided by those of the
          partition's quantiles;
        - ``queue_covered``: coverage of the partition's quantiles;
        - ``median_error_s``; ``error_ratio``: the same divided by the error by walltimes;
        - ``walltime_error_s``, ``queue_error_s``: median errors of the rivals;
        - ``within_1min``, ``walltime_within_1min``: share of errors of at most a minute.
    """
    said = _in_classes(said, by)

    def error(name: str) -> pl.Expr:
        return (pl.col(name) - pl.col("wait_s")).abs()

    width, queue = (
        pl.col("high_s") - pl.col("low_s"),
        pl.col("queue_high_s") - pl.col("queue_low_s"),
    )
    return (
        said.group_by("_order", "bin")
        .agg(
            forecasts=pl.len().cast(pl.Int64),
            covered=_held("low_s", "high_s").mean(),
            width_s=width.median(),
            width_ratio=width.median() / queue.median(),
            mean_width_ratio=width.mean() / queue.mean(),
            queue_covered=_held("queue_low_s", "queue_high_s").mean(),
            median_error_s=error("forecast_s").median(),
            error_ratio=error("forecast_s").median() / error("walltime_s").median(),
            walltime_error_s=error("walltime_s").median(),
            queue_error_s=error("queue_s").median(),
            within_1min=(error("forecast_s") <= 60.0).mean(),
            walltime_within_1min=(error("walltime_s") <= 60.0).mean(),
        )
        .sort("_order")
        .drop("_order")
    )


@dataclass(frozen=True)
class Steadiness:
    """Number of classes with a coverage near the target, and what chance allows.

    Args:
        classes: Number of classes with 100 forecasts or more.
        within: Number of these with a coverage of 78 to 82 %.
        off: Mean distance of the coverage from 80 %; None without any class.
        independent: Expected value of ``within`` if each interval includes the wait with a
            probability of 80 %, independent of the others (binomial).
        together: The same if intervals of one hour depend on each other as much as these do.
        alike: Degree of that dependence, the intraclass correlation.
    """

    classes: int
    within: int
    off: float | None
    independent: float
    together: float
    alike: float


def steadiness(said: pl.DataFrame, by: By) -> Steadiness:
    """Return how steady `hindcast`'s coverage was, and what chance allows at best.

    The outcomes of m forecasts in one hour have the intraclass correlation ρ. The coverage of a
    class therefore varies like that of fewer independent forecasts. Their number is the real one
    divided by the design effect 1 + ρ (Σ m² / Σ m − 1).

    Source:
        Kish 1965, *Survey Sampling*, §5.4, for the design effect; Donner 1986 for ρ, which comes
        from an analysis of variance.

    Args:
        said: Rows of `hindcast`; the first fifth is excluded.
        by: Property that divides forecasts into classes.
    """
    hour = (pl.col("made_s") // _HOUR_S).cast(pl.Int64).alias("hour")
    hours = (
        _in_classes(said, by)
        .group_by("bin", hour, maintain_order=True)
        .agg(forecasts=pl.len().cast(pl.Int64), held=_held("low_s", "high_s").sum().cast(pl.Int64))
        .with_columns(of_bin=pl.col("forecasts").sum().over("bin"))
    )
    alike = _alike(hours)
    classes = (
        hours.filter(pl.col("of_bin") >= _MANY)
        .group_by("bin")
        .agg(
            count=pl.col("forecasts").sum(),
            share=pl.col("held").sum() / pl.col("forecasts").sum(),
            squares=(pl.col("forecasts") ** 2).sum(),
        )
    )
    count, share = classes["count"].to_numpy(), classes["share"].to_numpy()
    off = np.abs(share - COVERAGE)
    effect = 1.0 + alike * (classes["squares"].to_numpy() / np.maximum(count, 1) - 1.0)
    return Steadiness(
        classes=len(classes),
        within=int((off <= _NEAR).sum()),
        off=float(off.mean()) if len(off) else None,
        independent=_chance(count.astype(np.float64)),
        together=_chance(count / effect),
        alike=alike,
    )


def _chance(count: FloatArray) -> float:
    """Return the expected number of steady classes (normal approximation).

    Args:
        count: Number of independent forecasts per class [classes].
    """
    spread = np.sqrt(COVERAGE * (1.0 - COVERAGE) / count)
    return float(sum(math.erf(_NEAR / one / math.sqrt(2.0)) for one in spread.tolist()))


def _alike(hours: pl.DataFrame) -> float:
    """Return the intraclass correlation of outcomes by analysis of variance, from 0."""
    size, held = (hours[name].to_numpy().astype(np.float64) for name in ("forecasts", "held"))
    groups, total = len(size), size.sum()
    if groups < 2 or total <= groups:
        return 0.0
    between = (size * (held / size - held.sum() / total) ** 2).sum() / (groups - 1)
    inside = (held * (1.0 - held / size)).sum() / (total - groups)
    usual = (total - (size**2).sum() / total) / (groups - 1)
    spread = between + (usual - 1.0) * inside
    return float(max(0.0, (between - inside) / spread)) if spread > 0 else 0.0


def _in_classes(said: pl.DataFrame, by: By) -> pl.DataFrame:
    """Return forecasts with columns ``bin`` and ``_order`` for their class.

    The first fifth and rows with a null are excluded.
    """
    said = said.sort("made_s", maintain_order=True)
    said = said.slice(round(LEFT_OUT * len(said))).drop_nulls()
    if by == "size":
        said = classed(said, "size")
    elif by == "week":
        week = (pl.col("made_s") // WEEK_S).cast(pl.Int64)
        said = said.with_columns(_order=week, bin=pl.format("week {}", week + 1))
    elif by == "asked":
        names = pl.when("at_submission").then(pl.lit("at submission")).otherwise(pl.lit("later"))
        said = said.with_columns(_order=(~pl.col("at_submission")).cast(pl.Int64), bin=names)
    else:
        said = said.with_columns(_order=pl.lit(0, pl.Int64), bin=pl.lit("all"))
    return said


def _held(low: str, high: str) -> pl.Expr:
    """Return whether the wait is within an interval."""
    return pl.col("wait_s").is_between(pl.col(low) - _ROUNDING_S, pl.col(high) + _ROUNDING_S)
