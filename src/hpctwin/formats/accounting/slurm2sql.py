"""Slurm's accounting as slurm2sql keeps it: in an SQLite file, a row for each line of ``sacct``.

Times are seconds since the epoch there, and a time limit that is none is told as little as one that was not
written down.

Source:
    slurm2sql 0.9.9 and, of 2020, its table with ``JobIDSlurm`` (github.com/NordicHPC/slurm2sql).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.common.record import Tally

__all__ = ["MAGIC", "is_slurm2sql", "slurm2sql_rows"]

MAGIC = b"SQLite format 3\0"
_ROWS = 100_000
_MIB = 2.0**20
_AS_WRITTEN = (
    "Submit", "Start", "End", "NNodes", "AllocNodes", "ReqNodes", "AllocCPUS", "NCPUS", "ReqCPUS",
    "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "User", "Account", "Partition", "QOS", "Priority",
    "State", "NodeList", "NTasks",
)  # fmt: skip
_MADE = {
    "JobID": ("JobIDSlurm", '"JobIDSlurm"'),
    "ElapsedRaw": ("Elapsed", '"Elapsed"'),
    "TimelimitRaw": ("Timelimit", '"Timelimit" / 60'),
    "MaxRSS": ("MaxRSS", 'CAST("MaxRSS" AS INTEGER)'),
    "ReqMem": (
        "ReqMem",
        f'CASE typeof("ReqMem") WHEN \'text\' THEN "ReqMem" ELSE "ReqMem" / {_MIB} || \'M\' END',
    ),
}
"""Columns of ``sacct``: the column that is read, and how."""


def is_slurm2sql(path: Path, head: bytes) -> bool:
    """Whether a file that begins like this is such a database."""
    if not head.startswith(MAGIC):
        return False
    try:
        with closing(_opened(path)) as database:
            return {"submit", "elapsed"} <= {name.lower() for name in _columns(database)}
    except sqlite3.Error:
        return False


def slurm2sql_rows(path: Path, tally: Tally) -> Iterator[pl.DataFrame]:
    """Rows of text with the columns of ``sacct -P``.

    Raises:
        TraceError: it is no SQLite file, cannot be read, or has no such table.
    """
    try:
        with closing(_opened(path)) as database:
            wanted = _wanted({name.lower() for name in _columns(database)})
            if not wanted:
                tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                names = ", ".join(name for (name,) in tables) or "none"
                raise TraceError(
                    path,
                    f"an SQLite file without the table slurm that slurm2sql makes; found {names}",
                )
            listed = ", ".join(f"CAST({how} AS TEXT)" for how in wanted.values())
            rows = database.execute(f"SELECT {listed} FROM slurm")
            while block := rows.fetchmany(_ROWS):
                tally.add("record read", len(block))
                yield pl.DataFrame(block, schema=dict.fromkeys(wanted, pl.String), orient="row")
    except sqlite3.Error as error:
        raise TraceError(
            path,
            f"cannot be read as an SQLite file ({error}); give it unpacked, as slurm2sql wrote it",
        ) from error


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


def _columns(database: sqlite3.Connection) -> list[str]:
    return [name for _, name, *_ in database.execute("PRAGMA table_info(slurm)")]


def _wanted(there: set[str]) -> dict[str, str]:
    """Of each column of ``sacct`` that is told of, how it is read."""
    made = {name: how for name, (column, how) in _MADE.items() if column.lower() in there}
    plain = [name for name in ("JobID", *_AS_WRITTEN) if name.lower() in there and name not in made]
    return made | {name: f'"{name}"' for name in plain}
