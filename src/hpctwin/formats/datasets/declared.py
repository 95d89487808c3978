"""Declaration of a published data set: files, columns, and how to read them.

`at_steps` turns timed measurements into samples at equal steps from each job's start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from hpctwin.formats.accounting.sacct_records import STATES
from hpctwin.formats.record import Tally
from hpctwin.model import NodeGroup
from hpctwin.model.workload.frame import USE_STEP


def at_steps(
    rows: pl.LazyFrame,
    key: str,
    since_s: pl.Expr,
    step_s: float,
    values: Mapping[str, pl.Expr],
) -> pl.LazyFrame:
    """Return lists of samples by job, and the columns of their steps.

    A sample counts in the step in which it was taken; several in one step count as their mean. A
    step without a sample has the value of the step before it; at the beginning, that of the first
    sample.

    Args:
        since_s: Seconds since the job began; earlier measurements are ignored.
        step_s: Step of the lists, in seconds.
        values: Measured values, by the name in the result.
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
"""Data to read on how jobs used nodes.

``measured`` is measured power if there is one, ``components`` is the use of components.
"""


@dataclass(frozen=True)
class Column:
    """A column of a published file.

    Args:
        name: Its header.
        meaning: Its meaning and unit.
        kind: How to read it: ``number``; ``time`` (a date, or seconds since the epoch), which
            becomes seconds since the epoch; ``list`` (of numbers); ``text``.
        needed: Whether jobs cannot be read without it.
        median: Range of the median of the values above 0; outside it, the unit must be another one.
        made: Content in a sample, from the columns of `MADE`; by default nothing.
        dtype: Type in Parquet; by default from its kind.
        read_for: For a large column, the `Use` for which it is read; by default all.
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
    "first_node": "number of the first node, from 0; the others follow",
    "user": "1, 2, …",
    "failed": "whether",
    "cpu": "mean use, 0 to 1, as is gpu",
    "gpu": "",
    "node_w": "mean power of one of its nodes, W",
}
"""Columns of the synthetic jobs from which samples are written."""
NODES_MADE = pl.int_ranges("first_node", pl.col("first_node") + pl.col("nodes"))
"""The node numbers of a synthetic job."""


@dataclass(frozen=True)
class Given:
    """The available data of a data set.

    Args:
        main: First file, columns as read; null where missing.
        more: Other available files, by name.
        parts: Node groups of the data set's cluster, by name.
        use: Data to read on how much jobs used.
        tally: Counts what is changed or skipped.
    """

    main: pl.LazyFrame
    more: Mapping[str, pl.LazyFrame]
    parts: Mapping[str, NodeGroup]
    use: Use
    tally: Tally

    @property
    def node(self) -> NodeGroup:
        """The first node group; the only one if all nodes are equal."""
        return next(iter(self.parts.values()))


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Args:
        name: Published name.
        globs: Possible names in the data set's folder.
        columns: All its columns, in order.
        needed: Whether jobs cannot be read without it.
        form: ``table`` is CSV with a header, or Parquet; ``headless`` is CSV without one; ``swf``
            is separated by blanks, with comments after ``;``; others are read by ``read``.
        rows: Rows of a sample, from the synthetic jobs.
        read: Reads files of another form.
        write: Writes files of another form, from the rows of a sample.
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
        name: Short name.
        title: Its content, cluster and size.
        source: Place of publication.
        license: License of the data, as published.
        citation: Reference that its authors request.
        files: Its files; the first has the jobs.
        records: Returns the fields of `formats.record.RECORD`, and of use (``use_cpu``,
            ``node_w``, … as in `hpctwin.model.workload.frame`).
        system: Cluster that comes with the package.
        zone: Time zone of dates that name none.
        rules: Treatment of missing or odd values, a sentence each.
        shared: Whether jobs share nodes.
        told: Whether matching columns (name, type) are of this data set and not of another.
        content: Regular expression that matches the beginning of the first file, if columns cannot
            identify it.
        away: File that records which nodes were away, and its content in the columns of
            `hpctwin.formats.outages.AWAY`.
    """

    name: str
    title: str
    source: str
    license: str
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
    """Return a number of nodes to divide by; null if it is not above 0."""
    return pl.when(pl.col(name) > 0).then(pl.col(name))


def slurm_state(words: pl.Expr) -> pl.Expr:
    """Return the state as in records from what Slurm says, such as ``CANCELLED by 0``."""
    word = words.str.extract(r"^(\w+)", 1)
    return word.replace_strict(STATES, default=None, return_dtype=pl.String)


def share_used(group: NodeGroup, part: str, watts: pl.Expr) -> pl.Expr:
    """Return the use of a component, 0 to 1, from the power of all of them in a node."""
    one = group.components[part]
    idle, full = one.count * one.idle_w, one.count * one.full_w
    return ((watts - idle) / (full - idle)).clip(0.0, 1.0)


def listed(numbers: pl.Expr) -> pl.Expr:
    """Return lists of node numbers as text, ``3,4,5``."""
    return numbers.cast(pl.List(pl.Int64)).cast(pl.List(pl.String)).list.join(",")
