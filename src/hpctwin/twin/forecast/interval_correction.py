"""Correction of forecast intervals by how often recent ones were missed.

Place of an actual start in its forecast distribution: 0 to 1, rarely above.

Starts of different jobs are compared by their places (distributional conformal prediction;
Chernozhukov, Wüthrich, Zhu 2021). A place means the same for a wait of minutes and for a wait of
days. Errors of long waits therefore do not make the intervals of short ones endless.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["HIGHEST", "LOWEST", "Missed", "Sides", "knots", "levels", "place", "times"]

FloatArray = npt.NDArray[np.float64]

PLACES = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
"""Places of now, of 10 %, 50 % and 90 % of the futures, and of the last start."""

_APART_S, _APART = 60.0, 0.1
"""Minimum spread of the futures, in seconds and as a share of the longest wait.

It is added to the spread that was drawn, because only few futures are drawn. A start is later than
all N of them more often than in one case of N.
"""
_BEYOND_S = 3600.0
"""Delay after the last possible start that adds 1 to the place, in seconds."""


def knots(
    now_s: float, early_s: FloatArray, middle_s: FloatArray, late_s: FloatArray, last_s: FloatArray
) -> FloatArray:
    """Return the times at the places `PLACES` of each job, in seconds [jobs, 5].

    Args:
        now_s: The present, in seconds.
        early_s: Time by which a job has started in 10 % of the futures, in seconds [jobs].
        middle_s: The same for 50 % of the futures [jobs].
        late_s: The same for 90 % of the futures [jobs].
        last_s: Start if all jobs run to their walltimes, at least ``late_s``, in seconds [jobs].
    """
    apart = _APART_S + _APART * (last_s - now_s)
    found = np.column_stack(
        [
            np.full(len(last_s), now_s),
            early_s - 0.4 * apart,
            middle_s,
            late_s + 0.4 * apart,
            last_s + 0.5 * apart,
        ]
    )
    rising: FloatArray = np.maximum.accumulate(found, axis=1)
    return rising


def times(of: FloatArray, there: FloatArray) -> FloatArray:
    """Return the start times at given places, in seconds [jobs].

    Args:
        of: Knots of each job, in seconds [jobs, 5].
        there: Place of each job [jobs].
    """
    left = np.clip(np.searchsorted(PLACES, there, "right") - 1, 0, len(PLACES) - 2)
    share = np.clip((there - PLACES[left]) / np.diff(PLACES)[left], 0.0, 1.0)
    rows = np.arange(len(of))
    before = of[rows, left]
    beyond_s = np.maximum(there - 1.0, 0.0) * _BEYOND_S
    found: FloatArray = before + share * (of[rows, left + 1] - before) + beyond_s
    return found


def place(of: FloatArray, start_s: float) -> float:
    """Return the place of a start.

    Args:
        of: Knots of the job, in seconds [5].
        start_s: Actual start, in seconds.
    """
    if start_s > of[-1]:
        return 1.0 + float(start_s - of[-1]) / _BEYOND_S
    return float(np.interp(start_s, of, PLACES))


GAIN = 10.0
"""Gain of the control: an end's level falls by this times its excess of misses."""
LOWEST, HIGHEST = -0.1, 0.4
"""Bounds of the levels.

Below 0, an interval is wider than all observations; at `LOWEST` it includes every start from now to
the last possible one. At `HIGHEST` it still has a width.
"""

_FEW = 20
"""Number of imagined forecasts with the right share of misses.

They are added to the real ones, so that a few early misses are no excess yet.
"""
_HOUR_S = 3600.0
_ONE = 1_000_000
"""Shares are stored as integer millionths, whose sum does not depend on the order."""

Sides = tuple[float, float]
"""A pair of values: for below and for above the interval."""


class Missed:
    """Number of recent forecasts, and of those missed below and above their interval.

    A forecast whose job is still pending counts as missed by the share that it was made to be
    missed by. An excess is therefore not corrected twice, however late the outcomes are known. This
    is Smith's predictor for controllers with a dead time.

    Args:
        span_s: Age at which forecasts are dropped, by the hour, in seconds.
    """

    def __init__(self, span_s: float) -> None:
        self.span_s = span_s
        self._hours: dict[int, list[int]] = {}  # forecasts, millionths missed below and above
        self._all = [0, 0, 0]

    def add(self, made_s: float, expected: Sides) -> None:
        """Count a new forecast.

        Args:
            made_s: Time at which it was made, in seconds.
            expected: Shares of such forecasts that are to be missed below and above.
        """
        self._change(made_s, 1, expected)

    def settle(self, made_s: float, expected: Sides, missed: Sides) -> None:
        """Replace the expected shares of a forecast by its outcome.

        Args:
            made_s: Time at which it was made, in seconds.
            expected: Its shares, as given to `add`.
            missed: 1 on the side where it was missed, else 0.
        """
        self._change(made_s, 0, (missed[0] - expected[0], missed[1] - expected[1]))

    def drop(self, made_s: float, expected: Sides) -> None:
        """Remove a forecast whose outcome will never be known, because its job is gone."""
        self._change(made_s, -1, (-expected[0], -expected[1]))

    def excess(self, now_s: float, tail: float) -> Sides:
        """Return the excess share of misses below and above, negative for too few."""
        first = int((now_s - self.span_s) // _HOUR_S)
        while self._hours and (hour := next(iter(self._hours))) < first:
            for number, value in enumerate(self._hours.pop(hour)):
                self._all[number] -= value
        count, below, above = self._all
        of = count + _FEW
        return (below / _ONE - tail * count) / of, (above / _ONE - tail * count) / of

    def state(self) -> list[Any]:
        """Return the counts as plain values."""
        return [self.span_s, [[hour, *known] for hour, known in self._hours.items()]]

    @classmethod
    def of(cls, state: list[Any]) -> Missed:
        """Restore the counts from `state`."""
        made = cls(state[0])
        made._hours = {hour: known for hour, *known in state[1]}
        made._all = [sum(known[number] for known in made._hours.values()) for number in range(3)]
        return made

    def _change(self, made_s: float, count: int, missed: Sides) -> None:
        hour = int(made_s // _HOUR_S)
        if count <= 0 and hour not in self._hours:
            return
        known = self._hours.setdefault(hour, [0, 0, 0])
        for number, value in enumerate((count, *(round(_ONE * share) for share in missed))):
            known[number] += value
            self._all[number] += value


def levels(tail: float, excess: Iterable[Sides]) -> Sides:
    """Return the levels at which the two ends of an interval are read.

    This is proportional control of the recent share of misses, with saturation. Once the excesses
    of the groups add up to (tail − `LOWEST`) / `GAIN`, that end includes every start up to the last
    possible one. From then on no start is missed, whatever comes, except by earlier forecasts whose
    outcome is not known yet.

    Source:
        Angelopoulos, Candès, Tibshirani 2023, *Conformal PID Control for Time Series Prediction*,
        §2.2.

    Args:
        tail: Share that should be missed on each side.
        excess: Excess of misses in each group that the forecast belongs to; see `Missed.excess`.
    """
    sides = list(zip(*excess, strict=True)) or [(), ()]
    below, above = (min(max(tail - GAIN * sum(side), LOWEST), HIGHEST) for side in sides)
    return below, above
