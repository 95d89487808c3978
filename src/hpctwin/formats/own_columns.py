"""Workloads as CSV and Parquet in hpctwin's columns.

`hpctwin.model.workload.frame` lists the columns. Jobs are read as they were written. A table cannot
hold what describes the whole workload: header, start date and cluster size. The name is the file's.
The separator of a table is the most frequent of ``,``, ``;``, tab and ``|`` in its first line.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError, WorkloadError
from hpctwin.formats.column_checks import (
    REQUIRED,
    TEXTS,
    TIMES,
    check_types,
    faults_of,
    is_ours,
    perhaps,
    remarks_of,
    rule_of,
)
from hpctwin.formats.fields import moments
from hpctwin.formats.files import decode, read_bytes, stem, without_packing, write_bytes
from hpctwin.formats.record import Tally, profiles_lost, swf_fields_lost
from hpctwin.model import ReadNotes, Workload, write_atomically
from hpctwin.model.columns import whole_or_text
from hpctwin.model.files import put_file
from hpctwin.model.requests.requests import parse_request
from hpctwin.model.text import FIRST_UNIX_S
from hpctwin.model.workload.frame import USE_STEP, with_least_nodes

_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Cells:
    """Rows of text or typed values.

    ``line`` is the line of each row if the file has lines, else ``before`` counts the rows before
    them. ``remarks`` say how the text was read.
    """

    frame: pl.DataFrame
    line: Sequence[int] | None
    skipped: tuple[str, ...] = ()
    before: int = 0
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    start_epoch_s: float | None = None
    remarks: tuple[str, ...] = ()


def read_csv(path: str | Path, *, skip_invalid: bool = False) -> Workload:
    """Read a CSV file with a header line, compressed or not.

    Args:
        path: File, separated by ``,``, ``;``, tab or ``|``.

    Raises:
        TraceError: The file cannot be read, a required column is missing or a row is malformed.
    """
    path = Path(path)
    text = _Text.of(path, read_bytes(path))
    if text.headless:
        raise TraceError(
            path,
            f"found {text.first[:60]!r}, expected a header row with the names of the columns; add one "
            f"({', '.join(REQUIRED)}, …), or name the columns by their numbers: --columns submit=1,runtime=3",
            line=1,
        )
    table = _csv_at_once(text)
    if table is not None:
        try:
            table = _prepared(path, table)
        except TraceError:
            table = None
    if table is not None and not faults_of(table.frame):
        return _workload(path, table)
    # There is an error: read row by row, to report where.
    return _checked(path, _csv_by_rows(path, text, skip_invalid), skip_invalid)


def read_parquet(path: str | Path, *, skip_invalid: bool = False) -> Workload:
    """Read a Parquet file.

    Raises:
        TraceError: The file cannot be read, a required column is missing or has an unsuitable type,
            or a row is malformed.
    """
    path = Path(path)
    frame = _parquet(path, read_bytes(path))
    return _checked(path, Cells(frame, None), skip_invalid)


def read_cells(path: Path, *, skip_invalid: bool = False) -> Cells:
    """Read a table as it is in a file: CSV, all of it text, or Parquet.

    Without a header row, columns have their numbers as names, from 1.

    Args:
        skip_invalid: Skip rows of CSV that have more or fewer cells than the header.
    """
    content = read_bytes(path)
    if content.startswith(_PARQUET_MAGIC):
        return Cells(_parquet(path, content), None)
    text = _Text.of(path, content)
    cells = _csv_at_once(text)
    if cells is None:
        return _csv_by_rows(path, text, skip_invalid)
    first = 1 if text.headless else 2
    return dataclasses.replace(cells, line=range(first, len(cells.frame) + first))


def _parquet(path: Path, content: bytes) -> pl.DataFrame:
    if not (content.startswith(_PARQUET_MAGIC) and content.endswith(_PARQUET_MAGIC)):
        raise TraceError(path, "not a Parquet file, or truncated")
    try:
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(path, f"a corrupt Parquet file ({error})") from error


def checked_piece(path: Path, frame: pl.DataFrame, before: int) -> Workload:
    """Return some rows of a table as a workload; dependencies are not read."""
    # Pieces have the same time zero only if it is that of Unix time.
    table = Cells(frame.drop("depends", strict=False), None, before=before, start_epoch_s=0.0)
    return _checked(path, table, skip_invalid=False)


def write_csv(workload: Workload, path: str | Path) -> tuple[str, ...]:
    """Write a CSV file atomically; ``.tsv`` means tabs, ``.gz`` etc. compression.

    Returns:
        One sentence for each thing that the format cannot hold.
    """
    frame = workload.to_frame()
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    frame = frame.with_columns(pl.col(lists).list.mean()).drop(name + USE_STEP for name in lists)
    mark = "\t" if without_packing(Path(path).name).endswith(".tsv") else ","
    write_bytes(Path(path), frame.write_csv(separator=mark).encode())
    means = [f"CSV cannot store samples over time: {name} is their mean" for name in lists]
    return (*_lost("CSV", workload), *means)


def write_parquet(workload: Workload, path: str | Path) -> tuple[str, ...]:
    """Write a Parquet file atomically.

    Returns:
        One sentence for each thing that the format cannot hold.
    """
    with write_atomically(Path(path)) as file:
        workload.to_frame().write_parquet(file)
    return _lost("Parquet", workload)


def write_parquet_parts(workloads: Iterable[Workload], path: str | Path) -> None:
    """Write workloads into one Parquet file, with one at a time in memory."""
    with tempfile.TemporaryDirectory(prefix="hpctwin-") as folder:
        parts = []
        for number, workload in enumerate(workloads):
            part = Path(folder) / f"{number}.parquet"
            workload.to_frame().write_parquet(part, compression="lz4")
            parts.append(pl.scan_parquet(part, glob=False))
        whole = Path(folder) / "whole.parquet"
        pl.concat(parts, how="diagonal_relaxed").sink_parquet(whole)
        put_file(whole, path)


def _lost(format_name: str, workload: Workload) -> tuple[str, ...]:
    in_use = {
        "header": workload.header,
        "start date": workload.start_epoch_s is not None,
        "machine size": workload.nodes_hint is not None,
    }
    return (
        *(f"{format_name} cannot store the {k}" for k, used in in_use.items() if used),
        *profiles_lost(format_name, workload),
        *swf_fields_lost(format_name, workload),
    )


@dataclass(frozen=True)
class _Text:
    """A table's text.

    Args:
        text: Whole text.
        mark: Separator of its cells.
        remarks: How it was read.
    """

    text: str
    mark: str
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path, content: bytes) -> _Text:
        """Decode a table's bytes and detect the separator of its cells."""
        if b"\0" in content[:_HEAD]:
            raise TraceError(path, "found binary data, expected a table of text (CSV)")
        remarks: tuple[str, ...] = ()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if b"\xff" in content:  # not a letter of Western European texts
                decode(path, content)
            line = content.count(b"\n", 0, error.start) + 1
            text = content.decode("latin-1")
            remarks = (f"the text is not UTF-8 (line {line:,}): read as Latin-1",)
        unquoted = re.sub(r'"[^"]*"', "", _first_line(text))
        return cls(text, max(",;\t|", key=unquoted.count), remarks)

    @property
    def first(self) -> str:
        """The first line."""
        return _first_line(self.text)

    @property
    def headless(self) -> bool:
        """Whether the first line is a row of values: one of its cells is a number."""
        return any(_NUMBER.fullmatch(cell.strip(' "')) for cell in self.first.split(self.mark))


