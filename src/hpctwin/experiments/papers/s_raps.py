"""S-RAPS's figures with results: what each lacks here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin.experiments.entries import Entry

__all__ = ["entries"]


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    ours = "hpctwin experiment s-raps"
    for number, shows, lacks, more in (
        (4, "17 h of Marconi100 under four schedules", "PM100 is not here", f"{ours} FILE"),
        (
            5,
            "15 days of Adastra under four schedules",
            "Adastra's jobs are not here",
            f"{ours} FILE",
        ),
        (
            6,
            "a day of Frontier with cooling",
            "Frontier's telemetry is not public",
            f"{ours} FOLDER",
        ),
        (
            7,
            "a trace scheduled by FastSim",
            "the paper's trace is not public",
            f"{ours}-schedulers",
        ),
        (
            8,
            "incentives by accounts",
            "Frontier's telemetry is not public; with drawn use of nodes it can be made",
            f"{ours}-incentives",
        ),
        (
            10,
            "scheduling guided by learned prediction",
            "F-DATA, with measured power, is not here; waits on Theta's year can be made",
            f"{ours}-ml",
        ),
    ):
        yield entry(f"s-raps-figure-{number}", shows=shows, because=lacks, more=more)
