"""The folder of a sweep: rows in parts, each written whole, and how far it has come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from hpctwin.errors import ConfigError, OutputError
from hpctwin.model.files.file_lock import FileLock
from hpctwin.model.files.files import cause, check_folder, write_atomically
from hpctwin.sweep.bench import Row

__all__ = ["Store", "read_rows", "table_of"]

_FLUSH_S, _FLUSH_ROWS = 5.0, 5000
_TEXTS = ("key", "workload", "window", "cluster", "policy", "error", "rejected_why")


class Store:
    """Takes rows as they come; a context manager.

    Args:
        folder: made if it is not there; one that a sweep was cut off in is gone on with.

    Raises:
        OutputError: it cannot be written.
        ConfigError: another sweep is writing there.
    """

    def __init__(self, folder: Path) -> None:
        check_folder(folder)
        self.folder = folder
        try:
            (folder / "points").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(folder, cause(error)) from error
        self._lock = FileLock(folder / ".lock")
        if (holder := self._lock.take()) is not None:
            raise ConfigError(f"{folder}: another sweep writes here: {holder}")
        parts = sorted(folder.glob("points/part-*.parquet"))
        self._next = int(parts[-1].stem.partition("-")[2]) + 1 if parts else 0
        self._rows: list[Row] = []
        self._flushed = time.monotonic()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def done(self) -> set[str]:
        """The addresses of points that are done; those that failed are not."""
        found: set[str] = set()
        for path in sorted(self.folder.glob("points/part-*.parquet")):
            part = pl.read_parquet(path, columns=["key", "error"])
            found.update(part.filter(pl.col("error").is_null())["key"])
        return found

    def add(self, rows: Iterable[Row]) -> bool:
        """Take some rows; whether they and those before were written now."""
        self._rows += rows
        due = len(self._rows) >= _FLUSH_ROWS or time.monotonic() - self._flushed >= _FLUSH_S
        if due:
            self.flush()
        return due

    def flush(self) -> None:
        """Write what there is.

        Raises:
            OutputError: it cannot be written.
        """
        if self._rows:
            path = self.folder / "points" / f"part-{self._next:06}.parquet"
            with write_atomically(path) as file:
                table_of(self._rows).write_parquet(file, compression="zstd", compression_level=1)
            self._next += 1
            self._rows = []
        self._flushed = time.monotonic()

    def tell(self, **state: Any) -> None:
        """Write how far it has come, for whoever looks."""
        with write_atomically(self.folder / "sweep.json") as file:
            file.write(json.dumps(state, indent=2, default=str).encode())


def table_of(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a table; texts are texts also where there is none."""
    made = pl.DataFrame(list(rows), infer_schema_length=None)
    return made.with_columns(
        pl.col(name).cast(pl.String) for name in _TEXTS if name in made.columns
    )


def read_rows(folder: Path, keys: Iterable[str]) -> pl.DataFrame:
    """The rows of some points, in the order of these; the last that was written of each."""
    wanted = pl.DataFrame({"key": list(keys)}, schema={"key": pl.String})
    wanted = wanted.with_row_index("place")
    parts = [
        pl.read_parquet(path).join(wanted.select("key"), on="key", how="semi")
        for path in sorted(folder.glob("points/part-*.parquet"))
    ]
    parts = [one for one in parts if len(one)]
    if not parts:
        return pl.DataFrame(schema={"key": pl.String, "error": pl.String})
    found = pl.concat(parts, how="diagonal_relaxed").unique("key", keep="last")
    # A number of the point is its place among those wanted now; it may have had another one.
    found = found.join(wanted, on="key").sort("place")
    return found.with_columns(point=pl.col("place").cast(pl.Int64)).drop("place")