def _first_line(text: str) -> str:
    found = re.match(r"[\r\n]*([^\r\n]*)", text)
    return found[1] if found else ""


_HEAD = 1 << 12
_NUMBER = re.compile(r"[+-]?\d+([.,]\d*)?([eE][+-]?\d+)?")


def _with_points(table: Cells, mark: str) -> Cells:
    """Replace decimal commas by points, unless commas separate cells."""
    if mark == ",":
        return table
    columns = []
    for name in table.frame.columns:
        text = table.frame[name].str.strip_chars().drop_nulls()
        numbers = text.str.contains(r"^[+-]?\d+(,\d+)?([eE][+-]?\d+)?$")
        if numbers.all() and text.str.contains(",", literal=True).any():
            columns.append(name)
    if not columns:
        return table
    said = f"numbers of column {', '.join(columns)} have a decimal comma"
    frame = table.frame.with_columns(pl.col(columns).str.replace(",", ".", literal=True))
    return dataclasses.replace(table, frame=frame, remarks=(*table.remarks, said))


def _csv_at_once(given: _Text) -> Cells | None:
    """Return the rows as text; None if rows differ in length or this is uncertain."""
    text, mark = given.text, given.mark
    header, _, body = text.partition("\n")
    columns = header.rstrip("\r").split(mark)
    if given.headless:
        columns, body = [str(number + 1) for number in range(len(columns))], text
    rows = body.rstrip("\n").count("\n") + 1
    # With quotes, separators do not give the number of cells; empty lines are no rows.
    if any(column != column.strip() for column in columns):
        return None
    if '"' in text or "\n\n" in text or "\r" in text or len(set(columns)) != len(columns):
        return None
    if body.count(mark) != rows * (len(columns) - 1) or len(columns) == 1:
        return None
    try:
        frame = pl.read_csv(
            text.encode(), infer_schema=False, quote_char=None, null_values="", separator=mark,
            has_header=not given.headless, new_columns=columns,
        )  # fmt: skip
    except (pl.exceptions.PolarsError, OSError):  # OSError: it takes the bytes for compressed ones
        return None
    return _with_points(Cells(frame, None, remarks=given.remarks), mark)


