"""Prices and carbon intensities over time, and the cost of energy by them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ArgumentError, ConfigError, in_brief
from hpctwin.model.arguments import check_arguments, column, is_number
from hpctwin.model.text import FIRST_UNIX_S, epoch_s_of

__all__ = ["Series", "cheapest_start_times", "times_of"]

FloatArray = npt.NDArray[np.float64]
Align = Literal["date", "start"]

What = Literal["price", "carbon"]

_J_PER = {"wh": 3.6e3, "kwh": 3.6e6, "mwh": 3.6e9, "gwh": 3.6e12}
_G_PER = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": 453.59237, "lbs": 453.59237}
_PER_ENERGY = re.compile(r"(.*?[^\s/]) ?/ ?([kmg]?wh)\b", re.IGNORECASE)
_MASS = re.compile(r"(?:^|[^a-z])(k?g|t|lbs?) ?(?:co[2₂][^/]*)?$", re.IGNORECASE)
_NAMES = {"price": ("price",), "carbon": ("carbon intensity", "avg_ci", "intensity")}


@dataclass(frozen=True, eq=False)
class Series:
    """A price or carbon intensity over time; each value holds until the next.

    The whole series repeats after its period.

    Args:
        times_s: Start of each value, in seconds from the first, ascending from 0 [n].
        values: Values per J [n].
        period_s: Time after which the series repeats, in seconds.
        unit: Unit of a value times energy: ``USD``, ``EUR``, ``g`` ….
        name: Name, such as that of the file.
        start_epoch_s: Unix time of the first value; None if unknown.
    """

    times_s: FloatArray
    values: FloatArray
    period_s: float
    unit: str
    name: str = "series"
    start_epoch_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("times_s", "values"):
            object.__setattr__(self, name, column(name, getattr(self, name)))
            if not np.isfinite(getattr(self, name)).all():
                raise ArgumentError(f"{name} has a value that is not finite; give finite numbers")
        times = self.times_s
        if len(times) != len(self.values) or not len(times):
            raise ArgumentError(
                f"times_s has {len(times)} values, and values has {len(self.values)}; give one "
                "time for each value"
            )
        if times[0] != 0 or (np.diff(times) <= 0).any():
            raise ArgumentError(
                "times_s must begin at 0, and each time must be after the one before"
            )
        if not is_number(self.period_s) or self.period_s <= times[-1]:
            raise ArgumentError(
                f"period_s is {in_brief(self.period_s)}; it must be above the last time, {times[-1]:g} s"
            )

    @classmethod
    @check_arguments()
    def hourly(cls, per_kwh: npt.ArrayLike, unit: str, *, step_s: float = 3600.0) -> Series:
        """Make a series from values per kWh at equal steps.

        Args:
            per_kwh: The values [n].
            unit: Unit of a value times energy, such as ``EUR`` or ``g``.
            step_s: Step, in seconds.
        """
        values = column("per_kwh", per_kwh) / _J_PER["kwh"]
        times = np.arange(len(values), dtype=np.float64) * step_s
        return cls(times, values, len(values) * step_s, unit)

    @classmethod
    @check_arguments()
    def read(
        cls, path: str | Path, column: str | None = None, *, what: What | None = None
    ) -> Series:
        """Read a CSV file (``.gz`` too): times in the first column, values in another.

        Times are dates (ISO 8601, UTC if without zone) or seconds. The head of the values' column
        states their unit, such as ``Price (EUR/MWh)`` or ``Carbon intensity kgCO2eq/kWh``. Carbon
        is converted to g. ``avg_CI`` without a unit is in g/kWh.

        Args:
            path: The file.
            column: Column of the values; by default the first one named as a price or an intensity.
            what: Expected content, ``price`` or ``carbon``; by default either.

        Raises:
            ConfigError: The file cannot be read, has another format or content, or states no unit;
                the message names row and column.
        """
        path = Path(path)
        frame = csv_of(path)
        if len(frame) < 2 or frame.width < 2:
            raise ConfigError(
                f"{path}: table must have a column of times, one of values, and two rows or more"
            )
        if column is None:
            words = [word for kind in _NAMES if what in (None, kind) for word in _NAMES[kind]]
            found = [
                name
                for word in (*words, "value")
                for name in frame.columns[1:]
                if word in name.lower()
            ]
            column = found[0] if found else frame.columns[1] if frame.width == 2 else None
        if column is None or column not in frame.columns:
            raise ConfigError(
                f"{path}: {'no column ' + repr(column) if column else 'which column has the values?'} "
                f"It has {', '.join(map(repr, frame.columns))}"
            )
        times, epoch = times_of(frame[frame.columns[0]], path)
        numbers = numbers_of(frame, column, path)
        per, unit = _unit(column, path)
        if what is not None and (unit == "g") != (what == "carbon"):
            wanted = "price" if what == "price" else "carbon intensity in g, kg, t or lb"
            raise ConfigError(
                f"{path}, {column!r}: values are in {unit!r}; give a file with a {wanted}"
            )
        step = float(np.median(np.diff(times)))
        return cls(times, numbers / per, float(times[-1] + step), unit, path.name, epoch)

    @property
    def per_kwh(self) -> FloatArray:
        """Values per kWh."""
        return self.values * _J_PER["kwh"]

    def aligned(self, start_epoch_s: float | None) -> tuple[Series, Align]:
        """Return the series with the time zero of a simulation.

        Args:
            start_epoch_s: Unix time of the simulation's time zero; None if unknown.

        Returns:
            The series moved by ``date`` if both dates are known and the series covers the
            simulation's; otherwise the series unchanged, beginning at the simulation's ``start``.
        """
        if start_epoch_s is None or self.start_epoch_s is None:
            return self, "start"
        shift = start_epoch_s - self.start_epoch_s
        if not 0 <= shift < self.period_s:
            return self, "start"
        first = int(np.searchsorted(self.times_s, shift, side="right")) - 1
        times = np.concatenate(
            [self.times_s[first:] - shift, self.times_s[:first] + self.period_s - shift]
        )
        values = np.concatenate([self.values[first:], self.values[:first]])
        # The value at time zero began earlier; that earlier part goes to the end of the period.
        if times[0] < 0:
            times = np.append(times, times[0] + self.period_s)
            values = np.append(values, values[0])
            times[0] = 0.0
        moved = Series(times, values, self.period_s, self.unit, self.name, start_epoch_s)
        return moved, "date"

    @cached_property
    def _total(self) -> FloatArray:
        """Integral up to each time, and up to the end of the period."""
        lengths = np.diff(np.append(self.times_s, self.period_s))
        return np.concatenate([[0.0], np.cumsum(lengths * self.values)])

    def integral(self, until_s: npt.ArrayLike) -> FloatArray:
        """Return the integral of the values from time zero to given times, per W.

        Args:
            until_s: Times, in seconds.
        """
        until = np.asarray(until_s, np.float64)
        rounds, rest = np.divmod(until, self.period_s)
        knots = np.append(self.times_s, self.period_s)
        found: FloatArray = rounds * self._total[-1] + np.interp(rest, knots, self._total)
        return found

    def changes(self, from_s: float, until_s: float) -> FloatArray:
        """Return the times between two times at which values begin, in seconds.

        Args:
            from_s: First time, in seconds.
            until_s: Last time, in seconds.
        """
        return _knots(self, from_s, until_s)

    def at(self, time_s: npt.ArrayLike) -> FloatArray:
        """Return the values at given times, per J.

        Args:
            time_s: Times, in seconds.
        """
        rest = np.mod(np.asarray(time_s, np.float64), self.period_s)
        found: FloatArray = self.values[np.searchsorted(self.times_s, rest, side="right") - 1]
        return found


def csv_of(path: Path) -> pl.DataFrame:
    """Read a CSV file (``.gz`` too).

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return pl.read_csv(path, glob=False, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ConfigError(f"{path}: cannot be read as CSV: {error}") from error


def numbers_of(frame: pl.DataFrame, name: str, path: Path) -> FloatArray:
    """Return a column of finite numbers.

    Raises:
        ConfigError: A value is not a finite number; the message names its row.
    """
    column = frame[name].cast(pl.Float64, strict=False)
    bad = ~column.is_finite().fill_null(value=False)
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise ConfigError(
            f"{path}, row {row + 2}, {name!r}: {frame[name][row]!r} is not a finite number"
        )
    return column.to_numpy()


def times_of(column: pl.Series, path: Path) -> tuple[FloatArray, float | None]:
    """Return seconds from the first time, and its Unix time if it is known.

    The Unix time is known if times are dates or Unix times.
    """
    epoch = None
    if column.dtype.is_numeric():
        seconds = column.cast(pl.Float64).to_numpy()
        if len(seconds) and seconds[0] >= FIRST_UNIX_S:
            epoch = float(seconds[0])
    else:
        found = [_epoch_s(text) for text in column.cast(pl.String)]
        if None in found:
            row = found.index(None)
            raise ConfigError(
                f"{path}, row {row + 2}, {column.name!r}: {column[row]!r} is not a date; "
                "give one such as 2024-01-31 13:00"
            )
        seconds = np.array(found, np.float64)
        epoch = float(seconds[0])
    later = np.diff(seconds) > 0
    if not later.all():
        row = int(np.argmin(later)) + 1
        raise ConfigError(
            f"{path}, row {row + 2}: {column[row]!r} is not after {column[row - 1]!r}; "
            "sort the rows by time"
        )
    return seconds - seconds[0], epoch


def _epoch_s(text: str | None) -> float | None:
    """Return the Unix time of a date; None if the text is no date."""
    try:
        return epoch_s_of(text)
    except ValueError:
        return None


def _unit(column: str, path: Path) -> tuple[float, str]:
    """Return the joules a value is for, and the unit of a value times energy.

    Raises:
        ConfigError: The head of the column states no unit.
    """
    if column.lower() == "avg_ci":
        return _J_PER["kwh"], "g"
    found = _PER_ENERGY.search(column)
    if found is not None:
        joules = _J_PER[found[2].lower()]
        mass = _MASS.search(found[1])
        if mass is not None:
            return joules / _G_PER[mass[1].lower()], "g"
        if not re.search("co[2₂]", found[1], re.IGNORECASE):
            return joules, re.split(r"[\s/()\[\]]", found[1])[-1]
    raise ConfigError(
        f"{path}, {column!r}: the unit of the values is unknown; state it in the head of the "
        "column, as in 'Price (EUR/MWh)' or 'Carbon intensity (gCO2/kWh)'"
    )


def cheapest_start_times(
    submit_s: FloatArray, length_s: FloatArray, may_wait_s: FloatArray, series: Series
) -> FloatArray:
    """Return the start at which each job costs least; the first if several do.

    The cost of a job is piecewise linear in its start. It has kinks where the start or the end
    meets a change of the series, so only these times and the ends of the window are candidates.

    Args:
        submit_s: Submit times, in seconds [jobs].
        length_s: Expected runtimes, in seconds [jobs].
        may_wait_s: Longest delay of each job after its submission, in seconds [jobs].
        series: Price or carbon intensity.

    Returns:
        Start times, in seconds [jobs].
    """
    begins = submit_s.copy()
    for job in np.flatnonzero(may_wait_s > 0):
        first, last = submit_s[job], submit_s[job] + may_wait_s[job]
        knots = _knots(series, first, last + length_s[job])
        choices = np.concatenate([[first], knots, knots - length_s[job], [last]])
        choices = np.unique(choices[(choices >= first) & (choices <= last)])
        cost = series.integral(choices + length_s[job]) - series.integral(choices)
        # The tolerance keeps rounding from delaying a job for no gain.
        begins[job] = choices[np.flatnonzero(cost <= cost.min() + 1e-9 * abs(cost.min()))[0]]
    return begins


def _knots(series: Series, first_s: float, last_s: float) -> FloatArray:
    rounds = np.arange(first_s // series.period_s, last_s // series.period_s + 1)
    if len(rounds) == 1:
        low, high = np.searchsorted(series.times_s + rounds[0] * series.period_s, [first_s, last_s])
        near: FloatArray = series.times_s[low:high] + rounds[0] * series.period_s
        return near
    every = (rounds[:, None] * series.period_s + series.times_s[None, :]).ravel()
    within: FloatArray = every[(every >= first_s) & (every <= last_s)]
    return within
