"""A power meter read over time: valid readings, and power calibrated on it.

`Sensors` adds up several sensors of power, or counters of energy.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from statistics import median

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.power.calibration import calibrate, errors_pct

__all__ = ["EARLY_S", "Metered", "Sensors", "Sieve"]

FloatArray = npt.NDArray[np.float64]

_DAY_S = 86_400.0
_LAST = 20
"""Number of earlier readings whose median a reading is compared with."""
_JUMP = 10.0
_UNIT = 300.0
"""Factor from which a reading counts as another unit, which differs by 1,000."""
_LEVEL_S = 600.0
"""Duration of a jump after which it counts as a new level, in s."""
EARLY_S = 60.0
"""Longest time that a meter's clock may be ahead, in s."""


class Sieve:
    """Filter of a meter's readings; it counts the rejected ones by reason.

    A reading is rejected if

    - it is not a number above 0
    - its time is that of the last reading, or older
    - its time is ahead of the clock
    - it is outside the range that the cluster can draw
    - it is in another unit, by a factor of 300 or more
    - it jumps to more than ten times the earlier level, or to less than a tenth

    A jump that lasts for ten minutes is a new level.

    Args:
        min_w, max_w: Smallest and largest power of the cluster, in W.
    """

    def __init__(self, min_w: float = 0.0, max_w: float = math.inf) -> None:
        self.min_w, self.max_w = min_w, max_w
        self.omitted: Counter[str] = Counter()
        self.fault: str | None = None
        """Error of the last reading; None if it was valid."""
        self._heard_s = -math.inf
        self._last: deque[float] = deque(maxlen=_LAST)
        self._jumped_s: float | None = None

    def takes(self, time_s: float, power_w: float, now_s: float) -> bool:
        """Return whether a reading is valid."""
        self.fault = self._why_not(time_s, power_w, now_s)
        if self.fault is None:
            self._heard_s = time_s
            self._last.append(power_w)
            self._jumped_s = None
            return True
        self.omitted[self.fault] += 1
        return False

    def _why_not(self, time_s: float, power_w: float, now_s: float) -> str | None:
        if not (math.isfinite(time_s) and math.isfinite(power_w)):
            return "no number"
        if power_w <= 0:
            return "not above 0"
        if time_s <= self._heard_s:
            return "told again" if time_s == self._heard_s else "goes backwards"
        if time_s > now_s + EARLY_S:
            return "ahead of the clock"
        if self._last:
            times = power_w / median(self._last)
            if max(times, 1 / times) >= _UNIT:
                return f"{'1,000' if times > 1 else '1/1,000'} of the previous value: another unit"
        if not self.min_w <= power_w <= self.max_w:
            return "outside the possible power draw of the cluster"
        if self._last and max(times, 1 / times) > _JUMP:
            self._jumped_s = time_s if self._jumped_s is None else self._jumped_s
            if time_s - self._jumped_s < _LEVEL_S:
                return "a jump"
            self._last.clear()
        return None