def _csv_by_rows(path: Path, given: _Text, skip_invalid: bool) -> Cells:
    reader = csv.reader(io.StringIO(given.text, newline=""), strict=True, delimiter=given.mark)
    rows: list[list[str | None]] = []
    lines: list[int] = []
    skipped: list[str] = []
    columns: list[str] = []
    try:
        for cells in reader:
            line = reader.line_num
            if not cells:
                continue
            if not columns and given.headless:
                columns = [str(number + 1) for number in range(len(cells))]
            elif not columns:
                columns = [cell.strip() for cell in cells]
                continue
            if len(cells) != len(columns):
                fault = TraceError(
                    path, f"found {len(cells)} cells, expected {len(columns)}", line=line
                )
                if not skip_invalid:
                    raise fault
                skipped.append(str(fault))
                continue
            rows.append([cell or None for cell in cells])
            lines.append(line)
    except csv.Error as error:
        raise TraceError(path, f"not CSV: {error}", line=reader.line_num) from error
    twice = [column for column in columns if columns.count(column) > 1]
    if twice:
        raise TraceError(path, "two columns have this name", line=1, field=twice[0])
    frame = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
    return _with_points(
        Cells(frame, tuple(lines), tuple(skipped), remarks=given.remarks), given.mark
    )


def _checked(path: Path, table: Cells, skip_invalid: bool) -> Workload:
    """Return the workload without malformed rows."""
    table = _prepared(path, _with_requests_read(path, table, skip_invalid))
    for name in REQUIRED:
        if name not in table.frame.columns:
            raise TraceError(
                path,
                f"the column is missing; required are {', '.join(REQUIRED)}, found "
                f"{', '.join(table.frame.columns)[:200]}{perhaps(name, table.frame.columns)}; "
                "use --columns to map other column names",
                field=name,
            )
    check_types(path, table.frame)
    faults = faults_of(table.frame)
    messages = []
    for row, (field, reason) in sorted(faults.items()):
        line = table.line[row] if table.line else None
        where = "" if table.line else f"row {table.before + row + 1:,}: "
        error = TraceError(path, where + reason, line=line, field=field)
        if not skip_invalid:
            raise error
        messages.append(str(error))
    good = ~pl.Series(range(len(table.frame)), dtype=pl.Int64).is_in(list(faults))
    skipped = (*table.skipped, *messages)
    return _workload(
        path, dataclasses.replace(table, frame=table.frame.filter(good), line=None, skipped=skipped)
    )


