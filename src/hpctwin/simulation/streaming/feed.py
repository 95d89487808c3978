"""Jobs in batches: from a file, a workload, or an iterable of tables."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.model import MS_PER_S, Category, Cluster, Workload
from hpctwin.model.columns import joined_labels
from hpctwin.model.text import ReadNotes
from hpctwin.model.workload.joining import LABELS, Batch, named_pairs
from hpctwin.simulation.lowering.gpus import asks_parts
from hpctwin.simulation.lowering.profiles import network_profiles

__all__ = ["Feed", "Source", "feed_of"]

Source = str | os.PathLike[str] | Workload | Iterable[Any]
"""Source of batches: a trace, a workload, or an iterable of tables and workloads."""


@dataclass
class Feed:
    """Batches, joined until enough jobs are present.

    Args:
        batches: The batches.
        name: Name of the stream.
        wanted: Number of jobs that are passed on at once.
        size: Number of all jobs; None if not known.
        labels: All labels by column, and whether some jobs have none; None if not known.
        pairs: Function that returns all (account, user) pairs; known if the labels are.
        shares: Whether any job requests tasks, so that nodes are shared; None if not known.
        gpu_parts: Whether any task requests a part of a GPU; None if not known.
        contends: Whether any job uses the network; None if not known.
        notes: Changes and omissions of the reader so far.
    """

    batches: Iterator[Batch]
    name: str
    wanted: int
    size: int | None = None
    labels: Mapping[str, tuple[tuple[str, ...], bool]] | None = None
    pairs: Callable[[], list[tuple[str, str]]] = list
    shares: bool | None = None
    gpu_parts: bool | None = None
    contends: bool | None = None
    notes: ReadNotes = field(default_factory=ReadNotes)
    given: int = field(default=0, init=False)
    _last_ms: int = field(default=0, init=False)

    def next(self) -> Batch | None:
        """Return the next jobs, as many as wanted or a few more; None after the last.

        Raises:
            WorkloadError: A batch is not valid, or its jobs precede those of earlier batches.
        """
        found: list[Batch] = []
        first = self.given
        while self.given - first < self.wanted:
            batch = next(self.batches, None)
            if batch is None:
                break
            if len(batch):
                self._check_order(batch.workload)
                self.notes = self.notes.joined(batch.workload.notes)
                found.append(batch)
        if not found:
            return None
        whole = Batch.joined(found)
        return whole if first or self.labels is None else self._labelled(whole, self.labels)

    def _check_order(self, workload: Workload) -> None:
        first, last = int(workload.submit_ms[0]), int(workload.submit_ms[-1])
        if first < self._last_ms:
            raise WorkloadError(
                f"{self.name}: job {workload.job_id[0]}, one of rows {self.given + 1:,} to "
                f"{self.given + len(workload):,}, is submitted at {first / MS_PER_S:,g} s, "
                f"before a job of an earlier row ({self._last_ms / MS_PER_S:,g} s); sort "
                "the jobs by submit time"
            )
        self._last_ms = last
        self.given += len(workload)

    @staticmethod
    def _labelled(batch: Batch, labels: Mapping[str, tuple[tuple[str, ...], bool]]) -> Batch:
        """Return the first jobs with the codes that labels have in the whole stream."""
        nobody = np.zeros(0, np.int32)
        columns = {
            name: joined_labels(Category(nobody, known), getattr(batch.workload, name))
            for name, (known, _) in labels.items()
        }
        workload = batch.workload.replace(**columns)
        return dataclasses.replace(batch, workload=workload)


def feed_of(source: Source, cluster: Cluster, *, wanted: int) -> Feed:
    """Return a feed of a user's source.

    Args:
        source: A path, a workload, or an iterable of workloads and of tables with hpctwin's columns
            (`hpctwin.model.workload.frame`), of Polars or with Arrow's C interface.
        cluster: The cluster on which jobs run.
        wanted: Number of jobs at a time.

    Raises:
        WorkloadError: It is none of these.
        TraceError: The file cannot be read in pieces.
    """
    if isinstance(source, Workload):
        columns = {name: getattr(source, name) for name in LABELS}
        labels = {name: (c.labels, bool((c.codes < 0).any())) for name, c in columns.items()}
        pieces = Batch.pieces(source.replace(notes=ReadNotes()), wanted)
        return Feed(
            pieces,
            source.name,
            wanted,
            len(source),
            labels=labels,
            pairs=lambda: named_pairs(source.account, source.user)[0],
            shares=source.shares_nodes,
            gpu_parts=asks_parts(source),
            contends=any(network_profiles(source, cluster)),
            notes=source.notes,
        )
    if isinstance(source, str | os.PathLike):
        from hpctwin.formats.pieces import open_pieces

        opened = open_pieces(Path(source), wanted)
        return Feed(
            opened.batches,
            opened.name,
            wanted,
            opened.size,
            labels=opened.labels,
            pairs=opened.pairs,
            shares=opened.shares,
            gpu_parts=opened.gpu_parts,
        )
    if isinstance(source, pl.DataFrame) or not isinstance(source, Iterable):
        raise WorkloadError(
            f"a {type(source).__name__} is not a stream of jobs; give a path, a Workload, "
            "or an iterable of workloads and tables"
        )
    return Feed(_checked(source), "stream", wanted)


def _checked(source: Iterable[Any]) -> Iterator[Batch]:
    """Yield workloads and tables as batches."""
    first = 0
    for number, one in enumerate(source, start=1):
        try:
            if isinstance(one, Workload):
                batch = Batch.of_workload(one)
            else:
                batch = Batch.of_frame(_frame(one), first)
        except WorkloadError as error:
            raise WorkloadError(f"batch {number}, after {first:,} rows: {error}") from error
        first += len(batch)
        yield batch


def _frame(table: Any) -> pl.DataFrame:
    if isinstance(table, pl.DataFrame):
        return table
    if not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__")):
        raise WorkloadError(
            f"a {type(table).__name__} is not a batch of jobs; give a Workload, or a table "
            "of Polars or Arrow"
        )
    return pl.DataFrame(table)
