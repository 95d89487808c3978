"""Workloads that are larger than memory, read piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.files import stem
from hpctwin.formats.own_columns import checked_piece
from hpctwin.model import Category
from hpctwin.model.columns import whole_or_text
from hpctwin.model.text import count_text
from hpctwin.model.workload.frame import NOT_THERE
from hpctwin.model.workload.joining import LABELS, Batch, edges_of, named_pairs, plain


@dataclass(frozen=True)
class Pieces:
    """A file that is read piece by piece.

    Args:
        batches: Pieces.
        name: Name of the workload.
        size: Number of jobs.
        labels: All labels, by column, and whether some jobs have none.
        pairs: Function that returns the different (account, user) pairs of the jobs.
        shares: Whether any job requests tasks.
        gpu_parts: Whether any job requests part of a GPU; None if this is unknown until all are
            read.
    """

    batches: Iterator[Batch]
    name: str
    size: int
    labels: Mapping[str, tuple[tuple[str, ...], bool]]
    pairs: Callable[[], list[tuple[str, str]]]
    shares: bool
    gpu_parts: bool | None


def open_pieces(path: Path, size: int) -> Pieces:
    """Open a Parquet file, or a folder of them, for reading in pieces.

    The columns are those of `hpctwin.model.workload.frame`.

    Args:
        path: File or folder; the files of a folder are read in order of their names.
    """
    if path.is_file() and path.suffix.lower() != ".parquet":
        raise TraceError(
            path,
            "only Parquet can be read piecewise; convert the log first: hpctwin workload convert",
        )
    files = sorted(path.glob("*.parquet")) if path.is_dir() else path
    scan = pl.scan_parquet(files, glob=False)
    try:
        columns = scan.collect_schema()
        jobs = int(scan.select(pl.len()).collect(engine="streaming").item())
        labels = {name: _labels(scan, name) if name in columns else ((), True) for name in LABELS}
        shares = _any_tasks(scan, columns.names())
        parts = _any_parts(scan, columns.names())
        texts = columns.get("job_id") == pl.String and not _whole_ids(scan)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(path, f"it cannot be read as Parquet ({error})") from error
    batches = _pieces(path, scan, jobs, size, texts=texts)
    return Pieces(batches, stem(path), jobs, labels, partial(_pairs, scan), shares, parts)


def _labels(scan: pl.LazyFrame, name: str) -> tuple[tuple[str, ...], bool]:
    """Return all labels of a column, in the order of `Category.of`.

    Also return whether some labels are unknown.
    """
    distinct = scan.select(pl.col(name).unique()).collect(engine="streaming")[name]
    found = Category.of(whole_or_text(distinct))
    return found.labels, bool((found.codes < 0).any())


def _pairs(scan: pl.LazyFrame) -> list[tuple[str, str]]:
    """Return the different (account, user) pairs of the jobs."""
    names = "account", "user"
    columns = scan.collect_schema()
    told = [pl.col(name) if name in columns else pl.lit(None).alias(name) for name in names]
    distinct = scan.select(told).unique().collect(engine="streaming")
    found = [Category.of(whole_or_text(distinct[name])) for name in names]
    return named_pairs(*found)[0]


def _any_tasks(scan: pl.LazyFrame, columns: Collection[str]) -> bool:
    """Return whether any job requests tasks.

    A cell that is no number is reported when its piece is read.
    """
    asks = [pl.col("request").is_not_null()] if "request" in columns else []
    if "tasks" in columns:
        asks.append((pl.col("tasks").cast(pl.Float64, strict=False) > 0).fill_null(False))
    if not asks:
        return False
    return bool(scan.select(pl.any_horizontal(asks).any()).collect(engine="streaming").item())


def _any_parts(scan: pl.LazyFrame, columns: Collection[str]) -> bool | None:
    """Return whether any job requests part of a GPU.

    None if there are requests as users write them.
    """
    if "request" in columns:
        return None
    asks = [pl.lit(False)]
    if "gpus_per_task" in columns:
        gpus = pl.col("gpus_per_task").cast(pl.Float64, strict=False)
        asks.append((gpus != gpus.round()).fill_null(False))
    if "more_tasks" in columns:
        text = pl.col("more_tasks").cast(pl.String, strict=False)
        asks.append(text.str.contains(r"gpus=\d*\.\d*[1-9]").fill_null(False))
    return bool(scan.select(pl.any_horizontal(asks).any()).collect(engine="streaming").item())


def _whole_ids(scan: pl.LazyFrame) -> bool:
    """Return whether all ids, which are texts, are whole numbers."""
    text = pl.col("job_id")
    same = text.cast(pl.Int64, strict=False).cast(pl.String) == text
    return bool(scan.select(same.fill_null(False).all()).collect(engine="streaming").item())


def _pieces(
    path: Path, scan: pl.LazyFrame, jobs: int, size: int, *, texts: bool
) -> Iterator[Batch]:
    for first in range(0, jobs, size):
        try:
            frame = scan.slice(first, size).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise TraceError(
                path, f"rows from {first + 1:,} on cannot be read ({error})"
            ) from error
        if "job_id" not in frame.columns:
            frame = frame.with_columns(job_id=pl.int_range(first + 1, first + len(frame) + 1))
        workload = checked_piece(path, frame, first)
        if NOT_THERE in workload.notes.counts:
            raise TraceError(
                path,
                f"rows from {first + 1:,} on: a request or the column dependency names a job "
                f"outside the piece of {count_text(size, 'job')}; write the column depends",
            )
        ids = whole_or_text(frame["job_id"]).to_numpy()
        if texts:
            # In this piece all ids may be numbers by chance.
            ids = ids.astype(np.str_)
            workload = workload.replace(job_id=workload.job_id.astype(np.str_))
        if "depends" in frame.columns:
            yield Batch(plain(workload), edges_of(frame["depends"], ids), True)
        else:
            yield Batch.of_workload(workload)
