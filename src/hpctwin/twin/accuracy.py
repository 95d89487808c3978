"""How well forecasts came true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.model import format_duration
from hpctwin.twin.forecast import COVERAGE, WAITS_S, Forecast

__all__ = ["Accuracy", "accuracy"]


@dataclass(frozen=True)
class Accuracy:
    """The errors of forecasts of one class.

    Args:
        label: the class, by the wait that was forecast.
        forecasts: how many came true.
        median_error_s, p90_error_s: of the error's size.
        bias_s: mean of actual minus forecast start; above 0, jobs started later.
        intervals: how many of them had a calibrated interval.
        covered: share of those whose start lay in it; None without any.
        promised: the share that should.
    """

    label: str
    forecasts: int
    median_error_s: float | None
    p90_error_s: float | None
    bias_s: float | None
    intervals: int
    covered: float | None
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


def accuracy(said: list[tuple[Forecast, float | None]]) -> list[Accuracy]:
    """Errors of all forecasts that came true, then by class of the wait forecast.

    Args:
        said: forecasts, and when the job started (None: not yet).
    """
    true = [(f, actual) for f, actual in said if actual is not None and f.start_s is not None]
    waits = np.array([(f.start_s or 0.0) - f.made_s for f, _ in true])
    classes = np.searchsorted(WAITS_S, waits, side="right")
    rows = [_row("all", true, np.ones(len(true), bool))]
    bounds = ["0", *(_short(seconds) for seconds in WAITS_S)]
    for number, lower in enumerate(bounds):
        upper = bounds[number + 1] if number + 1 < len(bounds) else None
        label = f"{lower} to {upper}" if upper else f"above {lower}"
        rows.append(_row(label, true, classes == number))
    return rows


def _row(label: str, true: list[tuple[Forecast, float]], chosen: npt.NDArray[np.bool_]) -> Accuracy:
    pairs = [pair for pair, here in zip(true, chosen, strict=True) if here]
    errors = np.array([actual - (f.start_s or 0.0) for f, actual in pairs])
    inside = [
        f.low_s <= actual <= f.high_s
        for f, actual in pairs
        if f.calibrated and f.low_s is not None and f.high_s is not None
    ]
    return Accuracy(
        label=label,
        forecasts=len(pairs),
        median_error_s=float(np.median(np.abs(errors))) if pairs else None,
        p90_error_s=float(np.quantile(np.abs(errors), 0.9)) if pairs else None,
        bias_s=float(errors.mean()) if pairs else None,
        intervals=len(inside),
        covered=float(np.mean(inside)) if inside else None,
    )


def _short(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
