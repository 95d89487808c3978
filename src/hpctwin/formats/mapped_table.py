"""Tables of jobs with other columns than hpctwin's, read with a mapping.

A value of the mapping is the name of a column, or an expression over columns in Polars's SQL:
``walltime: wall_min * 60``, ``nodes: 1``, ``state: CASE WHEN ok = 1 THEN 'COMPLETED' ELSE 'FAILED'
END``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import polars as pl

from hpctwin.errors import ArgumentError, ConfigError, TraceError, in_brief, near
from hpctwin.formats.accounting.sacct_records import STATES as SLURM_STATES
from hpctwin.formats.accounting.workload import job_table, workload_of
from hpctwin.formats.fields import (
    NOTHING,
    amount,
    duration_s,
    gigabytes,
    moments,
    unix_s,
    zone_of,
)
from hpctwin.formats.files import stem
from hpctwin.formats.own_columns import read_cells
from hpctwin.formats.record import STATES, Machine, Running, Tally
from hpctwin.model import Workload
from hpctwin.model.settings import Settings, read_yaml

Value = str | float
"""A column's name, an expression, or a number that all jobs have."""

_NO_LIMIT = ("unlimited", "partition_limit", "infinite")
_PAIR = re.compile(r",(?=\s*[a-z_]+\s*=(?!=))")


class Columns(Settings):
    """Columns of a table, or expressions over them, by field of a job.

    Args:
        submit, start, end: Dates (ISO 8601, with or without zone) or numbers of seconds.
        interval: Time from the previous job's submission to this one's, in seconds; replaces
            ``submit``.
        wait: Time from submission to start, in seconds or as ``1-02:03:04``; replaces ``start``.
        runtime: Run time, as ``wait``; by default from ``start`` to ``end``.
        walltime: Requested time, as ``wait``; the run time by default or if unlimited.
        nodes, cores, gpus: Amounts of the whole job; by default one node.
        memory_gb: Memory of the whole job, in GiB, or with a unit: ``4000M``.
        used_memory_gb: Maximum memory used on one of its nodes, as ``memory_gb``.
        state: Slurm's words (``COMPLETED``, ``CANCELLED by 0``) or `STATES`, in any case.
        job_id, user, account, partition, qos, priority: As in `hpctwin.model.workload.frame`.
        recorded_nodes: Numbers of the nodes on which it ran, ``3,4,5``.
        timezone: Time zone of dates that name none; by default UTC.
        shared: Whether jobs share nodes. Then each requests its cores, GPUs and memory on each of
            its nodes.
    """

    submit: Value | None = None
    interval: Value | None = None
    start: Value | None = None
    wait: Value | None = None
    end: Value | None = None
    runtime: Value | None = None
    walltime: Value | None = None
    nodes: Value | None = None
    cores: Value | None = None
    gpus: Value | None = None
    memory_gb: Value | None = None
    used_memory_gb: Value | None = None
    priority: Value | None = None
    job_id: Value | None = None
    state: Value | None = None
    user: Value | None = None
    account: Value | None = None
    partition: Value | None = None
    qos: Value | None = None
    recorded_nodes: Value | None = None
    timezone: str | None = None
    shared: bool = False

    settings: ClassVar[frozenset[str]] = frozenset({"timezone", "shared"})

    def given(self) -> dict[str, str]:
        """Return the mapped values, by field."""
        fields = self.model_dump(exclude=set(self.settings), exclude_none=True)
        return {
            name: f"{value:g}" if isinstance(value, float) else value
            for name, value in fields.items()
        }

    def enough(self) -> None:
        """Check that submit times and run times can be read."""
        if (self.submit is None) == (self.interval is None):
            raise ConfigError("columns: give either submit or interval")
        if self.start is not None and self.wait is not None:
            raise ConfigError("columns: give start or wait, not both")
        begins = self.start is not None or self.wait is not None
        if self.runtime is None and (self.end is None or not begins):
            raise ConfigError("columns: give runtime, or end with start or wait")


def columns_of(texts: Sequence[str]) -> Columns:
    """Return a mapping from the command line.

    Args:
        texts: A YAML file, or ``field=column``, or several of these separated by commas, each.

    Raises:
        ConfigError: One is neither, the file cannot be read, or there is no such field.
    """
    found: dict[str, Value] = {}
    for text in texts:
        if text.lower().endswith((".yaml", ".yml")):
            found.update(
                Columns.checked(read_yaml(text, "submit: submit_time"), text).model_dump(
                    exclude_unset=True
                )
            )
            continue
        for pair in _PAIR.split(text):
            name, equal, value = (part.strip() for part in pair.partition("="))
            if not equal or not name or not value:
                raise ConfigError(
                    f"--columns {text!r} must be a YAML file, or field=column,field=column, "
                    "such as submit=Submit,walltime=Timelimit"
                )
            found[name] = value
    columns = Columns.checked(found, "--columns")
    columns.enough()
    return columns


