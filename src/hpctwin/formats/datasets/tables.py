"""Data sets that are little more than a table of jobs.

These are Kestrel, Eagle, Lisa, DIR-LAB's tables, ALCF's job logs, and Blue Waters. The last has
Torque's logs by day, which are accounting in the form that PBS writes.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from hpctwin.formats.accounting.pbs_accounting import pbs_records
from hpctwin.formats.datasets.declared import NODES_MADE, Column, DataSet, File, Given, slurm_state


def _line() -> pl.Expr:
    made = pl.col
    where = NODES_MADE.list.eval(pl.format("{}/0-31", pl.element())).list.join("+")
    whole = [made(name).cast(pl.Int64) for name in ("submit", "submit", "submit", "start", "end")]
    moment = pl.from_epoch(made("end").cast(pl.Int64)).dt.strftime("%m/%d/%Y %H:%M:%S")
    limit = made("walltime").cast(pl.Int64)
    clock = [
        part.cast(pl.String).str.zfill(2) for part in (limit // 3600, limit // 60 % 60, limit % 60)
    ]
    return pl.format(
        "{};E;{}.bw;user=user{} group=grp account=abc jobname=name queue=normal ctime={} qtime={} "
        "etime={} start={} "
        "end={} owner=user exec_host={} Resource_List.nodes={}:ppn=32 Resource_List.walltime={}:{}:{} "
        "unique_node_count={} total_execution_slots={} Exit_status={} resources_used.cput=0 "
        "resources_used.energy_used=0",
        moment,
        "number",
        "user",
        *whole,
        where,
        "nodes",
        *clock,
        "nodes",
        32 * made("nodes"),
        made("failed").cast(pl.Int64),
    )


_COLUMNS = (
    Column(
        "line",
        "MM/DD/YYYY HH:MM:SS;E;ID.bw;key=value …: ctime, qtime, etime, start, end (Unix), exec_host, "
        "Resource_List.walltime, unique_node_count, Exit_status",
        "text",
        needed=True,
        made=_line(),
    ),
)


def _read(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        lines = file.read().decode("utf-8", "replace").splitlines()
    return pl.DataFrame({"line": pl.Series(lines, dtype=pl.String)})


def _write(rows: pl.DataFrame) -> bytes:
    return ("\n".join(rows["line"]) + "\n").encode()


def _records(given: Given) -> pl.LazyFrame:
    lines = given.main.select("line").collect()["line"]
    return pbs_records(lines, given.tally).lazy()


BLUE_WATERS = DataSet(
    name="bluewaters",
    title="Daily Torque logs of Blue Waters (NCSA)",
    source="https://bluewaters.ncsa.illinois.edu/data-sets (torque_logs/YYYYMMDD)",
    license="public and anonymized; terms: see the page",
    citation="Blue Waters sustained-petascale computing project (NSF OCI-0725070, ACI-1238993)",
    files=(
        File(
            "YYYYMMDD",
            ("[12][0-9]*[0-9]", "torque_logs/[12][0-9]*[0-9]"),
            _COLUMNS,
            form="other",
            read=_read,
            write=_write,
        ),
    ),
    records=_records,
    system="bluewaters",
    rules=(
        "read like accounting of PBS and Torque (docs/reference/traces.md); nodes and "
        "cores come from exec_host",
        "no power data (energy_used is 0): components count as fully used",
    ),
    content=r"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Z];\d+(?:\[\d*\])?\.bw;",
)


_TIME, _DATE = pl.Datetime("us"), pl.String()
_STATE = pl.when("failed").then(pl.lit("FAILED")).otherwise(pl.lit("COMPLETED"))


def _times(*names: str, dtype: pl.DataType) -> list[Column]:
    made = ("submit", "start", "end")
    return [
        Column(name, "", "time", needed=True, made=pl.col(what), dtype=dtype)
        for name, what in zip(names, made, strict=True)
    ]


def _kestrel(given: Given) -> pl.LazyFrame:
    fields = {
        "job_id": pl.col("job_id"),
        "submit": pl.col("submit_time"),
        "start": pl.col("start_time"),
        "end": pl.col("end_time"),
        "walltime": pl.col("wall_time"),
        "nodes": pl.col("nodes_required"),
        "account": pl.col("account"),
        "state": slurm_state(pl.col("job_state")),
    }
    if given.use == "measured":
        fields["node_w"] = pl.when(pl.col("power_per_node") > 0).then("power_per_node")
    return given.main.select(**fields)


KESTREL = DataSet(
    name="kestrel",
    title="Jobs of Kestrel (NREL) with the mean power of their nodes, as ExaDigiT reads them",
    source="not public in this form; OEDI submission 8643 has the jobs with Slurm's names",
    license="not public in this form; see OEDI submission 8643",
    citation="National Laboratory of the Rockies: Kestrel jobs, OEDI 8643",
    files=(
        File(
            "fastsim_jobs_output.parquet",
            ("fastsim_jobs_output*.parquet",),
            (
                Column("job_id", "", "text", needed=True, made=pl.col("number")),
                Column("account", "", "text", made=pl.col("user").cast(pl.String)),
                Column("nodes_required", "", needed=True, made=pl.col("nodes")),
                Column("power_per_node", "W", needed=True, made=pl.col("node_w")),
                Column(
                    "wall_time", "limit, s", needed=True, median=(60, 1e7), made=pl.col("walltime")
                ),
                Column("job_state", "Slurm's", "text", made=_STATE),
                *_times("submit_time", "start_time", "end_time", dtype=_TIME),
            ),
        ),
    ),
    records=_kestrel,
    system="kestrel",
    zone="America/Denver",
    rules=("power_per_node is the mean of one node; 0 is unknown",),
)


def _eagle(given: Given) -> pl.LazyFrame:
    task = pl.format("{}_{}", "job_id", pl.int_range(pl.len()).over("job_id"))
    fields = {
        "job_id": pl.when(pl.len().over("job_id") > 1).then(task).otherwise("job_id"),
        "submit": pl.col("submit_time"),
        "start": pl.col("start_time"),
        "end": pl.col("end_time"),
        "runtime": pl.col("run_time"),
        "walltime": pl.col("wallclock_req"),
        "nodes": pl.col("nodes_req"),
        "state": slurm_state(pl.col("state")),
        **{name: pl.col(name) for name in ("user", "account", "partition", "qos")},
    }
    return given.main.select(**fields)


EAGLE = DataSet(
    name="eagle",
    title="Jobs of Eagle (NREL), some 11 million, 2018 to 2023",
    source="https://data.openei.org/submissions/5860; 1,000 of them in github.com/NREL/eagle-jobs",
    license="CC BY 4.0",
    citation="D. Duplyakin, K. Menear: NREL Eagle Supercomputer Jobs, OEDI 5860, 2023",
    files=(
        File(
            "eagle_data.csv",
            ("*eagle*.csv", "*eagle*.csv.gz", "*eagle*.parquet"),
            (
                Column("job_id", "", "text", needed=True, made=pl.col("number")),
                Column("user", "", "text", made=pl.col("user")),
                Column("account", "", "text", made=pl.col("user")),
                Column("partition", "", "text", made=pl.lit("partition001")),
                Column("qos", "", "text", made=pl.lit("normal")),
                Column(
                    "wallclock_req", "s", needed=True, median=(60, 1e6), made=pl.col("walltime")
                ),
                Column("nodes_req", "", needed=True, made=pl.col("nodes")),
                Column("processors_req", "", needed=True, made=36 * pl.col("nodes")),
                Column("gpus_req", made=pl.lit(0)),
                Column("mem_req", made=pl.lit(0.0)),
                *_times("submit_time", "start_time", "end_time", dtype=_DATE),
                Column("run_time", "s", median=(1, 1e6), made=pl.col("runtime")),
                Column("state", "Slurm's", "text", made=_STATE),
                Column("name", "", "text", made=pl.lit("name")),
                Column("work_dir", "", "text", made=pl.lit("dir")),
                Column("submit_line", "", "text", made=pl.lit("line")),
            ),
        ),
    ),
    records=_eagle,
    zone="America/Denver",
    rules=(
        "rows with the same id are tasks of an array, each a job: 12_0, 12_1, …",
        "no power data; --cluster must name the cluster",
    ),
)

_LISA_STEP_S, _LISA_MHZ = 30.0, 33_600.0


def _fragments(made: pl.DataFrame) -> pl.DataFrame:
    count = (pl.col("runtime") / _LISA_STEP_S).ceil().cast(pl.Int64)
    return made.with_columns(part=pl.int_ranges(0, count)).explode("part")


def _lisa(given: Given) -> pl.LazyFrame:
    start = pl.col("submission_time")
    fields = {
        "job_id": pl.col("id"),
        "submit": start,
        "start": start,
        "runtime": pl.col("duration") / 1000,
        "nodes": pl.lit(1.0),
    }
    capacity = pl.col("cpu_capacity")
    jobs = given.main.select(capacity, **fields)
    parts = given.more.get("fragments.parquet")
    if parts is None or given.use == "none":
        return jobs.drop("cpu_capacity")
    # The fragments of a job are consecutive in the file.
    used = parts.group_by("id", maintain_order=True).agg(
        pl.col("cpu_usage").forward_fill().backward_fill().drop_nulls(),
        (pl.col("duration").drop_nulls().first() / 1000).alias("use_cpu_step_s"),
    )
    used = used.drop_nulls("use_cpu_step_s")
    joined = jobs.join(used, left_on="job_id", right_on="id", how="left", maintain_order="left")
    share = (pl.col("cpu_usage") / capacity).list.eval(pl.element().clip(0, 1))
    return joined.with_columns(use_cpu=share).drop("cpu_capacity", "cpu_usage")


LISA = DataSet(
    name="lisa",
    title="One week of part of Lisa (SURF), October 2022, as OpenDT ships it: 7,850 jobs, use "
            "every 30 s",
    source="https://github.com/atlarge-research/opendt (workload/SURF: tasks.parquet, fragments.parquet)",
    license="the data have no license",
    citation="atlarge-research: OpenDT",
    files=(
        File(
            "tasks.parquet",
            ("*tasks.parquet",),
            (
                Column("id", "", "text", needed=True, made=pl.col("number").cast(pl.String)),
                Column(
                    "submission_time", "when it began", "time", needed=True, made=pl.col("start"),
                    dtype=pl.Datetime("ms"),
                ),
                Column(
                    "duration", "ms", needed=True, median=(1e3, 1e9),
                    made=(1000 * pl.col("runtime")).cast(pl.Int64),
                ),
                Column("cpu_count", "cores", needed=True, made=pl.lit(16)),
                Column("cpu_capacity", "MHz of all cores", needed=True, made=pl.lit(_LISA_MHZ)),
                Column("mem_capacity", "MB", made=pl.lit(100_000)),
            ),
        ),
        File(
            "fragments.parquet",
            ("*fragments.parquet",),
            (
                Column("id", "", "text", needed=True, made=pl.col("number").cast(pl.String)),
                Column("duration", "ms, same for a job", needed=True, made=pl.lit(1000 * _LISA_STEP_S)),
                Column("cpu_count", "", made=pl.lit(16)),
                Column("cpu_usage", "MHz", needed=True, made=_LISA_MHZ * pl.col("cpu")),
            ),
            needed=False,
            rows=_fragments,
        ),
    ),
    records=_lisa,
    system="surf_lisa",
    rules=(
        "submit times are unknown: the start time is used for both",
        "each job has one host; its limit is its run time",
        "fragments without a number use the previous one",
    ),
)  # fmt: skip


def _lumos(given: Given) -> pl.LazyFrame:
    fields = {
        "job_id": pl.col("job"),
        "submit": pl.col("submit_time"),
        "start": pl.col("submit_time") + pl.col("wait_time"),
        "runtime": pl.col("run_time"),
        "walltime": pl.col("wall_time"),
        "nodes": pl.col("node_num"),
        "user": pl.when(pl.col("user") != "0").then("user"),
        "account": pl.when(pl.col("project") != "0").then("project"),
        "state": pl.when(pl.col("new_status") == "Failed").then(pl.lit("failed")),
    }
    return given.main.select(**fields)


LUMOS = DataSet(
    name="lumos",
    title="Tables of Mira, Theta and ThetaGPU (Argonne) in the form of DIR-LAB's Lumos",
    source="https://github.com/DIR-LAB/lumos (lumos-site/data)",
    license="MIT (repository); data from ALCF",
    citation="DIR-LAB: Lumos; Argonne Leadership Computing Facility (DE-AC02-06CH11357)",
    files=(
        File(
            "data_MACHINE.csv",
            ("*data_*.csv", "*data_*.csv.gz"),
            (
                Column("", "row", made=pl.col("number") - 1),
                Column("job", "", "text", needed=True, made=pl.col("number")),
                Column("user", "0 is unknown", "text", made=pl.col("user")),
                Column("project", "0 is unknown", "text", made=pl.col("user")),
                Column("state", made=pl.lit(0)),
                Column("gpu_num", made=pl.lit(0)),
                Column("cpu_num", made=64.0 * pl.col("nodes")),
                Column("node_num", "", needed=True, made=1.0 * pl.col("nodes")),
                Column("submit_time", "s since the epoch", "time", needed=True, made=pl.col("submit")),
                Column("wait_time", "s", needed=True, made=pl.col("start") - pl.col("submit")),
                Column("run_time", "s", needed=True, median=(1, 1e6), made=pl.col("runtime")),
                Column("wall_time", "requested, s", needed=True, median=(60, 1e7), made=pl.col("walltime")),
                Column("node_hour", made=pl.lit(0.0)),
                Column("new_status", "Pass, Failed or Killed", "text", made=pl.lit("Pass")),
            ),
        ),
    ),
    records=_lumos,
    rules=("no power data; --cluster must name the cluster",),
)  # fmt: skip


_DATE = pl.String()


def _time(name: str, made: str, *, needed: bool = True) -> Column:
    return Column(name, "", "time", needed=needed, made=pl.col(made), dtype=_DATE)


_OF_ALCF = (
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


def _alcf(given: Given) -> pl.LazyFrame:
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
    files=(File("ANL-ALCF-DJC.csv", ("ANL-ALCF-DJC-*.csv", "ANL-ALCF-DJC-*.csv.gz"), _OF_ALCF),),
    records=_alcf,
    rules=(
        "nodes used; if missing, nodes requested",
        "times are UTC unless --timezone is given",
        "no power data: components count as fully used; --cluster must name the cluster",
    ),
)
