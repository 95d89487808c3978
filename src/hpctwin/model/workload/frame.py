"""A workload as a table: hpctwin's columns, for CSV, Parquet and data frames.

======================  ==========================================================================
column                  meaning
======================  ==========================================================================
``job_id``              integer or text, unique; default 1, 2, …
``submit_s``            submit time, seconds (required)
``runtime_s``           run time, seconds (required)
``walltime_s``          requested limit, seconds; default the run time
``nodes``               nodes requested (required); for a job with ``tasks``, the minimum
                        (default 1)
``tasks``               tasks of a job that shares nodes; empty or 0 for whole nodes
``cores_per_task`` …    request of each task: ``cores_per_task`` (default 1),
                        ``memory_gb_per_task``, ``gpus_per_task`` (default 0; may be fractions)
``tasks_per_node``      largest number of tasks of the job on a node; 0: any number
``request``             user's request for ``sbatch`` or ``qsub``: ``-N 2 -n 8 -c 4 -t 60``,
                        ``select=3:ncpus=8:ngpus=1 place=scatter``
                        (`hpctwin.model.requests.requests`)
``exclusive``           1 (or true) if it shares its nodes with no other job, else 0
``spread_job``          1 (or true) if it is placed on as many nodes as possible, else 0
``shared_with``         jobs that may run next to it on its nodes: of ``anyone`` (0), only of its
                        ``user`` (1) or ``account`` (2)
``user`` … ``qos``      labels: ``user``, ``account``, ``partition``, ``qos``
``more_tasks``          further kinds of its tasks: ``1:cores=32:gpus=4``
                        (`chunks.read_more_tasks`)
``group_by``            name whose value is the same on all its nodes: ``rack``, for features
                        such as ``rack=r1``
``profile``             name of its profile in a file of Batsim, for results
``features``            features its nodes must have: ``a100``, ``a100|v100`` (any),
                        ``avx512&ib`` (all)
``priority``            larger is sooner
``cores_per_node`` …    minimum of each node: ``cores``, ``gpus``, ``memory_gb``
``consumable_NAME``     request of each task for another node resource, such as
                        ``consumable_fpga``; for whole nodes, the minimum of each node
``res_NAME``            amount of the cluster-wide resource NAME
``depends``             ``afterok:12;afterany:13+600`` or ``think:13+600``: kind, id, seconds
                        after it
``dependency``          the same as in ``sbatch --dependency`` or ``qsub -W depend``, with
                        minutes; a missing job counts as ended
``job_name``            name of a job, by which ``singleton`` finds jobs
``recorded_start_s``    recorded start
``recorded_nodes``      recorded nodes, as text
``cancel_s``            time at which its user cancelled it
``fails``               1 if it ends with an error at the end of its run time, else 0
``checkpoint_s``        interval of its checkpoints, in run time; 0: never
``min_nodes``           smallest number of nodes (default ``nodes``), and …
``max_nodes``           … largest (default ``nodes``), if sizes are decided while it runs
``speedup``             speed on n nodes relative to one: ``linear`` (default),
                        ``amdahl:0.05`` (serial share), or for 1, 2, … nodes ``1/1.9/2.7``
``suspendable``         1 (or true) if it may be suspended and resumed later, else 0
``resize_s``            seconds without progress after it resumes or changes its nodes
``flops``               computation of all nodes together, flop; empty: for ``runtime_s``
``comm_bytes``          bytes that all nodes send together, in the pattern ``comm_pattern``:
                        ``all-to-all`` (default), ``ring``, ``neighbor-2d``, ``neighbor-3d``,
                        ``gather``, ``broadcast``
``iterations``          number of times that it computes and communicates (default 1)
``read_bytes``          bytes that all nodes read together before, and …
``write_bytes``         … write after that, of the storage named ``storage``
``use_NAME``            use of the component NAME of its nodes, 0 to 1: the mean, or a list
``node_w``              measured power of one of its nodes, W: the mean, or a list
``used_memory_gb``      maximum memory used on one of its nodes, GiB
``predicted_NAME``      predicted ``runtime_s``, ``node_w`` or ``memory_gb`` (of a node)
``use_NAME_step_s`` …   seconds from one sample of such a list to the next, also
                        ``node_w_step_s``
======================  ==========================================================================

Other columns are not read. Empty cells are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ArgumentError, WorkloadError, in_brief
from hpctwin.model.columns import PER_NODE, PREDICTED, Category, known_seconds, whole_or_text
from hpctwin.model.requests.chunks import CHUNKS, SHARED_WITH, more_tasks_text
from hpctwin.model.requests.resources import COLUMN
from hpctwin.model.text import MS_PER_S, to_ms
from hpctwin.model.workload.demands import AMOUNTS, DEMANDS
from hpctwin.model.workload.dependencies import (
    Dependencies,
    DependencyKind,
    Said,
    chain_text,
    finder,
    parse_dependencies,
    singletons,
    waiting_chain,
)
from hpctwin.model.workload.jobs import NODE_W, Usage
from hpctwin.model.workload.malleable import MALLEABLE

if TYPE_CHECKING:
    from hpctwin.model.requests.requests import Request

USE_STEP = "_step_s"
"""Suffix of a column of steps, after the name of the column of usage."""

LABEL_COLUMNS = (
    "user", "account", "partition", "qos", "features", "more_tasks", "group_by", "profile",
)  # fmt: skip
_EDGE = re.compile(r"(after(?:any|ok)?|think):([^+;]+)(?:\+(\d+(?:\.\d+)?))?")
_MINUTE_S = 60.0

NOT_THERE = "dependency on an unknown job: treated as ended"

Counts = dict[str, int]
"""Number of jobs, by what a reader changed."""


def to_frame(workload: Mapping[str, Any]) -> pl.DataFrame:
    """Return a workload, given as its fields by name, as a frame.

    Columns in which all values are unknown are omitted.
    """
    columns: dict[str, Any] = {
        "job_id": workload["job_id"],
        "submit_s": workload["submit_ms"] / MS_PER_S,
        "runtime_s": workload["runtime_ms"] / MS_PER_S,
        "walltime_s": workload["walltime_ms"] / MS_PER_S,
        "nodes": workload["nodes"],
    }
    for name in LABEL_COLUMNS:
        category: Category = workload[name]
        if category.labels:
            columns[name] = category.to_series(name)
    if workload["priority"].any():
        columns["priority"] = workload["priority"]
    columns |= {f"{name}_per_node": values for name, values in workload["per_node"].items()}
    columns |= workload["chunks"]
    columns |= {f"{COLUMN}{name}": values for name, values in workload["consumables"].items()}
    columns |= {f"res_{name}": values for name, values in workload["resources"].items()}
    if len(workload["dependencies"]):
        columns["depends"] = _depends_text(workload["dependencies"], workload["job_id"])
    for name in ("recorded_start", "cancel"):
        ms: npt.NDArray[np.int64] = workload[f"{name}_ms"]
        if (ms >= 0).any():
            columns[f"{name}_s"] = known_seconds(ms, ms >= 0)
    if workload["fails"] is not None:
        columns["fails"] = workload["fails"].astype("int8")
    if workload["malleable"] is not None:
        columns |= workload["malleable"].columns()
    for name, amounts in workload["demands"].items():
        if isinstance(amounts, Category):
            columns |= {name: amounts.to_series(name)} if amounts.labels else {}
        else:
            columns[name] = pl.Series(amounts, nan_to_null=True)
    if workload["checkpoint_ms"] is not None:
        every = workload["checkpoint_ms"]
        columns["checkpoint_s"] = known_seconds(every, every >= 0)
    if workload["used_memory_gb"] is not None:
        columns["used_memory_gb"] = pl.Series(workload["used_memory_gb"], nan_to_null=True)
    columns |= _usage_columns(workload["usage"])
    columns |= {
        f"predicted_{name}": pl.Series(values, nan_to_null=True)
        for name, values in workload["predicted"].items()
    }
    if workload["recorded_nodes"] is not None:
        columns["recorded_nodes"] = pl.Series(workload["recorded_nodes"], dtype=pl.String)
    return pl.DataFrame(columns)


def as_frame(given: Any) -> pl.DataFrame:
    """Return a table as a Polars frame.

    Args:
        given: A Polars frame, a dict of columns, or a table of pandas or Arrow.
    """
    if isinstance(given, pl.DataFrame):
        return given
    if isinstance(given, pl.LazyFrame):
        return given.collect()
    try:
        if isinstance(given, Mapping):
            return pl.DataFrame(dict(given), strict=False)
        if hasattr(given, "columns") and hasattr(given, "__getitem__"):
            names = getattr(given, "column_names", None) or list(given.columns)
            return pl.DataFrame({str(one): np.asarray(given[one]) for one in names}, strict=False)
    except Exception as error:  # of Polars, which has many kinds
        raise ArgumentError(
            f"frame is {in_brief(given)}, which is not a table: {in_brief(error)}"
        ) from error
    raise ArgumentError(
        f"frame is {in_brief(given)}; it must be a table: a Polars frame, or a dict of columns"
    )


def columns_of(frame: pl.DataFrame, counts: Counts | None = None) -> dict[str, Any]:
    """Return the arguments of `Workload.build` from a frame with the columns above.

    Raises:
        WorkloadError: A required column is missing, or a value is impossible.
    """
    counts = {} if counts is None else counts
    said = "walltime_s" in frame.columns
    frame = with_least_nodes(_plain(frame), counts)
    if not said and {"walltime_s", "runtime_s"} <= set(frame.columns):  # some requests give it
        empty = int(frame["walltime_s"].null_count())
        counts |= {"job without walltime, given its run time": empty} if empty else {}
        instead = pl.max_horizontal(
            pl.col("runtime_s").cast(pl.Float64, strict=False), pl.lit(0.001)
        )
        frame = frame.with_columns(pl.col("walltime_s").cast(pl.Float64).fill_null(instead))
    for name in ("submit_s", "runtime_s", "nodes"):
        if name not in frame.columns:
            raise WorkloadError(
                f"column {name} is missing; required are submit_s, runtime_s, nodes; "
                f"found {', '.join(frame.columns)}"
            )
    ids = None
    if "job_id" in frame.columns:
        column = frame["job_id"]
        if column.null_count():
            raise WorkloadError(
                f"row {column.is_null().arg_max()}: job_id is empty; give each job one"
            )
        ids = (whole_or_text(column) if column.dtype.is_float() else column).to_numpy()
    labels: dict[str, Any] = {
        name: Category.of(frame[name]) for name in LABEL_COLUMNS if name in frame.columns
    }
    row_ids = np.arange(1, len(frame) + 1) if ids is None else ids
    return {
        "job_id": ids,
        "submit_s": _numbers(frame, "submit_s", row_ids),
        "runtime_s": _numbers(frame, "runtime_s", row_ids),
        "walltime_s": _optional(frame, "walltime_s", row_ids, None),
        "nodes": _numbers(frame, "nodes", row_ids),
        "priority": _optional(frame, "priority", row_ids, 0),
        "per_node": _group(frame, {one: f"{one}_per_node" for one in PER_NODE}, row_ids, 0),
        "resources": _group(frame, _prefixed(frame, "res_"), row_ids, 0),
        "consumables": _group(frame, _prefixed(frame, COLUMN), row_ids, 0),
        "chunks": {
            name: _numbers(frame, name, row_ids, CHUNKS[name])
            for name in CHUNKS
            if name in frame.columns
        },
        "dependencies": _dependencies(frame, row_ids, counts),
        "recorded_start_s": _optional(frame, "recorded_start_s", row_ids),
        "recorded_nodes": (
            frame["recorded_nodes"].cast(pl.String).to_list()
            if "recorded_nodes" in frame.columns
            else None
        ),
        "cancel_s": _optional(frame, "cancel_s", row_ids),
        "fails": _numbers(frame, "fails", row_ids, 0) != 0 if "fails" in frame.columns else None,
        "checkpoint_s": _optional(frame, "checkpoint_s", row_ids),
        "used_memory_gb": _optional(frame, "used_memory_gb", row_ids, float("nan")),
        "usage": _usage(frame, row_ids),
        "malleable": {
            name: Category.of(frame[name].cast(pl.String))
            if name == "speedup"
            else _numbers(frame, name, row_ids, float("nan"))
            for name in MALLEABLE
            if name in frame.columns
        },
        "demands": {
            name: _numbers(frame, name, row_ids, float("nan"))
            if name in AMOUNTS
            else Category.of(frame[name].cast(pl.String))
            for name in DEMANDS
            if name in frame.columns
        },
        "predicted": _group(
            frame, {one: f"predicted_{one}" for one in PREDICTED}, row_ids, float("nan")
        ),
        **labels,
    }


_READ = {
    "job_id", "submit_s", "runtime_s", "walltime_s", "nodes", "priority", "recorded_start_s",
    "recorded_nodes", "cancel_s", "fails", "checkpoint_s", "used_memory_gb", "depends", "dependency",
    "job_name", "request", NODE_W, *LABEL_COLUMNS, *CHUNKS, *MALLEABLE, *DEMANDS,
}  # fmt: skip
_READ_BEGIN = ("res_", COLUMN, "predicted_", "use_")


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with categories as text, and durations in seconds.

    Raises:
        WorkloadError: A column that is read holds neither numbers nor text, such as dates.
    """
    plain = []
    for name, dtype in frame.schema.items():
        if dtype in (pl.Categorical, pl.Enum, pl.Int128):
            plain.append(pl.col(name).cast(pl.String))
        elif dtype == pl.Duration:
            plain.append(pl.col(name).dt.total_microseconds() / 1e6)
        elif not (
            dtype.is_numeric()
            or dtype in (pl.String, pl.Boolean, pl.Null)
            or (is_usage(name) and isinstance(dtype, pl.List | pl.Array))
        ) and (name in _READ or name.startswith(_READ_BEGIN) or name.endswith("_per_node")):
            raise WorkloadError(
                f"column {name} holds {dtype}; it must hold numbers or text, and times in seconds"
            )
    return frame.with_columns(plain)


