"""The common form of accounting records, and counts of what is changed or lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from hpctwin.model import ReadNotes, Workload
from hpctwin.model.text import count_text

SWF_ONLY = (
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested memory",
    "status",
    "executable",
    "queue",
    "partition",
)
"""Fields of SWF that a workload keeps but does not use."""


def lost_by(format_name: str, workload: Workload, carried: Set[str]) -> tuple[str, ...]:
    """Return one sentence for each column that is in use and cannot be written."""
    in_use = {
        "user": bool(workload.user.labels),
        "account": bool(workload.account.labels),
        "partition": bool(workload.partition.labels),
        "qos": bool(workload.qos.labels),
        "features": bool(workload.features.labels),
        "priority": bool(workload.priority.any()),
        "per_node": any(values.any() for values in workload.per_node.values()),
        "tasks": workload.shares_nodes,
        "more_tasks": bool(workload.more_tasks.labels),
        "group_by": bool(workload.group_by.labels),
        "consumables": any(values.any() for values in workload.consumables.values()),
        "resources": any(values.any() for values in workload.resources.values()),
        "dependencies": len(workload.dependencies) > 0,
        "recorded_start": bool((workload.recorded_start_ms >= 0).any()),
        "recorded_nodes": workload.recorded_nodes is not None,
        "cancel": bool((workload.cancel_ms >= 0).any()),
        "fails": workload.fails is not None,
        "checkpoint": workload.checkpoint_ms is not None,
        "malleable": workload.malleable is not None,
        "header": bool(workload.header),
        "start_epoch_s": workload.start_epoch_s is not None,
        "nodes_hint": workload.nodes_hint is not None,
        "used_memory_gb": workload.used_memory_gb is not None,
        "usage": bool(workload.usage),
        "predicted": bool(workload.predicted),
        "communication": bool(workload.demands),
    }
    return (
        *(
            f"{format_name} cannot store {column.replace('_', ' ')}"
            for column, used in in_use.items()
            if used and column not in carried
        ),
        *(() if "profiles" in carried else profiles_lost(format_name, workload)),
        *swf_fields_lost(format_name, workload),
    )


def profiles_lost(format_name: str, workload: Workload) -> tuple[str, ...]:
    """Return a sentence on jobs whose length depends on their nodes, if there are any."""
    count = sum(one is not None and one.length_s is None for one in workload.profiles or ())
    if not count:
        return ()
    return (
        f"{format_name} cannot store profiles, so the length of {count_text(count, 'job')} is an upper "
        "bound",
    )


def swf_fields_lost(format_name: str, workload: Workload) -> tuple[str, ...]:
    """Return a sentence on known fields of a log that only SWF can hold, if any."""
    fields = [
        name
        for name in SWF_ONLY
        if name in workload.carried and (workload.carried[name] >= 0).any()
    ]
    if format_name == "SWF" or not fields:
        return ()
    return (f"{format_name} cannot store SWF's {', '.join(fields)}",)


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
    "licenses": pl.String(),
    "row": pl.Int64(),
}
"""Fields of a record; null if unknown.

- Times are in seconds since the epoch, durations in seconds.
- Amounts are of the whole job, except ``used_memory_gb``: the maximum on one of its nodes.
- ``job_id`` may occur more than once.
- ``state`` is one of `STATES`.
- ``kinds`` are the kinds of its tasks, if there are several, as `read_more_tasks` reads them.
  ``tasks_per_node`` is the largest number of them on a node.
- ``group_by`` is the resource or feature whose value is the same on all its nodes.
- ``consumables`` are what the whole job had, such as ``fpga=2,tmp=400``.
- ``licenses`` are the cluster's licenses that it held, such as ``matlab=2``.
- ``row`` serves to find a job's record again.
"""

STATES = ("completed", "failed", "requeued", "node failure", "cancelled", "running", "waiting")
"""States of a job's run, the same for all managers."""

_EXAMPLES = 1000


@dataclass
class Tally:
    """Counts of what is read, changed and skipped: nothing is dropped silently.

    Args:
        counts: Number of cases, by a sentence that says what was done.
        skipped: A message for each malformed record, up to a thousand.
        remarks: Sentences to report once.
        named: For a sentence with an example, the sentence with it, as in ``counts``.
    """

    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, count: int = 1, example: str = "") -> None:
        """Count what happened, unless the count is zero.

        The first example is shown with it.
        """
        if count:
            if example:
                what = self.named.setdefault(what, f"{what} ({example})")
            self.counts[what] = self.counts.get(what, 0) + int(count)

    def skip(self, message: str) -> None:
        """Keep the message about a malformed record."""
        if len(self.skipped) < _EXAMPLES:
            self.skipped.append(message)

    def drop(self, frame: pl.DataFrame, which: pl.Expr, why: str) -> pl.DataFrame:
        """Return the frame without some rows, and count these."""
        kept = frame.filter(~which.fill_null(False))
        self.add(why, len(frame) - len(kept))
        return kept

    def notes(self) -> ReadNotes:
        """Return the notes for a workload."""
        return ReadNotes(dict(self.counts), tuple(self.skipped), tuple(self.remarks))


def empty_records() -> pl.DataFrame:
    """Return no records, with all fields."""
    return pl.DataFrame(schema=RECORD)


Running = Literal["elapsed", "limit", "drop"]
"""Treatment of a job that still ran when it was recorded.

The job ends at that time (``elapsed``), at its limit (``limit``), or is skipped (``drop``).
"""


@dataclass(frozen=True)
class Machine:
    """Settings of a site or user that accounting does not contain.

    Args:
        limits: Limit on walltimes by partition, in seconds.
        shared: Whether jobs share nodes. Then a job requests a task on each of its nodes, with its
            share of cores, GPUs and memory; or what its tasks of several kinds request.
        memory: Whether memory is allocated to jobs too.
        consumables: Names of the nodes' consumables.
        licenses: Names of the cluster's licenses.
        features: Feature sets of the nodes; None to accept all requested features.
        running: How to read jobs that still ran when they were recorded.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    shared: bool = False
    memory: bool = True
    consumables: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    features: Collection[tuple[str, ...]] | None = None
    running: Running = "elapsed"


def count_of(frame: pl.DataFrame, which: pl.Expr) -> int:
    """Return the number of rows for which it is true."""
    return int(frame.select(which.fill_null(False).sum()).item()) if len(frame) else 0
