"""Slurm's accounting: what ``sacct -P`` or ``-p`` and ``sacct --json`` write, and slurm2sql makes of it.

Any selection of columns will do that has ``JobID`` (or ``JobIDRaw``), ``Submit`` and how long a job ran:
``ElapsedRaw``, ``Elapsed``, or ``Start`` and ``End``. Steps are folded into their jobs: a job's line has all
that is read.

Source:
    Slurm's manual page sacct(1), and its output in versions 20.11 to 24.05.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats._accounting import (
    RECORD,
    Machine,
    Tally,
    empty_records,
    job_table,
    workload_of,
)
from hpctwin.formats._delimited import Table, lines_in, tables_in
from hpctwin.formats._fields import NOTHING, amount, duration_s, gigabytes, moments, zone_of
from hpctwin.formats._files import first_bytes, read_json, stem
from hpctwin.formats._job_table import JobTable
from hpctwin.formats._steps import jobs_with_steps
from hpctwin.formats.slurm2sql import MAGIC, slurm2sql_rows
from hpctwin.model import Workload
from hpctwin.model.consumables import NOT_CONSUMED

__all__ = ["COLUMNS", "STATES", "is_sacct", "read_sacct", "sacct_jobs", "sacct_table"]

COLUMNS = (
    "JobID", "JobIDRaw", "Submit", "Start", "End", "ElapsedRaw", "Elapsed", "Suspended", "TimelimitRaw",
    "Timelimit", "NNodes", "AllocNodes", "ReqNodes", "AllocCPUS", "NCPUS", "ReqCPUS", "AllocTRES", "ReqTRES",
    "AllocGRES", "ReqGRES", "ReqMem", "User", "Account", "Partition", "QOS", "Priority", "State", "NodeList",
    "MaxRSS", "NTasks",
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
    "ReqMem": r"[\d.]*[KMGTPE]?[nc]?\??|",
    "MaxRSS": r"[\d.]*[KMGTPE]?",
    **dict.fromkeys(("AllocTRES", "ReqTRES"), r"(?:[\w/:.\-]+=[\d.]+[KMGTPE]?,?)*"),
    **dict.fromkeys(("Partition", "Cluster", "QOS"), r"[^\s|]*"),
}  # fmt: skip

STATES = {
    **dict.fromkeys(("COMPLETED", "TIMEOUT", "DEADLINE"), "completed"),
    **dict.fromkeys(("FAILED", "OUT_OF_MEMORY"), "failed"),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"), "node failure"),
    **dict.fromkeys(
        ("PREEMPTED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"), "requeued"
    ),
    "CANCELLED": "cancelled",
    **dict.fromkeys(
        ("RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED"),
        "running",
    ),
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED_PENDING", "RESV_DEL_HOLD"), "waiting"),
}
Ways = list[tuple[str, Callable[[pl.Series], pl.Series]]]
_YEAR_S = 365 * 86400.0
_HOUR_S = 3600.0


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
                yield _records(text, zone, tally)

    return job_table(records(), tally, machine)


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


def _records(text: pl.DataFrame, zone: str | None, tally: Tally) -> pl.DataFrame:
    """Records of the lines of some jobs."""
    if not len(text):
        return empty_records()
    there = set(text.columns)
    used = text["used_memory_gb"]
    text = text.select(_nothing(name) for name in text.columns if name != used.name)
    times = [
        moments(text[name], zone, tally) for name in ("Submit", "Start", "End") if name in there
    ]
    times = [pl.select(pl.when(time > 0).then(time).alias(time.name))[time.name] for time in times]
    text = text.with_columns(times)
    frame = _fields(text).with_columns(_state(text, tally), used)
    odd = ~frame["job_id"].str.contains(r"^\d+(?:_\d+|_\[.*\]|\+\d+)?$").fill_null(False)
    if odd.any():
        tally.add("record left out: its id is none of a job", int(odd.sum()))
        frame = frame.filter(~odd)
    return _told_by_elapsed(frame, zone, tally)


def _nothing(name: str) -> pl.Expr:
    """Null where a cell says nothing."""
    cell = pl.col(name)
    return pl.when(cell.str.to_lowercase().is_in(NOTHING)).then(None).otherwise(cell).alias(name)


def _fields(text: pl.DataFrame) -> pl.DataFrame:
    """The fields of a record, but its state."""

    def first(*ways: tuple[str, Callable[[pl.Series], pl.Series]]) -> pl.Series | None:
        """What the first column tells; of the next, where that tells nothing."""
        found: pl.Series | None = None
        for column, read in ways:
            if column in text.columns and (found is None or found.null_count()):
                value = read(text[column])
                found = value if found is None else found.zip_with(found.is_not_null(), value)
        return found

    def positive(column: pl.Series) -> pl.Series:
        number = amount(column)
        return number.set(number <= 0, None)

    def as_written(column: pl.Series) -> pl.Series:
        return column

    def tres(key: str, read: Callable[[pl.Series], pl.Series] = amount) -> Ways:
        return [
            (column, lambda said: read(said.str.extract(rf"(?:^|,){key}=([^,]+)")))
            for column in ("AllocTRES", "ReqTRES")
        ]

    columns: dict[str, pl.Series | None] = {
        "submit": text["Submit"],
        "start": first(("Start", as_written)),
        "end": first(("End", as_written)),
        "runtime": first(("ElapsedRaw", amount), ("Elapsed", duration_s)),
        "suspended": first(("Suspended", duration_s)),
        "walltime": first(
            ("TimelimitRaw", _minutes),
            ("TimelimitRaw", _no_limit),
            ("Timelimit", duration_s),
            ("Timelimit", _no_limit),
        ),
        "nodes": first(
            ("NNodes", positive), ("AllocNodes", positive), *tres("node"), ("ReqNodes", positive)
        ),
        "cores": first(
            ("AllocCPUS", positive), ("NCPUS", positive), ("ReqCPUS", positive), *tres("cpu")
        ),
        "gpus": first(("AllocTRES", _gpus), ("ReqTRES", _gpus)),
        "consumables": first(("AllocTRES", _consumables), ("ReqTRES", _consumables)),
        "priority": first(("Priority", amount)),
        "user": first(("User", as_written)),
        "account": first(("Account", as_written)),
        "partition": first(("Partition", as_written)),
        "qos": first(("QOS", as_written)),
        "recorded_nodes": first(("NodeList", as_written)),
        "memory_gb": first(*tres("mem", gigabytes)),
    }
    made = text.select("job_id").with_columns(
        pl.lit(None, RECORD[name]).alias(name) if column is None else column.alias(name)
        for name, column in columns.items()
    )
    return _asked_otherwise(text, made)


def _asked_otherwise(text: pl.DataFrame, made: pl.DataFrame) -> pl.DataFrame:
    """Memory by ReqMem and GPUs by GRES, where no TRES told them."""
    if "ReqMem" in text.columns and made["memory_gb"].null_count():
        said = text["ReqMem"]
        # Before 21.08: of each core (c) or node (n); since then of the whole job.
        times = (
            pl.when(pl.lit(said.str.ends_with("c"))).then("cores")
            .when(pl.lit(said.str.ends_with("n"))).then("nodes")
            .otherwise(1.0).fill_null(1.0)
        )  # fmt: skip
        asked = pl.lit(gigabytes(said.str.strip_chars_end("?"))) * times
        made = made.with_columns(pl.coalesce("memory_gb", asked))
    for column in ("AllocGRES", "ReqGRES"):
        if column in text.columns:
            each = text[column].str.extract(r"gpu(?::[\w.\-]+)?:(\d+)").cast(pl.Float64)
            asked = pl.lit(each) * pl.col("nodes").fill_null(1.0)
            made = made.with_columns(pl.coalesce("gpus", asked))
    return made


def _minutes(said: pl.Series) -> pl.Series:
    return said.cast(pl.Float64, strict=False) * 60


def _no_limit(said: pl.Series) -> pl.Series:
    """A year, which is how long Slurm plans with, where there is no limit."""
    none = said.str.to_uppercase() == "UNLIMITED"
    return pl.select(pl.when(none).then(pl.lit(_YEAR_S)))[:, 0]


def _gpus(said: pl.Series) -> pl.Series:
    """Of a job. Typed GPUs are counted under gres/gpu too; only where that is missing, by their type."""
    if not said.str.contains("gres/gpu", literal=True).any():
        return said.is_not_null().cast(pl.Float64).replace(1.0, 0.0).set(said.is_null(), None)
    every = said.str.extract(r"(?:^|,)gres/gpu=(\d+)").cast(pl.Float64)
    typed = (
        said.str.extract_all(r"gres/gpu:[^=,]+=\d+")
        .list.eval(pl.element().str.extract(r"=(\d+)$").cast(pl.Float64))
        .list.sum()
    )
    return every.zip_with(every.is_not_null(), typed)


def _consumables(said: pl.Series) -> pl.Series:
    """Generic resources but GPUs, as ``fpga=2,tmp=400``; by type only where no sum is told."""
    texts = said.filter(said.str.contains("gres/", literal=True).fill_null(False)).unique()
    found = {text: had for text in texts.to_list() if (had := _consumables_of(text))}
    if not found:
        return pl.repeat(None, len(said), dtype=pl.String, eager=True)
    return said.replace_strict(found, default=None, return_dtype=pl.String)


def _consumables_of(said: str) -> str | None:
    found: dict[str, str] = {}
    typed: dict[str, int] = {}
    for name, kind, had in re.findall(r"gres/([\w.-]+)(?::([\w.-]+))?=(\w+)", said):
        if name in NOT_CONSUMED:
            continue
        if not kind:
            found[name] = had
        elif had.isdigit():
            typed[name] = typed.get(name, 0) + int(had)
    every = {**typed, **found}
    return ",".join(f"{name}={had}" for name, had in every.items()) or None


def _state(text: pl.DataFrame, tally: Tally) -> pl.Series:
    """What became of each, in the words of all managers."""
    if "State" not in text.columns:
        ended = pl.col("End").is_not_null() if "End" in text.columns else pl.lit(True)
        return text.select(
            pl.when(ended).then(pl.lit("completed")).otherwise(pl.lit("running")).alias("state")
        )["state"]
    word = text["State"].str.extract(r"^([A-Za-z_]+)").str.to_uppercase()
    state = word.replace_strict(STATES, default=None, return_dtype=pl.String).alias("state")
    if "End" in text.columns:
        # Its nodes are cleared, and it has ended.
        cleared = (word == "COMPLETING") & text["End"].is_not_null()
        state = state.set(cleared.fill_null(False), "completed")
    strange = state.is_null()
    if strange.any():
        for name, count in word.filter(strange).value_counts().iter_rows():
            tally.add(
                f"record of state {str(name)[:40]}, which is not known, taken for one that ended",
                count,
            )
        state = state.fill_null("completed")
    return state


def _told_by_elapsed(frame: pl.DataFrame, zone: str | None, tally: Tally) -> pl.DataFrame:
    """Starts and ends in the hour that the clock went through twice, told by how long the job ran."""
    odd = pl.col("end") - pl.col("start") - pl.col("suspended").fill_null(0) - pl.col("runtime")
    odd = pl.when(pl.col("state") != "running").then(odd)
    late, early = (odd - _HOUR_S).abs() < 2, (odd + _HOUR_S).abs() < 2
    counts = frame.select((late | early).fill_null(False).sum()).item()
    if zone is None:
        tally.add(
            "job that ran over a change of the clock: without --timezone its wait may be an hour off",
            counts,
        )
        return frame
    tally.add(
        "time in the hour that the clock went through twice, told by how long the job ran", counts
    )
    return frame.with_columns(
        start=pl.when(late).then(pl.col("start") + _HOUR_S).otherwise("start"),
        end=pl.when(early).then(pl.col("end") + _HOUR_S).otherwise("end"),
    )
