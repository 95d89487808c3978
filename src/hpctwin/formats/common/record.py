"""The form that accounting, of whatever manager, is brought into; and what is counted on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from hpctwin.model import ReadNotes

__all__ = [
    "LABELS", "RECORD", "STATES", "Machine", "Running", "Tally", "count_of", "empty_records",
]  # fmt: skip

LABELS = ("user", "account", "partition", "qos")

RECORD: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "submit": pl.Float64(),
    "start": pl.Float64(),
    "end": pl.Float64(),
    "runtime": pl.Float64(),
    "suspended": pl.Float64(),
    "walltime": pl.Float64(),
    "nodes": pl.Float64(),
    "cores": pl.Float64(),
    "gpus": pl.Float64(),
    "memory_gb": pl.Float64(),
    "used_memory_gb": pl.Float64(),
    "priority": pl.Float64(),
    "state": pl.Categorical(),
    **{name: pl.Categorical() for name in (*LABELS, "features")},
    "recorded_nodes": pl.String(),
    "kinds": pl.String(),
    "tasks_per_node": pl.Float64(),
    "request": pl.String(),
    "group_by": pl.String(),
    "consumables": pl.String(),
    "licences": pl.String(),
    "row": pl.Int64(),
}
"""A record's fields: moments in seconds since the epoch, durations in seconds, amounts of the whole job, but
``used_memory_gb`` on one of its nodes at most; null where nothing is known. ``state`` is one of `STATES`.
``job_id`` may come more than once. ``kinds`` are those of its tasks, where it has several, as
`read_more_tasks` reads them, and ``tasks_per_node`` as many as may lie on a node. ``group_by`` names what all
of its nodes have one value of, ``consumables`` what the whole job had of them, such as ``fpga=2,tmp=400``,
and ``licences`` what it held of those of the cluster, such as ``matlab=2``.
``row`` is for who wants to find a job's record again."""

STATES = ("completed", "failed", "requeued", "node failure", "cancelled", "running", "waiting")
"""What became of a job's run, in one word for all managers."""

_EXAMPLES = 1000


@dataclass
class Tally:
    """Counts what is taken, changed and left out, so that nothing is dropped in silence.

    Args:
        counts: how often, by a sentence that says what was done.
        skipped: a message for each malformed record, up to a thousand.
        remarks: what is to be said once.
        named: for a sentence that has an example, the sentence with it, as it stands in ``counts``.
    """

    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, count: int = 1, example: str = "") -> None:
        """Count what happened, unless the count is zero; the first example is shown with it."""
        if count:
            if example:
                what = self.named.setdefault(what, f"{what} ({example})")
            self.counts[what] = self.counts.get(what, 0) + int(count)

    def skip(self, message: str) -> None:
        """Keep what is to be said of a malformed record."""
        if len(self.skipped) < _EXAMPLES:
            self.skipped.append(message)

    def drop(self, frame: pl.DataFrame, which: pl.Expr, why: str) -> pl.DataFrame:
        """The frame without some rows, which are counted."""
        kept = frame.filter(~which.fill_null(False))
        self.add(why, len(frame) - len(kept))
        return kept

    def notes(self) -> ReadNotes:
        """As a workload carries them."""
        return ReadNotes(dict(self.counts), tuple(self.skipped), tuple(self.remarks))


def empty_records() -> pl.DataFrame:
    """No records, with all fields."""
    return pl.DataFrame(schema=RECORD)


Running = Literal["elapsed", "limit", "drop"]
"""What becomes of a job that still ran when it was recorded: it ends then, at its limit, or is left out."""


@dataclass(frozen=True)
class Machine:
    """What accounting leaves open, and a site's settings or its user decide.

    Args:
        limits: of each partition on walltimes, s.
        shared: whether jobs share nodes: then a job asks, on each of the nodes that it was on, for a task
            of its share of cores, GPUs and memory; or for what its tasks of several kinds ask.
        memory: whether memory is shared out too.
        consumables: names of those that its nodes have.
        licences: names of those that the cluster has.
        features: those that nodes have together; None to take over whatever jobs ask for.
        running: what becomes of jobs that still ran when they were recorded.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    shared: bool = False
    memory: bool = True
    consumables: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    features: Collection[tuple[str, ...]] | None = None
    running: Running = "elapsed"


def count_of(frame: pl.DataFrame, which: pl.Expr) -> int:
    """Of how many rows it is true."""
    return int(frame.select(which.fill_null(False).sum()).item()) if len(frame) else 0
