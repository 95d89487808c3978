"""Slurm's accounting: ``sacct`` as text or JSON, or slurm2sql's copy of it.

Required columns are ``JobID`` (or ``JobIDRaw``), ``Submit`` and the run time: ``ElapsedRaw``,
``Elapsed``, or ``Start`` and ``End``. Steps are folded into their jobs: a job's line holds all that
is read.

slurm2sql keeps the accounting in an SQLite file, with a row for each line of ``sacct``. Its times
are seconds since the epoch. It does not distinguish an unlimited job from a job whose time limit
was not recorded.

Source:
    Slurm's manual page sacct(1), and its output in versions 20.11 to 24.05. slurm2sql 0.9.9 and, of
    2020, its table with ``JobIDSlurm`` (github.com/NordicHPC/slurm2sql).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.accounting.sacct_json import jobs_with_steps
from hpctwin.formats.accounting.sacct_layout import (
    COLUMNS,
    FIELDS,
    FREE,
    NOT_MODELED,
    Layout,
    check_columns,
    fits,
    is_text_dump,
    layout_of,
)
from hpctwin.formats.accounting.sacct_records import records_of
from hpctwin.formats.accounting.workload import job_table, workload_of
from hpctwin.formats.delimited import Table, lines_in, tables_in
from hpctwin.formats.fields import zone_of
from hpctwin.formats.files import first_bytes, read_json, stem
from hpctwin.formats.job_table import JobTable
from hpctwin.formats.record import Machine, Running, Tally
from hpctwin.model import Workload

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
"""Columns of ``sacct``: the column to read, and the SQL expression for it."""


def is_slurm2sql(path: Path, head: bytes) -> bool:
    """Return whether a file that begins like this is slurm2sql's database."""
    if not head.startswith(MAGIC):
        return False
    try:
        with closing(_opened(path)) as database:
            return {"submit", "elapsed"} <= {name.lower() for name in _columns(database)}
    except sqlite3.Error:
        return False


def slurm2sql_rows(path: Path, tally: Tally) -> Iterator[pl.DataFrame]:
    """Return rows of text with the columns of ``sacct -P``.

    Raises:
        TraceError: The file is no SQLite file, cannot be read, or has no such table.
    """
    try:
        with closing(_opened(path)) as database:
            wanted = _wanted({name.lower() for name in _columns(database)})
            if not wanted:
                tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                names = ", ".join(name for (name,) in tables) or "none"
                raise TraceError(
                    path,
                    f"SQLite file has no table 'slurm', as slurm2sql writes it; found {names}",
                )
            listed = ", ".join(f"CAST({how} AS TEXT)" for how in wanted.values())
            rows = database.execute(f"SELECT {listed} FROM slurm")
            while block := rows.fetchmany(_ROWS):
                tally.add("record read", len(block))
                yield pl.DataFrame(block, schema=dict.fromkeys(wanted, pl.String), orient="row")
    except sqlite3.Error as error:
        raise TraceError(
            path,
            f"cannot be read as an SQLite file ({error}); give the unpacked file of slurm2sql",
        ) from error


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


def _columns(database: sqlite3.Connection) -> list[str]:
    return [name for _, name, *_ in database.execute("PRAGMA table_info(slurm)")]


def _wanted(there: set[str]) -> dict[str, str]:
    """Return the SQL expression for each column of ``sacct`` in the table."""
    made = {name: how for name, (column, how) in _MADE.items() if column.lower() in there}
    plain = [name for name in ("JobID", *_AS_WRITTEN) if name.lower() in there and name not in made]
    return made | {name: f'"{name}"' for name in plain}


_WITH_COMMAS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "NodeList")


def is_sacct(head: bytes) -> bool:
    """Return whether a file that begins like this is from ``sacct`` or slurm2sql."""
    return head.startswith(MAGIC) or is_text_dump(head)