def is_usage(name: str) -> bool:
    """Return whether a column is about the use of nodes."""
    return name == NODE_W or (name.startswith("use_") and not name.endswith(USE_STEP))


def _usage_columns(usage: Mapping[str, Usage]) -> dict[str, pl.Series]:
    columns: dict[str, pl.Series] = {}
    for name, found in usage.items():
        head = name if name == NODE_W else f"use_{name}"
        if (found.count > 1).any():
            # Polars turns lists of one length into fixed arrays, regardless of the requested type.
            lists = pl.Series(np.split(found.values, found.first[1:-1]))
            columns[head] = lists.cast(pl.List(pl.Float64))
            columns[head + USE_STEP] = pl.Series(found.step_ms / MS_PER_S)
        else:
            means = np.full(len(found), np.nan)
            means[found.count > 0] = found.values
            columns[head] = pl.Series(means, nan_to_null=True)
    return columns


def _usage(frame: pl.DataFrame, ids: npt.NDArray[Any]) -> dict[str, Usage]:
    found = {}
    for head in filter(is_usage, frame.columns):
        name, column = head.removeprefix("use_"), frame[head]
        if not column.dtype.is_nested():
            found[name] = Usage.averages(_numbers(frame, head, ids, float("nan")))
            continue
        lists = column.cast(pl.List(pl.Float64)).list.drop_nulls()
        count = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
        step_ms = np.ones(len(frame), np.int64)
        if (count > 1).any():
            step = head + USE_STEP
            if step not in frame.columns:
                raise WorkloadError(
                    f"{head} has lists; a column {step} must give the seconds between samples"
                )
            seconds = _numbers(frame, step, ids, 0)
            short = (count > 1) & ~(seconds * MS_PER_S >= 1)
            if short.any():
                row = int(np.argmax(short))
                raise WorkloadError(
                    f"job {ids[row]}: {step} is {seconds[row]:g}; it must be 0.001 or more"
                )
            step_ms = np.maximum(np.rint(seconds * MS_PER_S), 1).astype(np.int64)
        first = np.concatenate([[0], np.cumsum(count)])
        values = lists.list.explode(keep_nulls=False, empty_as_null=False).to_numpy()
        found[name] = Usage(first, step_ms, values.astype(np.float64))
    return found