class Metered:
    """Power calibrated on a meter over time, to the same numbers as by `calibrate`.

    Args:
        columns: Names of the measures of use, in one unit, such as ``nodes in use``.
        step_s: Length of the steps over which use and readings are averaged, in s.
        ahead_s: Time by which forecasts are earlier, in s.
        past_s: Length of the window that lines are fitted to, in s.
        every_s: Interval of fits, in s.
        residual_s: Time over which the last residual is averaged, in s.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        step_s: float = 30.0,
        ahead_s: float = 3600.0,
        past_s: float = 172_800.0,
        every_s: float = 600.0,
        residual_s: float = 600.0,
    ) -> None:
        self.columns, self.step_s = tuple(columns), step_s
        self.ahead, self.window, self.every, self.residual, self.day = (
            max(1, round(one / step_s)) for one in (ahead_s, past_s, every_s, residual_s, _DAY_S)
        )
        self._begin(0)

    def _begin(self, first: int) -> None:
        """Start from scratch at a step."""
        self._first, self._unsure = first, 2 * self.ahead
        self.use = np.zeros((0, len(self.columns)))
        self.measured_w = np.zeros(0)
        self._expected: dict[int, float] = {}
        self._used: dict[int, FloatArray] = {}
        self._readings: dict[int, list[float]] = {}
        self._now: tuple[float, FloatArray | None] | None = None

    @property
    def _next(self) -> int:
        """The step that ends next; steps are counted from the epoch."""
        return self._first + len(self.measured_w)

    def read(self, time_s: float, power_w: float) -> bool:
        """Add a reading; return False if its step has already ended."""
        step = math.floor(time_s / self.step_s)
        if self._now is not None and step < self._next:
            return False
        self._readings.setdefault(step, []).append(power_w)
        return True

    def see(self, now_s: float, use: Sequence[float] | None) -> bool:
        """Set the use from now on; return whether a step has ended.

        A step counts as ended one step late.

        Args:
            now_s: Present Unix time.
            use: Use by column; None if unknown.
        """
        step = math.floor(now_s / self.step_s)
        if abs(step - self._next) > self.window:
            self._begin(step)
        since_s, was = self._now or (now_s, None)
        if was is not None:
            for k in range(math.floor(since_s / self.step_s), step + 1):
                spent_s = min(now_s, (k + 1) * self.step_s) - max(since_s, k * self.step_s)
                before = self._used.get(k, np.zeros(len(was) + 1))
                self._used[k] = before + max(spent_s, 0.0) * np.append(was, 1.0)
        self._now = (now_s, None if use is None else np.asarray(use, np.float64))
        ended = [self._end(k) for k in range(self._next, step - 1)]
        if ended:
            self.use = np.vstack([self.use, [use for use, _ in ended]])
            self.measured_w = np.append(self.measured_w, [power for _, power in ended])
            self._drop()
        return bool(ended)

    def _end(self, step: int) -> tuple[FloatArray, float]:
        """Return mean use and mean power of a step; power is NaN if either is unknown."""
        used, readings = self._used.pop(step, None), self._readings.pop(step, None)
        if used is None or not used[-1]:
            return np.zeros(len(self.columns)), math.nan
        return used[:-1] / used[-1], float(np.mean(readings)) if readings else math.nan

    def _drop(self) -> None:
        """Keep only the steps that the last day's errors need, in whole fit intervals."""
        # The ensemble uses errors over six forecast lengths, of lines fitted to a window.
        kept = self.window + self.day + 9 * self.ahead + self.every
        more = len(self.measured_w) - kept
        dropped = max(0, more // self.every * self.every)
        self._first += dropped
        self._unsure = max(0, self._unsure - dropped)
        self.use, self.measured_w = self.use[dropped:], self.measured_w[dropped:]
        self._expected = {k: w for k, w in self._expected.items() if k >= self._first}
        for early in (self._used, self._readings):
            for k in [k for k in early if k < self._next]:
                del early[k]

    def expect(self, use: Sequence[float]) -> float | None:
        """Return the ensemble's forecast of power ``ahead_s`` from now; None if unknown."""
        if self._unsure >= len(self.measured_w):
            return None
        ahead = np.broadcast_to(np.asarray(use, np.float64), (self.ahead, len(self.columns)))
        nothing = np.full(self.ahead, np.nan)
        models = self._models(np.vstack([self.use, ahead]), np.append(self.measured_w, nothing))
        found = float(models["ensemble"][-1])
        if not math.isfinite(found):
            return None
        self._expected[self._next - 1 + self.ahead] = found
        return found

    def errors_pct(self) -> dict[str, float]:
        """Return the mean absolute percentage errors of the last day by known model.

        The models of `calibrate` know the use at the forecast time. ``expected use`` is the error
        of `expect`.
        """
        from_ = max(self._unsure, len(self.measured_w) - self.day)
        if np.isnan(self.measured_w[from_:]).all():
            return {}
        models = self._models(self.use, self.measured_w)
        models["expected use"] = np.array(
            [self._expected.get(self._first + i, math.nan) for i in range(len(self.measured_w))]
        )
        errors = {k: errors_pct(one, self.measured_w)[from_:] for k, one in models.items()}
        return {k: float(np.nanmean(e)) for k, e in errors.items() if not np.isnan(e).all()}

    def _models(self, use: FloatArray, measured_w: FloatArray) -> dict[str, FloatArray]:
        return calibrate(
            use,
            measured_w,
            ahead=self.ahead,
            window=self.window,
            every=self.every,
            residual=self.residual,
        )

    def table(self) -> pl.DataFrame:
        """Return the measurements as ``hpctwin calibrate`` reads them, one row per step.

        Missing power is null.
        """
        steps = np.arange(self._first, self._next)
        expected = [self._expected.get(int(k)) for k in steps]
        watts = pl.Series("power_w", self.measured_w).fill_nan(None)
        use = {name: self.use[:, i] for i, name in enumerate(self.columns)}
        return pl.DataFrame(
            {"time_s": steps * self.step_s, "power_w": watts}
            | use
            | {"expected_w": pl.Series(expected, dtype=pl.Float64)}
        )

    def restore(self, table: pl.DataFrame) -> None:
        """Continue from a table; ignore it if its step or columns differ."""
        wanted = ["time_s", "power_w", *self.columns, "expected_w"]
        if table.columns != wanted or len(table) == 0:
            return
        steps = table["time_s"].to_numpy() / self.step_s
        if not np.allclose(steps, round(steps[0]) + np.arange(len(steps)), atol=1e-6, rtol=0):
            return
        self._begin(round(steps[0]))
        self.use = table.select(self.columns).to_numpy().astype(np.float64)
        self.measured_w = table["power_w"].fill_null(math.nan).to_numpy().copy()
        told = zip(range(self._first, self._next), table["expected_w"].to_list(), strict=True)
        self._expected = {k: w for k, w in told if w is not None}


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
        self.omitted: Counter[str] = Counter()
        self._heard_s: dict[str, float] = {}
        self._counted: dict[str, tuple[float, float]] = {}
        self._power: dict[str, tuple[float, float]] = {}
        self._told: set[str] = set()
        self._began_s: float | None = None

    def take(
        self, sensor: str, time_s: float, value: float, now_s: float
    ) -> tuple[float, float] | None:
        """Add a reading of a sensor; return time and power of all if that completes a sum.

        Returns:
            Unix time and W, or None.
        """
        self._began_s = now_s if self._began_s is None else self._began_s
        why = self._why_not(sensor, time_s, value, now_s)
        if why is not None:
            self.omitted[why] += 1
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
            self.omitted["a counter that restarted"] += 1
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
                f"{len(self._heard_s)} sensors report, but {self.count} are expected: "
                f"{', '.join(sorted(self._heard_s)[:5])}"
            )
        late = [name for name, at in self._heard_s.items() if now_s - at > self.silent_after_s]
        unknown = self.count - len(self._power)
        began = self._began_s is not None and now_s - self._began_s > self.silent_after_s
        if late:
            return (
                f"{len(late)} of {self.count} sensors have stopped reporting: "
                f"{', '.join(sorted(late)[:5])}"
            )
        if unknown and began:
            return f"{unknown} of {self.count} sensors have not reported any power yet"
        return None
