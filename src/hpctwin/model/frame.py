"""A workload as a table: our own columns, for CSV, Parquet and data frames.

======================  =========================================================================
column                  meaning
======================  =========================================================================
``job_id``              integer or text, unique; default 1, 2, …
``submit_s``            submit time, seconds (required)
``runtime_s``           seconds (required)
``walltime_s``          requested limit, seconds; default the runtime
``nodes``               nodes requested (required); of a job with ``tasks``, so many at least (default 1)
``tasks``               tasks of a job that shares nodes; empty or 0: it asks for whole nodes
``cores_per_task`` …    what each task asks: ``cores_per_task`` (default 1), ``memory_gb_per_task``,
                        ``gpus_per_task`` (default 0; parts of one too)
``tasks_per_node``      at most so many tasks of the job are on a node; 0: any number
``request``             all of these as a user writes them: ``-N 2 -n 8 -c 4 --mem-per-cpu=2G``,
                        ``select=3:ncpus=8:ngpus=1 place=scatter`` (`hpctwin.model.requests`)
``exclusive``           1 (or true) if it shares its nodes with no other job, else 0
``spread_job``          1 (or true) if it lies on as many nodes as it can, else 0
``shared_with``         whose jobs may be on its nodes besides: ``anyone`` (0), its ``user``'s (1) or
                        ``account``'s (2) only
``user`` … ``qos``      labels: ``user``, ``account``, ``partition``, ``qos``
``more_tasks``          further kinds of its tasks: ``1:cores=32:gpus=4`` (`model.chunks.read_more_tasks`)
``group_by``            all of its nodes have one value of this: ``rack``, of features such as ``rack=r1``
``features``            what its nodes must have: ``a100``, ``a100|v100`` (any), ``avx512&ib`` (all)
``priority``            larger is sooner
``cores_per_node`` …    what each node must have: ``cores``, ``gpus``, ``memory_gb``
``consumable_NAME``     what each task asks of what nodes have besides, such as ``consumable_fpga``; of a job
                        of whole nodes, what each of them must have
``res_NAME``            amount of the cluster-wide resource NAME
``depends``             ``afterok:12;afterany:13+600`` or ``think:13+600``: kind, id, seconds after it
``recorded_start_s``    when it started in reality
``recorded_nodes``      where it ran, as text
``cancel_s``            when its user cancelled it
``fails``               1 if it ends with an error when its runtime is over, else 0
``checkpoint_s``        it writes a checkpoint whenever it has run for so long again; 0: never
``min_nodes``           it may run on so many nodes at least (default ``nodes``), …
``max_nodes``           … and at most (default ``nodes``), if sizes are decided while it runs
``speedup``             how many times as fast on n nodes as on one: ``linear`` (default),
                        ``amdahl:0.05`` (serial share), or for 1, 2, … nodes ``1/1.9/2.7``
``suspendable``         1 (or true) if it may be suspended and go on later, else 0
``resize_s``            seconds that it does nothing whenever it goes on or changes its nodes
``use_NAME``            how much of the component NAME of its nodes was used, 0 to 1: the mean, or a list
``node_w``              measured power of one of its nodes, W: the mean, or a list
``used_memory_gb``      memory that it used on one of its nodes at most, GiB
``predicted_NAME``      predicted ``runtime_s``, ``node_w`` or ``memory_gb`` (of a node)
``use_NAME_step_s`` …   seconds from one sample of such a list to the next, also ``node_w_step_s``
======================  =========================================================================

Other columns are not read. Empty cells are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.model.chunks import CHUNKS, SHARED_WITH, more_tasks_text
from hpctwin.model.columns import PER_NODE, PREDICTED, Category, known_seconds
from hpctwin.model.consumables import COLUMN
from hpctwin.model.dependencies import (
    Dependencies,
    DependencyKind,
    chain_text,
    waiting_chain,
)
from hpctwin.model.malleable import MALLEABLE
from hpctwin.model.requests import Request, parse_request
from hpctwin.model.units import MS_PER_S, to_ms
from hpctwin.model.usage import NODE_W, Usage

__all__ = ["USE_STEP", "columns_of", "is_usage", "named_edges", "to_frame", "with_least_nodes"]

USE_STEP = "_step_s"
"""How the head of a column of steps ends, after that of the column of usage."""

_LABELS = ("user", "account", "partition", "qos", "features", "more_tasks", "group_by")
_EDGE = re.compile(r"(after(?:any|ok)?|think):([^+;]+)(?:\+(\d+(?:\.\d+)?))?")


def to_frame(workload: Mapping[str, Any]) -> pl.DataFrame:
    """A workload, given as its fields by name, as a frame; columns in which nothing is known are left out."""
    columns: dict[str, Any] = {
        "job_id": workload["job_id"],
        "submit_s": workload["submit_ms"] / MS_PER_S,
        "runtime_s": workload["runtime_ms"] / MS_PER_S,
        "walltime_s": workload["walltime_ms"] / MS_PER_S,
        "nodes": workload["nodes"],
    }
    for name in _LABELS:
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


def columns_of(frame: pl.DataFrame) -> dict[str, Any]:
    """What `Workload.build` takes, of a frame with the columns above.

    Raises:
        WorkloadError: a required column is missing, or a value is impossible.
    """
    frame = with_least_nodes(frame)
    for name in ("submit_s", "runtime_s", "nodes"):
        if name not in frame.columns:
            raise WorkloadError(
                f"column {name} is missing; required are submit_s, runtime_s, nodes; "
                f"found {', '.join(frame.columns)}"
            )
    ids = frame["job_id"].to_numpy() if "job_id" in frame.columns else None
    labels: dict[str, Any] = {
        name: Category.of(frame[name]) for name in _LABELS if name in frame.columns
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
        "dependencies": _dependencies(frame, row_ids),
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
        "predicted": _group(
            frame, {one: f"predicted_{one}" for one in PREDICTED}, row_ids, float("nan")
        ),
        **labels,
    }


def is_usage(name: str) -> bool:
    """Whether a column is of how much was used of nodes."""
    return name == NODE_W or (name.startswith("use_") and not name.endswith(USE_STEP))


def _usage_columns(usage: Mapping[str, Usage]) -> dict[str, pl.Series]:
    columns: dict[str, pl.Series] = {}
    for name, found in usage.items():
        head = name if name == NODE_W else f"use_{name}"
        if (found.count > 1).any():
            # Polars makes lists of one length fixed arrays, whatever type is asked for.
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
                    f"{head} has lists; a column {step} must say how many seconds samples are apart"
                )
            seconds = _numbers(frame, step, ids, 0)
            short = (count > 1) & ~(seconds * MS_PER_S >= 1)
            if short.any():
                row = int(np.argmax(short))
                raise WorkloadError(
                    f"job {ids[row]}: {step} is {seconds[row]:g}, it must be 0.001 or more"
                )
            step_ms = np.maximum(np.rint(seconds * MS_PER_S), 1).astype(np.int64)
        first = np.concatenate([[0], np.cumsum(count)])
        values = lists.list.explode(keep_nulls=False, empty_as_null=False).to_numpy()
        found[name] = Usage(first, step_ms, values.astype(np.float64))
    return found


def with_least_nodes(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame in which jobs with tasks that leave ``nodes`` open ask for one, and truths are 0 and 1.

    Raises:
        WorkloadError: a request cannot be understood.
    """
    if "request" in frame.columns:
        frame = _with_requests(frame)
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
    if "tasks" not in frame.columns:
        return frame
    shares = pl.col("tasks").cast(pl.Float64, strict=False).fill_null(0) > 0
    if "nodes" not in frame.columns:
        return frame.with_columns(nodes=pl.when(shares).then(1)) if len(frame) else frame
    given = frame["nodes"].dtype
    least = pl.when(shares & pl.col("nodes").is_null()).then(pl.lit(1).cast(given))
    return frame.with_columns(nodes=least.otherwise(pl.col("nodes")))


