"""Tables of any number of rows in order of submission: what does not fit in memory goes through files.

`ranges` sorts records by a key, as when they were submitted: into files as they come, and out of them again
one range of the key after the other. `Collected` takes the jobs that each range gave, and looks last at what
only all of them tell: ids that come again, and which columns there are. So no more than about a million rows
are in memory at once, and 8 bytes of each.
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

__all__ = ["AT_ONCE", "Collected", "JobTable", "Key", "ranges"]

AT_ONCE = 500_000
"""So many rows at most are looked at together, unless more are of one step of their key."""

_ROWS_OF_GROUP = 50_000
_LAST_STEP = 2**40
_WITHOUT = {
    "fails": 0, "cores_per_task": 1.0, "gpus_per_task": 0.0, "memory_gb_per_task": 0.0,
    "cores_per_node": 0.0, "gpus_per_node": 0.0, "memory_gb_per_node": 0.0,
}  # fmt: skip
"""What stands in a column that some jobs have, for those that have nothing there; else null."""


class Folder:
    """A folder within that of temporary files; it lasts as long as this."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hpctwin-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class JobTable:
    """Jobs in our own columns, in memory or in files that last as long as this.

    Args:
        frames: of files not read, or of what is in memory.
        size: how many jobs there are.
        folder: where files are.
    """

    frames: tuple[pl.LazyFrame, ...]
    size: int
    folder: Folder | None = None

    def __len__(self) -> int:
        return self.size

    def scan(self) -> pl.LazyFrame:
        """All jobs, not read yet."""
        return pl.concat(self.frames)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.frames[0].collect_schema().names()

    def with_columns(self, *columns: pl.Expr) -> JobTable:
        """The same with columns in place of others, or besides."""
        frames = tuple(frame.with_columns(*columns) for frame in self.frames)
        return replace(self, frames=frames)

    def last(self, jobs: int) -> pl.DataFrame:
        """So many of the last jobs, in memory."""
        frames: list[pl.DataFrame] = []
        for frame in reversed(self.frames):
            frames.insert(0, frame.collect())
            if sum(map(len, frames)) >= jobs:
                break
        return pl.concat(frames).tail(jobs)

    def frame(self) -> pl.DataFrame:
        """All jobs, in memory."""
        return self.scan().collect()


@dataclass(frozen=True)
class Key:
    """By what rows are ranged.

    Args:
        column: a number.
        step: rows are counted by so much of it, and those of one step stay together.
    """

    column: str
    step: int


SUBMISSION = Key("submit", 3600)


def ranges(
    records: Iterable[pl.DataFrame], at_once: int = AT_ONCE, key: Key = SUBMISSION
) -> Iterator[pl.DataFrame]:
    """Records range by range of a key; those that have the same are in one range, as they came.

    Args:
        records: frames of one schema, with the key's column.
        at_once: so many rows at most, unless more are of one step. If there are not more altogether, all come
            at once and in no order of the key.
        key: by what they are ranged.
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
    """Files of records, each in order of a key, and how many there are of each of its steps."""

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
            pl.scan_parquet(path).filter(here)
            for path, first, last in self.parts
            if not (last < begin or (first >= end and end < np.inf))  # NaN is the last of all
        ]
        return pl.concat(found).collect()


@dataclass
class Collected:
    """Jobs of ranges that come in order of submission, to be given ids of their own.

    Args:
        at_once: so many rows in all are kept in memory; more go into files.
        size: how many jobs there are.
        unnamed: how many had no id.
        repeats: how many came under an id that was there before.
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
        """Take the next jobs, in our own columns with ids as text, in order of submission."""
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
        """All of them with all columns, and ids that are distinct: the second run of job 12 is 12r2."""
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
        return pl.scan_parquet(path)

    def _named(
        self, ids: pl.Series, again: npt.NDArray[np.uint64], runs: dict[str, int]
    ) -> pl.Series:
        """Ids of one part, with the number of the run where it is not the first.

        Args:
            ids: as they came.
            again: hashes of those that come more than once, and perhaps of some others.
            runs: how often each of them came in earlier parts; counted on here.
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
    """Whether ids are whole numbers as they are written."""
    whole = ids.cast(pl.Int64, strict=False)
    return whole.null_count() == 0 and bool((whole.cast(pl.String) == ids).all())


def _repeated(hashes: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Those that are there more than once; the list is empty then, so that they are in memory once."""
    every = np.empty(sum(map(len, hashes)), np.uint64)
    end = len(every)
    while hashes:
        part = hashes.pop()
        every[end - len(part) : end] = part
        end -= len(part)
    every.sort()
    found: npt.NDArray[np.uint64] = np.unique(every[1:][every[1:] == every[:-1]])
    return found
