"""MIT SuperCloud: Slurm's log and the samples of processors and GPUs of its jobs."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from hpctwin.formats.datasets.declared import (
    Column,
    DataSet,
    File,
    Given,
    at_steps,
    size,
    slurm_state,
)

_CODES = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL",
    "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
"""Slurm's states in the order of their numbers, from 0."""
_CORES, _STEP_S = 40, 10


def _tres() -> pl.Expr:
    cores = pl.col("nodes") * _CORES
    return pl.format("1={},2=350000,4={},5=1,1002={}", cores, "nodes", 2 * pl.col("nodes"))


_LOG = (
    Column("id_job", "", "text", needed=True, made=pl.col("number")),
    Column("id_array_job", made=pl.lit(0)),
    Column("id_array_task", made=pl.lit(4294967294)),
    Column("id_user", "", "text", made=pl.col("user")),
    Column("kill_requid", made=pl.lit(4294967295)),
    Column("nodes_alloc", "", needed=True, made=pl.col("nodes")),
    Column("nodelist", "a Python list, as text", "text", made=pl.lit("['r1234567-n1']")),
    Column("cpus_req", "cores", made=pl.col("nodes") * _CORES),
    Column("derived_ec", made=pl.lit(0)),
    Column("exit_code", made=pl.lit(0)),
    Column("gres_used", "", "text", made=pl.lit("gpu:volta:2(IDX:0-1)")),
    Column("array_max_tasks", made=pl.lit(0)),
    Column("array_task_pending", made=pl.lit(0)),
    Column("constraints", "", "text"),
    Column("flags", "", "text"),
    Column("mem_req", made=pl.lit(350000)),
    Column("partition", "", "text", made=pl.lit("normal")),
    Column("priority", made=pl.lit(1000)),
    Column("state", "Slurm's number or name", "text", made=pl.when("failed").then(5).otherwise(3)),
    Column("timelimit", "min", median=(1, 20000), made=(pl.col("walltime") / 60).cast(pl.Int64)),
    Column(
        "time_submit",
        "s since the epoch",
        "time",
        needed=True,
        made=pl.col("submit").cast(pl.Int64),
    ),
    Column("time_eligible", "", "time", made=pl.col("submit").cast(pl.Int64)),
    Column("time_start", "", "time", needed=True, made=pl.col("start").cast(pl.Int64)),
    Column("time_end", "", "time", needed=True, made=pl.col("end").cast(pl.Int64)),
    Column("time_suspended", made=pl.lit(0)),
    Column("track_steps", made=pl.lit(0)),
    Column("tres_alloc", "1=cores,2=MB,4=nodes,1001/1002=GPUs", "text", needed=True, made=_tres()),
    Column("tres_req", "", "text", made=_tres()),
    Column("job_type", "", "text", made=pl.lit("LLSUB:BATCH")),
)


def _steps(made: pl.DataFrame) -> pl.DataFrame:
    at = pl.int_ranges(0, pl.col("runtime").cast(pl.Int64), _STEP_S)
    return made.with_columns(at=at).explode("at")


def _of_job(path: Path) -> str:
    """Return the job of a file: its name begins with the number."""
    found = re.match(r"(\d+)", path.name)
    return found[1] if found else ""


def _with_job(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, glob=False, infer_schema=False)
    return frame.with_columns(job=pl.lit(_of_job(path)))


_CPU = (
    Column("job", "the number at the start of the file name", "text", made=pl.col("number")),
    Column("Step", "", "text", made=pl.lit(-1)),
    Column("Node", "", "text"),
    Column("Series", "", "text", made=pl.lit(0)),
    Column("ElapsedTime", made=pl.col("at")),
    Column(
        "EpochTime", "s since the epoch", "time", needed=True, made=pl.col("start") + pl.col("at")
    ),
    Column("CPUFrequency", made=pl.lit(2.5)),
    Column("CPUTime", made=pl.lit(0)),
    Column(
        "CPUUtilization", "%: 100 for each core", needed=True, made=pl.col("cpu") * 100 * _CORES
    ),
    Column("RSS", made=pl.lit(0)),
    Column("VMSize", made=pl.lit(0)),
    Column("Pages", made=pl.lit(0)),
    Column("ReadMB", made=pl.lit(0)),
    Column("WriteMB", made=pl.lit(0)),
)
_GPU = (
    Column("job", "the number at the start of the file name", "text", made=pl.col("number")),
    Column(
        "timestamp", "s since the epoch", "time", needed=True, made=pl.col("start") + pl.col("at")
    ),
    Column("gpu_index", "", "text", made=pl.lit(0)),
    Column("utilization_gpu_pct", "%", needed=True, made=100 * pl.col("gpu")),
    Column("utilization_memory_pct", made=pl.lit(0)),
    Column("memory_free_MiB", made=pl.lit(0)),
    Column("memory_used_MiB", made=pl.lit(0)),
    Column("temperature_gpu", made=pl.lit(40)),
    Column("temperature_memory", made=pl.lit(40)),
    Column("power_draw_W", made=pl.lit(100)),
    Column("pcie_link_width_current", made=pl.lit(16)),
)