def with_least_nodes(frame: pl.DataFrame, counts: Counts | None = None) -> pl.DataFrame:
    """Fill in values from requests, missing node counts, and 0 and 1 for truth values.

    A job with tasks and no ``nodes`` gets one node.
    """
    if "request" in frame.columns:
        frame = _with_requests(frame, {} if counts is None else counts)
    for name in ("exclusive", "fails", "spread_job", "suspendable"):
        if name in frame.columns and frame[name].dtype == pl.Boolean:
            frame = frame.with_columns(frame[name].cast(pl.Int64))
        elif name in frame.columns and frame[name].dtype == pl.String:
            word = pl.col(name).str.to_lowercase()
            frame = frame.with_columns(
                pl.when(word == "true").then(pl.lit("1"))
                .when(word == "false").then(pl.lit("0"))
                .otherwise(pl.col(name)).alias(name)
            )  # fmt: skip
    if "shared_with" in frame.columns and frame["shared_with"].dtype == pl.String:
        word = pl.col("shared_with").str.to_lowercase()
        for number, name in enumerate(SHARED_WITH):
            word = pl.when(word == name).then(pl.lit(str(number))).otherwise(word)
        frame = frame.with_columns(word.alias("shared_with"))
    if "tasks" not in frame.columns or not (
        frame["tasks"].dtype.is_numeric() or frame["tasks"].dtype in (pl.String, pl.Null)
    ):
        return frame  # without tasks, or with an error that other checks report
    shares = pl.col("tasks").cast(pl.Float64, strict=False).fill_null(0) > 0
    if "nodes" not in frame.columns:
        return frame.with_columns(nodes=pl.when(shares).then(1)) if len(frame) else frame
    given = frame["nodes"].dtype
    least = pl.when(shares & pl.col("nodes").is_null()).then(pl.lit(1).cast(given))
    return frame.with_columns(nodes=least.otherwise(pl.col("nodes")))


