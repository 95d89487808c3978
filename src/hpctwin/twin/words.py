"""Times, counts and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hpctwin.model import format_duration

__all__ = ["FEW", "clock_text", "count", "jobs_named"]

FEW = 3
"""So many are named."""
EPOCH_S = 1e8
"""Cluster times above this are taken for dates, below for seconds of an emulated clock."""


def clock_text(time_s: float | None) -> str:
    """A time of the cluster's clock for people: a date, or a duration since its beginning."""
    if time_s is None:
        return "never"
    if time_s < EPOCH_S:
        return format_duration(round(time_s))
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def jobs_named(ids: Sequence[str]) -> str:
    """The first of some jobs by name, and how many more there are."""
    shown = ", ".join(ids[:FEW])
    more = f" and {len(ids) - FEW} more" if len(ids) > FEW else ""
    return f"job{'s' if len(ids) > 1 else ''} {shown}{more}"


def count(number: int, noun: str) -> str:
    """A number of things, such as ``1 node`` and ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
