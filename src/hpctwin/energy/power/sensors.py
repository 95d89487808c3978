"""Total power of several sensors of power, or of counters of energy."""

from __future__ import annotations

import math
from collections import Counter

from hpctwin.energy.power.meter import EARLY_S

__all__ = ["Sensors"]


class Sensors:
    """Total power of several sensors, made from the readings of each.

    A sum is made when all sensors have new readings, or when one has a second. In the second case
    it uses the last reading of each sensor before that. The sum has the latest of their times.
    There is no sum while a sensor is silent for too long or has no reading yet, because a sum
    without it would be of another cluster.

    For an energy counter, power is its rise since it last rose, divided by the time since then. It
    belongs to the middle of that time. A counter that falls was reset, and counts from there.

    A reading is rejected, and counted by reason, if

    - it is not a number, or below 0
    - it is not newer than the sensor's last reading
    - it is ahead of the clock

    Args:
        count: Number of sensors.
        rising: Whether they count energy (J) instead of measuring power (W).
        silent_after_s: Age at which a sensor's reading expires, in s.
    """

    def __init__(
        self, count: int = 1, *, rising: bool = False, silent_after_s: float = 300.0
    ) -> None:
        self.count, self.rising, self.silent_after_s = count, rising, silent_after_s
        self.left_out: Counter[str] = Counter()
        self._heard_s: dict[str, float] = {}
        self._counted: dict[str, tuple[float, float]] = {}
        self._power: dict[str, tuple[float, float]] = {}
        self._told: set[str] = set()
        self._began_s: float | None = None

    def take(
        self, sensor: str, time_s: float, value: float, now_s: float
    ) -> tuple[float, float] | None:
        """Add a reading of a sensor; return time and power of all if that completes a sum.

        Args:
            sensor: Name of the sensor.
            time_s: Unix time of the measurement.
            value: Power in W, or energy in J.
            now_s: Present Unix time.

        Returns:
            Unix time and W, or None.
        """
        self._began_s = now_s if self._began_s is None else self._began_s
        why = self._why_not(sensor, time_s, value, now_s)
        if why is not None:
            self.left_out[why] += 1
            return None
        self._heard_s[sensor] = time_s
        told = self._risen(sensor, time_s, value) if self.rising else (time_s, value)
        if told is None:
            return None
        found = None
        if sensor in self._told:
            found = self._sum(now_s)
            self._told.clear()
        self._power[sensor] = told
        self._told.add(sensor)
        if len(self._told) == self.count:
            found = self._sum(now_s)
            self._told.clear()
        return found

    def _why_not(self, sensor: str, time_s: float, value: float, now_s: float) -> str | None:
        if not (math.isfinite(time_s) and math.isfinite(value)):
            return "no number"
        if value < 0:
            return "below 0"
        if time_s > now_s + EARLY_S:
            return "ahead of the clock"
        heard_s = self._heard_s.get(sensor, -math.inf)
        if time_s <= heard_s:
            return "told again" if time_s == heard_s else "goes backwards"
        return None

    def _risen(self, sensor: str, time_s: float, joules: float) -> tuple[float, float] | None:
        """Return time and power of a counter since its last rise; None without a rise."""
        since_s, before = self._counted.get(sensor, (time_s, joules))
        if joules == before and since_s < time_s:
            return None
        self._counted[sensor] = (time_s, joules)
        if joules < before:
            self.left_out["a counter that began anew"] += 1
            return None
        if since_s == time_s:
            return None
        return (since_s + time_s) / 2, (joules - before) / (time_s - since_s)

    def _sum(self, now_s: float) -> tuple[float, float] | None:
        if len(self._power) < self.count or self.fault(now_s) is not None:
            return None
        return max(time for time, _ in self._power.values()), sum(
            w for _, w in self._power.values()
        )

    def fault(self, now_s: float) -> str | None:
        """Return why there is no sum, first readings aside; None if one is possible.

        Args:
            now_s: Present Unix time.
        """
        if len(self._heard_s) > self.count:
            return (
                f"{len(self._heard_s)} sensors tell, and there are to be {self.count}: "
                f"{', '.join(sorted(self._heard_s)[:5])}"
            )
        late = [name for name, at in self._heard_s.items() if now_s - at > self.silent_after_s]
        unknown = self.count - len(self._power)
        began = self._began_s is not None and now_s - self._began_s > self.silent_after_s
        if late:
            return f"{len(late)} of {self.count} sensors are silent: {', '.join(sorted(late)[:5])}"
        if unknown and began:
            return f"{unknown} of {self.count} sensors have told no power yet"
        return None
