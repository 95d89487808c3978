"""Jobs with node power: PM100 of Marconi100 (CINECA), and Adastra (CINES).

Both have the same columns.
"""

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
    slurm_state,
)

STEP_S = 20.0
_NUMBERS = pl.List(pl.Int64)
_STATE = pl.when("failed").then(pl.lit("FAILED")).otherwise(pl.lit("COMPLETED"))
_LONGEST_LIMIT_MIN = 1e6


def _samples(watts: str) -> pl.Expr:
    """Return the power draw of all nodes of a job, a sample every 20 s."""
    all_w = (pl.col(watts) * pl.col("nodes")).round().cast(pl.Int64)
    return all_w.repeat_by((pl.col("runtime") / STEP_S).ceil().cast(pl.Int64))


def _joules(watts: str) -> pl.Expr:
    energy = pl.col(watts) * pl.col("nodes") * pl.col("runtime")
    return energy.round().cast(pl.Int64).repeat_by(1)


def _columns(zone: str | None, *, adastra: bool) -> tuple[Column, ...]:
    time = pl.Datetime("us", zone)
    power = "J over the job" if adastra else "W of all its nodes, every 20 s"
    value = _joules if adastra else _samples
    limit = (
        Column(
            "time_limit",
            "minutes; in many published rows a Unix time",
            made=pl.col("start") + pl.col("walltime"),
        )
        if adastra
        else Column(
            "time_limit", "min", median=(1, 2880), made=(pl.col("walltime") / 60).cast(pl.Int64)
        )
    )
    gpus = 8 if adastra else 4
    return (
        Column("cores_alloc_layout", "map of nodes to cores, as text", "text"),
        Column("cores_allocated", "map of nodes to numbers of cores, as text", "text"),
        Column("cores_per_task", made=pl.lit(1)),
        Column("derived_ec", "", "text"),
        Column("eligible_time", "", "time", made=pl.col("submit"), dtype=time),
        Column("end_time", "", "time", needed=True, made=pl.col("end"), dtype=time),
        Column("group_id", made=pl.lit(25200)),
        Column("job_id", "", needed=True, made=pl.col("number")),
        Column("job_state", "Slurm's", "text", needed=True, made=_STATE),
        Column("mem_alloc", "no unit is given", made=pl.lit(59)),
        Column("mem_req", "no unit is given", made=pl.lit(59)),
        Column("nodes", "numbers from 0", "text", made=NODES_MADE, dtype=_NUMBERS),
        Column("num_cores_alloc", made=pl.col("nodes") * 128),
        Column("num_cores_req", made=pl.col("nodes") * 128),
        Column("num_gpus_alloc", made=pl.col("nodes") * gpus),
        Column("num_gpus_req", made=pl.col("nodes") * gpus),
        Column("num_nodes_alloc", "", needed=True, made=pl.col("nodes")),
        Column("num_nodes_req", made=pl.col("nodes")),
        Column("num_tasks", made=pl.col("nodes").cast(pl.Float64)),
        *([] if adastra else [Column("partition", "", "text", made=pl.lit("1"))]),
        Column("priority", made=pl.lit(1000)),
        Column("qos", "", "text", made=pl.lit("1")),
        Column("req_nodes", "", "text"),
        Column("req_switch", made=pl.lit(0)),
        Column(
            "run_time", "s", needed=True, median=(1, 1e6), made=pl.col("runtime").cast(pl.Int64)
        ),
        Column("shared", "", "text", made=pl.lit("0")),
        Column("start_time", "", "time", needed=True, made=pl.col("start"), dtype=time),
        Column("state_reason", "", "text", made=pl.lit("None")),
        Column("submit_time", "", "time", needed=True, made=pl.col("submit"), dtype=time),
        Column("threads_per_core", made=pl.lit(None, pl.Float64)),
        limit,
        Column("user_id", "", made=pl.col("user")),
        Column("node_power_consumption", power, "list", needed=True, made=value("node_w")),
        *(
            Column(
                f"{part}_power_consumption",
                power,
                "list",
                made=value(made),
                read_for=("components",),
            )
            for part, made in (("mem", "memory_w"), ("cpu", "cpu_w"))
        ),
    )


