"""Slurm's accounting: what ``sacct -P`` or ``-p`` and ``sacct --json`` write, and slurm2sql makes of it.

Any selection of columns will do that has ``JobID`` (or ``JobIDRaw``), ``Submit`` and how long a job ran:
``ElapsedRaw``, ``Elapsed``, or ``Start`` and ``End``. Steps are folded into their jobs: a job's line has all
that is read.

Source:
    Slurm's manual page sacct(1), and its output in versions 20.11 to 24.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats._accounting import job_table, workload_of
from hpctwin.formats._delimited import Table, lines_in, tables_in
from hpctwin.formats._fields import zone_of
from hpctwin.formats._files import first_bytes, read_json, stem
from hpctwin.formats._job_table import JobTable
from hpctwin.formats._record import Machine, Tally
from hpctwin.formats._steps import jobs_with_steps
from hpctwin.formats.sacct_records import records_of
from hpctwin.formats.slurm2sql import MAGIC, slurm2sql_rows
from hpctwin.model import Workload

__all__ = ["COLUMNS", "is_sacct", "read_sacct", "sacct_fault", "sacct_jobs", "sacct_table"]

COLUMNS = (
    "JobID", "JobIDRaw", "Submit", "Start", "End", "ElapsedRaw", "Elapsed", "Suspended", "TimelimitRaw",
    "Timelimit", "NNodes", "AllocNodes", "ReqNodes", "AllocCPUS", "NCPUS", "ReqCPUS", "AllocTRES", "ReqTRES",
    "AllocGRES", "ReqGRES", "ReqMem", "User", "Account", "Partition", "QOS", "Priority", "State", "NodeList",
    "MaxRSS", "NTasks", "Constraints",
)  # fmt: skip
"""The columns that are read; more of them tell more, and the order does not matter."""

_FREE = (
    "JobName", "SubmitLine", "Constraints", "Comment", "AdminComment", "SystemComment", "WorkDir",
    "Container", "Extra", "FailedNode", "StdOut", "StdErr", "StdIn",
)  # fmt: skip

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None|N/A|INVALID|\d{9,11}|"
_SPAN = r"(?:\d+-)?(?:\d+:)?\d+:\d+(?:[.,]\d+)?|UNLIMITED|Partition_Limit|INVALID|"
_NUMBER = r"\d*"
_FORMS = {
    **dict.fromkeys(("Submit", "Start", "End", "Eligible"), _TIME),
    **dict.fromkeys(
        ("Elapsed", "Suspended", "Timelimit", "CPUTime", "TotalCPU", "UserCPU", "SystemCPU"), _SPAN
    ),
    **dict.fromkeys(
        (
            "ElapsedRaw", "ReqCPUS", "AssocID", "CPUTimeRAW", "UID", "GID", "Priority", "QOSRAW", "DBIndex",
            "NTasks",
        ),
        _NUMBER,
    ),
    **dict.fromkeys(("AllocNodes", "NNodes", "AllocCPUS", "NCPUS"), r"\d+(?:\.\d+)?[KMG]?"),
    "TimelimitRaw": r"\d*|UNLIMITED|Partition_Limit|INVALID",
    "JobID": r"\d+(?:[_+.].*)?",
    "JobIDRaw": r"\d+(?:[_+.].*)?",
    "State": r"[A-Z_]+\+?(?: by \d+)?|",
    "ExitCode": r"\d+:\d+|",
    "DerivedExitCode": r"\d+:\d+|",
    "ReqMem": r"[\d.,]*[KMGTPE]?[nc]?\??|",
    "MaxRSS": r"[\d.,]*[KMGTPE]?",
    **dict.fromkeys(("AllocTRES", "ReqTRES"), r"(?:[\w/:.\-]+=[\d.]+[KMGTPE]?,?)*"),
    **dict.fromkeys(("Partition", "Cluster", "QOS"), r"[^\s|]*"),
}  # fmt: skip


def is_sacct(head: bytes) -> bool:
    """Whether a file that begins like this is of ``sacct -P``: its header has ``JobID`` and one separator.

    A table in our own columns of which one is misspelt so is none. An SQLite file is taken for slurm2sql's.
    """
    if head.startswith(MAGIC):
        return True
    line = head.lstrip(b"\xef\xbb\xbf\r\n ").partition(b"\n")[0].decode("utf-8", "replace").strip()
    names = {name.lower() for name in re.split(r"[^\w%]+", line)}
    ours = "submit_s" in names
    return bool({"jobid", "jobidraw"} & names) and not ours and _separator(line) is not None


def read_sacct(
    path: str | Path, *, skip_invalid: bool = False, timezone: str | None = None
) -> Workload:
    """Read a dump of ``sacct``.

    Args:
        path: of ``sacct -P``, ``-p`` (any separator) or ``--json``, compressed or not; or an SQLite file of
            slurm2sql.
        skip_invalid: leave out lines that cannot be read, and count them.
        timezone: where its times were written, such as ``Europe/Berlin``; left out, they are taken for UTC.

    Raises:
        TraceError: it is no such dump, a column that is needed is missing, or a line cannot be read.
        ConfigError: there is no such time zone.
    """
    path = Path(path)
    tally = Tally()
    jobs = sacct_jobs([path], tally, skip_invalid=skip_invalid, timezone=timezone)
    return workload_of(jobs, stem(path), tally)


def sacct_fault(path: Path) -> str | None:
    """Say why a dump of ``sacct`` cannot be read; None if it can."""
    try:
        next(_texts(path, Tally(), strict=False), None)
    except TraceError as error:
        return str(error)
    return None


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
) -> JobTable:
    """The same as `sacct_jobs`, of more jobs than fit in memory."""
    zone = zone_of(timezone)

    def records() -> Iterator[pl.DataFrame]:
        for path in paths:
            lines = map(_with_ids, _texts(path, tally, strict=not skip_invalid))
            for text in jobs_with_steps(lines, tally):
                yield records_of(text, zone, tally)

    return job_table(records(), tally, machine or Machine(features=()))


def _texts(path: Path, tally: Tally, *, strict: bool) -> Iterator[pl.DataFrame]:
    """The columns of a dump as text, block by block."""
    if first_bytes(path, len(MAGIC)) == MAGIC:
        for text in slurm2sql_rows(path, tally):
            _check_columns(path, text.columns)
            yield text
        return
    blocks = lines_in(path)
    first = next(blocks, b"")
    start = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        raise TraceError(path, "the file is empty")
    if start.startswith(b"{"):
        from hpctwin.formats.sacct_json import json_rows

        yield from json_rows(path, read_json(path), tally)
        return
    header, _, rest = start.partition(b"\n")
    table = _table(path, header, strict=strict)

    def all_blocks() -> Iterator[bytes]:
        if rest:
            yield rest
        yield from blocks

    yield from tables_in(all_blocks(), table, tally)
    tally.add("line read", table.lines - 1)


def _table(path: Path, header: bytes, *, strict: bool) -> Table:
    line = header.decode("utf-8", "replace").rstrip("\r")
    separator = _separator(line)
    if separator is None:
        raise TraceError(
            path,
            f"found {line[:60]!r}, expected the names of columns, of which JobID is one, with a separator: "
            "write it with sacct -P, without -n",
            line=1,
        )
    cells = line.split(separator)
    trailing = cells[-1] == ""
    known = {name.lower(): name for name in (*COLUMNS, *_FREE, *_FORMS, "Planned")}
    names = [known.get(_plain(cell), cell) for cell in (cells[:-1] if trailing else cells)]
    _check_columns(path, names, line=1)
    there = set(names)
    return Table(
        path=path,
        names=names,
        separator=separator.encode(),
        wanted=[name for name in COLUMNS if name in there],
        free=_FREE,
        fits=_fits,
        strict=strict,
        trailing=trailing,
        header=header.rstrip(b"\r"),
    )


def _check_columns(path: Path, names: Sequence[str], *, line: int | None = None) -> None:
    """Refuse a dump that does not tell when jobs were submitted, or how long they ran."""
    there = set(names)
    for needed in (("JobID", "JobIDRaw"), ("Submit",)):
        if not there & set(needed):
            raise TraceError(
                path,
                "the column is missing; needed are JobID, Submit and ElapsedRaw or Start and End, as of "
                f"sacct -a -D -P -o ALL; found {', '.join(names)[:200]}",
                line=line,
                field=needed[0],
            )
    if not there & {"ElapsedRaw", "Elapsed"} and not {"Start", "End"} <= there:
        raise TraceError(
            path,
            "no column tells how long jobs ran: ElapsedRaw, Elapsed, or Start and End",
            line=line,
        )


def _separator(line: str) -> str | None:
    """What stands after the first name, if it stands between all names."""
    match = re.match(r"[A-Za-z]\w*(?:%-?\d+)?([^\w\s%]|\t)", line)
    names = line.strip("\r\n").split(match[1]) if match else []
    fine = all(re.fullmatch(r"[A-Za-z]\w*(?:%-?\d+)?", name.strip()) for name in names if name)
    return match[1] if match and fine and len(names) > 1 else None


def _plain(cell: str) -> str:
    return cell.strip().partition("%")[0].lower()


@cache
def _form(name: str) -> re.Pattern[str] | None:
    return re.compile(_FORMS[name]) if name in _FORMS else None


def _fits(name: str, cell: str) -> bool:
    form = _form(name)
    return form is None or form.fullmatch(cell) is not None


def _with_ids(text: pl.DataFrame) -> pl.DataFrame:
    """Lines with the id of the job or step, by whichever column tells it."""
    found = (
        pl.when(pl.col(name).str.len_chars() > 0).then(name)
        for name in ("JobID", "JobIDRaw")
        if name in text.columns
    )
    return text.with_columns(pl.coalesce(found).alias("job_id"))