def _with_requests(frame: pl.DataFrame, counts: Counts) -> pl.DataFrame:
    """Return a frame with the columns from ``request``; other columns have precedence."""
    from hpctwin.model.requests.requests import parse_request

    jobs = frame["request"].drop_nulls().value_counts(sort=True)
    requests = {text: parse_request(text) for text in jobs["request"]}
    if not requests:
        return frame.drop("request")
    alone = any("singleton" in (one.dependency or "") for one in requests.values())
    omitted = {
        text: (*one.ignored, *(["the job's name"] if one.name and not alone else []))
        for text, one in requests.items()
    }
    ignored: dict[str, int] = {}
    for text, count in jobs.iter_rows():
        for option in omitted[text]:
            ignored[option] = ignored.get(option, 0) + count
    if ignored:
        options = ", ".join(f"{option} {count:,}" for option, count in ignored.items())
        number = int(sum(n for text, n in jobs.iter_rows() if omitted[text]))
        counts[
            f"request with options that are not modeled, ignored (jobs by option): {options}"
        ] = number
    rows = [{"request": text, **_columns_asked(one)} for text, one in requests.items()]
    asked = pl.DataFrame(rows, infer_schema_length=None)
    asked = asked[[name for name in asked.columns if asked[name].null_count() < len(asked)]]
    found = frame.join(asked, on="request", how="left", maintain_order="left", suffix="_asked")
    if "nodes" in frame.columns:
        # A request without sizes leaves them to the column.
        sized = (
            pl.col("request").replace_strict(
                {text: one.sized for text, one in requests.items()}, default=True
            )
            | pl.col("nodes").is_null()
        )
        found = found.with_columns(
            pl.when(sized).then(pl.col(name)).alias(name)
            for name in (one + "_asked" * (one in frame.columns) for one in _SIZES_ASKED)
            if name in found.columns
        )
    for name in asked.columns[1:]:
        other = f"{name}_asked"
        if other in found.columns:
            own = pl.col(name).cast(pl.String)
            both = pl.coalesce(own, pl.col(other).cast(pl.String))
            found = found.with_columns(both.alias(name)).drop(other)
    return found.drop("request")


