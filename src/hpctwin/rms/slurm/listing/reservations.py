"""Reservations as ``scontrol show reservation`` prints them: when, of which nodes, for whom.

Source:
    Manual page scontrol(1), section "Reservations - specification for create, update, and delete commands",
    22.05; how they repeat is seen in the output of a Slurm 22.05.8.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hpctwin.model.text.hostlist import expand
from hpctwin.rms.slurm.listing.conf import Row, blocks
from hpctwin.rms.slurm.listing.values import limit_s

__all__ = [
    "MOST_TIMES",
    "Shown",
    "lacking",
    "members",
    "reservation_rows",
    "said",
    "shown",
    "times",
]

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
"""So long is one without an end, as Slurm has it."""
MOST_TIMES = 1000
"""One that comes again more often than this within the span of the jobs is not taken over: a plan has two
rows more for each time."""

_DAYS_OF = {
    "DAILY": range(7), "WEEKDAY": range(5), "WEEKEND": range(5, 7), "WEEKLY": None, "HOURLY": None,
}  # fmt: skip
"""Flags of reservations that come again, and on which days of the week; None where the first one tells."""

_NEEDED = ("starttime", "endtime", "nodes", "flags", "users", "accounts", "licenses")
_NOBODY = ("", "(null)", "n/a", "none")


@dataclass(frozen=True)
class Shown:
    """A reservation.

    Args:
        name: its name.
        start_s, end_s: of the time that is printed, seconds since the epoch; a year from its start if it has
            no end.
        nodes: their names; none of one of licences alone.
        flags: in upper case, without what follows ``=``.
        repeats: the flag by which it comes again, such as ``DAILY``; empty if it does not.
        idle_s: it is over when nobody has used it for so long; None if it stays.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    flags: tuple[str, ...]
    repeats: str = ""
    idle_s: float | None = None


def reservation_rows(text: str, where: str) -> list[Row]:
    """A row for each reservation, printed in one line (``-o``) or in several.

    Args:
        text: the output.
        where: of the output.
    """
    return blocks(text, "ReservationName", where)


def shown(row: Row, at: Callable[[str], float]) -> Shown:
    """A row as a reservation.

    Args:
        row: of `reservation_rows`.
        at: seconds since the epoch of a time as it is printed.

    Raises:
        ValueError: a time or the list of nodes cannot be read, or it ends before it begins.
    """
    start_s = at(row.get("starttime"))
    endless = row.get("duration").upper() == "UNLIMITED"
    end_s = start_s + YEAR_S if endless else at(row.get("endtime"))
    if end_s <= start_s:
        raise ValueError("it does not end after its start")
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
    """What is printed of something; empty where nothing is."""
    text = row.get(key)
    return "" if text.lower() in _NOBODY else text


def lacking(row: Row) -> list[str]:
    """What every reservation has in print and this one has not: its text is cut."""
    return [key for key in _NEEDED if key not in row.values]


def times(
    one: Shown, first_s: float, last_s: float, zone: str | None
) -> Sequence[tuple[float, float]]:
    """When it is there within a span: once, or as often as it comes again, before and after what is printed.

    Days are those of the local calendar: one from 8 to 9 each day is so when the clock is changed.

    Args:
        one: the reservation.
        first_s: where the span begins, seconds since the epoch.
        last_s: where it ends.
        zone: where it is; UTC if left out.

    Returns:
        Start and end of each, seconds since the epoch, in order; of more than `MOST_TIMES` one more.

    Raises:
        ValueError: the span goes beyond the calendar.
    """
    once = iter([(one.start_s, one.end_s)])
    try:
        found = _repeated(one, first_s, last_s, zone) if one.repeats else once
        within = ((start, end) for start, end in found if start < last_s and end > first_s)
        return list(islice(within, MOST_TIMES + 1))
    except (OverflowError, OSError) as error:
        raise ValueError("its times go beyond the calendar") from error


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
    """Who is named, and whether these are all but them: ``-ann,-ben``."""
    names = [part for part in re.split(r"[,\s]+", text) if part]
    denied = bool(names) and all(name.startswith("-") for name in names)
    return denied, frozenset(name.lstrip("-+") for name in names)
