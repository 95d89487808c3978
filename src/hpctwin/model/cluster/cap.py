"""A cap on the total power draw of all nodes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self

from hpctwin.errors import ConfigError
from hpctwin.model.input.settings import Described

__all__ = ["DAY_S", "CapWindow", "PowerCap"]

DAY_S = 86_400.0

_POWER = re.compile(r"([0-9.]+)\s*([kM]?)W", re.IGNORECASE)
_WINDOW = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)=(.+)")


@dataclass(frozen=True)
class CapWindow(Described):
    """A time of day with a different cap.

    Args:
        start_s, end_s: Seconds after midnight; the window spans midnight if the end is not after
            the start.
        watts: Cap, in W.
    """

    start_s: float
    end_s: float
    watts: float

    def __post_init__(self) -> None:
        for value in (self.start_s, self.end_s):
            if not 0 <= value <= DAY_S:
                raise ConfigError(f"a time of day is {value!r} s, it must be 0 to 86400")


@dataclass(frozen=True)
class PowerCap(Described):
    """A cap on the total power draw of all nodes.

    Args:
        watts: Cap outside all windows, in W.
        windows: Times of day with other caps.
        lower_modes: Whether DVFS modes are lowered to fit. A job may start if it fits with all node
            groups in their slowest mode; at each event time, the fastest modes that fit are used.
    """

    watts: float
    windows: tuple[CapWindow, ...] = ()
    lower_modes: bool = False

    def __post_init__(self) -> None:
        for value in (self.watts, *(window.watts for window in self.windows)):
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"a power cap is {value!r} W, it must be above 0")

    @classmethod
    def parse(cls, text: str, *, lower_modes: bool = False) -> Self:
        """Read ``20kW``, or ``20kW,22:00-06:00=30kW``.

        Args:
            text: Cap in this form.
            lower_modes: See `PowerCap`.

        Raises:
            ConfigError: The text has another form.
        """
        first, *rest = text.split(",")
        windows = []
        for part in rest:
            match = _WINDOW.fullmatch(part.strip())
            if match is None:
                raise ConfigError(f"power cap {part!r} must be such as 22:00-06:00=30kW")
            hour, minute, to_hour, to_minute = (int(number) for number in match.groups()[:4])
            windows.append(
                CapWindow(
                    3600.0 * hour + 60 * minute, 3600.0 * to_hour + 60 * to_minute, _watts(match[5])
                )
            )
        return cls(_watts(first), tuple(windows), lower_modes)

    @property
    def lowest(self) -> float:
        """Lowest cap of the day, in W."""
        return min(watts for _, watts in self._levels())

    def at(self, time_of_day_s: float) -> float:
        """Return the cap at a time of day, in W: that of the first matching window."""
        for window in self.windows:
            if window.start_s < window.end_s:
                inside = window.start_s <= time_of_day_s < window.end_s
            else:
                inside = time_of_day_s >= window.start_s or time_of_day_s < window.end_s
            if inside:
                return window.watts
        return self.watts

    def _levels(self) -> list[tuple[float, float]]:
        """Return the times of day at which the cap changes, and the new caps.

        The first is midnight.
        """
        times = {0.0}
        for window in self.windows:
            times |= {window.start_s % DAY_S, window.end_s % DAY_S}
        return [(time, self.at(time)) for time in sorted(times)]

    def raised(
        self, start_epoch_s: float | None, until_s: float
    ) -> list[tuple[float, float, float]]:
        """Return start, end and watts above the lowest cap of each raise.

        Start and end are in seconds of simulated time.

        Args:
            start_epoch_s: Unix time of time zero; if unknown, time zero is midnight (UTC).
            until_s: End of the period, in seconds.
        """
        levels = self._levels()
        ends = [*(time for time, _ in levels[1:]), DAY_S]
        midnight = -((start_epoch_s or 0.0) % DAY_S)
        found = []
        for day in range(math.ceil((until_s - midnight) / DAY_S)):
            for (start, level), end in zip(levels, ends, strict=True):
                begin, finish = (max(0.0, midnight + day * DAY_S + time) for time in (start, end))
                if level > self.lowest and finish > begin:
                    found.append((begin, finish, level - self.lowest))
        return found


def _watts(text: str) -> float:
    match = _POWER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"power {text!r} must be such as 900W, 20kW or 1.5MW")
    try:
        return float(match[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[match[2].lower()]
    except ValueError as error:
        raise ConfigError(f"power {text!r}: {match[1]} is not a number") from error
