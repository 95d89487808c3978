"""From published data sets to workloads.

Files are found, recognized by their columns, read lazily, and checked once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl

from hpctwin.errors import ConfigError, TraceError, UnknownNameError, near
from hpctwin.formats.accounting.workload import job_table, workload_of
from hpctwin.formats.datasets.declared import USES, Column, DataSet, File, Given, Use
from hpctwin.formats.fields import moments, zone_of
from hpctwin.formats.files import (
    READING,
    first_bytes,
    open_binary,
    read_bytes,
    stem,
    unreadable,
)
from hpctwin.formats.record import Machine, Tally
from hpctwin.formats.systems import read_system
from hpctwin.model import NodeGroup, Workload
from hpctwin.model.cluster.power import node_w
from hpctwin.model.files import cause
from hpctwin.model.workload.frame import USE_STEP, is_usage
from hpctwin.model.workload.jobs import NODE_W

_UNIX = (1e8, 1e10)
"""Range of valid seconds since the epoch, from 1973 to 2286."""
_MUCH_LONGER = 1.5


def files_of(dataset: DataSet, path: Path) -> dict[str, list[Path]]:
    """Return the existing files of a data set, by name.

    Args:
        path: Its folder, or its first file; the other files are searched next to it.
    """
    folder = path if path.is_dir() else path.parent
    found = {
        file.name: sorted({one for glob in file.globs for one in folder.glob(glob)})
        for file in dataset.files
    }
    if not path.is_dir():
        found[dataset.main.name] = [path]
    return found


def columns_in(path: Path, file: File) -> dict[str, pl.DataType]:
    """Return the columns of a file and their types, which are text in CSV.

    A file without a header has the declared columns.
    """
    try:
        if file.form in ("headless", "swf", "other"):
            return {column.name: pl.String() for column in file.columns}
        if path.suffix == ".parquet":
            return dict(pl.read_parquet_schema(path))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(path, f"cannot be read: {_why(error)}") from error
    try:
        with open_binary(path) as source:
            head = source.readline()
    except READING as error:
        raise unreadable(path, error) from error
    if not head.strip():
        raise TraceError(path, "the file is empty")
    try:
        names = pl.read_csv(head, n_rows=0).columns
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(
            path, f"its first line is not a CSV header: {_why(error)}", line=1
        ) from error
    return {name: pl.String() for name in names}


def fits(dataset: DataSet, path: Path) -> float:
    """Return the share of needed columns in a file.

    The share is 0 if the file cannot be the data set's first one.
    """
    file = dataset.main
    if dataset.content is not None:
        head = first_bytes(path, 1 << 14)
        return float(re.search(dataset.content.encode(), head, re.M) is not None)
    if file.form != "table":
        return float(any(path.match(glob) for glob in file.globs))
    try:
        columns = columns_in(path, file)
    except TraceError:
        return 0.0
    needed = [column.name for column in file.columns if column.needed]
    share = sum(name in columns for name in needed) / len(needed)
    return share if share < 1 or dataset.told(columns) else 0.0


def read_dataset(
    path: str | Path,
    dataset: DataSet,
    *,
    use: Use = "measured",
    only: Sequence[str] = (),
    skip_invalid: bool = False,
    timezone: str | None = None,
) -> Workload:
    """Read a data set as it is published.

    Args:
        path: Its folder, or its first file; the other files are searched next to it.
        dataset: Data set.
        use: Data to read on how much jobs used of their nodes; see `USES`.
        only: Rows of the first file to read, ``column=value,value``; all conditions must hold.
        skip_invalid: Skip rows with a cell that cannot be read, and report them.
        timezone: Time zone of dates that name none, instead of the data set's.

    Raises:
        TraceError: A file or a needed column is missing, a cell cannot be read, or numbers are in
            another unit than declared; the message names file and column.
        ConfigError: An option is wrong.
    """
    path, tally = Path(path), Tally()
    if use not in USES:
        raise UnknownNameError("use", use, USES)
    zone = zone_of(timezone) or dataset.zone
    there = files_of(dataset, path)
    tables = {}
    for file in dataset.files:
        if there[file.name]:
            table = _scan(there[file.name], file, use, zone, tally)
            tables[file.name] = table if file is dataset.main else _counted(table, file, tally)
        elif file.needed:
            raise TraceError(path, f"it has no {file.name} of data set {dataset.name}")
        else:
            tally.remarks.append(f"there is no {file.name} next to it")
    rows = _rows(there[dataset.main.name][0], tables.pop(dataset.main.name), dataset, only, tally)
    main = _sound(there[dataset.main.name][0], rows, dataset, tally, skip_invalid=skip_invalid)
    parts = (
        {group.name: group for group in read_system(dataset.system).nodes} if dataset.system else {}
    )
    given = Given(main.lazy(), tables, parts, use, tally)
    try:
        records = dataset.records(given).collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(
            path, f"cannot be read as data set {dataset.name}: {_why(error)}"
        ) from error
    _check_lengths(path, records)
    del main
    return _workload(path, records, dataset, parts, tally)


def nodes_away(path: str | Path, dataset: DataSet) -> tuple[pl.DataFrame, Tally] | None:
    """Return outages of nodes in a data set, with columns `clusters.outages.AWAY`.

    None if the data set has no outages.
    """
    if dataset.away is None:
        return None
    name, away = dataset.away
    file = next(one for one in dataset.files if one.name == name)
    there, tally = files_of(dataset, Path(path))[name], Tally()
    if not there:
        return None
    try:
        return away(_scan(there, file, "none", dataset.zone, tally)).collect(), tally
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(there[0], f"cannot be read as {name}: {_why(error)}") from error


def _scan(paths: Sequence[Path], file: File, use: Use, zone: str, tally: Tally) -> pl.LazyFrame:
    """Return the declared columns of a file, each read as its kind requires.

    Missing columns, and columns that are not read for this use, are null.
    """
    frames = [_one(path, file) for path in paths]
    frame = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")
    schema = frame.collect_schema()
    for column in file.columns:
        if column.needed and column.name not in schema:
            raise TraceError(
                paths[0],
                f"the column is missing; found {', '.join(schema)[:300]}.{near(column.name, schema)}",
                field=column.name,
            )
        dtype, read = schema.get(column.name), use in column.read_for
        if column.kind == "list" and read and not isinstance(dtype, pl.List | pl.Array | None):
            raise TraceError(
                paths[0], f"has cells of {dtype}, expected lists of numbers", field=column.name
            )
    extra = [name for name in schema if name not in {column.name for column in file.columns}]
    if extra:
        tally.remarks.append(
            f"{paths[0].name}: columns ignored, as the published file does not have "
            f"them: {', '.join(extra)}"
        )
    return frame.select(
        _read_as(column, schema.get(column.name) if use in column.read_for else None, zone, tally)
        for column in file.columns
    )


def _counted(table: pl.LazyFrame, file: File, tally: Tally) -> pl.LazyFrame:
    """Return a secondary table that counts missing values when it is read.

    It counts needed numbers and times.
    """
    lock = Lock()

    def count(kind: str, cells: pl.Series) -> pl.Series:
        with lock:  # Polars reads with several threads
            what = f"cell of {file.name} without a valid {kind} in column {cells.name}"
            tally.add(what, cells.null_count())
        return cells

    return table.with_columns(
        pl.col(one.name).map_batches(partial(count, one.kind), pl.Float64, is_elementwise=True)
        for one in file.columns
        if one.needed and one.kind in ("number", "time")
    )


def _why(error: Exception) -> str:
    """Return the error in one line; Polars adds its plan, which does not help users."""
    said = cause(error) if isinstance(error, OSError) else str(error)
    return said.strip().partition("\n")[0]


def _one(path: Path, file: File) -> pl.LazyFrame:
    if not path.stat().st_size:
        raise TraceError(path, "the file is empty")
    if file.read is not None:
        try:
            return file.read(path).lazy()
        except pl.exceptions.PolarsError as error:
            raise TraceError(path, f"cannot be read: {_why(error)}") from error
    if file.form == "swf":
        return _separated(path, file)
    columns_in(path, file)  # reports what is wrong with the file, if anything
    if path.suffix == ".parquet":
        return pl.scan_parquet(path, glob=False)
    names = _names_without_head(path, file) if file.form == "headless" else None
    return pl.scan_csv(
        path,
        glob=False,
        has_header=names is None,
        new_columns=names,
        infer_schema=False,
        comment_prefix="#" if names else None,
        null_values=[""],
    )


def _names_without_head(path: Path, file: File) -> list[str]:
    """Return the names of all columns of a file without a header.

    Columns after the published ones have no published name.
    """
    names = [column.name for column in file.columns]
    with open_binary(path) as source:
        line = next((one for one in source if not one.startswith(b"#")), b"")
    width = pl.read_csv(line, has_header=False).width if line.strip() else 0
    if width < len(names):
        raise TraceError(
            path, f"has {width} columns, expected {len(names)}: {', '.join(names)}", line=1
        )
    return [*names, *(f"column {number + 1}" for number in range(len(names), width))]


def _separated(path: Path, file: File) -> pl.LazyFrame:
    """Return columns separated by blanks, as text.

    Submit times are since the epoch if the header gives the start.
    """
    lines = pl.Series("line", read_bytes(path).decode("utf-8", "replace").splitlines(), pl.String)
    lines = lines.str.strip_chars()
    zero: Any = lines.str.extract(r"^;\s*UnixStartTime:\s*(\d+)", 1).cast(pl.Float64).max()
    cells = lines.filter((lines != "") & ~lines.str.starts_with(";")).str.split(" ")
    cells = cells.list.eval(pl.element().filter(pl.element() != ""))
    short = (cells.list.len() < len(file.columns)).arg_max() if len(cells) else None
    if short is not None and len(cells[short]) < len(file.columns):
        raise TraceError(
            path, f"job {short + 1} has {len(cells[short])} columns, expected {len(file.columns)}"
        )
    names = [column.name for column in file.columns]
    table = pl.LazyFrame({name: cells.list.get(i) for i, name in enumerate(names)})
    return table.with_columns(pl.col("submit").cast(pl.Float64, strict=False) + (zero or 0.0))


def _read_as(column: Column, dtype: pl.DataType | None, zone: str, tally: Tally) -> pl.Expr:
    """Return a column as `Column.kind` requires."""
    name = column.name
    if dtype is None:
        kind: Any = {"text": pl.String, "list": pl.List(pl.Float64)}.get(column.kind, pl.Float64)
        return pl.lit(None, kind).alias(name)
    value = pl.col(name)
    if column.kind == "text":
        return listed_text(value, dtype).alias(name)
    if column.kind == "list":
        return value.cast(pl.List(pl.Float64), strict=False)
    if column.kind == "time":
        if isinstance(dtype, pl.Datetime):
            if dtype.time_zone is None:
                value = value.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
            return value.dt.epoch("ms") / 1000
        if isinstance(dtype, pl.String):
            return value.map_batches(
                lambda cells: moments(cells, zone, tally, seconds_only=True), pl.Float64
            )
    return value.cast(pl.Float64, strict=False)


def listed_text(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return text as it is; numbers without a point; lists joined by commas."""
    if isinstance(dtype, pl.List):
        return value.cast(pl.List(pl.String)).list.join(",")
    if dtype.is_float():
        whole = value.cast(pl.Int64, strict=False)
        return pl.when(whole == value).then(whole.cast(pl.String)).otherwise(value.cast(pl.String))
    return value.cast(pl.String)


