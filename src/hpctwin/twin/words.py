"""Texts for people: times, counts, job names and requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hpctwin.model import format_duration
from hpctwin.model.requests.chunks import Tasks
from hpctwin.model.text import count_text
from hpctwin.rms.records.records import JobSpec

__all__ = ["FEW", "asked_text", "clock_text", "jobs_named"]

FEW = 3
"""At most this many jobs are named; of the others only the number is given."""


def clock_text(time_s: float | None, *, unix_time: bool) -> str:
    """Return a time as text: a date, or the duration since the clock's zero.

    The page finds dates of this form in sentences and shows them in its time zone (`zoned` in
    web/static/clock.js).

    Args:
        time_s: The time, in seconds.
        unix_time: Whether it counts from 1970.
    """
    if time_s is None:
        return "never"
    if not unix_time:
        return format_duration(round(time_s))
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def jobs_named(ids: Sequence[str]) -> str:
    """Return the first `FEW` job ids as text, and the number of the others."""
    shown = ", ".join(ids[:FEW])
    more = f" and {len(ids) - FEW} more" if len(ids) > FEW else ""
    return f"job{'s' if len(ids) > 1 else ''} {shown}{more}"


def asked_text(spec: JobSpec) -> str:
    """Return a job's request, such as ``2 nodes`` or ``4 tasks of 2 cores and 8 GB``."""
    if not spec.tasks:
        return count_text(spec.nodes, "node")
    asks = ", ".join(map(_tasks_text, spec.kinds))
    if spec.nodes > 1:
        asks += f" on {spec.nodes} nodes" + (" or more" if spec.tasks > spec.nodes else "")
    if spec.spread_job:
        asks += ", on as many nodes as possible"
    with_whom = ("", ", next to jobs of its user only", ", next to jobs of its account only")
    return asks + (", on exclusive nodes" if spec.exclusive else with_whom[spec.shared_with])


def _tasks_text(kind: Tasks) -> str:
    each = [
        f"{amount:.4g} {unit}{'' if amount == 1 or unit == 'GB' else 's'}"
        for amount, unit in ((kind.cores, "core"), (kind.gpus, "GPU"), (kind.memory_gb, "GB"))
        if amount
    ]
    each += [f"{amount:.4g} {name}" for name, amount in kind.consumables if amount]
    one = " and ".join([", ".join(each[:-1]), each[-1]] if len(each) > 1 else each)
    return f"{count_text(kind.tasks, 'task')} of {one}"
