"""Tables of jobs in order of submission, in files if they exceed memory.

`ranges` sorts records by a key, such as their submit time. It writes them to files as they come,
and reads them again one range of the key after the other. `Collected` takes the jobs of each range.
At the end it handles what needs all jobs: repeated ids, and the set of columns. So at most about a
million rows are in memory at once, and 8 bytes of each row.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

AT_ONCE = 500_000
"""Largest number of rows processed together, unless one step of the key has more."""

_ROWS_OF_GROUP = 50_000
_LAST_STEP = 2**40
_WITHOUT = {
    "fails": 0, "cores_per_task": 1.0, "gpus_per_task": 0.0, "memory_gb_per_task": 0.0,
    "cores_per_node": 0.0, "gpus_per_node": 0.0, "memory_gb_per_node": 0.0,
}  # fmt: skip
"""Value of a column that some jobs have, for the other jobs; by default null."""


class Folder:
    """A temporary folder; it lasts as long as this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hpctwin-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class JobTable:
    """Jobs in hpctwin's columns, in memory or in files.

    The files last as long as this object.

    Args:
        frames: Frames of unread files, or of rows in memory.
        size: Number of jobs.
        folder: Folder of the files.
    """

    frames: tuple[pl.LazyFrame, ...]
    size: int
    folder: Folder | None = None

    def __len__(self) -> int:
        return self.size

    def scan(self) -> pl.LazyFrame:
        """Return all jobs, not read yet."""
        return pl.concat(self.frames)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.frames[0].collect_schema().names()

    def with_columns(self, *columns: pl.Expr) -> JobTable:
        """Return the table with these columns added or replaced."""
        frames = tuple(frame.with_columns(*columns) for frame in self.frames)
        return replace(self, frames=frames)

    def last(self, jobs: int) -> pl.DataFrame:
        """Return the last N jobs, in memory."""
        frames: list[pl.DataFrame] = []
        for frame in reversed(self.frames):
            frames.insert(0, frame.collect())
            if sum(map(len, frames)) >= jobs:
                break
        return pl.concat(frames).tail(jobs)

    def frame(self) -> pl.DataFrame:
        """Return all jobs, in memory."""
        return self.scan().collect()


@dataclass(frozen=True)
class Key:
    """Key by which rows are divided into ranges.

    Args:
        column: Name of a column of numbers.
        step: Rows are counted by steps of this size, and rows of one step stay together.
    """

    column: str
    step: int


SUBMISSION = Key("submit", 3600)


def ranges(
    records: Iterable[pl.DataFrame], at_once: int = AT_ONCE, key: Key = SUBMISSION
) -> Iterator[pl.DataFrame]:
    """Yield records range by range of a key.

    Rows with the same key are in one range, in their original order.

    Args:
        records: Frames of one schema, with the key's column.
        at_once: Largest number of rows of a range, unless one step has more. If there are not more
            rows in total, all come at once, not sorted by the key.
    """
    held: list[pl.DataFrame] = []
    rows = 0
    sorted_out: _SortedOut | None = None
    for frame in records:
        held.append(frame)
        rows += len(frame)
        if rows > at_once:
            sorted_out = sorted_out or _SortedOut(key)
            sorted_out.add(pl.concat(held))
            held, rows = [], 0
    if sorted_out is None:
        if held:
            yield pl.concat(held)
        return
    if held:
        sorted_out.add(pl.concat(held))
    del held
    yield from sorted_out.ranges(at_once)


class _SortedOut:
    """Files of records, each sorted by a key, and the number of records in each step."""

    def __init__(self, key: Key) -> None:
        self.folder = Folder()
        self.key = key
        self.parts: list[tuple[Path, float, float]] = []
        self.steps: dict[int, int] = {}

    def add(self, frame: pl.DataFrame) -> None:
        by = self.key.column
        frame = frame.sort(by, maintain_order=True)
        path = self.folder.path / f"{len(self.parts)}.parquet"
        frame.write_parquet(path, compression="lz4", row_group_size=_ROWS_OF_GROUP)
        self.parts.append((path, frame[by][0], frame[by][-1]))
        step = (pl.col(by) / self.key.step).floor().clip(-1, _LAST_STEP)
        counts = frame.select(step.cast(pl.Int64, strict=False).fill_null(_LAST_STEP).alias("step"))
        for at, count in counts["step"].value_counts().iter_rows():
            self.steps[at] = self.steps.get(at, 0) + count

    def ranges(self, at_once: int) -> Iterator[pl.DataFrame]:
        begin, count = -np.inf, 0
        for step in sorted(self.steps):
            if count and count + self.steps[step] > at_once:
                yield self._between(begin, step * self.key.step)
                begin, count = step * self.key.step, 0
            count += self.steps[step]
        yield self._between(begin, np.inf)
        self.folder.remove()

    def _between(self, begin: float, end: float) -> pl.DataFrame:
        by = pl.col(self.key.column)
        here = (by >= begin) if end == np.inf else (by >= begin) & (by < end)
        found = [
            pl.scan_parquet(path, glob=False).filter(here)
            for path, first, last in self.parts
            if not (last < begin or (first >= end and end < np.inf))  # NaN sorts last
        ]
        return pl.concat(found).collect()