def read_sacct(
    path: str | Path,
    *,
    skip_invalid: bool = False,
    timezone: str | None = None,
    columns: str | None = None,
    running: Running = "elapsed",
) -> Workload:
    """Read a dump of ``sacct``.

    Args:
        path: File of ``sacct -P``, ``-p`` (any separator), ``--json`` or columns of fixed width,
            compressed or not; or an SQLite file of slurm2sql.
        timezone: Time zone of its times, such as ``Europe/Berlin``; by default UTC.
        columns: The ``--format`` of the ``sacct`` call, for a dump without a header (``-n``).
        running: How to read jobs that still ran when the dump was made.

    Raises:
        TraceError: The file is no such dump, a required column is missing, or a line cannot be
            read.
        ConfigError: There is no such time zone or column.
    """
    path = Path(path)
    tally = Tally()
    machine = Machine(features=(), running=running)
    jobs = sacct_table(
        [path], tally, machine, skip_invalid=skip_invalid, timezone=timezone, columns=columns
    )
    return workload_of(jobs.frame(), stem(path), tally)


def sacct_table(
    paths: Sequence[Path],
    tally: Tally,
    machine: Machine | None = None,
    *,
    skip_invalid: bool = True,
    timezone: str | None = None,
    columns: str | None = None,
) -> JobTable:
    """Return the jobs of dumps, which may overlap, in hpctwin's columns; see `read_sacct`."""
    zone = zone_of(timezone)

    def records() -> Iterator[pl.DataFrame]:
        failed = 0
        for path in paths:
            lines = map(_with_ids, _texts(path, tally, columns, strict=not skip_invalid))
            try:
                for text in jobs_with_steps(lines, tally):
                    yield records_of(text, zone, tally)
            except TraceError as error:
                failed += 1
                if not skip_invalid or failed == len(paths):
                    raise
                tally.add("rest of a file skipped: cannot be read")
                tally.skip(str(error))

    return job_table(records(), tally, machine or Machine(features=()))


def _texts(
    path: Path, tally: Tally, columns: str | None, *, strict: bool
) -> Iterator[pl.DataFrame]:
    """Return the columns of a dump as text, block by block."""
    if first_bytes(path, len(MAGIC)) == MAGIC:
        for text in slurm2sql_rows(path, tally):
            check_columns(path, text.columns)
            yield text
        return
    blocks = lines_in(path)
    first = next(blocks, b"")
    start = first.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not start.strip():
        raise TraceError(path, "the file is empty")
    if start.lstrip().startswith(b"{"):
        from hpctwin.formats.accounting.sacct_json import json_rows

        yield from json_rows(path, read_json(path), tally)
        return
    layout = layout_of(path, start, columns)
    check_columns(path, layout.names, line=1)
    _tell(layout, tally)
    rest = start.partition(b"\n")[2] if layout.header else start

    def all_blocks() -> Iterator[bytes]:
        if rest:
            yield rest
        yield from blocks

    plain, separator = layout.plain(all_blocks(), tally)
    there = set(layout.names)
    table = Table(
        path=path,
        names=layout.names,
        separator=separator,
        wanted=[name for name in COLUMNS if name in there],
        free=(*FREE, *_WITH_COMMAS) if separator == b"," else FREE,
        fits=fits,
        strict=strict,
        trailing=layout.trailing,
        header=layout.header.replace(layout.separator, separator) if layout.separator else b"",
        lines=1 if layout.header else 0,
    )
    yield from tables_in(plain, table, tally)
    tally.add("line read", table.lines - (1 if layout.header else 0))


def _tell(layout: Layout, tally: Tally) -> None:
    """Report which columns were assumed, and which columns not read affect starts."""
    remarks = []
    if layout.order:
        remarks.append(
            f"sacct's output has no header; its values match the columns of {layout.order}: "
            f"{','.join(layout.names)}"
        )
    out = [name for name in layout.names if name in NOT_MODELED or name not in FIELDS]
    if out:
        remarks.append(f"columns of sacct that are not modeled: {', '.join(out)}")
    tally.remarks += [remark for remark in remarks if remark not in tally.remarks]


def _with_ids(text: pl.DataFrame) -> pl.DataFrame:
    """Return the lines with the id of the job or step.

    The id is from the first column that has it.
    """
    found = (
        pl.when(pl.col(name).str.len_chars() > 0).then(name)
        for name in ("JobID", "JobIDRaw")
        if name in text.columns
    )
    return text.with_columns(pl.coalesce(found).alias("job_id"))