def as_columns(given: Columns | Mapping[str, Value] | Sequence[str] | str) -> Columns:
    """Return a mapping that is given as one, as a dict, or as text."""
    if isinstance(given, Columns):
        return given
    if isinstance(given, Mapping):
        return Columns.checked(given, "columns")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(one, str) for one in texts):
        raise ArgumentError(
            f"columns is {in_brief(given)}; it must be a dict such as {{'submit': 'Submit'}}, or text"
        )
    return columns_of(texts)


def read_mapped(
    path: Path,
    columns: Columns,
    *,
    timezone: str | None = None,
    skip_invalid: bool = False,
    running: Running = "elapsed",
) -> Workload:
    """Read a table of jobs: CSV, compressed or not, or Parquet.

    Columns of CSV without a header line have their numbers as names, from 1.

    Args:
        timezone: Time zone of dates that name none, instead of the mapping's.
        skip_invalid: Skip rows with a cell that cannot be read, and report them.
        running: How to read jobs without an end, which still ran when the table was written.

    Raises:
        TraceError: The file or a cell cannot be read; the message names line and column.
        ConfigError: The mapping names a missing column, or is no expression.
    """
    columns.enough()
    cells, tally = read_cells(path, skip_invalid=skip_invalid), Tally()
    tally.skipped += cells.skipped
    tally.remarks += cells.remarks
    zone = zone_of(timezone or columns.timezone)
    good = pl.repeat(True, len(cells.frame), eager=True)
    fields: dict[str, pl.Series] = {}
    for name, what in columns.given().items():
        found = _found(path, cells.frame, name, what)
        fields[name], bad = _read(name, found, zone, tally)
        for row in bad.arg_true():
            line = cells.line[row] if cells.line else None
            where = "" if cells.line else f"row {row + 1:,}: "
            fault = f"{where}found {str(found[row])[:40]!r}, expected {_EXPECTED[name]} ({name})"
            error = TraceError(path, fault, line=line, field=what)
            if not skip_invalid:
                raise error
            tally.skip(str(error))
        good &= ~bad
    used = {
        name for what in columns.given().values() for name in _columns_in(what, cells.frame.columns)
    }
    others = [name for name in cells.frame.columns if name not in used]
    if others:
        tally.remarks.append(f"columns ignored: {', '.join(others)[:300]}")
    tally.add("row skipped: a cell cannot be read", int((~good).sum()))
    records = pl.DataFrame(fields).filter(good) if fields else pl.DataFrame()
    if not len(records):
        raise TraceError(path, "it has no jobs")
    machine = Machine(shared=columns.shared, running=running)
    jobs = job_table([_derived(records, tally)], tally, machine).frame()
    return workload_of(jobs.drop("row", strict=False), stem(path), tally)


def _columns_in(what: str, there: Sequence[str]) -> list[str]:
    """Return the columns in a value of the mapping."""
    return [what] if what in there else pl.sql_expr(what).meta.root_names()


def _found(path: Path, frame: pl.DataFrame, name: str, what: str) -> pl.Series:
    """Return the values of a column or of an expression."""
    if what in frame.columns:
        return frame[what]
    here = f"columns, {name}: {what!r}"
    there = f"{path} has {', '.join(map(repr, frame.columns))[:300]}"
    try:
        expression = pl.sql_expr(what)
        names = expression.meta.root_names()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ConfigError(
            f"{here} is neither a column nor an expression over columns; {there}.{near(what, frame.columns)}"
        ) from error
    for one in names:
        if one not in frame.columns:
            raise ConfigError(
                f"{here}: there is no column {one!r}; {there}.{near(one, frame.columns)}"
            )
    numbers = frame.select(
        pl.lit(0).alias(""), *(_number_if_any(frame[one]) for one in dict.fromkeys(names))
    )
    try:
        made = numbers.select(expression.alias(name)).to_series()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = str(error).partition("\n")[0]
        raise ConfigError(f"{here} cannot be computed: {said}") from error
    return made.extend_constant(made[0], len(frame) - 1) if len(made) == 1 < len(frame) else made


def _number_if_any(column: pl.Series) -> pl.Series:
    """Return numbers if all texts are numbers."""
    if column.dtype != pl.String:
        return column
    number = column.cast(pl.Float64, strict=False)
    return number if number.null_count() == column.null_count() else column


def _read(
    name: str, found: pl.Series, zone: str | None, tally: Tally
) -> tuple[pl.Series, pl.Series]:
    """Return a field's values, and the rows with a value that cannot be read."""
    if found.dtype == pl.String:
        text = found.str.strip_chars()
        text = text.set(text.str.to_lowercase().is_in(NOTHING), None)
    else:
        text = found.fill_nan(None) if found.dtype.is_float() else found
    value = _KINDS[name](text, zone, tally).alias(name)
    return value, value.is_null() & text.is_not_null() & ~_says_no_limit(name, text)


