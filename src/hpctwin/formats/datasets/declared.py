"""What a published data set is: its files, their columns, and what becomes of them.

Samples of measurements with their times, made into samples at equal steps from each job's start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from hpctwin.formats.common.record import Tally
from hpctwin.model import NodeGroup
from hpctwin.model.workload.frame import USE_STEP

__all__ = [
    "MADE",
    "USES",
    "Column",
    "DataSet",
    "File",
    "Given",
    "Use",
    "at_steps",
    "listed",
    "share_used",
    "size",
]


def at_steps(
    rows: pl.LazyFrame,
    key: str,
    since_s: pl.Expr,
    step_s: float,
    values: Mapping[str, pl.Expr],
) -> pl.LazyFrame:
    """Lists of samples by job, and the column of their steps.

    A sample counts in the step in which it was taken, several in one as their mean. Where there is none
    the one before it holds, at the beginning the first.

    Args:
        rows: a row for each measurement.
        key: the column that tells the job.
        since_s: seconds since the job began; measurements before it are left out.
        step_s: of the lists, seconds.
        values: what is measured, by the name that it gets.
    """
    step = (since_s / step_s).floor().cast(pl.Int64)
    known = rows.select(key, step.alias("_step"), *(v.alias(name) for name, v in values.items()))
    known = known.filter(pl.col("_step") >= 0).drop_nulls()
    each = known.group_by(key, "_step").agg(pl.col(*values).mean()).sort(key, "_step")
    later = pl.col("_step").shift(-1).over(key)
    first = pl.when(pl.col("_step") == pl.col("_step").min().over(key)).then(0).otherwise("_step")
    times = (later.fill_null(pl.col("_step") + 1) - first).alias("_times")
    held = each.with_columns(times).with_columns(
        pl.col(name).repeat_by("_times") for name in values
    )
    lists = held.group_by(key, maintain_order=True).agg(pl.col(name).explode() for name in values)
    return lists.with_columns(pl.lit(float(step_s)).alias(name + USE_STEP) for name in values)


Kind = Literal["number", "text", "time", "list"]
Use = Literal["measured", "components", "none"]
USES: tuple[Use, ...] = ("measured", "components", "none")
"""What is read of how jobs used nodes: measured power where there is one; use of components; nothing."""


@dataclass(frozen=True)
class Column:
    """A column of a file as it is published.

    Args:
        name: its head.
        meaning: what it says, and in what unit.
        kind: how it is read: ``number``; ``time`` (a date, or seconds since the epoch), which becomes seconds
            since the epoch; ``list`` (of numbers); ``text``.
        needed: whether there are no jobs without it.
        median: what the median of those above 0 lies between, so that another unit is noticed.
        made: what a sample has in it, of the columns of `MADE`; nothing if left out.
        dtype: what Parquet has it as; by its kind if left out.
        read_for: for which `Use` it is read, where it is large; for all if left out.
    """

    name: str
    meaning: str = ""
    kind: Kind = "number"
    needed: bool = False
    median: tuple[float, float] | None = None
    made: pl.Expr | None = None
    dtype: pl.DataType | type[pl.DataType] | None = None
    read_for: tuple[Use, ...] = USES


MADE = {
    "number": "1, 2, …",
    "submit": "seconds since the epoch, as are start and end",
    "start": "",
    "end": "",
    "runtime": "seconds, as is walltime",
    "walltime": "",
    "nodes": "",
    "first_node": "number of the first of them, from 0; the others follow",
    "user": "1, 2, …",
    "failed": "whether",
    "cpu": "mean use, 0 to 1, as is gpu",
    "gpu": "",
    "node_w": "mean power of one of its nodes, W",
}
"""Columns of the made-up jobs that samples are written of."""


@dataclass(frozen=True)
class Given:
    """What there is of a data set.

    Args:
        main: of the first file, columns as they are read, null where they are not there.
        more: of other files that are there, by name.
        parts: the node groups of the data set's machine, by name.
        use: what is to be read of how much jobs used.
        tally: told of what is changed or left out.
    """

    main: pl.LazyFrame
    more: Mapping[str, pl.LazyFrame]
    parts: Mapping[str, NodeGroup]
    use: Use
    tally: Tally

    @property
    def node(self) -> NodeGroup:
        """What a node is, where there is one kind."""
        return next(iter(self.parts.values()))


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Args:
        name: as published.
        globs: how it may be called, in the data set's folder.
        columns: all that it has, in order.
        needed: whether there are no jobs without it.
        form: ``table`` is CSV with a head, or Parquet; ``headless`` CSV; ``swf`` separated by blanks,
            comments after ``;``; others are read by ``read``.
        rows: the rows of a sample, of the made-up jobs.
        read: reads files that are none of these.
        write: writes them, of the rows of a sample.
    """

    name: str
    globs: tuple[str, ...]
    columns: tuple[Column, ...]
    needed: bool = True
    form: Literal["table", "headless", "swf", "other"] = "table"
    rows: Callable[[pl.DataFrame], pl.DataFrame] = lambda made: made
    read: Callable[[Path], pl.DataFrame | pl.LazyFrame] | None = None
    write: Callable[[pl.DataFrame], bytes] | None = None


@dataclass(frozen=True)
class DataSet:
    """A published data set.

    Args:
        name: in short.
        title: what it is, of which machine, how much of it.
        source: where it is published.
        licence: of the data, as published.
        citation: of whom its authors ask to be named.
        files: the first has the jobs.
        records: the fields of `formats.common.record.RECORD`, and of use (``use_cpu``, ``node_w``, … as of
            `hpctwin.model.workload.frame`).
        system: the machine that comes with the package.
        zone: of dates that name none.
        rules: what is done with what is missing or odd, a sentence each.
        shared: whether jobs share nodes.
        told: whether columns (name, type) that fit are of it and not of another.
        content: a regular expression that the beginning of the first file fits, where columns do not tell.
        away: the file that tells which nodes were away, and what it says, in the columns of
            `hpctwin.formats.clusters.outages.AWAY`.
    """

    name: str
    title: str
    source: str
    licence: str
    citation: str
    files: tuple[File, ...]
    records: Callable[[Given], pl.LazyFrame]
    system: str | None = None
    zone: str = "UTC"
    rules: tuple[str, ...] = ()
    shared: bool = False
    told: Callable[[Mapping[str, pl.DataType]], bool] = lambda columns: True
    content: str | None = None
    away: tuple[str, Callable[[pl.LazyFrame], pl.LazyFrame]] | None = None

    @property
    def main(self) -> File:
        """The file that has the jobs."""
        return self.files[0]


def size(name: str = "nodes") -> pl.Expr:
    """A number of nodes that can be divided by."""
    return pl.when(pl.col(name) > 0).then(pl.col(name))


def share_used(group: NodeGroup, part: str, watts: pl.Expr) -> pl.Expr:
    """How much of a component was used when all of a node's drew so much, 0 to 1."""
    one = group.components[part]
    idle, full = one.count * one.idle_w, one.count * one.full_w
    return ((watts - idle) / (full - idle)).clip(0.0, 1.0)


def listed(numbers: pl.Expr) -> pl.Expr:
    """The text that lists of node numbers are, ``3,4,5``."""
    return numbers.cast(pl.List(pl.Int64)).cast(pl.List(pl.String)).list.join(",")