def _rows(
    path: Path, frame: pl.LazyFrame, dataset: DataSet, only: Sequence[str], tally: Tally
) -> pl.DataFrame:
    """Return the requested rows of the first file."""
    wanted = []
    for text in only:
        name, equal, values = text.partition("=")
        if not equal:
            raise ConfigError(f"--only {text!r} must be column=value or column=value,value")
        known = frame.collect_schema()
        if name not in known:
            raise UnknownNameError(f"column of data set {dataset.name}", name, known)
        chosen = [part.strip() for part in values.split(",")]
        shown = listed_text(pl.col(name), known[name])
        wanted.append((text, shown.is_in(chosen).fill_null(False)))
    try:
        if not wanted:
            return frame.collect(engine="streaming")
        before = frame.select(
            pl.len(), *(which.sum().alias(str(i)) for i, (_, which) in enumerate(wanted))
        )
        kept = frame.filter(*(which for _, which in wanted))
        counts, rows = pl.collect_all([before, kept], engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(path, f"cannot be read: {_why(error)}") from error
    if len(rows) == 0 and counts["len"][0]:
        texts = " and ".join(text for text, _ in wanted)
        raise TraceError(path, f"none of its {counts['len'][0]:,} rows matches --only {texts}")
    for i, (text, _) in enumerate(wanted):
        tally.add(f"row skipped by --only {text}", counts["len"][0] - counts[str(i)][0])
    return rows


def _sound(
    path: Path, frame: pl.DataFrame, dataset: DataSet, tally: Tally, *, skip_invalid: bool
) -> pl.DataFrame:
    """Return the rows that have all needed values, in the expected units."""
    if not len(frame):
        raise TraceError(path, "it has no jobs")
    good = pl.repeat(True, len(frame), eager=True)
    for column in dataset.main.columns:
        values = frame[column.name]
        if column.needed and column.kind in ("number", "time") and values.null_count():
            row = int(values.is_null().arg_max() or 0)
            why = (
                f"row {row + 1} has no {column.kind} that can be read; --skip-invalid skips "
                "such rows"
            )
            error = TraceError(path, why, field=column.name)
            if not skip_invalid:
                raise error
            bad = values.is_null() & good
            good &= values.is_not_null()
            tally.add(f"row skipped: no {column.kind} in column {column.name}", int(bad.sum()))
            tally.skip(str(error))
        between = _UNIX if column.kind == "time" else column.median
        if between is not None:
            _check_unit(path, column, values, between)
    return frame.filter(good)


def _check_unit(
    path: Path, column: Column, values: pl.Series, between: tuple[float, float]
) -> None:
    if isinstance(values.dtype, pl.List):
        values = values.list.mean()
    known = values.filter((values > 0).fill_null(False))
    middle: Any = known.median()
    if middle is None or between[0] <= middle <= between[1]:
        return
    raise TraceError(
        path,
        f"the median is {middle:,.6g}, expected {between[0]:,.6g} to {between[1]:,.6g} "
        f"({column.meaning or 'seconds since the epoch'}): the column has another unit",
        field=column.name,
    )


def _check_lengths(path: Path, records: pl.DataFrame) -> None:
    """Check that run times and limits are in the same unit as starts and ends."""
    if not {"walltime", "start", "end"} <= set(records.columns):
        return
    limit, ran = records["walltime"], records["end"] - records["start"]
    if "runtime" in records.columns:
        ratio: Any = (records["runtime"] / ran).filter(ran > 0).median()
        if ratio is not None and not 0.2 <= ratio <= 5:
            raise TraceError(
                path,
                f"run times are {ratio:,.4g} times end minus start: the column has another unit",
            )
    known = (limit > 0) & (ran > 0)
    longer = int((known & (ran > _MUCH_LONGER * limit)).sum())
    if longer > 10 and longer > 0.5 * int(known.sum()):
        raise TraceError(
            path,
            f"{longer:,} of {int(known.sum()):,} jobs ran more than {_MUCH_LONGER:g} times their "
            "limit: the limits have another unit",
        )


def _workload(
    path: Path,
    records: pl.DataFrame,
    dataset: DataSet,
    parts: Mapping[str, NodeGroup],
    tally: Tally,
) -> Workload:
    used = [name for name in records.columns if is_usage(name.removesuffix(USE_STEP))]
    records = records.with_row_index("row")
    jobs = job_table([records], tally, Machine(shared=dataset.shared)).frame()
    if not len(jobs):
        why = ", ".join(f"{count:,} × {what}" for what, count in tally.notes().counts.items())
        raise TraceError(path, f"it has no usable job: {why or 'it has none'}")
    rows = jobs["row"].to_numpy()
    for name in used:
        jobs = jobs.with_columns(records[name].gather(rows).alias(name))
    for name in filter(is_usage, used):
        _tell_of_use(name, jobs, tally)
    if NODE_W in used:
        _check_power(path, jobs[NODE_W], parts)
    return workload_of(jobs.drop("row"), stem(path), tally)


def _tell_of_use(name: str, jobs: pl.DataFrame, tally: Tally) -> None:
    """Count the jobs whose use is unknown, or not known to their end."""
    column = jobs[name]
    if not isinstance(column.dtype, pl.List):
        tally.add(f"job with unknown {name}", int(column.is_null().sum()))
        return
    count = column.list.len().fill_null(0)
    tally.add(f"job with unknown {name}", int((count == 0).sum()))
    short = (count > 1) & ((count + 1) * jobs[name + USE_STEP] < jobs["runtime_s"])
    tally.add(f"job whose {name} ends early: the last sample is kept", int(short.sum()))


def _check_power(path: Path, power: pl.Series, parts: Mapping[str, NodeGroup]) -> None:
    """Check that the power of nodes is possible on this cluster."""
    mean: Any = (power.list.mean() if isinstance(power.dtype, pl.List) else power).median()
    idle = min((node_w(group.components, 0) for group in parts.values()), default=0)
    full = max((node_w(group.components, 1) for group in parts.values()), default=0)
    if mean is not None and full and not 0.2 * idle <= mean <= 2 * full:
        raise TraceError(
            path,
            f"the median power of a node is {mean:,.4g} W, but nodes of this cluster draw "
            f"{idle:,.4g} to {full:,.4g} W: power or node counts have another unit",
        )
