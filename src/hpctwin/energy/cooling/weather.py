"""Wet-bulb temperatures over time, from weather files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpctwin.energy.cooling.model import wet_bulb_c
from hpctwin.energy.prices.series import csv_of, numbers_of, times_of
from hpctwin.errors import ConfigError

__all__ = ["wet_bulb_means"]

FloatArray = npt.NDArray[np.float64]

_COLUMNS = {
    "wet_bulb_c": ("wet_bulb_c", "oa wetbulb temp"),
    "temperature_c": ("temperature_c", "temperature_2m", "temperature_2m (°c)"),
    "humidity_pct": ("humidity_pct", "relative_humidity_2m", "relative_humidity_2m (%)"),
}


_POSSIBLE = {
    "wet_bulb_c": (-60.0, 50.0),
    "temperature_c": (-90.0, 60.0),
    "humidity_pct": (0.0, 100.0),
}
"""Range measured on Earth with a margin; Fahrenheit and kelvins are outside."""


def wet_bulb_means(
    given: float | str | Path, edges_s: FloatArray, epoch_s: float | None
) -> FloatArray:
    """Return the wet-bulb temperature of each step, in °C [steps].

    It is one value for all steps, or a file that is interpolated linearly and repeats. The file is
    CSV (``.gz`` too). It has times first (ISO dates or seconds), then ``wet_bulb_c``, or
    ``temperature_c`` and ``humidity_pct``, or Open-Meteo's names of them. It is aligned with the
    simulation by date if both have one; otherwise both begin together.

    Args:
        given: Temperature in °C, or the file.
        edges_s: Edges of the steps from the simulation's time zero, in s; each step's middle counts
            [steps + 1].
        epoch_s: Unix time of time zero; None if unknown.

    Raises:
        ConfigError: The file cannot be read or has no such columns, or a temperature or humidity is
            impossible; the message names row and column.
    """
    if isinstance(given, int | float):
        least, most = _POSSIBLE["wet_bulb_c"]
        if not least <= given <= most:
            raise ConfigError(
                f"a wet-bulb temperature of {given:g} °C cannot be: expected {least:g} to {most:g} °C"
            )
        return np.full(len(edges_s) - 1, float(given))
    path = Path(given)
    frame = csv_of(path)
    heads = {name.lower(): name for name in frame.columns}
    found = {
        kind: next((heads[name] for name in names if name in heads), None)
        for kind, names in _COLUMNS.items()
    }
    if len(frame) < 2 or (
        found["wet_bulb_c"] is None and None in (found["temperature_c"], found["humidity_pct"])
    ):
        raise ConfigError(
            f"{path}: needs two rows or more, times in the first column, and wet_bulb_c, or temperature_c "
            f"and humidity_pct; it has {len(frame)} rows of {', '.join(map(repr, frame.columns))}"
        )
    times, epoch = times_of(frame[frame.columns[0]], path)
    values = {
        kind: numbers_of(frame, name, path) for kind, name in found.items() if name is not None
    }
    for kind, numbers in values.items():
        _check(path, found[kind] or kind, kind, numbers)
    wet = values.get("wet_bulb_c")
    if wet is None:
        wet = wet_bulb_c(values["temperature_c"], values["humidity_pct"])
    at = (edges_s[:-1] + edges_s[1:]) / 2
    if epoch is not None and epoch_s is not None:
        at = at + (epoch_s - epoch)
    period = float(times[-1] + np.median(np.diff(times)))
    means: FloatArray = np.interp(at, times, wet, period=period)
    return means


def _check(path: Path, name: str, kind: str, numbers: FloatArray) -> None:
    """Check that numbers are possible for weather.

    Raises:
        ConfigError: A number is not.
    """
    least, most = _POSSIBLE[kind]
    wrong = (numbers < least) | (numbers > most)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ConfigError(
            f"{path}, row {row + 2}, {name!r}: {numbers[row]:g} cannot be, expected {least:g} to {most:g}: "
            "is it in another unit?"
        )
    if kind == "humidity_pct" and numbers.max() <= 1:
        raise ConfigError(f"{path}, {name!r}: none is above 1; expected per cent, not parts of one")
