"""Traces of clouds: Google's cluster of 2011, Alibaba's GPU cluster of 2023."""

from __future__ import annotations

import polars as pl

from hpctwin.formats.datasets.declared import Column, DataSet, File, Given

_EVENT = pl.col("event").cast(pl.Int64)
_SUBMIT, _SCHEDULE, _UPDATES = 0, 1, (7, 8)
_TASKS = (
    Column("time", "µs since 600 s before the trace begins", needed=True, made=pl.col("at")),
    Column("missing", "", "text"),
    Column("job", "", "text", needed=True, made=pl.col("number")),
    Column("index", "index of the task in the job", needed=True, made=pl.col("task")),
    Column("machine", "", "text", made=pl.col("task")),
    Column(
        "event",
        "0 submit, 1 schedule, 2 to 6 ended, 7 and 8 updates",
        needed=True,
        made=pl.col("what"),
    ),
    Column("user", "", "text", made=pl.col("user")),
    Column("class", "scheduling class", made=pl.lit(1)),
    Column("priority", "", made=pl.lit(9)),
    Column("cpu", "fraction of the largest machine", made=pl.lit(0.5)),
    Column("ram", "fraction of the largest machine", made=pl.lit(0.25)),
    Column("disk", "", made=pl.lit(0.0)),
    Column("different_machine", "", "text", made=pl.lit(0)),
)


def _events(made: pl.DataFrame) -> pl.DataFrame:
    """Return the events of each task of each synthetic job: each task fills a machine."""
    first = made["submit"].min()
    tasks = made.with_columns(task=pl.int_ranges(0, pl.col("nodes"))).explode("task")
    frames = [
        tasks.with_columns(
            what=pl.lit(what), at=(1e6 * (600 + pl.col(when) - first)).cast(pl.Int64)
        )
        for what, when in ((_SUBMIT, "submit"), (_SCHEDULE, "start"), (4, "end"))
    ]
    return pl.concat(frames).sort("at", maintain_order=True)


_PERIOD_S = 300
_USED = (
    Column(
        "start", "start of the measurement period, µs, as for tasks", needed=True, made=pl.col("at")
    ),
    Column("end", "of it, µs", needed=True, made=pl.col("until")),
    Column("job", "", "text", needed=True, made=pl.col("number")),
    Column("index", "index of the task in the job", made=pl.col("task")),
    Column("machine", "", "text", made=pl.col("task")),
    Column(
        "cpu", "mean rate, fraction of the largest machine", needed=True, made=0.5 * pl.col("cpu")
    ),
    Column("memory", "fraction of the largest machine", made=pl.lit(0.1)),
    Column("assigned_memory", made=pl.lit(0.1)),
    Column("unmapped_cache", made=pl.lit(0.0)),
    Column("cache", made=pl.lit(0.0)),
    Column("max_memory", made=pl.lit(0.1)),
    Column("disk_time", made=pl.lit(0.0)),
    Column("disk", made=pl.lit(0.0)),
    Column("max_cpu", made=0.5 * pl.col("cpu")),
    Column("max_disk_time", made=pl.lit(0.0)),
    Column("cycles_per_instruction", made=pl.lit(1.0)),
    Column("memory_accesses_per_instruction", made=pl.lit(0.0)),
    Column("sample_portion", made=pl.lit(0.0)),
    Column("aggregation", made=pl.lit(1)),
    Column("sampled_cpu", made=pl.lit(0.0)),
)


def _periods(made: pl.DataFrame) -> pl.DataFrame:
    """Return the use of each task of each synthetic job, every five minutes."""
    first = made["submit"].min()
    begin, end = (
        (600 + pl.col(when) - first).cast(pl.Int64).alias(when) for when in ("start", "end")
    )
    periods = pl.int_ranges("start", "end", _PERIOD_S).alias("at")
    tasks = made.with_columns(begin, end, task=pl.int_ranges(0, pl.col("nodes"))).explode("task")
    rows = tasks.with_columns(periods).explode("at")
    until = pl.min_horizontal(pl.col("at") + _PERIOD_S, "end")
    return rows.with_columns(at=1_000_000 * pl.col("at"), until=1_000_000 * until)


_ZERO_S = 1_304_290_200.0
"""Unix time of time 0.

The trace begins at 600 s, 2011-05-01 19:00 EDT (google/cluster-data, ClusterData2011_2.md).
"""
_LATEST = 1e15
_AT = pl.when(pl.col("time") < _LATEST).then(_ZERO_S + pl.col("time") / 1e6)
"""Seconds since the epoch.

Null for events after the trace, which have the time 2^63 - 1.
"""

