"""LAST: allocations of Lassen (LLNL), and measurements on their nodes."""

from __future__ import annotations

import polars as pl

from hpctwin.formats.datasets.declared import (
    NODES_MADE,
    Column,
    DataSet,
    File,
    Given,
    share_used,
    size,
)

_CORES = 44
_DATE = pl.String()


def _time(name: str, made: str) -> Column:
    return Column(name, "", "time", needed=True, made=pl.col(made), dtype=_DATE)


_ALLOCATIONS = (
    Column("allocation_id", "", "text", needed=True, made=pl.col("number")),
    Column("primary_job_id", made=pl.col("number")),
    Column("secondary_job_id", made=pl.lit(0)),
    Column("launch_node_name", "", "text", made=pl.lit("lassen710")),
    Column("isolated_cores", made=pl.lit(4)),
    Column("user_flags", "", "text"),
    Column("system_flags", "", "text"),
    Column("ssd_min", made=pl.lit(0)),
    Column("ssd_max", made=pl.lit(0)),
    Column("num_nodes", "", needed=True, made=pl.col("nodes")),
    Column("num_processors", made=pl.lit(0)),
    Column("num_gpus", "always 0", made=pl.lit(0)),
    Column("projected_memory", made=pl.lit(0)),
    Column("type", "", "text", made=pl.lit("user-managed")),
    Column("job_type", "", "text", made=pl.lit("batch")),
    Column("hashed_user_id", "", "text", made=pl.col("user")),
    Column("hashed_user_group_id", "", "text", made=pl.col("user")),
    _time("begin_time", "start"),
    _time("end_time", "end"),
    Column("exit_status", made=pl.col("failed").cast(pl.Int64)),
    _time("job_submit_time", "submit"),
    Column("queue", "", "text", made=pl.lit("pbatch")),
    Column("requeue", "", "text"),
    Column("time_limit", "s", median=(30, 1e6), made=pl.col("walltime").cast(pl.Int64)),
    Column("smt_mode", made=pl.lit(4)),
    Column("core_blink", "", "text", made=pl.lit("f")),
)


def _node(watts: pl.Expr) -> pl.Expr:
    return (watts * pl.col("runtime")).round().cast(pl.Int64)


_NODES = (
    Column("allocation_id", "", "text", needed=True, made=pl.col("number")),
    Column(
        "node_name",
        "lassen1, lassen2, …",
        "text",
        needed=True,
        made=pl.lit("lassen") + (pl.col("node") + 1).cast(pl.String),
    ),
    Column("shared", "", "text", made=pl.lit("f")),
    Column("energy", "J", made=_node(pl.col("node_w"))),
    Column("gpfs_read", made=pl.lit(0)),
    Column("gpfs_write", made=pl.lit(0)),
    Column("ib_tx", "quarters of bytes", made=pl.lit(0)),
    Column("ib_rx", "quarters of bytes", made=pl.lit(0)),
    Column("power_cap", made=pl.lit(3050)),
    Column("power_shifting_ratio", made=pl.lit(100)),
    Column("power_cap_hit", made=pl.lit(0)),
    Column("gpu_usage", made=pl.lit(0)),
    Column("gpu_energy", "J of its four GPUs", made=_node(pl.col("gpu_w"))),
    Column("cpu_usage", "CPU time, ns", made=_node(1e9 * _CORES * pl.col("cpu"))),
    Column("memory_usage_max", made=pl.lit(0)),
)


def _per_node(made: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each node of each job."""
    return made.with_columns(node=NODES_MADE).explode("node")


def _records(given: Given) -> pl.LazyFrame:
    fields = {
        "job_id": pl.col("allocation_id"),
        "submit": pl.col("job_submit_time"),
        "start": pl.col("begin_time"),
        "end": pl.col("end_time"),
        "walltime": pl.col("time_limit"),
        "nodes": pl.col("num_nodes"),
        "state": pl.when(pl.col("exit_status") != 0).then(pl.lit("failed")),
        "user": pl.col("hashed_user_id"),
        "account": pl.col("hashed_user_group_id"),
        "partition": pl.col("queue"),
    }
    jobs = given.main.select(**fields)
    nodes = given.more.get("final_csm_allocation_node_history.csv")
    if nodes is None:
        return jobs
    known = [name for name in ("energy", "gpu_energy", "cpu_usage") if given.use != "none"]
    by_job = nodes.group_by("allocation_id").agg(
        pl.col("node_name").str.extract(r"(\d+)$", 1).str.join(",").alias("recorded_nodes"),
        *(pl.when(pl.col(name) >= 0).then(pl.col(name)).sum().alias(name) for name in known),
    )
    node_s = size() * (pl.col("end") - pl.col("start"))
    watts = {name: pl.when(node_s > 0).then(pl.col(name) / node_s) for name in known}
    use: dict[str, pl.Expr] = {}
    if given.use == "measured":
        use["node_w"] = pl.when(watts["energy"] > 0).then(watts["energy"])
    elif given.use == "components":
        use["use_gpu"] = share_used(given.node, "gpu", watts["gpu_energy"])
        use["use_cpu"] = (watts["cpu_usage"] / (1e9 * _CORES)).clip(0, 1)
    joined = jobs.join(by_job, left_on="job_id", right_on="allocation_id", how="left")
    return joined.with_columns(**use).drop(known)


LASSEN = DataSet(
    name="lassen",
    title="LAST: 1.47 million allocations of Lassen (LLNL), 819 days, with energy by node",
    source="https://github.com/LLNL/LAST (Lassen-Supercomputer-Job-Dataset)",
    license="CC BY 4.0",
    citation="T. Patki et al.: The LLNL Archive of Supercomputer Traces (LAST), Lassen "
    "Supercomputer Job Dataset",
    files=(
        File(
            "final_csm_allocation_history_hashed.csv",
            ("final_csm_allocation_history*.csv", "final_csm_allocation_history*.csv.gz"),
            _ALLOCATIONS,
        ),
        File(
            "final_csm_allocation_node_history.csv",
            ("final_csm_allocation_node_history*.csv", "final_csm_allocation_node_history*.csv.gz"),
            _NODES,
            needed=False,
            rows=_per_node,
        ),
    ),
    records=_records,
    system="lassen",
    rules=(
        "without the node history, use and nodes are unknown",
        "energies and CPU times below 0 are ignored; power is energy divided by nodes and run "
        "time, 0 is unknown",
        f"components: CPU time divided by {_CORES} cores, regardless of threads per "
        "core; GPUs by their energy",
        "nodes are numbered by their names, from 1",
    ),
)