_SIZES_ASKED = ("tasks", "cores_per_task", "memory_gb_per_task", "gpus_per_task", "tasks_per_node")


def _columns_asked(request: Request) -> dict[str, Any]:
    return {
        "nodes": request.nodes,
        "tasks": request.tasks,
        "cores_per_task": request.cores,
        "memory_gb_per_task": request.memory_gb,
        "gpus_per_task": request.gpus,
        "tasks_per_node": request.tasks_per_node,
        "exclusive": request.exclusive,
        "shared_with": request.shared_with,
        "spread_job": request.spread_job,
        "features": request.features,
        "more_tasks": more_tasks_text(request.more) or None,
        "group_by": request.group_by,
        "walltime_s": request.walltime_s,
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "priority": request.priority,
        "job_name": request.name,
        "dependency": request.dependency,
        **{f"{COLUMN}{name}": amount for name, amount in request.consumables},
    }


def _numbers(
    frame: pl.DataFrame, name: str, ids: npt.NDArray[Any], missing: float | None = None
) -> npt.NDArray[np.float64]:
    column = frame[name]
    numbers = column.cast(pl.Float64, strict=False)
    wrong = numbers.is_null() & column.is_not_null()
    if missing is None:
        wrong |= column.is_null()
    else:
        numbers = numbers.fill_null(missing)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        found = "empty" if column[row] is None else repr(column[row])
        raise WorkloadError(f"job {ids[row]}: {name} is {found}; it must be a number")
    return numbers.to_numpy()


