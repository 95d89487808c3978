"""Microsoft's Philly: deep-learning jobs, their attempts, and their use of GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.datasets.declared import NODES_MADE, Column, DataSet, File, Given
from hpctwin.formats.files import read_json
from hpctwin.model import NodeGroup

_SMALL, _GPUS = 2, 8
_GROUPS = ("2-gpu", "8-gpu")
_SPAN = 1 << 40
"""A span longer than any time, in seconds.

With it, GPU and time make one number that sorts by both.
"""
_AT_ONCE = 500_000
"""Number of rows of use that are read at a time."""

_ATTEMPTS = (
    Column("jobid", "", "text", needed=True, made=pl.format("application_{}", "number")),
    Column("user", "", "text", made=pl.col("user").cast(pl.String)),
    Column("vc", "virtual cluster", "text", made=pl.lit("vc1")),
    Column(
        "status",
        "Pass, Killed or Failed",
        "text",
        made=pl.when("failed").then(pl.lit("Failed")).otherwise(pl.lit("Pass")),
    ),
    Column("submitted_time", "", "time", needed=True, made=pl.col("submit"), dtype=pl.String()),
    Column("start", "of the first attempt", "time", made=pl.col("start"), dtype=pl.String()),
    Column("end", "of the last attempt", "time", made=pl.col("end"), dtype=pl.String()),
    Column("last_start", "of the last attempt", "time", made=pl.col("start"), dtype=pl.String()),
    Column(
        "ips",
        "nodes of the last attempt",
        "text",
        made=NODES_MADE.list.eval(pl.format("m{}", pl.element())).list.join(","),
    ),
    Column(
        "held",
        "numbers of its GPUs on each node",
        "text",
        made=pl.lit("0 1 2 3 4 5 6 7").repeat_by("nodes").list.join(","),
    ),
)


def _read(path: Path) -> pl.DataFrame:
    """Return a row for each job, from its attempts."""
    document: Any = read_json(path)
    if not isinstance(document, list) or not all(isinstance(job, dict) for job in document):
        raise TraceError(path, "is not a list of jobs; is it the cluster_job_log?")
    rows = []
    for number, job in enumerate(document, start=1):
        try:
            rows.append(_job(job))
        except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
            reason = (
                f"job {number} ({str(job.get('jobid'))[:40]}) has attempts of an unknown "
                f"form ({error!r})"
            )
            raise TraceError(path, reason) from error
    schema = dict.fromkeys([column.name for column in _ATTEMPTS], pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _job(job: dict[str, Any]) -> list[str | None]:
    attempts = job.get("attempts") or []
    started = [one["start_time"] for one in attempts if _said(one.get("start_time"))]
    ended = [one["end_time"] for one in attempts if _said(one.get("end_time"))]
    over = ended[-1] if ended and attempts[-1].get("end_time") in ended else None
    last = attempts[-1].get("detail") or [] if attempts else []
    held = [" ".join(str(_number(gpu)) for gpu in node.get("gpus", [])) for node in last]
    values = [
        job.get("jobid"), job.get("user"), job.get("vc"), job.get("status"), job.get("submitted_time"),
        started[0] if started else None, over, attempts[-1].get("start_time") if attempts else None,
        ",".join(str(node["ip"]) for node in last), ",".join(held),
    ]  # fmt: skip
    return [_text(value) if _said(value) else None for value in values]


def _number(gpu: Any) -> int:
    return int("".join(filter(str.isdigit, str(gpu))) or 0)


def _text(value: Any) -> str:
    """Return dates without their zone label, which is always that of the data set."""
    return str(value).removesuffix(" PST").removesuffix(" PDT")


def _said(value: Any) -> bool:
    return value not in (None, "", "None")


def _write(rows: pl.DataFrame) -> bytes:
    jobs = [
        {
            "status": row["status"], "vc": row["vc"], "jobid": row["jobid"], "user": row["user"],
            "submitted_time": row["submitted_time"],
            "attempts": [
                {
                    "start_time": row["start"], "end_time": row["end"],
                    "detail": [
                        {"ip": ip, "gpus": [f"gpu{i}" for i in held.split()]}
                        for ip, held in zip(row["ips"].split(","), row["held"].split(","), strict=True)
                    ],
                }
            ],
        }
        for row in rows.iter_rows(named=True)
    ]  # fmt: skip
    return json.dumps(jobs, indent=1).encode()


_MACHINES = (
    Column("machineId", "", "text", needed=True, made=pl.format("m{}", "machine")),
    Column("number of GPUs", needed=True, made=pl.lit(_GPUS)),
    Column("single GPU mem", "", "text", made=pl.lit("24GB")),
)
_USE = (
    Column("time", "every minute", "time", needed=True, made=pl.col("at"), dtype=pl.String()),
    Column("machineId", "", "text", needed=True, made=pl.col("ip")),
    *(
        Column(f"gpu{gpu}_util", "%; NA is unknown", made=100 * pl.col("gpu"))
        for gpu in range(_GPUS)
    ),
)


def _table(path: Path) -> pl.LazyFrame:
    """Return a table that has blanks in its header and zone labels after its dates.

    A few rows contain cells of two rows; surplus cells are dropped.
    """
    table = pl.scan_csv(
        path, glob=False, infer_schema=False, truncate_ragged_lines=True, null_values=["NA"]
    )
    found = table.rename(lambda name: name.strip())
    if "time" not in found.collect_schema():
        return found
    dates = pl.col("time").str.replace(r" P[SD]T$", "")
    return found.with_columns(dates.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False))


def _written(rows: pl.DataFrame) -> bytes:
    return rows.write_csv().encode()


def _minutes(made: pl.DataFrame) -> pl.DataFrame:
    """Return what each node of each synthetic job reports each minute."""
    at = pl.int_ranges(pl.col("start").cast(pl.Int64), pl.col("end").cast(pl.Int64), 60)
    nodes = made.with_columns(ip=NODES_MADE).explode("ip").with_columns(at=at).explode("at")
    return nodes.with_columns(pl.format("m{}", "ip").alias("ip"))


def _records(given: Given) -> pl.LazyFrame:
    status = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
    main = given.main.with_row_index("row").collect()
    nodes = (
        main.select("row", name=pl.col("ips").str.split(","), held=pl.col("held").str.split(","))
        .explode("name", "held")
        .drop_nulls("name")
        .with_columns(gpu=pl.col("held").str.split(" ").cast(pl.List(pl.Int64), strict=False))
    )
    machines = _machines(nodes, given.more.get("cluster_machine_list"), given.parts)
    placed = nodes.join(machines, on="name", how="left", maintain_order="left")
    each = placed.group_by("row", maintain_order=True).agg(
        pl.len().alias("nodes"),
        pl.col("gpu").list.len().sum().alias("gpus"),
        pl.col("group").first().alias("partition"),
        pl.when(pl.col("number").is_not_null().all())
        .then(pl.col("number").cast(pl.String).str.join(","))
        .alias("recorded_nodes"),
    )
    jobs = main.join(each, on="row", how="left", maintain_order="left")
    fields: dict[str, pl.Expr] = {
        "job_id": pl.col("jobid"),
        "submit": pl.col("submitted_time"),
        "start": pl.col("start"),
        "end": pl.col("end"),
        "nodes": pl.col("nodes").fill_null(0).cast(pl.Float64),
        "gpus": pl.col("gpus").fill_null(0).cast(pl.Float64),
        "state": pl.col("status").replace_strict(status, default=None, return_dtype=pl.String),
        "user": pl.col("user"),
        "account": pl.col("vc"),
        "partition": pl.col("partition").fill_null(_GROUPS[0]),
        "recorded_nodes": pl.col("recorded_nodes"),
    }
    use = given.more.get("cluster_gpu_util")
    if use is not None and given.use != "none":
        fields["use_gpu"] = pl.lit(_use(main, placed, use))
    return jobs.select(**fields).lazy()


def _machines(
    nodes: pl.DataFrame, listed: pl.LazyFrame | None, parts: Mapping[str, NodeGroup]
) -> pl.DataFrame:
    """Return name, node group and number of each machine, sorted by name in its group.

    The number is null for machines beyond the group's node count.
    """
    seen = nodes.group_by("name").agg(pl.col("gpu").explode().max().alias("highest") + 1)
    if listed is not None:
        told = listed.select(name="machineId", told="number of GPUs").collect()
        seen = seen.join(told, on="name", how="full", coalesce=True)
    else:
        seen = seen.with_columns(told=pl.lit(None, pl.Float64))
    small = pl.max_horizontal("highest", "told").fill_null(0) <= _SMALL
    counts = [parts[group].count for group in _GROUPS]
    within = pl.int_range(pl.len()).over("group")
    first, count = (
        pl.when(pl.col("group") == _GROUPS[0]).then(low).otherwise(high)
        for low, high in ((0, counts[0]), counts)
    )
    return (
        seen.with_columns(
            group=pl.when(small).then(pl.lit(_GROUPS[0])).otherwise(pl.lit(_GROUPS[1])),
            digits=pl.col("name").str.extract(r"(\d+)$", 1).cast(pl.Int64),
        )
        .sort("digits", "name")
        .select("name", "group", number=pl.when(within < count).then(first + within))
    )


def _use(main: pl.DataFrame, placed: pl.DataFrame, use: pl.LazyFrame) -> pl.Series:
    """Return the mean use of each job's GPUs in its last attempt, 0 to 1.

    The use is null if unknown.

    Args:
        main: Jobs, with ``row``, ``last_start`` and ``end``.
        placed: Machines of each job, and the numbers of its GPUs on them.
    """
    names = placed["name"].unique().sort()
    code = dict(zip(names.to_list(), range(len(names)), strict=True))
    had = (
        placed.join(main.select("row", "last_start", "end"), on="row")
        .drop_nulls(["last_start", "end"])
        .explode("gpu")
        .drop_nulls("gpu")
        .with_columns(key=_key(code, "name", pl.col("gpu"), pl.col("last_start")))
        .sort("key")
    )
    keys, row = had["key"].to_numpy(), had["row"].to_numpy()
    last = keys + (had["end"] - had["last_start"]).cast(pl.Int64).to_numpy()
    total, count = np.zeros(len(main)), np.zeros(len(main))
    for batch in use.collect_batches(chunk_size=_AT_ONCE):
        for gpu in range(_GPUS if len(keys) else 0):
            told = batch.select(
                key=_key(code, "machineId", pl.lit(gpu), pl.col("time")), share=f"gpu{gpu}_util"
            ).drop_nulls()
            at: npt.NDArray[np.int64] = told["key"].to_numpy()
            place = np.searchsorted(keys, at, side="right") - 1
            within = (place >= 0) & (at < last[place])
            of = row[place[within]]
            total += np.bincount(of, told["share"].to_numpy()[within], minlength=len(main))
            count += np.bincount(of, minlength=len(main))
    mean = np.clip(total / np.maximum(count, 1) / 100, 0, 1)
    return pl.Series(mean).set(pl.Series(count == 0), None)


def _key(code: Mapping[str, int], name: str, gpu: pl.Expr, time: pl.Expr) -> pl.Expr:
    machine = pl.col(name).replace_strict(code, default=None, return_dtype=pl.Int64)
    return (machine * 64 + gpu) * _SPAN + time.cast(pl.Int64)


PHILLY = DataSet(
    name="philly",
    title="Microsoft's Philly: some 117,000 jobs of deep learning, 2017",
    source="https://github.com/msr-fiddle/philly-traces (cluster_job_log)",
    license="CC BY 4.0",
    citation="M. Jeon et al.: Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training "
    "Workloads, USENIX ATC 2019",
    files=(
        File(
            "cluster_job_log",
            ("cluster_job_log*",),
            _ATTEMPTS,
            form="other",
            read=_read,
            write=_write,
        ),
        File(
            "cluster_machine_list",
            ("cluster_machine_list*",),
            _MACHINES,
            needed=False,
            form="other",
            read=_table,
            rows=lambda made: made.select(
                machine=pl.int_range(pl.col("first_node").max() + pl.col("nodes").max())
            ),
            write=_written,
        ),
        File(
            "cluster_gpu_util",
            ("cluster_gpu_util*",),
            _USE,
            needed=False,
            form="other",
            read=_table,
            rows=_minutes,
            write=_written,
        ),
    ),
    records=_records,
    system="philly",
    zone="America/Los_Angeles",
    shared=True,
    rules=(
        "a job runs from the start of its first attempt to the end of its last attempt, "
        "on the nodes of the last attempt",
        "there are no limits: the run time is taken",
        "jobs share nodes and request GPUs; machines with more than two GPUs (by "
        "cluster_machine_list or by the GPU numbers of jobs) form node group 8-gpu, others "
        "2-gpu, numbered by name; a job's partition is that of its first machine",
        "GPU use is the mean over all GPUs of the last attempt and all recorded minutes "
        "(cluster_gpu_util); CPU use (cluster_cpu_util) is per machine and not read",
    ),
    content=r'"attempts"\s*:',
)
