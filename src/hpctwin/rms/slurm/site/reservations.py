"""A Slurm site's reservations as maintenance of a cluster, and unsupported parts."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import FormatError
from hpctwin.formats.fields import moments, zone_of
from hpctwin.formats.job_table import JobTable
from hpctwin.formats.record import Tally
from hpctwin.model import Cluster
from hpctwin.model.text import count_text, expand, number_ranges
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting, Site
from hpctwin.rms.slurm.listing.conf import Row
from hpctwin.rms.slurm.listing.reservations import (
    MOST_TIMES,
    Shown,
    lacking,
    members,
    said,
    shown,
    times,
)
from hpctwin.rms.slurm.site.accounts import span_of

_FLAGS = {
    "MAINT": (IMPORTED, "maintenance"),
    "DAILY": (IMPORTED, "repeats daily"),
    "WEEKLY": (IMPORTED, "repeats weekly"),
    "WEEKDAY": (IMPORTED, "repeats from Monday to Friday"),
    "WEEKEND": (IMPORTED, "repeats on Saturday and Sunday"),
    "HOURLY": (IMPORTED, "repeats hourly"),
    "PURGE_COMP": (IMPORTED, "ends after this time without a job"),
    **dict.fromkeys(
        ("SPEC_NODES", "ALL_NODES", "PART_NODES", "STATIC", "STATIC_ALLOC"),
        (IMPORTED, "it has the listed nodes"),
    ),
    "OVERLAP": (IMPORTED, "a node is unavailable during each of its reservations"),
    **dict.fromkeys(
        ("ANY_NODES", "LICENSE_ONLY"), (NO_EFFECT, "affects only where its own jobs may also run")
    ),
    "FIRST_CORES": (NO_EFFECT, "it has all cores of its nodes"),
    "FLEX": (NO_EFFECT, "only its own jobs may start before it, end after it and run elsewhere"),
    "MAGNETIC": (NO_EFFECT, "affects only its own jobs"),
    "NO_HOLD_JOBS_AFTER_END": (NO_EFFECT, "affects only its own jobs"),
    "NO_HOLD_JOBS": (NO_EFFECT, "affects only its own jobs"),
    "USER_DELETE": (NO_EFFECT, "affects only which users may delete it"),
    "IGNORE_JOBS": (
        NOT_MODELED,
        "Slurm allows it on nodes with running jobs; the simulation knows it from the beginning, and does "
        "not start jobs that could overlap it",
    ),
    "REPLACE": (NOT_MODELED, "Slurm replaces allocated nodes; the simulation keeps the listed nodes"),
    "REPLACE_DOWN": (NOT_MODELED, "Slurm replaces down nodes; the simulation keeps the listed nodes"),
}  # fmt: skip
_FLOATS = (
    "TIME_FLOAT: its start moves with the current time, so it never starts; in the simulation, jobs that "
    "would overlap it may use its nodes"
)
_YEAR_9999 = 2.5e11


@dataclass(frozen=True)
class _Past:
    """The past jobs with which reservations are compared.

    Args:
        first_s, last_s: First submission and last end, in seconds since the epoch.
        number: Number of each node, by name.
        cores: Cores of each node that jobs can have, by number; None if unknown.
        jobs: Jobs whose users, accounts, times and nodes are used.
        below: Each account with the accounts below it.
    """

    first_s: float
    last_s: float
    number: Mapping[str, int]
    cores: Sequence[float | None]
    jobs: JobTable
    below: Mapping[str, frozenset[str]]


def take_reservations(
    site: Site, jobs: JobTable, rows: Sequence[Row], timezone: str | None
) -> None:
    """Add a site's reservations to its cluster as maintenance, with their treatment.

    A reservation with the flag MAINT, or that none of the jobs used, takes its nodes away. Nodes
    reserved for some users are not modeled.

    Args:
        site: Site that gets the maintenance, and the treatment of each reservation.
        jobs: Jobs in hpctwin's own columns, times in seconds since the epoch: maintenance is within
            their span.
        rows: Rows of `hpctwin.rms.slurm.listing.reservations.reservation_rows`.
        timezone: Time zone of the printed times; by default UTC.
    """
    zone = zone_of(timezone)
    past = _past(site, jobs) if rows and site.sized else None
    made: list[dict[str, Any]] = []
    outside = 0
    for row in {tuple(row.values.items()): row for row in rows}.values():
        windows, told = _taken(row, past, zone)
        outside += told[0].became == NO_EFFECT
        site.settings += told
        made += [window for window in windows if window not in made]  # printed at another time, too
    if outside:
        site.notes.append(
            f"{outside} reservation{'s are' if outside > 1 else ' is'} omitted: outside the jobs' time span"
        )
    if made:
        fields = site.cluster.model_dump(exclude_defaults=True)
        site.cluster = Cluster.checked({**fields, "reservations": made}, site.manager)


def _past(site: Site, jobs: JobTable) -> _Past | None:
    """Return the past jobs; None without any, as the simulated span is unknown then."""
    first_s, last_s = span_of(jobs)
    if first_s is None or last_s is None:
        return None
    names = [name for nodes in site.members.values() for name in nodes]
    cores = [group.cores for group in site.cluster.nodes for _ in range(group.count)]
    parents = {one.name: one.parent for one in site.cluster.accounts}
    below: dict[str, set[str]] = {}
    for name in parents:
        above, seen = name, set[str]()
        while above and above not in seen:
            seen.add(above)
            below.setdefault(above, set()).add(name)
            above = parents.get(above, "")
    return _Past(
        first_s,
        last_s,
        {name: number for number, name in enumerate(names)},
        cores,
        jobs,
        {name: frozenset(some) for name, some in below.items()},
    )


def _taken(
    row: Row, past: _Past | None, zone: str | None
) -> tuple[list[dict[str, Any]], list[Setting]]:
    """Return a reservation's maintenance and treatment: the whole, then each flag."""
    name = row.get("reservationname")

    def became(what: str, why: str) -> Setting:
        ends = [row.get(key) for key in ("starttime", "endtime") if row.get(key)]
        value = " to ".join(_printed(text, zone) for text in ends)
        return Setting(f"reservation {name}", value, row.where, what, why)

    cut = lacking(row)
    if cut:
        kinds = ", ".join(row.names.get(key, key) for key in cut)
        return [], [became(NOT_MODELED, f"its description is truncated: {kinds} missing")]
    try:
        one = shown(row, lambda text: _moment(text, zone))
    except FormatError:
        return [], [became(NOT_MODELED, "its node list is invalid")]
    except ValueError as error:
        return [], [became(NOT_MODELED, str(error))]
    reason = _why_not(one, row, past)
    if reason or past is None:
        return [], [became(NOT_MODELED, reason)]
    try:
        found = times(one, past.first_s, past.last_s, zone)
    except ValueError as error:
        return [], [became(NOT_MODELED, str(error))]
    if not found:
        span = "it ended before the first submission" if one.end_s <= past.first_s else ""
        return [], [became(NO_EFFECT, span or "it starts after the end of the last job")]
    if len(found) > MOST_TIMES:
        why = f"it repeats more than {MOST_TIMES:,} times in the time span of the jobs"
        return [], [became(NOT_MODELED, why)]
    known = sorted({past.number[node] for node in one.nodes if node in past.number})
    own, others = _who_ran(row, past, found, set(known))
    if own and "MAINT" not in one.flags:
        return [], [
            became(
                NOT_MODELED,
                f"reservations for some users are not modeled; {count_text(own, 'job')} of its users ran "
                "on its nodes during it, so all jobs may use its nodes",
            )
        ]
    if one.idle_s is not None and not own:
        found = [(start, min(end, start + one.idle_s)) for start, end in found]
    laid = [
        {
            "name": name,
            "start": max(start - past.first_s, 0.0),
            "end": end - past.first_s,
            "nodes": number_ranges(known),
        }
        for start, end in found
        if end > past.first_s
    ]
    return laid, [became(IMPORTED, _what(one, known, found, own, others, past)), *_flags(one, row)]