def _workload(path: Path, table: Cells) -> Workload:
    frame = table.frame
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        return _checked(path, table, skip_invalid=False)
    counts = dict(table.counts)
    frame = frame.with_columns(
        frame[name].cast(pl.Float64)
        for name, dtype in frame.schema.items()
        if rule_of(name, dtype) is not None
    ).with_columns(whole_or_text(frame[name]) for name in TEXTS if name in frame.columns)
    if "walltime_s" in frame.columns:
        empty = frame["walltime_s"].is_null()
        counts["job without walltime, given its run time"] = int(empty.sum())
        instead = pl.max_horizontal(pl.col("runtime_s"), pl.lit(0.001))
        frame = frame.with_columns(pl.col("walltime_s").fill_null(instead))
    for name in frame.columns:
        if not is_ours(name):
            counts[f"cell of unknown column {name!r}, ignored"] = len(frame)
    notes = ReadNotes(
        {why: n for why, n in counts.items() if n},
        table.skipped,
        (*table.remarks, *remarks_of(frame.columns)),
    )
    epoch_s = table.start_epoch_s
    if epoch_s is None and len(frame) and float(frame["submit_s"].min()) >= FIRST_UNIX_S:  # type: ignore[arg-type]
        epoch_s = 0.0
    try:
        return Workload.from_frame(frame, name=stem(path), notes=notes, start_epoch_s=epoch_s)
    except WorkloadError as error:
        raise TraceError(path, str(error)) from error


def _with_requests_read(path: Path, table: Cells, skip_invalid: bool) -> Cells:
    """Return the rows whose request can be read."""
    if "request" not in table.frame.columns:
        return table
    texts = table.frame["request"].cast(pl.String)
    unread: dict[str, str] = {}
    for text in texts.unique().drop_nulls():
        try:
            parse_request(text)
        except WorkloadError as error:
            unread[text] = str(error)
    if not unread:
        return table
    bad = texts.is_in(list(unread)).fill_null(False)
    messages = []
    for row in bad.arg_true():
        line = table.line[row] if table.line else None
        where = "" if table.line else f"row {table.before + row + 1:,}: "
        fault = TraceError(path, where + unread[texts[row]], line=line)
        if not skip_invalid:
            raise fault
        messages.append(str(fault))
    left = None if table.line is None else [table.line[row] for row in (~bad).arg_true()]
    return dataclasses.replace(
        table, frame=table.frame.filter(~bad), line=left, skipped=(*table.skipped, *messages)
    )


def _prepared(path: Path, table: Cells) -> Cells:
    """Return the table with missing node counts filled in, and dates as seconds.

    The seconds count from time zero.
    """
    counts = dict(table.counts)
    try:
        frame = with_least_nodes(table.frame, counts)
    except WorkloadError as error:
        raise TraceError(path, str(error)) from error
    table = dataclasses.replace(table, frame=frame, counts=counts)
    there = [name for name in TIMES if name in frame.columns]
    dated = [name for name in there if _has_dates(frame[name])]
    if not dated:
        zero = table.start_epoch_s if table.remarks else None
        return dataclasses.replace(table, frame=frame, start_epoch_s=zero)
    if "submit_s" not in dated:
        raise TraceError(
            path,
            "the column has dates, but submit_s does not: use dates in both or in neither",
            field=dated[0],
        )
    tally = Tally()
    at = {name: _moments(frame[name], tally) for name in there}
    zero = table.start_epoch_s
    if zero is None:
        zero = float(at["submit_s"].min() or 0)  # type: ignore[arg-type]
    for name, seconds in at.items():
        # Texts that are no dates stay as they are, for the message that names their line.
        text = frame[name].cast(pl.String)
        since = (seconds - zero).round(3).cast(pl.String).alias(name)
        frame = frame.with_columns(since.zip_with(seconds.is_not_null() | text.is_null(), text))
        if name != "submit_s":
            unknown = text.cast(pl.Float64, strict=False) < 0
            frame = frame.with_columns(frame[name].set(unknown.fill_null(False), None))
    said = (
        f"{', '.join(dated)}: dates, in UTC if they name no zone; use --columns with "
        "--timezone for another zone"
    )
    return dataclasses.replace(
        table, frame=frame, start_epoch_s=zero, remarks=(*table.remarks, said)
    )


def _has_dates(column: pl.Series) -> bool:
    if column.dtype == pl.String:
        some = column.drop_nulls().head(1)
        return bool(some.cast(pl.Float64, strict=False).is_null().any()) and bool(
            moments(some, None, Tally()).is_not_null().any()
        )
    return isinstance(column.dtype, pl.Datetime | pl.Date)


def _moments(column: pl.Series, tally: Tally) -> pl.Series:
    if column.dtype.is_temporal():
        return (
            column.cast(pl.Datetime("us", getattr(column.dtype, "time_zone", None))).dt.epoch("us")
            / 1e6
        )
    return moments(column, None, tally)
