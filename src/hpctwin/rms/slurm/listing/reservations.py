"""Reservations in ``scontrol show reservation``: times, nodes, users.

Source:
    Manual page scontrol(1), section "Reservations - specification for create, update, and delete
    commands", 22.05; their repetition follows the output of a Slurm 22.05.8.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hpctwin.model.text import expand
from hpctwin.rms.slurm.listing.conf import Row, blocks
from hpctwin.rms.slurm.listing.values import limit_s

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
"""Length of a reservation without an end, as in Slurm."""
MOST_TIMES = 1000
"""Maximum number of repetitions within the span of the jobs for an import.

A plan has two more rows for each time.
"""

_DAYS_OF = {
    "DAILY": range(7), "WEEKDAY": range(5), "WEEKEND": range(5, 7), "WEEKLY": None, "HOURLY": None,
}  # fmt: skip
"""Flags of repeated reservations, with their days; None for the first one's day."""

_NEEDED = ("starttime", "endtime", "nodes", "flags", "users", "accounts", "licenses")
_NOBODY = ("", "(null)", "n/a", "none")


@dataclass(frozen=True)
class Shown:
    """A reservation.

    Args:
        name: Name of the reservation.
        start_s, end_s: Start and end of the printed time, in seconds since the epoch; without an
            end, a year from its start.
        nodes: Names of its nodes; none if it has only licenses.
        flags: Flags in upper case, without the part after ``=``.
        repeats: Flag by which it repeats, such as ``DAILY``; empty if it does not.
        idle_s: Time without use after which it ends, in seconds; None if it stays.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    flags: tuple[str, ...]
    repeats: str = ""
    idle_s: float | None = None


def reservation_rows(text: str, where: str) -> list[Row]:
    """Return a row for each reservation, printed in one line (``-o``) or in several."""
    return blocks(text, "ReservationName", where)


def shown(row: Row, at: Callable[[str], float]) -> Shown:
    """Return the reservation that a row shows.

    Args:
        row: Row of `reservation_rows`.
        at: Function that converts a printed time to seconds since the epoch.

    Raises:
        ValueError: A time or the list of nodes cannot be read, or it ends before it begins.
    """
    start_s = at(row.get("starttime"))
    endless = row.get("duration").upper() == "UNLIMITED"
    end_s = start_s + YEAR_S if endless else at(row.get("endtime"))
    if end_s <= start_s:
        raise ValueError("its end is not after its start")
    written = said(row, "nodes")
    flags = said(row, "flags").upper().split(",") if said(row, "flags") else []
    idle_s = None
    for flag in flags:
        name, _, after = flag.partition("=")
        if name == "PURGE_COMP":
            idle_s = limit_s(after) or 300.0
    names = tuple(flag.partition("=")[0] for flag in flags)
    return Shown(
        row.get("reservationname"),
        start_s,
        end_s,
        tuple(dict.fromkeys(expand(written))),
        names,
        next((flag for flag in names if flag in _DAYS_OF), ""),
        idle_s,
    )


def said(row: Row, key: str) -> str:
    """Return the printed value of a key; empty if there is none."""
    text = row.get(key)
    return "" if text.lower() in _NOBODY else text


def lacking(row: Row) -> list[str]:
    """Return keys that every printed reservation has and this one lacks.

    If there are any, its text is cut.
    """
    return [key for key in _NEEDED if key not in row.values]


def times(
    one: Shown, first_s: float, last_s: float, zone: str | None
) -> Sequence[tuple[float, float]]:
    """Return the times of a reservation within a span: once, or each repetition.

    Repetitions before and after the printed time count. Days are those of the local calendar: a
    reservation from 8 to 9 each day stays so when the clock changes.

    Args:
        first_s: Start of the span, in seconds since the epoch.
        zone: Time zone of the site; by default UTC.

    Returns:
        Start and end of each, in seconds since the epoch, in order; at most `MOST_TIMES` and one
        more.

    Raises:
        ValueError: The span goes beyond the calendar.
    """
    once = iter([(one.start_s, one.end_s)])
    try:
        found = _repeated(one, first_s, last_s, zone) if one.repeats else once
        within = ((start, end) for start, end in found if start < last_s and end > first_s)
        return list(islice(within, MOST_TIMES + 1))
    except (OverflowError, OSError) as error:
        raise ValueError("its times are beyond the calendar") from error


def _repeated(
    one: Shown, first_s: float, last_s: float, zone: str | None
) -> Iterator[tuple[float, float]]:
    length_s = one.end_s - one.start_s
    if one.repeats in ("HOURLY", "WEEKLY"):
        days = 7 if one.repeats == "WEEKLY" else 1 / 24
    else:
        days = 1
    step_s = days * DAY_S
    begin = math.floor((first_s - length_s - one.start_s) / step_s) - 1
    end = math.ceil((last_s - one.start_s) / step_s) + 1
    of = _DAYS_OF[one.repeats]
    where = zoneinfo.ZoneInfo(zone or "UTC")
    local = dt.datetime.fromtimestamp(one.start_s, where).replace(tzinfo=None)
    for number in range(begin, end + 1):
        if one.repeats == "HOURLY":
            start_s = one.start_s + number * step_s
        else:
            day = local + dt.timedelta(days=number * days)
            if of is not None and day.weekday() not in of:
                continue
            start_s = day.replace(tzinfo=where).timestamp()
        yield start_s, start_s + length_s


def members(text: str) -> tuple[bool, frozenset[str]]:
    """Return the names listed, and whether all others are meant: ``-ann,-ben``."""
    names = [part for part in re.split(r"[,\s]+", text) if part]
    denied = bool(names) and all(name.startswith("-") for name in names)
    return denied, frozenset(name.lstrip("-+") for name in names)