def _why_not(one: Shown, row: Row, past: _Past | None) -> str:
    """Return why a reservation cannot be maintenance; empty if it can."""
    if "TIME_FLOAT" in one.flags:
        return _FLOATS
    if not one.nodes:
        has = said(row, "licenses") or said(row, "burstbuffer") or "no listed resource"
        return f"it has no nodes, but {has}: reserved resources of the cluster are not modeled"
    if past is None:
        return "the simulated time or the nodes are unknown"
    known = [past.number[node] for node in one.nodes if node in past.number]
    if not known:
        return "its nodes are not described"
    cores = [past.cores[number] for number in known]
    held = _cores(row)
    if held is not None and None not in cores and held < sum(c or 0 for c in cores):
        return (
            f"it has {held:,.0f} of its nodes' {sum(c or 0 for c in cores):,.0f} cores, but maintenance "
            "needs whole nodes"
        )
    return ""


def _cores(row: Row) -> float | None:
    """Return its CPUs, from its TRES.

    The count of cores, which may have several threads each, says less.
    """
    for part in said(row, "tres").split(","):
        name, _, count = part.partition("=")
        if name == "cpu" and count.isdecimal():
            return float(count)
    return None


def _what(
    one: Shown,
    known: Sequence[int],
    found: Sequence[tuple[float, float]],
    own: int,
    others: int,
    past: _Past,
) -> str:
    """Return the counterpart of a reservation, with its differences from the site."""
    text = [
        f"maintenance of {count_text(len(known), 'node')}"
        + (f", {len(found):,} times" if one.repeats else "")
    ]
    missing = len(one.nodes) - len(known)
    if missing:
        text.append(f"not described: {count_text(missing, 'more node')}")
    if one.repeats:
        text.append("assumed to exist during the whole time span of the jobs")
    longer = _longer(found, past)
    if longer:
        text.append(
            f"{count_text(longer, 'job')} whose walltime exceeds its interval cannot start on its nodes "
            "before its last repetition ends, while Slurm considers only the next"
        )
    if one.idle_s is not None and not own:
        text.append(f"it ends after {one.idle_s:g} s, as no job used it")
    if own:
        text.append(
            f"{count_text(own, 'job')} of its users ran on its nodes during it, "
            "but get other nodes in the simulation"
        )
    if others:
        text.append(
            f"{count_text(others, 'job')} of other users started on its nodes during it, "
            "so it may not have existed then"
        )
    if one.start_s < past.first_s and not one.repeats:
        text.append("it started before the first submission")
    return "; ".join(text)