def _share(code: str) -> pl.Expr:
    return pl.col("tres_alloc").str.extract(rf"(?:^|,){code}=(\d+)", 1).cast(pl.Float64)


def _records(given: Given) -> pl.LazyFrame:
    number = pl.col("state").str.extract(r"^(\d+)$", 1).cast(pl.Int64)
    word = pl.coalesce(
        number.replace_strict(dict(enumerate(_CODES)), default=None, return_dtype=pl.String),
        pl.col("state"),
    )
    gpus = pl.sum_horizontal(_share("1001"), _share("1002"))
    fields = {
        "job_id": pl.col("id_job"),
        "submit": pl.col("time_submit"),
        "start": pl.col("time_start"),
        "end": pl.col("time_end"),
        "suspended": pl.col("time_suspended"),
        "walltime": pl.when(pl.col("timelimit") < 1e6).then(60 * pl.col("timelimit")),
        "nodes": pl.col("nodes_alloc"),
        "cores": pl.coalesce(_share("1"), pl.col("cpus_req")),
        "gpus": gpus,
        "priority": pl.col("priority"),
        "state": slurm_state(word),
        "user": pl.col("id_user"),
        "partition": pl.when(gpus > 0).then(pl.lit("part-gpu")).otherwise(pl.lit("part-cpu")),
    }
    jobs = given.main.select(**fields)
    if given.use == "none":
        return jobs
    alone = jobs.select("job_id", "start", "nodes", "cores")
    for name, time, value in (
        ("cpu", "EpochTime", pl.col("CPUUtilization") / (100 * pl.col("cores") / size())),
        ("gpu", "timestamp", pl.col("utilization_gpu_pct") / 100),
    ):
        rows = given.more.get(f"{name}/*.csv")
        if rows is not None:
            of = rows.join(alone, left_on="job", right_on="job_id", how="inner")
            since = pl.col(time) - pl.col("start")
            lists = at_steps(of, "job", since, _STEP_S, {f"use_{name}": value.clip(0, 1)})
            jobs = jobs.join(lists, left_on="job_id", right_on="job", how="left")
    return jobs


def _by_job(rows: pl.DataFrame) -> bytes:
    """Return the samples of the first job only: each job has a file of its own."""
    own = rows.filter(pl.col("job") == pl.col("job").first())
    return own.drop("job").write_csv().encode()


SUPERCLOUD = DataSet(
    name="supercloud",
    title="MIT SuperCloud: some 400,000 jobs of 2021, with samples of processors (10 s) and GPUs (100 ms)",
    source="https://dcc.mit.edu (s3://mit-supercloud-dataset/datacenter-challenge/202201)",
    license="unknown: see https://dcc.mit.edu; the authors ask to be cited",
    citation="S. Samsi et al.: The MIT Supercloud Dataset, HPEC 2021",
    files=(
        File("slurm-log.csv", ("slurm-log*.csv",), _LOG),
        File(
            "cpu/*.csv",
            ("cpu/**/*-timeseries.csv",),
            _CPU,
            needed=False,
            form="other",
            rows=_steps,
            read=_with_job,
            write=_by_job,
        ),
        File(
            "gpu/*.csv",
            ("gpu/**/*.csv",),
            _GPU,
            needed=False,
            form="other",
            rows=_steps,
            read=_with_job,
            write=_by_job,
        ),
    ),
    records=_records,
    system="mit_supercloud",
    shared=True,
    rules=(
        "jobs share nodes: each requests one task per node with its share of cores and GPUs",
        "a job with GPUs (TRES 1001 or 1002) is in partition part-gpu, others in part-cpu",
        "use is the mean of all series in each 10 s (CPU: over the job's cores; GPU: over its "
        "devices); samples are placed at their time in the job, gaps use the previous sample",
    ),
)
