"""Tables in many files, each written whole while the next one is computed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hpctwin.errors import OutputError
from hpctwin.model.files.files import check_folder, write_atomically

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Parts"]


class Parts:
    """Parquet files by table in a folder; a context manager.

    The files are ``TABLE/part-000000.parquet`` and so on.

    Args:
        folder: Folder; `begin` creates it if it is missing.

    Raises:
        OutputError: It has parts already, or could not be created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        there = next(folder.glob("*/part-*.parquet"), None)
        if there is not None:
            raise OutputError(there, "it is of another run; take another folder, or remove it")
        check_folder(folder)
        self.written: dict[str, int] = {}
        self._thread = ThreadPoolExecutor(1, "hpctwin-parts")
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def begin(self) -> None:
        """Create the folder.

        Raises:
            OutputError: It cannot be created.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(self.folder, error.strerror or str(error)) from error

    def write(self, **tables: pl.DataFrame) -> None:
        """Write the next part of some tables.

        If a part is being written, this one follows after it.

        Raises:
            OutputError: This or the previous part could not be written.
        """
        self.finish()
        self._last = self._thread.submit(self._write, tables)

    def finish(self) -> None:
        """Wait until all is written.

        Raises:
            OutputError: It could not be written.
        """
        if self._last is not None:
            last, self._last = self._last, None
            last.result()

    def _write(self, tables: dict[str, pl.DataFrame]) -> None:
        for name, table in tables.items():
            if not len(table) and name in self.written:
                continue
            number = self.written.get(name, 0)
            path = self.folder / name / f"part-{number:06}.parquet"
            path.parent.mkdir(exist_ok=True)
            with write_atomically(path) as file:
                table.write_parquet(file, compression="zstd", compression_level=1)
            self.written[name] = number + 1
