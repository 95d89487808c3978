"""Quantities as people write them, parsed once into the units the code uses.

Libraries for durations (pytimeparse, Polars's own strings) do not know Slurm's ``1-12:00:00``.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from fractions import Fraction

from hpctwin.errors import ConfigError, in_brief

__all__ = [
    "FIRST_UNIX_S", "MS_PER_S", "NEVER_MS", "Moment", "epoch_s_of", "exact", "format_duration", "moment_text",
    "parse_duration_s", "parse_moment", "since", "to_ms",
]  # fmt: skip

Moment = float | dt.datetime
"""A time as a user gives it: seconds from time zero, or a date."""

FIRST_UNIX_S = 1e9
"""Smallest number of seconds that is Unix time (2001 and later).

This applies only if dates are known.
"""

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
        value: Seconds; or text such as ``90``, ``"15m"``, ``"1d 12h"``, ``"2:30:00"`` or
            ``"1-12:00:00"`` (days-hours, as Slurm writes it); or a timedelta.

    Returns:
        Seconds.

    Raises:
        ConfigError: The value is not a duration, not finite, or above 1e12 s.
    """
    try:
        seconds = _seconds(value)
    except OverflowError:  # an integer of hundreds of digits
        seconds = float("inf")
    if not abs(seconds) <= _LONGEST_S:  # NaN too
        raise ConfigError(
            f"{in_brief(value)} is not a duration: it must be {_LONGEST_S:g} s at most"
        )
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
        f"{in_brief(value)} is not a duration; write seconds, '15m', '1d 12h', '2:30:00' or '1-12:00:00'"
    )


_ZONE = re.compile(
    r"\s*(Z|UTC|GMT|[+-]\d\d:?\d\d|[A-Z][A-Za-z_]+(?:/[A-Za-z_+-]+)+)$", re.IGNORECASE
)
_DATE = re.compile(
    r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T, ]\s*(\d{1,2}):(\d\d)(?::(\d\d)(\.\d+)?)?\s*([AP]M)?)?",
    re.IGNORECASE,
)


def epoch_s_of(date: object, *, day_first: bool | None = None) -> float:
    """Return the Unix time of a date, which is in UTC if it names no zone.

    Args:
        date: A date or datetime, or text: ISO 8601 with ``T`` or a space, with or without a zone
            (``Z``, ``+02:00``, ``Europe/Berlin``); ``@1711859400``; or as in spreadsheets,
            ``31.03.2024 05:30`` or ``3/31/2024 5:30 PM``.
        day_first: Whether ``3/4/2024`` is in April; None if unknown.

    Raises:
        ValueError: It is no date, or day and month are ambiguous.
    """
    if isinstance(date, dt.datetime):
        return (date if date.tzinfo else date.replace(tzinfo=dt.UTC)).timestamp()
    text = str(date).strip()
    if text.startswith("@"):
        return float(text[1:])
    zone: dt.tzinfo = dt.UTC
    if (named := _ZONE.search(text)) and named.start() >= len("1/1/2024"):
        text, zone = text[: named.start()], _zone_of(named[1])
    if written := _DATE.fullmatch(text):
        found = _written(written, day_first)
    else:
        found = dt.datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()


def _zone_of(name: str) -> dt.tzinfo:
    if name.upper() in ("Z", "UTC", "GMT"):
        return dt.UTC
    if name[0] in "+-":
        return dt.datetime.strptime(name, "%z").tzinfo or dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"time zone {name!r} is not known") from error


def _written(match: re.Match[str], day_first: bool | None) -> dt.datetime:
    first, mark, middle, last, hour, minute, second, fraction, half = match.groups()
    if len(first) == 4:
        year, month, day = int(first), int(middle), int(last)
    elif len(last) != 4:
        raise ValueError("a date has a year of four digits")
    else:
        year, day, month = int(last), int(first), int(middle)
        if mark != "." and day <= 12 and month <= 12 and day != month and day_first is None:
            raise ValueError("day and month cannot be told apart")
        if mark != "." and (month > 12 or (day <= 12 and day_first is False)):
            day, month = month, day
    hours = int(hour or 0)
    if half:
        if not 1 <= hours <= 12:
            raise ValueError(f"there is no {hours} {half}")
        hours = hours % 12 + (12 if half.upper() == "PM" else 0)
    micro = round(float(fraction or 0) * 1e6)
    made = dt.datetime(year, month, day, hours, int(minute or 0), int(second or 0))
    return made + dt.timedelta(microseconds=micro)


def parse_moment(value: object) -> Moment:
    """Parse a time that a user gives.

    Args:
        value: Seconds or a duration from time zero, as `parse_duration_s` reads them; or a date, as
            `epoch_s_of` reads it.

    Returns:
        Seconds from time zero, or a date in UTC.

    Raises:
        ConfigError: It is neither.
    """
    why = ""
    if isinstance(value, (str, dt.date)):
        try:
            return dt.datetime.fromtimestamp(epoch_s_of(value), dt.UTC)
        except (ValueError, OverflowError, OSError) as error:
            why = str(error) if "told apart" in str(error) else ""
    try:
        return parse_duration_s(value)  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(
            f"{in_brief(value)} is not a duration, nor a date{f' ({why})' if why else ''}; write seconds, "
            "30d, 1-12:00:00, or 2024-01-31T13:00 (UTC unless it names a zone)"
        ) from error


def since(moment: Moment, start_epoch_s: float | None, name: str) -> float:
    """Return the seconds from a workload's time zero to a time.

    They are negative if the time is earlier.

    Args:
        moment: Seconds from time zero, Unix seconds for a workload that has a date, or a date.
        start_epoch_s: Unix time of time zero; None if unknown.
        name: Name of the workload, for the message.

    Raises:
        ConfigError: It is a date, and the workload has none.
    """
    if isinstance(moment, dt.datetime):
        if start_epoch_s is None:
            raise ConfigError(
                f"{moment_text(moment)}: {name} does not say its date; give a time since it begins, such "
                "as 30d or seconds"
            )
        return moment.timestamp() - start_epoch_s
    if start_epoch_s is not None and moment >= max(FIRST_UNIX_S, start_epoch_s):
        return moment - start_epoch_s
    return moment


def to_ms(seconds: Moment) -> int:
    """Round seconds to whole milliseconds, halves to even.

    Raises:
        ConfigError: It is a date, which only has meaning together with a workload (`since`).
    """
    if isinstance(seconds, dt.datetime):
        seconds = since(seconds, None, "the workload")
    return round(seconds * MS_PER_S)


def moment_text(moment: Moment) -> str:
    """Return a time as text: ``1200 s`` or ``2024-01-31T13:00:00Z``."""
    if isinstance(moment, dt.datetime):
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    return f"{moment:g} s"


def format_duration(seconds: float) -> str:
    """Write a duration as people read it: ``0.5 s``, ``12 min``, ``3.4 h``, ``2.1 d``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= 1.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def exact(speed: float) -> Fraction:
    """Return a node's speed by its decimals, not the nearest binary number.

    0.7 is seven tenths. There are nine decimal places; above 9 there are fewer, so that whole
    numbers suffice.
    """
    speed = min(max(float(speed), 1e-9), 1e9)
    return Fraction(speed).limit_denominator(min(10**9, int(3e9 / math.sqrt(speed))))
