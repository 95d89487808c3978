"""Folder of a sweep: rows in complete parts, and the progress."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from hpctwin.errors import ConfigError, OutputError
from hpctwin.model.files import FileLock, cause, check_folder, write_atomically
from hpctwin.sweep.bench import Row

__all__ = ["Store", "read_rows", "table_of"]

_FLUSH_S, _FLUSH_ROWS = 5.0, 5000
_TEXTS = ("key", "workload", "window", "cluster", "policy", "error", "rejected_why")


class Store:
    """Store of rows; a context manager.

    Args:
        folder: Folder, created if needed; an interrupted sweep in it is continued.

    Raises:
        OutputError: It cannot be written.
        ConfigError: Another sweep is writing there.
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
        """Return the keys of finished points, without failed ones."""
        found: set[str] = set()
        for path in sorted(self.folder.glob("points/part-*.parquet")):
            part = pl.read_parquet(path, columns=["key", "error"])
            found.update(part.filter(pl.col("error").is_null())["key"])
        return found

    def add(self, rows: Iterable[Row]) -> bool:
        """Add rows; return whether all rows so far were written now."""
        self._rows += rows
        due = len(self._rows) >= _FLUSH_ROWS or time.monotonic() - self._flushed >= _FLUSH_S
        if due:
            self.flush()
        return due

    def flush(self) -> None:
        """Write the rows that are not written yet.

        Raises:
            OutputError: They cannot be written.
        """
        if self._rows:
            path = self.folder / "points" / f"part-{self._next:06}.parquet"
            with write_atomically(path) as file:
                table_of(self._rows).write_parquet(file, compression="zstd", compression_level=1)
            self._next += 1
            self._rows = []
        self._flushed = time.monotonic()

    def tell(self, **state: Any) -> None:
        """Write the progress for other readers."""
        with write_atomically(self.folder / "sweep.json") as file:
            file.write(json.dumps(state, indent=2, default=str).encode())


def table_of(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a table; text columns have type text even if all values are null."""
    made = pl.DataFrame(list(rows), infer_schema_length=None)
    return made.with_columns(
        pl.col(name).cast(pl.String) for name in _TEXTS if name in made.columns
    )


def read_rows(folder: Path, keys: Iterable[str]) -> pl.DataFrame:
    """Return the rows of points in the given order; of several, the last written."""
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
    # The number of a point is its index among these keys; it may have had another one.
    found = found.join(wanted, on="key").sort("place")
    return found.with_columns(point=pl.col("place").cast(pl.Int64)).drop("place")
