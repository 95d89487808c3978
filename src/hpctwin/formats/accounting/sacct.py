"""Slurm's accounting: what ``sacct`` prints, as text and as JSON, and slurm2sql makes of it.

Any selection of columns will do that has ``JobID`` (or ``JobIDRaw``), ``Submit`` and how long a job ran:
``ElapsedRaw``, ``Elapsed``, or ``Start`` and ``End``. Steps are folded into their jobs: a job's line has all
that is read.

Source:
    Slurm's manual page sacct(1), and its output in versions 20.11 to 24.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError
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
from hpctwin.formats.accounting.slurm2sql import MAGIC, slurm2sql_rows
from hpctwin.formats.accounting.steps import jobs_with_steps
from hpctwin.formats.accounting.workload import job_table, workload_of
from hpctwin.formats.common.delimited import Table, lines_in, tables_in
from hpctwin.formats.common.fields import zone_of
from hpctwin.formats.common.files import first_bytes, read_json, stem
from hpctwin.formats.common.job_table import JobTable
from hpctwin.formats.common.record import Machine, Running, Tally
from hpctwin.model import Workload

__all__ = ["COLUMNS", "is_sacct", "read_sacct", "sacct_jobs", "sacct_table"]


_WITH_COMMAS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "NodeList")


def is_sacct(head: bytes) -> bool:
    """Whether a file that begins like this is text that ``sacct`` printed, or slurm2sql's SQLite file."""
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
        path: a file of ``sacct -P``, ``-p`` (any separator), ``--json`` or columns of fixed width, compressed
            or not; or an SQLite file of slurm2sql.
        skip_invalid: leave out lines that cannot be read, and count them.
        timezone: where its times were written, such as ``Europe/Berlin``; by default UTC.
        columns: the ``--format`` that ``sacct`` was called with, for a dump without a header (``-n``).
        running: what becomes of jobs that still ran when the dump was made.

    Raises:
        TraceError: it is no such dump, a column that is needed is missing, or a line cannot be read.
        ConfigError: there is no such time zone or column.
    """
    path = Path(path)
    tally = Tally()
    machine = Machine(features=(), running=running)
    jobs = sacct_table(
        [path], tally, machine, skip_invalid=skip_invalid, timezone=timezone, columns=columns
    )
    return workload_of(jobs.frame(), stem(path), tally)


def sacct_jobs(
    paths: Sequence[Path],
    tally: Tally,
    machine: Machine | None = None,
    *,
    skip_invalid: bool = True,
    timezone: str | None = None,
) -> pl.DataFrame:
    """Jobs of one or more dumps, which may overlap, in our own columns.

    Args:
        paths: the dumps.
        tally: told of all that is changed or left out.
        machine: where the jobs ran, if known.
        skip_invalid: see `read_sacct`.
        timezone: see `read_sacct`.

    Raises:
        TraceError, ConfigError: see `read_sacct`.
    """
    return sacct_table(paths, tally, machine, skip_invalid=skip_invalid, timezone=timezone).frame()


def sacct_table(
    paths: Sequence[Path],
    tally: Tally,
    machine: Machine | None = None,
    *,
    skip_invalid: bool = True,
    timezone: str | None = None,
    columns: str | None = None,
) -> JobTable:
    """The same as `sacct_jobs`, of more jobs than fit in memory; ``columns`` as in `read_sacct`."""
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
                tally.add("file left out from where it cannot be read")
                tally.skip(str(error))

    return job_table(records(), tally, machine or Machine(features=()))


def _texts(
    path: Path, tally: Tally, columns: str | None, *, strict: bool
) -> Iterator[pl.DataFrame]:
    """The columns of a dump as text, block by block."""
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
    """Report which columns were assumed, and which are not read though they bear on starts."""
    remarks = []
    if layout.order:
        remarks.append(
            f"sacct's output has no header; its values fit the columns of {layout.order}: "
            f"{','.join(layout.names)}"
        )
    out = [name for name in layout.names if name in NOT_MODELED or name not in FIELDS]
    if out:
        remarks.append(f"columns of sacct that are not modeled: {', '.join(out)}")
    tally.remarks += [remark for remark in remarks if remark not in tally.remarks]


def _with_ids(text: pl.DataFrame) -> pl.DataFrame:
    """Lines with the id of the job or step, by whichever column tells it."""
    found = (
        pl.when(pl.col(name).str.len_chars() > 0).then(name)
        for name in ("JobID", "JobIDRaw")
        if name in text.columns
    )
    return text.with_columns(pl.coalesce(found).alias("job_id"))