def _longer(found: Sequence[tuple[float, float]], past: _Past) -> int:
    """Return how many jobs may run longer than every gap of a repeated reservation."""
    if len(found) < 2:
        return 0
    gap_s = max(start - end for (_, end), (start, _) in pairwise(found))
    longer = past.jobs.scan().select((pl.col("walltime_s") > gap_s).sum())
    return int(longer.collect(engine="streaming").item())


def _flags(one: Shown, row: Row) -> list[Setting]:
    """Return the treatment of an imported reservation's flags and other resources."""

    def told(kind: str, value: str, became: str, why: str) -> Setting:
        return Setting(f"reservation {one.name}: {kind}", value, row.where, became, why)

    unknown = (NOT_MODELED, "not known here")
    made = [told("Flags", flag, *_FLAGS.get(flag, unknown)) for flag in one.flags]
    for key in ("licenses", "burstbuffer", "watts"):
        if said(row, key) not in ("", "0"):
            why = "reserved resources of the cluster are not modeled"
            made.append(told(row.names[key], said(row, key), NOT_MODELED, why))
    if said(row, "maxstartdelay"):
        why = "affects only its own jobs"
        made.append(told("MaxStartDelay", said(row, "maxstartdelay"), NO_EFFECT, why))
    return made


# --- jobs that ran there ---------------------------------------------------------------------------


