"""Frontier: telemetry in the layout of ExaDigiT's loader, and the public SWF log.

The log has 21 fields.
"""

from __future__ import annotations

import polars as pl

from hpctwin.formats.datasets.declared import (
    NODES_MADE,
    Column,
    DataSet,
    File,
    Given,
    at_steps,
    share_used,
    size,
)

STEP_S = 15
_TIME = pl.Datetime("us", "UTC")
_COLUMNS_OF_ROW_6 = 9


def _time(name: str, made: str) -> Column:
    return Column(name, "", "time", needed=True, made=pl.col(made), dtype=_TIME)


def _xname() -> pl.Expr:
    """Return node names of a synthetic job.

    A rack has 128 nodes, a row has twelve racks, and none is in row 6.
    """
    node = pl.element()
    rack, rest = node // 128, node % 128
    name = pl.format(
        "x2{}{}c{}s{}b{}n{}",
        rack // 12,
        (rack % 12).cast(pl.String).str.zfill(2),
        rest // 16,
        rest % 16 // 2,
        pl.lit(0),
        rest % 2,
    )
    return NODES_MADE.list.eval(name)


_JOBS = (
    Column("job_id", "", "text", needed=True, made=pl.col("number").cast(pl.String)),
    Column("allocation_id", "", "text", needed=True, made=pl.col("number").cast(pl.String)),
    Column("name", "", "text", made=pl.lit("name")),
    Column("user", "", "text", made=pl.col("user").cast(pl.String)),
    Column("account", "", "text", made=pl.lit("abc123")),
    Column("partition", "", "text", made=pl.lit("batch")),
    Column("priority", made=pl.lit(0)),
    Column("node_count", "", needed=True, made=pl.col("nodes")),
    Column("state_current", "Slurm's", "text", made=pl.lit("COMPLETED")),
    _time("time_submission", "submit"),
    Column("time_limit", "s", median=(60, 1e6), made=pl.col("walltime")),
    _time("time_start", "start"),
    _time("time_end", "end"),
    Column("xnames", "such as x2307c2s0b0n1", "text", made=_xname(), dtype=pl.List(pl.String)),
)
_PROFILE = (
    Column("allocation_id", "", "text", needed=True, made=pl.col("number").cast(pl.String)),
    Column("timestamp", "every 15 s", "time", needed=True, made=pl.col("at"), dtype=_TIME),
    Column("reporting_node_count", made=pl.col("nodes")),
    Column("mean_node_power", "W", made=pl.col("node_w")),
    Column("sum_cpu0_power", "W", made=pl.col("cpu_w") * pl.col("nodes")),
    Column("sum_gpu_power", "W", made=pl.col("gpu_w") * pl.col("nodes")),
)


def _telemetry(given: Given) -> pl.LazyFrame:
    name = pl.col("xnames").str.split(",")
    fields = {
        "job_id": pl.col("job_id"),
        "submit": pl.col("time_submission"),
        "start": pl.col("time_start"),
        "end": pl.col("time_end"),
        "walltime": pl.col("time_limit"),
        "nodes": pl.col("node_count"),
        "priority": pl.col("priority"),
        "user": pl.col("user"),
        "account": pl.col("account"),
        "partition": pl.col("partition"),
        "recorded_nodes": name.list.eval(_number_of(pl.element())).list.join(","),
    }
    jobs = given.main.unique("job_id", keep="last", maintain_order=True)
    jobs = jobs.select("allocation_id", *(value.alias(key) for key, value in fields.items()))
    profile = given.more.get("jobprofile")
    if profile is None or given.use == "none":
        return jobs.drop("allocation_id")
    starts = jobs.select("allocation_id", "start", "nodes")
    rows = profile.join(starts, on="allocation_id", how="inner")
    each = {"cpu": pl.col("sum_cpu0_power") / size(), "gpu": pl.col("sum_gpu_power") / size()}
    values = {"node_w": pl.col("mean_node_power")}
    if given.use == "components":
        values = {f"use_{key}": share_used(given.node, key, watts) for key, watts in each.items()}
    traces = at_steps(rows, "allocation_id", pl.col("timestamp") - pl.col("start"), STEP_S, values)
    return jobs.join(traces, on="allocation_id", how="left").drop("allocation_id")


def _number_of(name: pl.Expr) -> pl.Expr:
    """Return the number of a node as ExaDigiT counts.

    There are 128 nodes per rack and twelve racks per row.
    """
    part = [
        name.str.extract(r"^x2(\d)(\d\d)c(\d)s(\d)b\dn(\d)$", i).cast(pl.Int64) for i in range(1, 6)
    ]
    row, column, chassis, slot, node = part
    column = pl.when(row == 6).then(column - _COLUMNS_OF_ROW_6).otherwise(column)
    return ((12 * row + column) * 128 + 16 * chassis + 2 * slot + node).cast(pl.String)