def _says_no_limit(name: str, text: pl.Series) -> pl.Series:
    if name != "walltime" or text.dtype != pl.String:
        return pl.repeat(False, len(text), eager=True)
    return text.str.to_lowercase().is_in(_NO_LIMIT).fill_null(False)


def _moment(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    if text.dtype == pl.String:
        mine = Tally()
        found = moments(text, zone, mine)
        for what, count in mine.counts.items():
            if "cannot be parsed" not in what:  # the caller reports it with its line
                tally.add(what, count)
        return found
    if text.dtype == pl.Date:
        text = text.cast(pl.Datetime("ms"))
    if isinstance(text.dtype, pl.Datetime):
        if text.dtype.time_zone is None:
            text = text.dt.replace_time_zone(
                zone or "UTC", ambiguous="earliest", non_existent="null"
            )
        return text.dt.epoch("ms") / 1000
    return unix_s(text.cast(pl.Float64, strict=False), tally)


def _span(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    if text.dtype == pl.Duration:
        return text.dt.total_milliseconds() / 1000
    return duration_s(text) if text.dtype == pl.String else text.cast(pl.Float64, strict=False)


def _amount(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    return amount(text) if text.dtype == pl.String else text.cast(pl.Float64, strict=False)


def _memory(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    return gigabytes(text, "G") if text.dtype == pl.String else text.cast(pl.Float64, strict=False)


def _label(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    if text.dtype.is_float() and (text.drop_nulls() % 1 == 0).all():
        text = text.cast(pl.Int64, strict=False)
    return text.cast(pl.String)


def _state(text: pl.Series, zone: str | None, tally: Tally) -> pl.Series:
    said = text.cast(pl.String).str.to_lowercase()
    words = {word.lower(): state for word, state in SLURM_STATES.items()} | {s: s for s in STATES}
    first = said.str.extract(r"^([a-z_]+)")
    known = said.replace_strict(words, default=None, return_dtype=pl.String)
    known = known.fill_null(first.replace_strict(words, default=None, return_dtype=pl.String))
    strange = known.is_null() & said.is_not_null()
    for word, count in said.filter(strange).value_counts().iter_rows():
        tally.add(f"job of state {word[:40]}, unknown: treated as ended", count)
    return known.set(strange, "completed")


_KINDS: dict[str, Callable[[pl.Series, str | None, Tally], pl.Series]] = {
    **dict.fromkeys(("submit", "start", "end"), _moment),
    **dict.fromkeys(("interval", "wait", "runtime", "walltime"), _span),
    **dict.fromkeys(("nodes", "cores", "gpus", "priority"), _amount),
    **dict.fromkeys(("memory_gb", "used_memory_gb"), _memory),
    "state": _state,
    **dict.fromkeys(("job_id", "user", "account", "partition", "qos", "recorded_nodes"), _label),
}
_EXPECTED = {
    **dict.fromkeys(_KINDS, "text"),
    **dict.fromkeys(("submit", "start", "end"), "a date such as 2024-03-01T12:00:00 or seconds"),
    **dict.fromkeys(("interval", "wait", "runtime", "walltime"), "seconds or 1-02:03:04"),
    **dict.fromkeys(("nodes", "cores", "gpus", "priority"), "a number"),
    **dict.fromkeys(
        ("memory_gb", "used_memory_gb"), "a number of GiB, or one with its unit, such as 4000M"
    ),
}


def _derived(records: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return records with the fields that follow from others."""
    if "interval" in records.columns:
        records = records.with_columns(submit=pl.col("interval").fill_null(0).cum_sum())
    if "wait" in records.columns:
        records = records.with_columns(start=pl.col("submit") + pl.col("wait"))
    if {"start", "end"} <= set(records.columns) and "state" not in records.columns:
        unended = pl.col("start").is_not_null() & pl.col("end").is_null()
        if "runtime" in records.columns:
            unended &= pl.col("runtime").is_null()
        records = records.with_columns(state=pl.when(unended).then(pl.lit("running")))
    if "job_id" not in records.columns:
        return records.with_columns(job_id=pl.int_range(1, pl.len() + 1).cast(pl.String))
    # Often these are tasks of an array: each row is a job.
    task = pl.int_range(pl.len()).over("job_id", "submit").alias("_task")
    numbers = records.select("job_id", "submit", task)["_task"]
    tally.add("job with a repeated id, renamed as in 12_1", int((numbers > 0).sum()))
    name = pl.concat_str("job_id", pl.lit("_"), numbers.cast(pl.String))
    return records.with_columns(job_id=pl.when(numbers > 0).then(name).otherwise("job_id"))
