"""Quantities as people write them, parsed once into the units the code uses.

Libraries for durations (pytimeparse, Polars's own strings) do not know Slurm's ``1-12:00:00``.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from fractions import Fraction

from hpctwin.errors import ConfigError

__all__ = [
    "MS_PER_S", "NEVER_MS", "epoch_s_of", "exact", "format_duration", "parse_duration_s", "to_ms",
]  # fmt: skip

MS_PER_S = 1000
NEVER_MS = 2**62
"""A time that never comes; far enough from the end of int64 that sums stay exact."""

_LONGEST_S = 1e12  # 30,000 years; keeps sums of milliseconds far inside int64
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?")


def parse_duration_s(value: float | str | dt.timedelta) -> float:
    """Parse a duration.

    Args:
        value: seconds; or text such as ``90``, ``"15m"``, ``"1d 12h"``, ``"2:30:00"`` or
            ``"1-12:00:00"`` (days-hours, as Slurm writes it); or a timedelta.

    Returns:
        Seconds.

    Raises:
        ConfigError: it is not a duration, not finite, or of more than 1e12 s.
    """
    try:
        seconds = _seconds(value)
    except OverflowError:  # an integer of hundreds of digits
        seconds = float("inf")
    if not abs(seconds) <= _LONGEST_S:  # NaN too
        raise ConfigError(f"{value!r:.60} is not a duration: it must be {_LONGEST_S:g} s at most")
    return seconds


def _seconds(value: float | str | dt.timedelta) -> float:
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        pass
    if clock := _CLOCK.fullmatch(text):
        days, first, second, third = clock.groups()
        if third is None and days is None:
            return int(first) * 60 + int(second)
        return int(days or 0) * 86400 + int(first) * 3600 + int(second) * 60 + float(third or 0)
    if text and not _PART.sub("", text).strip():
        return sum(float(number) * _UNIT_S[unit.lower()] for number, unit in _PART.findall(text))
    raise ConfigError(
        f"{value!r} is not a duration; write seconds, '15m', '1d 12h', '2:30:00' or '1-12:00:00'"
    )


def epoch_s_of(date: object) -> float:
    """Unix time of a date in ISO 8601, in UTC if it names no zone.

    Raises:
        ValueError: it is none.
    """
    found = dt.datetime.fromisoformat(str(date).strip())
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()


def to_ms(seconds: float) -> int:
    """Round seconds to whole milliseconds, halves to even."""
    return round(seconds * MS_PER_S)


def format_duration(seconds: float) -> str:
    """Write a duration as people read it: ``0.5 s``, ``12 min``, ``3.4 h``, ``2.1 d``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= 1.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def exact(speed: float) -> Fraction:
    """A node's speed as its decimals say, not as the nearest binary number: 0.7 is seven tenths.

    To nine places; above 9 to fewer, so that whole numbers suffice.
    """
    speed = min(max(float(speed), 1e-9), 1e9)
    return Fraction(speed).limit_denominator(min(10**9, int(3e9 / math.sqrt(speed))))
