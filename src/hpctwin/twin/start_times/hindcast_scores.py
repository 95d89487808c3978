"""How well forecasts of a past came true, and how near to what they promised they could come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.jobs.breakdown import classed
from hpctwin.twin.forecast.accuracy import WEEK_S
from hpctwin.twin.forecast.forecaster import COVERAGE

__all__ = ["LEFT_OUT", "By", "Steadiness", "hindcast_scores", "steadiness"]

FloatArray = npt.NDArray[np.float64]

By = Literal["all", "size", "week", "asked"]
"""What forecasts are told apart by."""

LEFT_OUT = 0.2
"""When least is known."""
_ROUNDING_S = 1e-3
_MANY, _NEAR = 100, 0.02
"""A class of so many forecasts is steady if the share that held is so near to what was promised."""
_HOUR_S = 3600.0


def hindcast_scores(said: pl.DataFrame, by: By = "all") -> pl.DataFrame:
    """How well the forecasts of `hindcast` came true, beside their rivals.

    Only rows count in which all have an interval or a forecast.

    Args:
        said: its rows; the first fifth is left out, when least is known.
        by: over all, by class of sizes, by week, or apart at submission and later.

    Returns:
        A row for each class: ``bin``, ``forecasts``, ``covered`` (share of intervals that held), ``width_s``
        (their median), ``width_ratio`` and ``mean_width_ratio`` (median and mean width over those of the
        partition's quantiles), ``queue_covered``, ``median_error_s``, ``error_ratio`` (over that of forecasts
        by walltimes), ``walltime_error_s``, ``queue_error_s``, ``within_1min``, ``walltime_within_1min``.
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
    """In how many classes the share of intervals that held is near what was promised, and could be.

    Args:
        classes: of 100 forecasts or more.
        within: in which 78 to 82 % held.
        off: by how much the share was off, mean over them; None without any.
        independent: in how many it would be within if each interval held with a chance of 80 %, whatever the
            others do (binomial).
        together: if those made in the same hour hold or do not hold together as often as these did.
        alike: how much they do so, the intraclass correlation.
    """

    classes: int
    within: int
    off: float | None
    independent: float
    together: float
    alike: float


def steadiness(said: pl.DataFrame, by: By) -> Steadiness:
    """How steady the intervals of `hindcast` were, beside what chance leaves to the best of intervals.

    Of forecasts that are alike by ρ, hours of m each, the share that holds varies as that of so many fewer
    that are independent: by the design effect 1 + ρ (Σ m² / Σ m − 1) (Kish 1965, *Survey Sampling*, §5.4),
    with ρ from an analysis of variance (Donner 1986).

    Args:
        said: of `hindcast`; the first fifth is left out.
        by: what tells classes apart.
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
    """Of so many classes of so many independent forecasts each, how many come out near enough."""
    spread = np.sqrt(COVERAGE * (1.0 - COVERAGE) / count)
    return float(sum(math.erf(_NEAR / one / math.sqrt(2.0)) for one in spread.tolist()))


def _alike(hours: pl.DataFrame) -> float:
    """The intraclass correlation of what held, by the analysis of variance; at least 0."""
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
    """All but the first fifth of the forecasts of which all is known, with ``bin`` and ``_order``."""
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
    """Whether a wait lay in an interval."""
    return pl.col("wait_s").is_between(pl.col(low) - _ROUNDING_S, pl.col(high) + _ROUNDING_S)
