"""The slots of a price or a carbon intensity, and what is known of those that come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.energy.prices.forecast import Forecast, equal_steps
from hpctwin.energy.prices.series import Series

__all__ = ["Slots"]

FloatArray = npt.NDArray[np.float64]

_NEAR_S = 0.0005  # half a millisecond, the least there is


class Slots:
    """Times of one value of a series, from time zero on, numbered from 0.

    Args:
        series: with time zero where the simulation's is.
        forecast: what is known of later slots; None if all is.

    Raises:
        ConfigError: the series has no equal steps.
    """

    def __init__(self, series: Series, forecast: Forecast | None = None) -> None:
        self._values, self.step_s, self._first_s = equal_steps(series)
        self._forecast = forecast
        self._known: tuple[int, FloatArray] = (-1, np.zeros(0))

    def at(self, time_s: float) -> int:
        """The number of the slot that a time is in."""
        return int(np.floor((time_s - self._first_s + _NEAR_S) / self.step_s))

    def begin_s(self, slot: int) -> float:
        """When a slot begins, seconds."""
        return self._first_s + slot * self.step_s

    def begins(self, time_s: float) -> bool:
        """Whether a slot begins at a time."""
        return abs(time_s - self.begin_s(self.at(time_s))) < _NEAR_S

    def ahead(self, slot: int, count: int) -> FloatArray:
        """The values of a slot and those after it, as they are known when it begins [count]."""
        if self._forecast is None:
            found: FloatArray = self._values[np.arange(slot, slot + count) % len(self._values)]
            return found
        if self._known[0] != slot or len(self._known[1]) < count:
            self._known = slot, np.asarray(self._forecast(slot, count), np.float64)
        return self._known[1][:count]