def _who_ran(
    row: Row, past: _Past, found: Sequence[tuple[float, float]], numbers: set[int]
) -> tuple[int, int]:
    """Return how many allowed jobs ran there meanwhile, and how many others began.

    Allowed jobs belong to users with access to the reservation. If the user is not recorded, a job
    counts as allowed. If its time or nodes are not recorded, an allowed job counts as having run
    there. Other jobs count only if they are known to have started there.
    """
    columns = past.jobs.columns
    has = [name for name in ("recorded_start_s", "recorded_nodes") if name in columns]
    may = _may(row, past, columns)
    starts, ends = (np.array(times) for times in zip(*found, strict=True))
    start = pl.col("recorded_start_s") if "recorded_start_s" in columns else pl.lit(None)
    within = (start + pl.col("runtime_s") > starts[0]) & (start < ends[-1])
    some = (
        past.jobs.scan()
        .select(
            "runtime_s", *has, own=may, known=start.is_not_null(), within=within.fill_null(True)
        )
        .filter("within")
        .collect(engine="streaming")
    )
    if "recorded_start_s" not in columns:
        return int(some["own"].sum()), 0
    begin = some["recorded_start_s"].cast(pl.Float64).to_numpy()
    over = begin + some["runtime_s"].to_numpy()
    next_ = np.minimum(np.searchsorted(ends, begin, side="right"), len(ends) - 1)
    ran = (over > starts[next_]) & (begin < ends[next_])
    started = ran & (begin >= starts[next_])
    own, known = some["own"].to_numpy(), some["known"].to_numpy()
    there, told = _there(some, own & (ran | ~known) | started, past.number, numbers)
    return (
        int((own & (ran | ~known) & there).sum()),
        int((~own & known & started & there & told).sum()),
    )


def _may(row: Row, past: _Past, columns: Iterable[str]) -> pl.Expr:
    """Return whether a job's user and account, if named, may use the reservation."""
    if said(row, "groups"):  # no file says which users they have
        return pl.lit(True)
    both = pl.lit(True)
    for key, column in (("users", "user"), ("accounts", "account")):
        denied, names = members(said(row, key))
        if not names or column not in columns:
            continue
        if column == "account":
            names = names.union(*(past.below.get(name, frozenset()) for name in names))
        named = pl.col(column).cast(pl.String).is_in(sorted(names))
        both &= (~named if denied else named).fill_null(True)
    return both


def _there(
    some: pl.DataFrame,
    wanted: npt.NDArray[np.bool_],
    number: Mapping[str, int],
    numbers: set[int],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which jobs (maybe) had one of the nodes, and for which that is recorded.

    Only the wanted jobs are checked.
    """
    there = np.ones(len(some), bool)
    if "recorded_nodes" not in some.columns:
        return there, np.zeros(len(some), bool)
    texts = some["recorded_nodes"].cast(pl.String)
    asked = texts.filter(pl.Series(wanted)).drop_nulls().unique().to_list()
    hit = {text: _hits(text, number, numbers) for text in asked}
    where = texts.replace_strict(hit, default=None, return_dtype=pl.Boolean)
    return where.fill_null(True).to_numpy(), where.is_not_null().to_numpy()


def _hits(text: str, number: Mapping[str, int], numbers: set[int]) -> bool | None:
    try:
        return any(number.get(node) in numbers for node in expand(text))
    except FormatError:
        return None


# --- words -----------------------------------------------------------------------------------------


def _moment(text: str, zone: str | None) -> float:
    """Return seconds since the epoch for a time of Slurm, read as in accounting."""
    found = moments(pl.Series("time", [text]), zone, Tally())[0]
    if found is None or not 0 <= found < _YEAR_9999:
        raise ValueError(f"{text[:40]!r} is not a time; expected one such as 2026-10-01T08:00:00")
    return float(found)


def _printed(text: str, zone: str | None) -> str:
    """Return a time as scontrol prints it in the site's time zone.

    JSON has seconds since the epoch.
    """
    try:
        shown = dt.datetime.fromtimestamp(int(text), zoneinfo.ZoneInfo(zone or "UTC"))
    except (ValueError, OverflowError, OSError):
        return text
    return f"{shown:%Y-%m-%dT%H:%M:%S}"
