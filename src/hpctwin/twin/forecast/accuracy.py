"""How well forecasts came true."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.jobs.breakdown import classed
from hpctwin.model import format_duration
from hpctwin.twin.forecast.forecaster import COVERAGE, WAITS_S
from hpctwin.twin.forecast.records import Forecast

__all__ = ["Accuracy", "By", "accuracy"]

IntArray = npt.NDArray[np.int64]

By = Literal["wait", "size", "week"]
"""What forecasts are told apart by."""

WEEK_S = 7 * 86_400.0


@dataclass(frozen=True)
class Accuracy:
    """The errors of forecasts of one class.

    Args:
        label: the class.
        forecasts: how many came true.
        median_error_s, p90_error_s: of the error's size.
        bias_s: mean of actual minus forecast start; above 0, jobs started later.
        intervals: how many of them had a calibrated interval.
        covered: share of those whose start lay in it; None without any.
        width_s: median width of those intervals.
        within_1min: share of all forecasts that were right to a minute.
        promised: the share that should.
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
        """For a table: class, forecasts, median and nine tenths of the error, bias, share in the interval."""

        def text(value: float | None) -> str:
            return "–" if value is None else format_duration(round(value))

        held = "–" if self.covered is None else f"{self.covered:.0%} of {self.promised:.0%}"
        sign = "" if self.bias_s is None else "−" if self.bias_s < 0 else "+"
        bias = sign + text(None if self.bias_s is None else abs(self.bias_s))
        errors = text(self.median_error_s), text(self.p90_error_s)
        return (self.label, str(self.forecasts), *errors, bias, held)


def accuracy(said: list[tuple[Forecast, float | None]], by: By = "wait") -> list[Accuracy]:
    """Errors of all forecasts that came true, then by class.

    Args:
        said: forecasts, and when the job started (None: not yet).
        by: classes of the wait that was forecast, of the nodes asked for, or of the week it was made in.
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
