"""The power of all of several sensors, each of which tells its own, or of counters of energy."""

from __future__ import annotations

import math
from collections import Counter

from hpctwin.energy.power.meter import EARLY_S

__all__ = ["Sensors"]


class Sensors:
    """Makes the power of all sensors together out of what each of them tells.

    The sum is told when all have told anew, or one tells again: what the others told last then holds. It is
    of the latest of their times. There is none while one has told nothing for too long, or has told nothing
    yet: a sum without it would be another machine's.

    Of a counter of energy, power is what it has risen by since it was last seen to rise, over the time since
    then; it is of the middle of that time. One that falls has begun anew, and counts from there.

    Left out, and counted by why, is what is no number or below 0, told again or older than what the same
    sensor told before, or ahead of the clock.

    Args:
        count: how many sensors there are.
        rising: whether they count energy, J, and do not tell power, W.
        silent_after_s: what a sensor told so long ago does not hold any more.
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
        """Take in what a sensor tells; time and power of all, if that makes a sum.

        Args:
            sensor: its name.
            time_s: when it was measured, Unix time.
            value: W, or J.
            now_s: the present.

        Returns:
            Unix time and W.
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
        """Time and power of a counter since it was last seen to rise; None if it has not."""
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
        """Why there is no sum, other than that none has been told yet; None if there may be one.

        Args:
            now_s: the present.
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