def _optional(
    frame: pl.DataFrame, name: str, ids: npt.NDArray[Any], unknown: float | None = -1
) -> npt.NDArray[np.float64] | None:
    return _numbers(frame, name, ids, unknown) if name in frame.columns else None


def _group(
    frame: pl.DataFrame, columns: Mapping[str, str], ids: npt.NDArray[Any], unknown: float
) -> dict[str, npt.NDArray[np.float64]]:
    """Return numbers by name, from the existing columns."""
    there = {name: column for name, column in columns.items() if column in frame.columns}
    return {name: _numbers(frame, column, ids, unknown) for name, column in there.items()}


def _prefixed(frame: pl.DataFrame, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): name for name in frame.columns if name.startswith(prefix)}


def _decimal(ms: int) -> str:
    """Return seconds, to the millisecond, without an exponent."""
    return f"{ms // MS_PER_S}.{ms % MS_PER_S:03}".rstrip("0").rstrip(".")


def _depends_text(edges: Dependencies, ids: npt.NDArray[Any]) -> pl.Series:
    texts: list[list[str]] = [[] for _ in range(len(ids))]
    for job, on, kind, delay in zip(edges.job, edges.on, edges.kind, edges.delay_ms, strict=True):
        after = f"+{_decimal(int(delay))}" if delay else ""
        texts[job].append(f"{DependencyKind(kind).name.lower()}:{ids[on]}{after}")
    return pl.Series([";".join(t) or None for t in texts], dtype=pl.String)


def _waits(depends: pl.Series, ids: npt.NDArray[Any]) -> dict[str, str]:
    """Return the first waiting job for each job that another waits for."""
    waits: dict[str, str] = {}
    for other, text in enumerate(depends.cast(pl.String)):
        for match in _EDGE.finditer(text or ""):
            waits.setdefault(match[2], str(ids[other]))
    return waits