_MACHINES = (
    Column("time", "µs, as for tasks", needed=True, made=pl.col("at")),
    Column("machine", "", "text", needed=True, made=pl.col("machine")),
    Column("event", "0 add, 1 remove, 2 update", needed=True, made=pl.col("what")),
    Column("platform", "", "text", made=pl.lit("p")),
    Column("cpu", "fraction of the largest machine", made=pl.lit(0.5)),
    Column("memory", "fraction of the largest machine", made=pl.lit(0.25)),
)
_ADD, _REMOVE = 0, 1


def _machine_events(made: pl.DataFrame) -> pl.DataFrame:
    """Return ten machines that exist from the beginning; one is away for an hour."""
    there = [(0, number, _ADD) for number in range(10)]
    away = [(int(3600e6), 3, _REMOVE), (int(7200e6), 3, _ADD)]
    return pl.DataFrame([*there, *away], schema=["at", "machine", "what"], orient="row")


def _machines_away(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return the times from each removal to the next addition.

    A machine that is first added later was away before that.
    """
    sorted_events = (
        events.filter(_EVENT.is_in([_ADD, _REMOVE]))
        .select("machine", _EVENT.alias("event"), _AT.alias("at"))
        .sort("machine", "at", maintain_order=True)
    )
    first = pl.col("machine") != pl.col("machine").shift(1).fill_null("")
    later = pl.when(pl.col("event").shift(-1).over("machine") == _ADD).then(
        pl.col("at").shift(-1).over("machine")
    )
    removed = sorted_events.select(
        "event", nodes="machine", start="at", end=later, drained=pl.lit(False)
    )
    late = sorted_events.filter(first & (pl.col("event") == _ADD) & (pl.col("at") > _ZERO_S))
    late = late.select(
        nodes="machine", start=pl.lit(None, pl.Float64), end="at", drained=pl.lit(False)
    )
    gone = removed.filter(pl.col("event") == _REMOVE).drop("event")
    return pl.concat([gone, late]).sort("start", nulls_last=False, maintain_order=True)


def _google(given: Given) -> pl.LazyFrame:
    at = _AT
    changes = ~_EVENT.is_in(_UPDATES)
    event, when = (
        one.filter(changes).sort_by(at.filter(changes), nulls_last=True, maintain_order=True).last()
        for one in (_EVENT, at)
    )
    # A task that is evicted and starts again counts once, and has ended if that is its last event.
    tasks = given.main.group_by("job", "index", maintain_order=True).agg(
        at.filter(_EVENT == _SUBMIT).min().alias("submit"),
        at.filter(_EVENT == _SCHEDULE).min().alias("start"),
        pl.when(~event.is_in([_SUBMIT, _SCHEDULE])).then(when).alias("end"),
        pl.col("cpu", "ram").drop_nulls().max(),
        pl.col("user", "priority").drop_nulls().first(),
    )
    machines = pl.max_horizontal(pl.col("cpu").sum(), pl.col("ram").sum())
    jobs = tasks.group_by("job", maintain_order=True).agg(
        pl.col("submit", "start").min(),
        pl.when(pl.col("end").count() == pl.len()).then(pl.col("end").max()).alias("end"),
        (machines / _CAPACITY).ceil().alias("nodes"),
        pl.col("user").first(),
        pl.col("priority").max(),
    ).rename({"job": "job_id"})  # fmt: skip
    used = given.more.get("task_usage")
    if used is None or given.use == "none":
        return jobs
    length_s = (pl.col("end") - pl.col("start")) / 1e6
    by_job = used.group_by("job").agg((pl.col("cpu") * length_s).sum().alias("cpu_s"))
    machine_s = pl.col("nodes") * _CAPACITY * (pl.col("end") - pl.col("start"))
    share = pl.when(machine_s > 0).then(pl.col("cpu_s") / machine_s).clip(0, 1)
    joined = jobs.join(by_job, left_on="job_id", right_on="job", how="left", maintain_order="left")
    return joined.with_columns(use_cpu=share).drop("cpu_s")


_CAPACITY = 0.5
GOOGLE = DataSet(
    name="google2011",
    title="Google's cluster of May 2011, version 2: 12,500 machines, 29 days (part-*-of-*.csv.gz)",
    source="gs://clusterdata-2011-2 (task_events), https://github.com/google/cluster-data",
    license="CC BY 4.0",
    citation="J. Wilkes, C. Reiss: Google cluster-usage traces: format + schema, 2011",
    files=(
        File(
            "task_events",
            ("task_events*.csv*", "task_events/part-*.csv*", "*task-events*.csv*"),
            _TASKS,
            form="headless",
            rows=_events,
        ),
        File(
            "task_usage",
            (
                "task_usage*.csv*",
                "task_usage/part-*.csv*",
                "*task-usage*.csv*",
                "../task_usage/part-*.csv*",
            ),
            _USED,
            needed=False,
            form="headless",
            rows=_periods,
        ),
        File(
            "machine_events",
            (
                "machine_events*.csv*",
                "machine_events/part-*.csv*",
                "*machine-events*.csv*",
                "../machine_events/part-*.csv*",
            ),
            _MACHINES,
            needed=False,
            form="headless",
            rows=_machine_events,
        ),
    ),
    records=_google,
    system="gcloudv2",
    away=("machine_events", _machines_away),
    rules=(
        "a machine is down before it is first added and between removal and re-adding; machines "
        "are numbered in order of appearance; the machines of tasks are not read",
        "a job runs from the first scheduling of a task until the last end of a task; jobs with "
        "unfinished tasks are skipped",
        "its number of machines is the sum of its tasks' requests (CPU or memory, the larger) "
        f"divided by {_CAPACITY:g}, the size of most machines relative to the largest",
        "CPU use is the use of all tasks (task_usage: rate times period) divided by the capacity "
        "of the job's machines over its run time; at most 1",
        "there are no limits: the run time is used",
    ),
)

_PODS = (
    Column("name", "", "text", needed=True, made=pl.format("openb-pod-{}", "number")),
    Column("cpu_milli", "thousandths of a core", needed=True, made=pl.lit(8000)),
    Column("memory_mib", "MiB", made=pl.lit(16384)),
    Column("num_gpu", "", needed=True, made=pl.lit(1)),
    Column("gpu_milli", "thousandths of each GPU", needed=True, made=pl.lit(460)),
    Column("gpu_spec", "allowed GPU models, A|B", "text", made=pl.lit("V100M16|V100M32")),
    Column("qos", "LS, BE, Burstable or Guaranteed", "text", made=pl.lit("LS")),
    Column(
        "pod_phase",
        "Running, Succeeded, Failed or Pending",
        "text",
        made=pl.when("failed").then(pl.lit("Failed")).otherwise(pl.lit("Succeeded")),
    ),
    Column("creation_time", "s", needed=True, made=pl.col("submit")),
    Column("deletion_time", "s", needed=True, made=pl.col("end")),
    Column("scheduled_time", "s; empty if never scheduled", made=pl.col("start")),
)


def _pod_records(given: Given) -> pl.LazyFrame:
    phase = {"Running": "completed", "Succeeded": "completed", "Failed": "failed"}
    fields = {
        "job_id": pl.col("name"),
        "submit": pl.col("creation_time"),
        "start": pl.col("scheduled_time"),
        "end": pl.col("deletion_time"),
        "nodes": pl.lit(1),
        "cores": pl.col("cpu_milli") / 1000,
        "memory_gb": pl.col("memory_mib") / 1024,
        "gpus": pl.col("num_gpu") * pl.col("gpu_milli") / 1000,
        "features": pl.col("gpu_spec"),
        "qos": pl.col("qos"),
        "state": pl.when(pl.col("scheduled_time").is_null())
        .then(pl.lit("waiting"))
        .otherwise(pl.col("pod_phase").replace_strict(phase, default="completed")),
    }
    return given.main.select(**fields)


ALIBABA_GPU = DataSet(
    name="alibaba-gpu",
    title="Alibaba's GPU cluster of 2023: 8,152 pods, many with a fraction of a GPU",
    source="https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2023)",
    license="none is given",
    citation="Q. Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with "
    "Fragmentation Gradient Descent, USENIX ATC 2023",
    files=(File("openb_pod_list.csv", ("*openb_pod_list*.csv", "*pod_list*.csv"), _PODS),),
    records=_pod_records,
    shared=True,
    rules=(
        "a pod is a job of one task: its cores (whole ones if more than one), memory, and GPUs "
        "times their thousandths; it can use nodes with one of its requested GPU models as a "
        "feature",
        "it runs from scheduling until deletion; pods that were never scheduled are skipped",
        "there are no limits: the run time is used",
        "its node list is a cluster file: --cluster openb_node_list_all_node.csv, with GPU "
        "models as features of node groups",
    ),
)
