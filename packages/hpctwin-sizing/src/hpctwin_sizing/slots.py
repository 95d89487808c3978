"""Steps of a price or carbon intensity, for which sizes of jobs are planned."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.energy import Series
from hpctwin.energy.prices.forecast import Forecast, equal_steps

__all__ = ["Slots"]

FloatArray = npt.NDArray[np.float64]

_NEAR_S = 0.0005  # half a millisecond; times have whole milliseconds


class Slots:
    """Steps of a series with equal steps, numbered from 0 at time zero.

    Args:
        series: Series with the simulation's time zero.
        forecast: Forecast of later slots; None if all values are known.

    Raises:
        ConfigError: The series has no equal steps.
    """

    def __init__(self, series: Series, forecast: Forecast | None = None) -> None:
        self._values, self.step_s, self._first_s = equal_steps(series)
        self._forecast = forecast
        self._known: tuple[int, FloatArray] = (-1, np.zeros(0))

    def at(self, time_s: float) -> int:
        """Return the number of the slot that contains a time."""
        return int(np.floor((time_s - self._first_s + _NEAR_S) / self.step_s))

    def begin_s(self, slot: int) -> float:
        """Return the beginning of a slot, in seconds."""
        return self._first_s + slot * self.step_s

    def begins(self, time_s: float) -> bool:
        """Return whether a slot begins at a time."""
        return abs(time_s - self.begin_s(self.at(time_s))) < _NEAR_S

    def ahead(self, slot: int, count: int) -> FloatArray:
        """Return the values from a slot on, as known when it begins [count]."""
        if self._forecast is None:
            found: FloatArray = self._values[np.arange(slot, slot + count) % len(self._values)]
            return found
        if self._known[0] != slot or len(self._known[1]) < count:
            self._known = slot, np.asarray(self._forecast(slot, count), np.float64)
        return self._known[1][:count]