def _records(
    given: Given, limit_s: pl.Expr, divisor: pl.Expr, step_s: float | None
) -> pl.LazyFrame:
    optional = [name for name in ("partition",) if name in given.main.collect_schema()]
    fields = {
        "job_id": pl.col("job_id").cast(pl.Int64),
        "submit": pl.col("submit_time"),
        "start": pl.col("start_time"),
        "end": pl.col("end_time"),
        "runtime": pl.col("run_time"),
        "walltime": limit_s,
        "nodes": pl.col("num_nodes_alloc"),
        "priority": pl.col("priority"),
        "state": slurm_state(pl.col("job_state")),
        "user": pl.col("user_id").cast(pl.Int64).cast(pl.String),
        "qos": pl.col("qos"),
        "recorded_nodes": pl.col("nodes").str.replace_all(r"[\[\] ]", ""),
        **{name: pl.col(name) for name in optional},
    }
    return given.main.with_columns(**_use(given, divisor, step_s)).select(
        pl.col("^use_.*|node_w.*$"), **fields
    )


def _use(given: Given, divisor: pl.Expr, step_s: float | None) -> dict[str, pl.Expr]:
    """Return a node's power or its components' use, in samples or as means."""
    if given.use == "none":
        return {}
    names = ["node"] if given.use == "measured" else ["node", "mem", "cpu"]
    lists = [pl.col(f"{name}_power_consumption") for name in names]
    least = pl.min_horizontal(one.list.len() for one in lists)
    each = [one.list.head(least) / divisor for one in lists]
    if step_s is None:
        each = [one.list.first() for one in each]
    found = {"node_w": each[0]}
    if given.use == "components":
        parts = given.node.components
        rest = sum(
            part.count * part.idle_w
            for name, part in parts.items()
            if name not in ("cpu", "gpu", "memory")
        )
        watts = {"cpu": each[2], "gpu": each[0] - each[1] - each[2] - pl.lit(rest)}
        found = {f"use_{name}": _share(given, name, one, step_s) for name, one in watts.items()}
    steps = {} if step_s is None else {f"{name}_step_s": pl.lit(step_s) for name in found}
    return found | steps


def _share(given: Given, name: str, watts: pl.Expr, step_s: float | None) -> pl.Expr:
    if step_s is None:
        return share_used(given.node, name, watts)
    return watts.list.eval(share_used(given.node, name, pl.element()))


def _marconi100(given: Given) -> pl.LazyFrame:
    return _records(given, 60 * pl.col("time_limit"), size("num_nodes_alloc"), STEP_S)


def _adastra(given: Given) -> pl.LazyFrame:
    limit = pl.when(pl.col("time_limit") < _LONGEST_LIMIT_MIN).then(60 * pl.col("time_limit"))
    node_s = size("num_nodes_alloc") * pl.when(pl.col("run_time") > 0).then(pl.col("run_time"))
    return _records(given, limit, node_s, None)


_PARTS = (
    "components: GPU power is node power minus CPUs, memory, network and NVMe (idle powers of "
    "the cluster file); use is clipped to 0 to 1; lists of different length are cut to the "
    "shortest"
)
MARCONI100 = DataSet(
    name="marconi100",
    title="PM100: 231,238 exclusive jobs of Marconi100 (CINECA), May to October 2020, with power every 20 s",
    source="https://doi.org/10.5281/zenodo.10127767 (job_table.parquet)",
    license="CC BY 4.0",
    citation="F. Antici et al.: PM100: A Job Power Consumption Dataset of a Large-scale "
    "Production HPC System, SC-W 2023",
    files=(File("job_table.parquet", ("job_table*.parquet",), _columns("UTC", adastra=False)),),
    records=_marconi100,
    system="marconi100",
    rules=("power of all nodes is divided by the number of nodes", _PARTS),
    told=lambda columns: getattr(columns["submit_time"], "time_zone", None) is not None,
)
ADASTRA = DataSet(
    name="adastra",
    title="15 days (15,285 jobs) of Adastra's MI250X nodes (CINES), September 2024, with energy by job",
    source="https://doi.org/10.5281/zenodo.14007065 (AdastaJobsMI250_15days.parquet)",
    license="unknown: see the Zenodo record",
    citation="CINES: Adastra MI250 jobs, 15 days, Zenodo 14007065, 2024",
    files=(
        File(
            "AdastaJobsMI250_15days.parquet",
            ("Ada*MI250*.parquet",),
            _columns(None, adastra=True),
        ),
    ),
    records=_adastra,
    system="adastraMI250",
    rules=(
        "job energy is divided by run time and number of nodes",
        "a time_limit that is a Unix time is ignored: the run time is used",
        _PARTS,
    ),
    told=lambda columns: getattr(columns["submit_time"], "time_zone", None) is None,
)
