"""Start-time forecasts, with intervals learnt from how earlier ones came true."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.rms.records import JobRecord

__all__ = ["Forecast", "Forecaster"]

FloatArray = npt.NDArray[np.float64]

COVERAGE = 0.8
"""Share of starts that should fall into their interval."""

WAITS_S = (60.0, 600.0, 3600.0, 14_400.0, 86_400.0)
"""Errors are kept apart by how long the forecast wait is: bounds of the classes, seconds."""

ERRORS, ENOUGH = 300, 20
LEAST_SCALE_S = 60.0


class Forecast(NamedTuple):
    """When a waiting job will start.

    Args:
        job_id: which.
        made_s: when this was said.
        start_s: the forecast; None if it would never start as things are.
        low_s, high_s: between these with a probability of `COVERAGE`.
        calibrated: whether the interval comes from earlier errors; with too few of them it reaches
            from now to twice the forecast wait.
        kept: whether it will be compared with what comes true: a job's first forecast, and each
            one whose wait is half of that of the last one kept.
    """

    job_id: str
    made_s: float
    start_s: float | None
    low_s: float | None
    high_s: float | None
    calibrated: bool = False
    kept: bool = False


class Forecaster:
    """Makes forecasts, and learns from those that came true."""

    def __init__(self) -> None:
        self._open: dict[str, list[Forecast]] = {}
        self._errors: list[deque[float]] = [deque(maxlen=ERRORS) for _ in range(len(WAITS_S) + 1)]
        self._known: dict[int, tuple[float, float] | None] = {}

    def forecast(
        self, waiting: Sequence[JobRecord], start_s: Mapping[str, float], now_s: float
    ) -> tuple[Forecast, ...]:
        """A forecast for each waiting job.

        Args:
            waiting: the jobs.
            start_s: what the what-if in force says, by id.
            now_s: the present.
        """
        ids = [job.spec.id for job in waiting]
        started = [i for i in ids if i in start_s]
        starts = np.array([start_s[i] for i in started], np.float64)
        lows, highs, calibrated = self._intervals(starts, now_s)
        spans = dict(
            zip(
                started,
                zip(
                    starts.tolist(), lows.tolist(), highs.tolist(), calibrated.tolist(), strict=True
                ),
                strict=True,
            )
        )
        result = []
        for job_id in ids:
            span = spans.get(job_id)
            if span is None:
                result.append(Forecast(job_id, now_s, None, None, None))
                continue
            start, low, high, known = span
            earlier = self._open.get(job_id)
            kept = earlier is None
            if earlier:
                last = earlier[-1]
                kept = start - now_s <= 0.5 * ((last.start_s or 0) - last.made_s)
                kept = kept and not (last.start_s == start == now_s)
            one = Forecast(job_id, now_s, start, low, high, known, kept)
            if kept:
                self._open.setdefault(job_id, []).append(one)
            result.append(one)
        return tuple(result)

    def interval(self, start_s: float, now_s: float) -> tuple[float, float, bool]:
        """Between which times a job forecast for ``start_s`` will start; whether it is calibrated."""
        low, high, calibrated = self._intervals(np.array([start_s]), now_s)
        return float(low[0]), float(high[0]), bool(calibrated[0])

    def _intervals(
        self, start_s: FloatArray, now_s: float
    ) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
        """As `interval`, of many."""
        wait_s = start_s - now_s
        scale_s = np.maximum(wait_s, LEAST_SCALE_S)
        number = np.searchsorted(WAITS_S, wait_s, side="right")
        low, high = np.full(len(start_s), now_s), start_s + scale_s
        calibrated = np.zeros(len(start_s), bool)
        for one in np.unique(number).tolist():
            if one not in self._known:
                self._known[one] = _quantiles(self._errors[one])
            known = self._known[one]
            if known is None:
                continue
            here = number == one
            low[here] = np.maximum(now_s, start_s[here] + known[0] * scale_s[here])
            high[here] = np.maximum(low[here], start_s[here] + known[1] * scale_s[here])
            calibrated[here] = True
        return low, high, calibrated

    def came_true(self, job_id: str, start_s: float) -> None:
        """A job has started: learn from what was said of it."""
        for one in self._open.pop(job_id, ()):
            if one.start_s is not None:
                wait_s = one.start_s - one.made_s
                error = (start_s - one.start_s) / max(wait_s, LEAST_SCALE_S)
                self._errors[_class_of(wait_s)].append(error)
                self._known.pop(_class_of(wait_s), None)

    def forget(self, job_id: str) -> None:
        """A job will not start."""
        self._open.pop(job_id, None)

    def keep(self, jobs: Container[str]) -> None:
        """Forget the forecasts of all other jobs."""
        self._open = {job_id: said for job_id, said in self._open.items() if job_id in jobs}

    @property
    def median_error(self) -> float | None:
        """Median of the recent relative errors' size, None with fewer than 20."""
        errors = [abs(e) for known in self._errors for e in known]
        return float(np.median(errors)) if len(errors) >= ENOUGH else None

    def state(self) -> dict[str, Any]:
        """All that was learnt, as plain values."""
        return {
            "open": {i: [list(one) for one in said] for i, said in self._open.items()},
            "errors": [list(errors) for errors in self._errors],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._open = {i: [Forecast(*one) for one in said] for i, said in state["open"].items()}
        self._errors = [deque(errors, maxlen=ERRORS) for errors in state["errors"]]
        self._known = {}


def _quantiles(errors: deque[float]) -> tuple[float, float] | None:
    if len(errors) < ENOUGH:
        return None
    low, high = np.quantile(np.array(errors), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def _class_of(wait_s: float) -> int:
    return bisect_right(WAITS_S, wait_s)