FRONTIER = DataSet(
    name="frontier",
    title="Telemetry of Frontier (ORNL) as ExaDigiT reads it: jobs (joblive) and their power "
    "every 15 s (jobprofile)",
    source="not public; layout as of https://code.ornl.gov/exadigit, RAPS 6c142bf",
    license="not public",
    citation="W. Brewer et al.: A Digital Twin Framework for Liquid-cooled Supercomputers as "
    "Demonstrated at Exascale, SC24",
    files=(
        File("joblive", ("joblive*.parquet", "joblive*/**/*.parquet"), _JOBS),
        File(
            "jobprofile",
            ("jobprofile*.parquet", "jobprofile*/**/*.parquet", "../jobprofile*/**/*.parquet"),
            _PROFILE,
            needed=False,
            rows=lambda made: made.with_columns(
                at=pl.int_ranges(
                    pl.col("start").cast(pl.Int64), pl.col("end").cast(pl.Int64), STEP_S
                )
            ).explode("at"),
        ),
    ),
    records=_telemetry,
    system="frontier",
    rules=(
        "if a job has several rows, the last counts",
        "samples are placed at their time in the job; gaps use the previous sample, a gap at the "
        "start the first one",
        "components: CPU and GPU power divided by the number of nodes; use is clipped to 0 to 1",
        "nodes are numbered by their names, 128 per rack and twelve racks per row",
    ),
)

_NONE = pl.lit(-1)
_FIELDS = (
    Column("job_id", "unique within a file", "text", needed=True, made=pl.col("number")),
    Column(
        "submit",
        "s since UnixStartTime",
        needed=True,
        made=pl.col("submit") - pl.col("submit").min(),
    ),
    Column("wait", "s", needed=True, made=pl.col("start") - pl.col("submit")),
    Column("run", "s", needed=True, made=pl.col("runtime")),
    Column(
        "allocated",
        "nodes or cores: ignored if the descriptor has them",
        made=112 * pl.col("nodes"),
    ),
    Column("cpu_time", made=_NONE),
    Column("memory", made=_NONE),
    Column("required", made=112 * pl.col("nodes")),
    Column("limit", "s", made=pl.col("walltime")),
    Column("memory_required", made=_NONE),
    Column("status", "1 ok, 0 failed, 5 cancelled", made=1 - pl.col("failed").cast(pl.Int64)),
    Column("user", "", "text", made=pl.col("user")),
    Column("group", "", "text", made=pl.lit(1)),
    Column("executable", made=_NONE),
    Column("queue", "", "text", made=pl.lit(1)),
    Column("partition", made=_NONE),
    Column("preceding", made=_NONE),
    Column("think", made=_NONE),
    Column("used_gpus", "of the whole job", made=_NONE),
    Column("soft_walltime", made=_NONE),
    Column(
        "descriptor",
        "such as frontier:excl:2500x112: nodes and cores of each",
        "text",
        needed=True,
        made=pl.format("frontier:excl:{}x112", "nodes"),
    ),
)


def _swf(given: Given) -> pl.LazyFrame:
    told = pl.col("descriptor").str.extract(r":(\d+)x\d+$", 1).cast(pl.Float64)
    without = given.main.select(told.is_null().sum()).collect().item()
    given.tally.add("job whose descriptor has no nodes: field 5 used", without)
    fields = {
        "job_id": pl.col("job_id"),
        "submit": pl.col("submit"),
        "start": pl.when(pl.col("wait") >= 0).then(pl.col("submit") + pl.col("wait")),
        "runtime": pl.when(pl.col("run") >= 0).then("run"),
        "walltime": pl.col("limit"),
        "nodes": pl.coalesce(told, pl.when(pl.col("allocated") >= 1).then("allocated")),
        "state": pl.when(pl.col("status") == 5)
        .then(pl.lit("cancelled"))
        .when(pl.col("status") == 0)
        .then(pl.lit("failed")),
        "user": pl.col("user"),
        "account": pl.col("group"),
        "partition": pl.col("queue"),
    }
    return given.main.select(**fields)


FRONTIER_SWF = DataSet(
    name="frontier-swf",
    title="Public SWF log of Frontier (ORNL), 2024 and 2025, about 2.2 million jobs, with 21 fields",
    source="JSSPP 2026: frontier-2024.swf, frontier-2025.swf",
    license="unknown: see the paper",
    citation="the paper at JSSPP 2026 that publishes the log",
    files=(File("frontier-YYYY.swf", ("frontier-20[0-9][0-9]*.swf*",), _FIELDS, form="swf"),),
    records=_swf,
    system="frontier",
    rules=(
        "nodes of the descriptor; if missing, field 5",
        "no power data: components count as fully used",
    ),
    content=r"^[^;\n]\S*(?:[ \t]+\S+){19}[ \t]+\w+:\w*:\d+x\d+[ \t]*$",
)
