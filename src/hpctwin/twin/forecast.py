"""Start-time forecasts, with intervals learnt from how earlier ones came true."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hpctwin.rms.records import JobRecord

__all__ = ["Forecast", "Forecaster"]

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
        result = []
        for job in waiting:
            job_id = job.spec.id
            start = start_s.get(job_id)
            if start is None:
                result.append(Forecast(job_id, now_s, None, None, None))
                continue
            low, high, calibrated = self.interval(start, now_s)
            earlier = self._open.get(job_id)
            wait_s = start - now_s
            kept = not earlier or wait_s <= 0.5 * ((earlier[-1].start_s or 0) - earlier[-1].made_s)
            kept = kept and not (earlier and earlier[-1].start_s == start == now_s)
            one = Forecast(job_id, now_s, start, low, high, calibrated, kept)
            if kept:
                self._open.setdefault(job_id, []).append(one)
            result.append(one)
        return tuple(result)

    def interval(self, start_s: float, now_s: float) -> tuple[float, float, bool]:
        """Between which times a job forecast for ``start_s`` will start; whether it is calibrated."""
        wait_s = start_s - now_s
        scale_s = max(wait_s, LEAST_SCALE_S)
        number = _class_of(wait_s)
        if number not in self._known:
            self._known[number] = _quantiles(self._errors[number])
        known = self._known[number]
        if known is None:
            return now_s, start_s + scale_s, False
        low = max(now_s, start_s + known[0] * scale_s)
        return low, max(low, start_s + known[1] * scale_s), True

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
