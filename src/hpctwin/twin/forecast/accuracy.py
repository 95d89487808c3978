"""Accuracy of start-time forecasts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.jobs import classed
from hpctwin.model import format_duration
from hpctwin.twin.forecast.forecaster import COVERAGE, WAITS_S, Forecast

__all__ = ["Accuracy", "By", "accuracy"]

IntArray = npt.NDArray[np.int64]

By = Literal["wait", "size", "week"]
"""Property that divides forecasts into classes."""

WEEK_S = 7 * 86_400.0


@dataclass(frozen=True)
class Accuracy:
    """Errors of the forecasts of one class.

    Args:
        label: Name of the class.
        forecasts: Number of forecasts whose job has started.
        median_error_s, p90_error_s: Median and 90th percentile of the absolute error, in seconds.
        bias_s: Mean of actual minus forecast start, in seconds; above 0, jobs started later.
        intervals: Number of these forecasts with a calibrated interval.
        covered: Share of these intervals that include the start; None without any.
        width_s: Median width of these intervals, in seconds.
        within_1min: Share of all forecasts with an error of at most a minute.
        promised: Share of intervals that should include the start.
    """

    label: str
    forecasts: int
    median_error_s: float | None
    p90_error_s: float | None
    bias_s: float | None
    intervals: int
    covered: float | None
    width_s: float | None
    within_1min: float | None
    promised: float = COVERAGE

    def texts(self) -> tuple[str, ...]:
        """Return a table row: class, number, median and 90 % error, bias, coverage."""

        def text(value: float | None) -> str:
            return "–" if value is None else format_duration(round(value))

        held = "–" if self.covered is None else f"{self.covered:.0%} of {self.promised:.0%}"
        sign = "" if self.bias_s is None else "−" if self.bias_s < 0 else "+"
        bias = sign + text(None if self.bias_s is None else abs(self.bias_s))
        errors = text(self.median_error_s), text(self.p90_error_s)
        return (self.label, str(self.forecasts), *errors, bias, held)


def accuracy(said: list[tuple[Forecast, float | None]], by: By = "wait") -> list[Accuracy]:
    """Return the errors of all forecasts whose job has started, then those by class.

    Args:
        said: Forecasts, each with the actual start (None: not yet).
        by: Property of the classes: the forecast wait, the requested nodes, or the week of the
            forecast.
    """
    true = [(f, actual) for f, actual in said if actual is not None and f.start_s is not None]
    rows = [_row("all", true, np.ones(len(true), bool))]
    classes, labels = _CLASSES[by]([f for f, _ in true])
    rows += [_row(label, true, classes == number) for number, label in enumerate(labels)]
    return rows


def _by_wait(said: Sequence[Forecast]) -> tuple[IntArray, list[str]]:
    waits = np.array([(one.start_s or 0.0) - one.made_s for one in said])
    bounds = ["0", *(_short(seconds) for seconds in WAITS_S)]
    labels = [f"{lower} to {upper}" for lower, upper in pairwise(bounds)]
    return np.searchsorted(WAITS_S, waits, side="right"), [*labels, f"above {bounds[-1]}"]


def _by_size(said: Sequence[Forecast]) -> tuple[IntArray, list[str]]:
    frame = classed(pl.DataFrame({"nodes": [one.nodes for one in said]}), "size")
    found = frame.select("bin", "_order").unique().sort("_order")["bin"].to_list()
    return np.array([found.index(label) for label in frame["bin"]], np.int64), found


def _by_week(said: Sequence[Forecast]) -> tuple[IntArray, list[str]]:
    week = np.array([one.made_s // WEEK_S for one in said], np.int64)
    found, number = np.unique(week, return_inverse=True)
    first = dt.datetime.fromtimestamp(0, dt.UTC)
    days = [first + dt.timedelta(seconds=WEEK_S * one) for one in found.tolist()]
    return number.ravel(), [f"{day:%Y-%m-%d}" for day in days]


_CLASSES = {"wait": _by_wait, "size": _by_size, "week": _by_week}


def _row(label: str, true: list[tuple[Forecast, float]], chosen: npt.NDArray[np.bool_]) -> Accuracy:
    pairs = [pair for pair, here in zip(true, chosen, strict=True) if here]
    errors = np.array([actual - (f.start_s or 0.0) for f, actual in pairs])
    spans = [
        (f.low_s, actual, f.high_s)
        for f, actual in pairs
        if f.calibrated and f.low_s is not None and f.high_s is not None
    ]
    inside = [low <= actual <= high for low, actual, high in spans]
    widths = [high - low for low, _, high in spans]
    return Accuracy(
        label=label,
        forecasts=len(pairs),
        median_error_s=float(np.median(np.abs(errors))) if pairs else None,
        p90_error_s=float(np.quantile(np.abs(errors), 0.9)) if pairs else None,
        bias_s=float(errors.mean()) if pairs else None,
        intervals=len(inside),
        covered=float(np.mean(inside)) if inside else None,
        width_s=float(np.median(widths)) if widths else None,
        within_1min=float(np.mean(np.abs(errors) <= 60.0)) if pairs else None,
    )


def _short(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