def named_edges(
    depends: pl.Series, ids: npt.NDArray[Any]
) -> list[tuple[int, str, DependencyKind, int]]:
    """Read a column ``depends``.

    An edge is the row of the waiting job, the id of the other, the kind, and the delay in ms.
    """
    edges = []
    for row, said in _said(depends, ids):
        if said.kind is None or said.waits or said.lost:
            raise WorkloadError(
                f"job {ids[row]}: depends is {said.word!r}, which is not supported for piecewise "
                "reading; write after, afterany, afterok or think"
            )
        edges.append((row, said.on, said.kind, to_ms(said.delay)))
    return edges


def _said(depends: pl.Series, ids: npt.NDArray[Any]) -> Iterator[tuple[int, Said]]:
    """Yield the dependencies in a column, each with the row of its job."""
    names = set(map(str, ids))
    for row, text in enumerate(depends.cast(pl.String)):
        if not text:
            continue
        for part in text.split(";"):
            match = _EDGE.fullmatch(part.strip())
            if match and (match[2] in names or not re.search(r"[:,?(]", match[2])):
                delay = float(match[3] or 0)
                yield (
                    row,
                    Said(match[1], match[2], delay, DependencyKind[match[1].upper()], False, ""),
                )
                continue
            try:
                found = parse_dependencies(part, known=names.__contains__)
            except ValueError as error:
                raise WorkloadError(
                    f"job {ids[row]}: depends is {part.strip()!r}, expected for example "
                    "'afterok:12' or 'afterany:12+600'"
                ) from error
            yield from ((row, one) for one in found)


def _dependencies(frame: pl.DataFrame, ids: npt.NDArray[Any], counts: Counts) -> Dependencies:
    """Return the edges of ``depends``, in seconds, and ``dependency``, in minutes."""
    edges: list[tuple[int, int, DependencyKind, int]] = []
    find, alone = finder(ids), np.zeros(len(ids), bool)

    def count(what: str) -> None:
        counts[what] = counts.get(what, 0) + 1

    for column, unit in (("depends", 1.0), ("dependency", _MINUTE_S)):
        if column not in frame.columns:
            continue
        for row, said in _said(frame[column], ids):
            if said.word == "singleton":
                alone[row] = True
                continue
            on, lost = find(said.on), said.lost
            task = re.fullmatch(r"\d+_(\d+)", str(ids[row])) if said.word == "aftercorr" else None
            if task and (own := find(f"{said.on.rstrip('_*')}_{task[1]}")):
                on, lost = own, ""
            if lost:
                count(f"dependency {said.word} that is not modeled: {lost}")
            if said.kind is None:
                continue
            if not on and column == "dependency":
                count(NOT_THERE)
            elif not on:
                chain = chain_text(waiting_chain(_waits(frame["depends"], ids), said.on))
                raise WorkloadError(
                    f"job {ids[row]}: depends on job {said.on}, which does not exist (chain "
                    f"{chain}; each waits for the next)"
                )
            delay = to_ms(said.delay * unit)
            pairs = ((one, row) if said.waits else (row, one) for one in on)
            edges += [(job, other, said.kind, delay) for job, other in pairs]
    if alone.any():
        edges += _one_at_a_time(frame, alone, count)
    return Dependencies.of(edges)


def _one_at_a_time(
    frame: pl.DataFrame, alone: npt.NDArray[np.bool_], count: Callable[[str], None]
) -> Iterator[tuple[int, int, DependencyKind, int]]:
    """Yield the edges of ``singleton``: to earlier jobs of the same name and user."""
    if "job_name" not in frame.columns:
        for _ in range(int(alone.sum())):
            count("dependency singleton of a job without a name: ignored")
        return
    keys = [name for name in ("job_name", "user") if name in frame.columns]
    names = list(frame.select(pl.col(keys).cast(pl.String)).iter_rows())
    order = frame["submit_s"].cast(pl.Float64, strict=False).arg_sort().to_list()
    named = [row for row in order if names[row][0] is not None]
    for _ in range(int(alone.sum()) - sum(bool(alone[row]) for row in named)):
        count("dependency singleton of a job without a name: ignored")
    pairs = singletons([names[row] for row in named], [bool(alone[row]) for row in named])
    for job, on in pairs:
        yield named[job], named[on], DependencyKind.AFTERANY, 0
