"""Job logs that ALCF publishes: Polaris, Aurora, Theta, Mira."""

from __future__ import annotations

import polars as pl

from hpctwin.formats.datasets.declared import Column, DataSet, File, Given

_DATE = pl.String()


def _time(name: str, made: str, *, needed: bool = True) -> Column:
    return Column(name, "", "time", needed=needed, made=pl.col(made), dtype=_DATE)


_COLUMNS = (
    Column(
        "JOB_NAME",
        "such as 12345.host or 12345[7].host",
        "text",
        needed=True,
        made=pl.col("number").cast(pl.String) + ".polaris-pbs-01",
    ),
    Column("COBALT_JOBID", "", "text"),
    Column("MACHINE_NAME", "", "text", made=pl.lit("polaris")),
    _time("QUEUED_TIMESTAMP", "submit"),
    Column("QUEUED_DATE_ID", made=pl.lit(20230901)),
    _time("START_TIMESTAMP", "start"),
    Column("START_DATE_ID", made=pl.lit(20230901)),
    _time("END_TIMESTAMP", "end"),
    Column("END_DATE_ID", made=pl.lit(20230901)),
    Column("USERNAME_GENID", "", "text", made=pl.col("user")),
    Column("PROJECT_NAME_GENID", "", "text", made=pl.col("user")),
    Column("QUEUE_NAME", "", "text", made=pl.lit("prod")),
    Column("WALLTIME_SECONDS", "requested, s", median=(60, 1e6), made=pl.col("walltime")),
    Column("RUNTIME_SECONDS", "s", median=(1, 1e6), made=pl.col("runtime")),
    Column("NODES_USED", made=pl.col("nodes").cast(pl.Float64)),
    Column("NODES_REQUESTED", "", needed=True, made=pl.col("nodes").cast(pl.Float64)),
    Column("CORES_USED", made=pl.col("nodes") * 64.0),
    Column("CORES_REQUESTED", made=pl.col("nodes") * 64.0),
    Column("LOCATION", "", "text"),
    Column("EXIT_STATUS", made=pl.col("failed").cast(pl.Int64)),
    Column("EXIT_CODE"),
    Column("ELIGIBLE_WAIT_SECONDS", made=pl.lit(0.0)),
    Column("ELIGIBLE_WAIT_FACTOR", made=pl.lit(1)),
    Column("QUEUED_WAIT_SECONDS", made=pl.lit(0.0)),
    Column("QUEUED_WAIT_FACTOR", made=pl.lit(1)),
    Column("REQUESTED_CORE_HOURS", made=pl.lit(0.0)),
    Column("USED_CORE_HOURS", made=pl.lit(0.0)),
)


def _records(given: Given) -> pl.LazyFrame:
    exit_code = pl.coalesce("EXIT_STATUS", "EXIT_CODE")
    fields = {
        "job_id": pl.col("JOB_NAME").str.replace(r"\..*$", ""),
        "submit": pl.col("QUEUED_TIMESTAMP"),
        "start": pl.col("START_TIMESTAMP"),
        "end": pl.col("END_TIMESTAMP"),
        "runtime": pl.col("RUNTIME_SECONDS"),
        "walltime": pl.col("WALLTIME_SECONDS"),
        "nodes": pl.when(pl.col("NODES_USED") >= 1).then("NODES_USED").otherwise("NODES_REQUESTED"),
        "state": pl.when(exit_code.is_between(1, 255)).then(pl.lit("failed")),
        "user": pl.col("USERNAME_GENID"),
        "account": pl.col("PROJECT_NAME_GENID"),
        "partition": pl.col("QUEUE_NAME"),
        "recorded_nodes": pl.col("LOCATION"),
    }
    return given.main.select(**fields)


ALCF = DataSet(
    name="alcf",
    title="Job logs of Polaris, Aurora, Theta and Mira (Argonne), one file per cluster and year",
    source="https://reports.alcf.anl.gov/data (ANL-ALCF-DJC-MACHINE_FROM_TO.csv.gz)",
    license="published by ALCF for research; acknowledge Argonne",
    citation="Data were generated from resources of the Argonne Leadership Computing Facility "
    "(DE-AC02-06CH11357)",
    files=(File("ANL-ALCF-DJC.csv", ("ANL-ALCF-DJC-*.csv", "ANL-ALCF-DJC-*.csv.gz"), _COLUMNS),),
    records=_records,
    rules=(
        "nodes used; if missing, nodes requested",
        "times are UTC unless --timezone is given",
        "no power data: components count as fully used; --cluster must name the cluster",
    ),
)