def _with_requests(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame with the columns that ``request`` stands for; what else it says goes before."""
    texts = frame["request"].unique().drop_nulls().to_list()
    rows = [{"request": text, **_columns_asked(parse_request(text))} for text in texts]
    if not rows:
        return frame.drop("request")
    asked = pl.DataFrame(rows, infer_schema_length=None)
    found = frame.join(asked, on="request", how="left", maintain_order="left", suffix="_asked")
    for name in asked.columns[1:]:
        other = f"{name}_asked"
        if other in found.columns:
            own = pl.col(name).cast(pl.String)
            both = pl.coalesce(own, pl.col(other).cast(pl.String))
            found = found.with_columns(both.alias(name)).drop(other)
    return found.drop("request")


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
        raise WorkloadError(f"job {ids[row]}: {name} is {found}, it must be a number")
    return numbers.to_numpy()


def _optional(
    frame: pl.DataFrame, name: str, ids: npt.NDArray[Any], unknown: float | None = -1
) -> npt.NDArray[np.float64] | None:
    return _numbers(frame, name, ids, unknown) if name in frame.columns else None


def _group(
    frame: pl.DataFrame, columns: Mapping[str, str], ids: npt.NDArray[Any], unknown: float
) -> dict[str, npt.NDArray[np.float64]]:
    """Numbers by name, of the columns that are there."""
    there = {name: column for name, column in columns.items() if column in frame.columns}
    return {name: _numbers(frame, column, ids, unknown) for name, column in there.items()}


def _prefixed(frame: pl.DataFrame, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): name for name in frame.columns if name.startswith(prefix)}


def _decimal(ms: int) -> str:
    """Seconds, to the millisecond, without an exponent."""
    return f"{ms // MS_PER_S}.{ms % MS_PER_S:03}".rstrip("0").rstrip(".")


def _depends_text(edges: Dependencies, ids: npt.NDArray[Any]) -> pl.Series:
    texts: list[list[str]] = [[] for _ in range(len(ids))]
    for job, on, kind, delay in zip(edges.job, edges.on, edges.kind, edges.delay_ms, strict=True):
        after = f"+{_decimal(int(delay))}" if delay else ""
        texts[job].append(f"{DependencyKind(kind).name.lower()}:{ids[on]}{after}")
    return pl.Series([";".join(t) or None for t in texts], dtype=pl.String)


def _waits(depends: pl.Series, ids: npt.NDArray[Any]) -> dict[str, str]:
    """For each job that another waits for, the first that does."""
    waits: dict[str, str] = {}
    for other, text in enumerate(depends.cast(pl.String)):
        for match in _EDGE.finditer(text or ""):
            waits.setdefault(match[2], str(ids[other]))
    return waits


def named_edges(
    depends: pl.Series, ids: npt.NDArray[Any]
) -> list[tuple[int, str, DependencyKind, int]]:
    """What a column ``depends`` says: row of the job that waits, id of the other, kind, delay in ms.

    Args:
        depends: the column.
        ids: of the jobs, for messages.

    Raises:
        WorkloadError: a cell cannot be read.
    """
    edges = []
    for row, text in enumerate(depends.cast(pl.String)):
        for part in (text or "").split(";"):
            if not part.strip():
                continue
            match = _EDGE.fullmatch(part.strip())
            if not match:
                raise WorkloadError(
                    f"job {ids[row]}: depends is {part.strip()!r}, expected for example "
                    "'afterok:12', 'afterany:12+600' or 'think:12+600'"
                )
            kind, on, delay = match.groups()
            edges.append((row, on, DependencyKind[kind.upper()], to_ms(float(delay or 0))))
    return edges


def _dependencies(frame: pl.DataFrame, ids: npt.NDArray[Any]) -> Dependencies:
    if "depends" not in frame.columns:
        return Dependencies.none()
    row_of = {str(job): row for row, job in enumerate(ids)}
    edges = []
    for row, on, kind, delay_ms in named_edges(frame["depends"], ids):
        if on not in row_of:
            chain = chain_text(waiting_chain(_waits(frame["depends"], ids), on))
            raise WorkloadError(
                f"job {ids[row]}: depends on job {on}, which is not there "
                f"(chain {chain}; each waits for the next)"
            )
        edges.append((row, row_of[on], kind, delay_ms))
    return Dependencies.of(edges)
