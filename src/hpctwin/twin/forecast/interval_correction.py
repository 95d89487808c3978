"""How often forecasts were missed of late, and what makes up for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["HIGHEST", "LOWEST", "Missed", "Sides", "levels"]

GAIN = 10.0
"""An end is read off at a level that is lower by so many times the share that was missed too often."""
LOWEST, HIGHEST = -0.1, 0.4
"""Bounds of levels: below 0 an interval is wider than all that was seen, at the lowest it holds every start
from now to the last that is possible; at the highest it still has a width."""

_FEW = 20
"""So many forecasts that came true as they should are thought of besides: a few misses are none yet."""
_HOUR_S = 3600.0
_ONE = 1_000_000
"""Shares are kept as whole millionths, whose sums are the same in whatever order."""

Sides = tuple[float, float]
"""Below and above the interval."""


class Missed:
    """Forecasts of the last weeks: how many there were, and how many were missed, below and above.

    A forecast whose job waits still counts as missed by the share that it was made to be missed by. So what
    is made up for already is not made up for again, however late it is known how things went (as in Smith's
    predictor for controllers with a dead time).

    Args:
        span_s: what was forecast longer ago is forgotten, by the hour.
    """

    def __init__(self, span_s: float) -> None:
        self.span_s = span_s
        self._hours: dict[int, list[int]] = {}  # forecasts, millionths missed below and above
        self._all = [0, 0, 0]

    def add(self, made_s: float, expected: Sides) -> None:
        """A forecast was made that is to be missed below and above in so many of all cases."""
        self._change(made_s, 1, expected)

    def settle(self, made_s: float, expected: Sides, missed: Sides) -> None:
        """It is known how it came: `expected` as it was added, `missed` 1 on the side where it was missed."""
        self._change(made_s, 0, (missed[0] - expected[0], missed[1] - expected[1]))

    def drop(self, made_s: float, expected: Sides) -> None:
        """It will never be known: the job is gone."""
        self._change(made_s, -1, (-expected[0], -expected[1]))

    def excess(self, now_s: float, tail: float) -> Sides:
        """By how large a share too many were missed below and above.

        Args:
            now_s: the present.
            tail: the share that should be, on each side.
        """
        first = int((now_s - self.span_s) // _HOUR_S)
        while self._hours and (hour := next(iter(self._hours))) < first:
            for number, value in enumerate(self._hours.pop(hour)):
                self._all[number] -= value
        count, below, above = self._all
        of = count + _FEW
        return (below / _ONE - tail * count) / of, (above / _ONE - tail * count) / of

    def state(self) -> list[Any]:
        """All that is known, as plain values."""
        return [self.span_s, [[hour, *known] for hour, known in self._hours.items()]]

    @classmethod
    def of(cls, state: list[Any]) -> Missed:
        """As `state` gave it."""
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
    """At which levels the ends of an interval are read off.

    Proportional control of the share missed of late, with an end: once the groups were missed too often by
    shares that add up to (tail − `LOWEST`) / `GAIN`, that end holds every start up to the last that is
    possible. So whatever comes, no more is missed, but for what is not known yet (as in Angelopoulos, Candès,
    Tibshirani 2023, *Conformal PID Control for Time Series Prediction*, §2.2).

    Args:
        tail: the share that should be missed on each side.
        excess: by what share too many were, in each group that the forecast belongs to.
    """
    sides = list(zip(*excess, strict=True)) or [(), ()]
    below, above = (min(max(tail - GAIN * sum(side), LOWEST), HIGHEST) for side in sides)
    return below, above
