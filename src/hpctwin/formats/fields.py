"""Times, durations and amounts in texts of resource managers and tables."""

from __future__ import annotations

import zoneinfo

import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.formats.record import Tally
from hpctwin.model.text import epoch_s_of

NOTHING = (
    "",
    "unknown",
    "none",
    "n/a",
    "na",
    "null",
    "nan",
    "nat",
    "invalid",
    "(null)",
    "-",
    "none assigned",
)
"""Texts for a missing value, in lower case."""

_CLOCK = r"^(?:(?<d>\d+)-)?(?:(?<h>\d+):)?(?<m>\d+):(?<s>\d+(?:[.,]\d+)?)$"
_DAYS_HOURS = r"^(?<d>\d+)-(?<h>\d+)$"
_AMOUNT = r"^(?<number>\d+(?:[.,]\d+)?)\s*(?<unit>[kKmMgGtTpPeE]?)(?:i?[bB])?[cnw]?$"
_POWERS = {unit: power for power, unit in enumerate("KMGTPE", 1)}


def duration_s(text: pl.Series) -> pl.Series:
    """Return the seconds of durations.

    Forms are ``1-02:03:04``, ``02:03:04``, ``03:04.5`` (minutes), ``1-02`` (days-hours) and plain
    seconds. Others are null: the caller must handle ``UNLIMITED``, ``Partition_Limit`` and
    ``INVALID``.
    """
    part = text.str.extract_groups(_CLOCK).struct.unnest()
    d, h, m = (part[name].cast(pl.Float64).fill_null(0.0) for name in ("d", "h", "m"))
    s = part["s"].str.replace(",", ".", literal=True).cast(pl.Float64)
    seconds = ((d * 24 + h) * 60 + m) * 60 + s
    if _left(text, seconds):
        seconds = _else(seconds, text.cast(pl.Float64, strict=False))
    if _left(text, seconds):
        part = text.str.extract_groups(_DAYS_HOURS).struct.unnest().cast(pl.Float64)
        seconds = _else(seconds, (part["d"] * 24 + part["h"]) * 3600)
    return seconds


def gigabytes(text: pl.Series, unit: str = "M") -> pl.Series:
    """Return the GiB of ``4000M``, ``1.5G``, ``550000`` (in ``unit``) or ``200mb``."""
    return _scaled(text, 1024.0, unit) / 2.0**30


def amount(text: pl.Series) -> pl.Series:
    """Return numbers such as ``12``, ``1.5K`` (thousand) or ``2M``."""
    number = text.cast(pl.Float64, strict=False)
    return _else(number, _scaled(text, 1000.0, "")) if _left(text, number) else number


def _scaled(text: pl.Series, base: float, unit: str) -> pl.Series:
    part = text.str.extract_groups(_AMOUNT).struct.unnest()
    number = part["number"].str.replace(",", ".", literal=True).cast(pl.Float64)
    powers = {name: base**power for name, power in _POWERS.items()} | {"": 1.0}
    scale = (
        part["unit"]
        .str.to_uppercase()
        .replace_strict(powers | {"": powers[unit]}, default=None, return_dtype=pl.Float64)
    )
    return number * scale


def _left(text: pl.Series, value: pl.Series) -> bool:
    """Return whether there is text without a value yet."""
    return value.null_count() > text.null_count()


def _else(value: pl.Series, other: pl.Series) -> pl.Series:
    return value.zip_with(value.is_not_null(), other)


def zone_of(name: str | None) -> str | None:
    """Return a time zone's name, checked."""
    if name is None:
        return None
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"unknown time zone {name!r}; write it as in Europe/Berlin or UTC"
        ) from error
    return name