@dataclass
class Collected:
    """Jobs of ranges in order of submission, which get distinct ids.

    Args:
        at_once: Largest number of rows kept in memory; more go into files.
        size: Number of jobs.
        unnamed: Number of jobs that had no id.
        repeats: Number of jobs whose id occurred before.
    """

    at_once: int = AT_ONCE
    size: int = 0
    unnamed: int = 0
    repeats: int = 0
    _parts: list[pl.LazyFrame] = field(default_factory=list)
    _columns: dict[str, pl.DataType] = field(default_factory=dict)
    _hashes: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    _numbers: bool = True
    _folder: Folder | None = None

    def add(self, jobs: pl.DataFrame) -> None:
        """Add the next jobs in order of submission, in hpctwin's columns with ids as text."""
        missing = jobs["job_id"].null_count()
        if missing:
            rows = pl.int_range(self.size + 1, self.size + 1 + pl.len()).cast(pl.String)
            jobs = jobs.with_columns(pl.col("job_id").fill_null("row" + rows))
            self.unnamed += missing
        self.size += len(jobs)
        self._columns |= {
            name: dtype for name, dtype in jobs.schema.items() if name not in self._columns
        }
        self._hashes.append(jobs["job_id"].hash().to_numpy())
        self._numbers = self._numbers and _are_numbers(jobs["job_id"])
        if self._folder is None and self.size > self.at_once:
            self._folder = Folder()
            self._parts = [
                self._stored(part.collect(), str(n)) for n, part in enumerate(self._parts)
            ]
        self._parts.append(
            jobs.lazy() if self._folder is None else self._stored(jobs, str(len(self._parts)))
        )

    def table(self) -> JobTable:
        """Return all jobs with all columns and distinct ids.

        The second run of job 12 is 12r2.
        """
        again = _repeated(self._hashes)
        runs: dict[str, int] = {}
        parts: list[pl.LazyFrame] = []
        for number, part in enumerate(self._parts):
            jobs = part.collect()
            if len(again):
                jobs = jobs.with_columns(self._named(jobs["job_id"], again, runs))
            elif self._numbers:
                jobs = jobs.with_columns(pl.col("job_id").cast(pl.Int64))
            jobs = jobs.select(
                pl.col(name)
                if name in jobs.columns
                else pl.lit(_WITHOUT.get(name), dtype).alias(name)
                for name, dtype in self._columns.items()
            )
            self._parts[number] = pl.LazyFrame()
            if self._folder is None:
                parts.append(jobs.lazy())
            else:
                parts.append(self._stored(jobs, f"{number}-named"))
                (self._folder.path / f"{number}.parquet").unlink()
        return JobTable(tuple(parts), self.size, self._folder)

    def _stored(self, jobs: pl.DataFrame, name: str) -> pl.LazyFrame:
        assert self._folder is not None
        path = self._folder.path / f"{name}.parquet"
        jobs.write_parquet(path, compression="lz4", row_group_size=_ROWS_OF_GROUP)
        return pl.scan_parquet(path, glob=False)

    def _named(
        self, ids: pl.Series, again: npt.NDArray[np.uint64], runs: dict[str, int]
    ) -> pl.Series:
        """Return the ids of a part, with the number of the run if it is not the first.

        Args:
            again: Hashes of repeated ids, and perhaps of some others.
            runs: Number of occurrences of each of them in earlier parts; updated here.
        """
        before = pl.col("id").replace_strict(runs, default=0, return_dtype=pl.Int64) if runs else 0
        run = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("id") + before
        told = ids.alias("id").to_frame().with_columns(run=run)
        self.repeats += int((told["run"] > 1).sum())
        some = told.filter(pl.Series(np.isin(ids.hash().to_numpy(), again)))
        runs |= dict(some.group_by("id").agg(pl.col("run").max()).iter_rows())
        named = pl.when(pl.col("run") > 1).then(pl.format("{}r{}", "id", "run")).otherwise("id")
        return told.select(named.alias("job_id"))["job_id"]


def _are_numbers(ids: pl.Series) -> bool:
    """Return whether all ids are whole numbers in their usual form."""
    whole = ids.cast(pl.Int64, strict=False)
    return whole.null_count() == 0 and bool((whole.cast(pl.String) == ids).all())


def _repeated(hashes: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Return hashes that occur more than once.

    The list is empty afterwards, so that the hashes are in memory only once.
    """
    every = np.empty(sum(map(len, hashes)), np.uint64)
    end = len(every)
    while hashes:
        part = hashes.pop()
        every[end - len(part) : end] = part
        end -= len(part)
    every.sort()
    found: npt.NDArray[np.uint64] = np.unique(every[1:][every[1:] == every[:-1]])
    return found
