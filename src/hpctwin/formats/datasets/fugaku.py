"""F-DATA: jobs of Fugaku with mean power of their nodes."""

from __future__ import annotations

import polars as pl

from hpctwin.formats.datasets.declared import Column, DataSet, File, Given

_TIME = pl.Datetime("us", "UTC")
_BUSY = 1_000_000


def _time(name: str, made: str | None = None, *, needed: bool = False) -> Column:
    value = None if made is None else pl.col(made)
    return Column(name, "", "time", needed=needed, made=value, dtype=_TIME)


_COLUMNS = (
    Column("jid", "", "text", needed=True, made=pl.col("number").cast(pl.String)),
    Column("usr", "", "text", made=pl.lit("usr") + pl.col("user").cast(pl.String)),
    Column("jnam", "", "text", made=pl.lit("name")),
    Column("cnumr", "cores requested", made=48 * pl.col("nodes")),
    Column("cnumat", "cores allocated", made=48 * pl.col("nodes")),
    Column("cnumut", "cores used", made=48 * pl.col("nodes")),
    Column("nnumr", "nodes requested", needed=True, made=pl.col("nodes")),
    _time("adt", "submit", needed=True),
    _time("qdt", "submit"),
    _time("schedsdt", "start"),
    _time("deldt"),
    Column("ec", "exit code", made=pl.col("failed").cast(pl.Int64)),
    Column("elpl", "elapsed time limit, s", median=(30, 1e6), made=pl.col("walltime")),
    _time("sdt", "start", needed=True),
    _time("edt", "end", needed=True),
    Column("nnuma", "nodes allocated", made=pl.col("nodes")),
    Column("idle_time_ave", made=pl.lit(0.0)),
    Column("nnumu", "nodes used", made=pl.col("nodes")),
    Column("perf1", "cycles", made=(pl.col("cpu") * _BUSY)),
    Column("perf2", "FP_FIXED_OPS", made=pl.lit(0.0)),
    Column("perf3", "FP_SCALE_OPS", made=pl.lit(0.0)),
    Column("perf4", "bus reads", made=pl.lit(0.0)),
    Column("perf5", "bus writes", made=pl.lit(0.0)),
    Column("perf6", "sleep cycles", made=((1 - pl.col("cpu")) * _BUSY)),
    Column("mszl", made=pl.lit(0.0)),
    Column("pri", made=pl.lit(127)),
    Column("econ", "energy", made=pl.col("node_w") * pl.col("nodes") * pl.col("runtime") / 3600),
    Column("avgpcon", "mean power of a node, W", made=pl.col("node_w")),
    Column("minpcon", made=pl.col("node_w")),
    Column("maxpcon", made=pl.col("node_w")),
    Column("msza", made=pl.lit(0.0)),
    Column("mmszu", made=pl.lit(0.0)),
    Column("uctmut", made=pl.lit(0.0)),
    Column("sctmut", made=pl.lit(0.0)),
    Column("usctmut", made=pl.lit(0.0)),
    Column("jobenv_req", "", "text", made=pl.lit("env")),
    Column("freq_req", made=pl.lit(2000)),
    Column("freq_alloc", made=pl.lit(2000)),
    Column("flops", made=pl.lit(0.0)),
    Column("mbwidth", made=pl.lit(0.0)),
    Column("opint", made=pl.lit(0.0)),
    Column("pclass", "", "text", made=pl.lit("memory-bound")),
    Column("embedding", "not read", "list", dtype=pl.List(pl.Float64), read_for=()),
    Column(
        "exit state",
        "completed or failed",
        "text",
        made=pl.when("failed").then(pl.lit("failed")).otherwise(pl.lit("completed")),
    ),
    Column("duration", "s", made=pl.col("runtime")),
)


def _records(given: Given) -> pl.LazyFrame:
    allocated = pl.when(pl.col("nnuma") >= 1).then("nnuma").otherwise("nnumr")
    fields = {
        "job_id": pl.col("jid"),
        "submit": pl.col("adt"),
        "start": pl.col("sdt"),
        "end": pl.col("edt"),
        "walltime": pl.col("elpl"),
        "nodes": allocated,
        "priority": pl.col("pri"),
        "state": pl.when(pl.col("exit state") == "failed").then(pl.lit("failed")),
        "user": pl.col("usr"),
    }
    if given.use == "measured":
        fields["node_w"] = pl.when(pl.col("avgpcon") > 0).then("avgpcon")
    elif given.use == "components":
        cycles = pl.col("perf1") + pl.col("perf6")
        fields["use_cpu"] = pl.when(cycles > 0).then(pl.col("perf1") / cycles).clip(0, 1)
    return given.main.select(**fields)


FUGAKU = DataSet(
    name="fugaku",
    title="F-DATA: about 24 million jobs of Fugaku (RIKEN), March 2021 to April 2024, one file "
    "per month",
    source="https://doi.org/10.5281/zenodo.11467483 (YY_MM.parquet)",
    license="CC BY 4.0",
    citation="F. Antici et al.: F-DATA: A Fugaku Workload Dataset for Job-centric Predictive "
    "Modelling in HPC Systems, 2024",
    files=(File("YY_MM.parquet", ("[0-9][0-9]_[0-9][0-9].parquet",), _COLUMNS),),
    records=_records,
    system="fugaku",
    rules=(
        "nodes allocated; if missing, nodes requested",
        "avgpcon is the power of a node in W (no unit is published); 0 is unknown",
        "components: use of the CPU is cycles / (cycles + sleep cycles)",
    ),
)