def moments(
    column: pl.Series, zone: str | None, tally: Tally, *, seconds_only: bool = False
) -> pl.Series:
    """Return the Unix time of texts: dates of `epoch_s_of`, or Unix seconds.

    ``3/4/2024`` has its day first if another date of the column allows only that.

    Args:
        column: Texts; those in `NOTHING` become null.
        zone: Time zone of dates that name none; by default UTC.
        tally: Counts texts that are no time, and local times that are ambiguous or do not exist.
        seconds_only: Whether numbers are always seconds. Otherwise large ones are milliseconds or
            finer.
    """
    text = column.cast(pl.String).str.strip_chars()
    text = text.set(text.str.to_lowercase().is_in(NOTHING), None)
    local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="ms")
    missing = local.is_null() & text.is_not_null()
    if missing.any():
        spaced = text.str.replace(" ", "T", literal=True)
        rest = spaced.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="ms")
        short = spaced.str.to_datetime("%Y-%m-%dT%H:%M", strict=False, time_unit="ms")
        day = spaced.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("ms"))
        local = pl.select(pl.coalesce(local, rest, short, day))[:, 0]
    seconds = _epoch(local, zone, tally)
    missing = seconds.is_null() & text.is_not_null() & local.is_null()
    if missing.any():
        zoned = _zoned(text)
        number = text.cast(pl.Float64, strict=False)
        number = number if seconds_only else unix_s(number, tally)
        seconds = pl.select(pl.coalesce(seconds, zoned, number))[:, 0]
        other = seconds.is_null() & text.is_not_null() & local.is_null()
        if other.any():
            seconds = seconds.zip_with(~other, _written(text.set(~other, None), zone, tally))
        strange = seconds.is_null() & text.is_not_null() & local.is_null()
        if strange.any():
            example = str(text.filter(strange)[0])[:40]
            tally.add(
                f"time in column {column.name} that cannot be parsed, such as {example!r}",
                int(strange.sum()),
            )
    return seconds.alias(column.name)


def _zoned(text: pl.Series) -> pl.Series:
    """Return the Unix time of ISO dates that end with a zone, ``Z`` or ``+01:00``."""
    plain = text.str.replace(" ", "T", literal=True).str.replace(r"Z$", "+0000")
    plain = plain.str.replace(r"([+-]\d\d):(\d\d)$", "$1$2")
    made = plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", strict=False, time_unit="ms")
    return made.dt.epoch("ms") / 1000


def unix_s(number: pl.Series, tally: Tally) -> pl.Series:
    """Return numbers as Unix seconds.

    Numbers that are too large for seconds are milliseconds, or finer.
    """
    per_s = {1e17: 1e9, 1e14: 1e6, 1e11: 1e3}
    scale = pl.lit(1.0)
    for least in reversed(per_s):
        scale = pl.when(pl.col("n").abs() > least).then(per_s[least]).otherwise(scale)
    table = pl.DataFrame({"n": number.cast(pl.Float64)}).with_columns(scale=scale)
    tally.add(
        f"time in column {number.name} read as milliseconds or finer, as it is too large "
        "for seconds",
        int((table["scale"] > 1).sum()),
    )
    return (table["n"] / table["scale"]).alias(number.name)


def _written(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    """Return the Unix time of dates as spreadsheets write them; null for other texts."""
    parts = text.str.extract_groups(r"^(\d{1,2})[/-](\d{1,2})[/-]\d{4}").struct.unnest()
    first, second = (parts[name].cast(pl.Int64) for name in parts.columns)
    # If both occur, the order is unknown: dates with one meaning keep it, the others have none.
    day_first = None
    if (first > 12).any() != (second > 12).any():
        day_first = bool((first > 12).any())

    def read(one: str) -> float | None:
        try:
            return epoch_s_of(one, day_first=day_first)
        except (ValueError, OverflowError):
            return None

    known = {one: read(one) for one in text.drop_nulls().unique().to_list()}
    plain = text.replace_strict(known, default=None, return_dtype=pl.Float64)
    named = text.str.contains(r"(?i)[a-z]{3,}|[+-]\d\d:?\d\d$").fill_null(False)
    if zone is None or named.all():
        return plain
    local = (plain * 1000).round().cast(pl.Int64).cast(pl.Datetime("ms")).alias(text.name)
    return plain.zip_with(named, _epoch(local.set(named, None), zone, tally))


def _epoch(local: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    if zone is None or not local.count():
        return local.dt.epoch("ms") / 1000
    first = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    later = local.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
    tally.add(
        f"time in column {local.name} in the repeated hour of a clock change, read as the first",
        int((first != later).sum()),
    )
    tally.add(
        f"time in column {local.name} in the skipped hour of a clock change, treated as unknown",
        int((first.is_null() & local.is_not_null()).sum()),
    )
    return first.dt.epoch("ms") / 1000
