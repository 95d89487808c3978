"""From what a resource manager or a table recorded of jobs to a workload in our own columns.

Readers of accounting (Slurm's `sacct`, PBS's logs, any CSV) bring their records into one form, `RECORD`;
what becomes of them is decided here, once: duplicates, heterogeneous jobs, states, what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from hpctwin.formats._asked import as_asked, had_of
from hpctwin.formats._job_table import AT_ONCE, Collected, JobTable, ranges
from hpctwin.model import ReadNotes, Workload
from hpctwin.model.chunks import PER_TASK, more_tasks_text, read_more_tasks
from hpctwin.model.consumables import COLUMN

__all__ = [
    "LABELS",
    "RECORD",
    "Machine",
    "Tally",
    "empty_records",
    "job_table",
    "jobs_of",
    "workload_of",
    "workloads_of",
]

LABELS = ("user", "account", "partition", "qos")

RECORD: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "submit": pl.Float64(),
    "start": pl.Float64(),
    "end": pl.Float64(),
    "runtime": pl.Float64(),
    "suspended": pl.Float64(),
    "walltime": pl.Float64(),
    "nodes": pl.Float64(),
    "cores": pl.Float64(),
    "gpus": pl.Float64(),
    "memory_gb": pl.Float64(),
    "used_memory_gb": pl.Float64(),
    "priority": pl.Float64(),
    "state": pl.Categorical(),
    **{name: pl.Categorical() for name in (*LABELS, "features")},
    "recorded_nodes": pl.String(),
    "kinds": pl.String(),
    "tasks_per_node": pl.Float64(),
    "request": pl.String(),
    "group_by": pl.String(),
    "consumables": pl.String(),
    "row": pl.Int64(),
}
"""A record's fields: moments in seconds since the epoch, durations in seconds, amounts of the whole job, but
``used_memory_gb`` on one of its nodes at most; null where nothing is known. ``state`` is one of `STATES`.
``job_id`` may come more than once. ``kinds`` are those of its tasks, where it has several, as
`read_more_tasks` reads them, and ``tasks_per_node`` as many as may lie on a node. ``group_by`` names what all
of its nodes have one value of, ``consumables`` what the whole job had of them, such as ``fpga=2,tmp=400``.
``row`` is for who wants to find a job's record again."""

STATES = ("completed", "failed", "requeued", "node failure", "cancelled", "running", "waiting")
"""What became of a job's run, in one word for all managers."""

_EXAMPLES = 1000
_LONGEST_S = 1e12


@dataclass
class Tally:
    """Counts what is taken, changed and left out, so that nothing is dropped in silence.

    Args:
        counts: how often, by a sentence that says what was done.
        skipped: a message for each malformed record, up to a thousand.
        remarks: what is to be said once.
    """

    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, what: str, count: int = 1) -> None:
        """Count what happened; zero is not told."""
        if count:
            self.counts[what] = self.counts.get(what, 0) + int(count)

    def skip(self, message: str) -> None:
        """Keep what is to be said of a malformed record."""
        if len(self.skipped) < _EXAMPLES:
            self.skipped.append(message)

    def drop(self, frame: pl.DataFrame, which: pl.Expr, why: str) -> pl.DataFrame:
        """The frame without some rows, which are counted."""
        kept = frame.filter(~which.fill_null(False))
        self.add(why, len(frame) - len(kept))
        return kept

    def notes(self) -> ReadNotes:
        """As a workload carries them."""
        return ReadNotes(dict(self.counts), tuple(self.skipped), tuple(self.remarks))


def empty_records() -> pl.DataFrame:
    """No records, with all fields."""
    return pl.DataFrame(schema=RECORD)


@dataclass(frozen=True)
class Machine:
    """What a site's settings say that its accounting leaves open.

    Args:
        limits: of each partition on walltimes, s.
        shared: whether jobs share nodes: then a job asks, on each of the nodes that it was on, for a task
            of its share of cores, GPUs and memory; or for what its tasks of several kinds ask.
        memory: whether memory is shared out too.
        consumables: names of those that its nodes have.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    shared: bool = False
    memory: bool = True
    consumables: tuple[str, ...] = ()


def jobs_of(
    records: Iterable[pl.DataFrame], tally: Tally, machine: Machine | None = None
) -> pl.DataFrame:
    """Jobs in our own columns (`hpctwin.model.frame`), times in seconds since the epoch.

    Args:
        records: frames with the fields of `RECORD`; fields that are not there are unknown.
        tally: told of all that is changed or left out.
        machine: where the jobs ran, if known.
    """
    return job_table(records, tally, machine).frame()


def job_table(
    records: Iterable[pl.DataFrame],
    tally: Tally,
    machine: Machine | None = None,
    *,
    at_once: int = AT_ONCE,
) -> JobTable:
    """The same as `jobs_of`, of more jobs than fit in memory.

    Args:
        records: see there.
        tally: see there.
        machine: see there.
        at_once: so many are looked at together.
    """
    machine = machine or Machine()
    made = Collected(at_once)
    limited = 0
    for frame in ranges(_with_submission(records, tally), at_once):
        frame = _once(frame, tally)
        frame = _heterogeneous(frame, tally)
        frame = _that_ran(frame, tally).sort("submit", maintain_order=True)
        frame, known = _walltimes(frame, machine.limits, tally)
        limited += known
        made.add(_in_our_columns(frame, tally, machine))
    if not made.size:
        made.add(_in_our_columns(empty_records(), tally, machine))
    tally.add("job without an id, given one", made.unnamed)
    table = made.table()
    tally.add(
        "further run of a job under an id that was there before, named as in 12r2", made.repeats
    )
    if not limited and len(table):
        tally.remarks.append(
            "no walltime is known: every job gets its run time, so that the scheduler knows exactly how "
            "long each runs"
        )
    else:
        tally.add("job without walltime, given its run time", len(table) - limited)
    return table


def _with_submission(records: Iterable[pl.DataFrame], tally: Tally) -> Iterator[pl.DataFrame]:
    unknown = pl.col("submit").is_null()
    for frame in records:
        yield tally.drop(_complete(frame), unknown, "record left out: its submit time is unknown")


def workload_of(
    jobs: pl.DataFrame, name: str, tally: Tally, *, zero_s: float | None = None
) -> Workload:
    """A workload of `jobs_of`; its time zero is the first submission, if none is given."""
    zero = zero_s
    if zero is None:
        first = jobs["submit_s"].min() if len(jobs) else None
        zero = float(first) if isinstance(first, int | float) else 0.0
    times = [one for one in ("submit_s", "recorded_start_s") if one in jobs.columns]
    frame = jobs.with_columns(pl.col(times) - zero)
    # Before a calendar is known, numbers are taken as counted from the file's own time zero.
    known = zero if zero > _EARLIEST_EPOCH else None
    return Workload.from_frame(frame, name=name, start_epoch_s=known, notes=tally.notes())


def workloads_of(table: JobTable, name: str, tally: Tally) -> Iterator[Workload]:
    """The workload of all jobs of a table, a part at a time."""
    first = table.frames[0].select(pl.col("submit_s").min()).collect().item() or 0.0
    for frame in table.frames:
        yield workload_of(frame.collect(), name, tally, zero_s=first)


_EARLIEST_EPOCH = 86400.0 * 365 * 10


def _complete(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        (pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype)).alias(name)
        for name, dtype in RECORD.items()
    )


def _once(frame: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Each run of a job once: dumps overlap, and a later one knows what became of it."""
    repeated = pl.struct("job_id", "submit").is_duplicated()
    twice = frame.filter(repeated)
    if not len(twice):
        return frame
    known = pl.col("state").cast(pl.String).replace_strict({"waiting": 0, "running": 1}, default=2)
    best = (
        twice.with_columns(_known=known)
        .sort("_known", "end", nulls_last=False, maintain_order=True)
        .unique(["job_id", "submit"], keep="last", maintain_order=True)
        .drop("_known")
    )
    tally.add(
        "record left out: another tells more of the same job and submission", len(twice) - len(best)
    )
    return pl.concat([frame.filter(~repeated), best])


def _heterogeneous(frame: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Parts of a heterogeneous job, ``12+0`` and ``12+1``, as one job: they start together."""
    is_part = pl.col("job_id").str.contains("+", literal=True).fill_null(False)
    parts = frame.filter(is_part)
    if not len(parts):
        return frame
    number = pl.col("job_id").str.extract(r"\+(\d+)").cast(pl.Int64)
    whole = (
        parts.with_columns(_number=number, job_id=pl.col("job_id").str.replace(r"\+\d+", ""))
        .sort("_number")
        .group_by("job_id", "submit", maintain_order=True)
        .agg(
            pl.col("start", "end", "runtime", "suspended", "walltime", "used_memory_gb").max(),
            # A sum of nothing known is not known.
            *(
                pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
                for name in ("nodes", "cores", "gpus", "memory_gb")
            ),
            pl.col(
                "priority",
                "state",
                *LABELS,
                "features",
                "kinds",
                "tasks_per_node",
                "request",
                "group_by",
                "consumables",
                "row",
            ).first(),
            pl.when(pl.col("recorded_nodes").count() > 0)
            .then(pl.col("recorded_nodes").str.join(","))
            .alias("recorded_nodes"),
        )
        .select(list(RECORD))
    )
    tally.add("heterogeneous job, its parts taken as one job of all their nodes", len(whole))
    return pl.concat([frame.filter(~is_part), whole])


def _that_ran(frame: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Those of which it is known how long they ran."""
    state = pl.col("state").cast(pl.String)
    frame = tally.drop(
        frame, state == "waiting", "record left out: the job had not started when it was recorded"
    )
    span = pl.col("end") - pl.col("start") - pl.col("suspended").fill_null(0)
    frame = frame.with_columns(runtime=pl.col("runtime").fill_null(span))
    never = (state == "cancelled") & (
        pl.col("start").is_null() | (pl.col("runtime").fill_null(0) <= 0)
    )
    frame = tally.drop(frame, never, "record left out: the job was cancelled before it started")
    limit = pl.max_horizontal("walltime", "runtime")
    running = state == "running"
    tally.add(
        "job that still ran when it was recorded, taken to run to its limit",
        _count(frame, running & limit.is_not_null()),
    )
    frame = frame.with_columns(runtime=pl.when(running).then(limit).otherwise("runtime"))
    frame = tally.drop(
        frame, pl.col("runtime").is_null(), "record left out: how long the job ran is unknown"
    )
    frame = tally.drop(
        frame, pl.col("runtime") < 0, "record left out: the job ended before it began"
    )
    too_long = (pl.col("runtime") > _LONGEST_S) | ~pl.col("submit").is_between(0, _LONGEST_S)
    frame = tally.drop(frame, too_long, "record left out: a time in it cannot be right")
    frame = tally.drop(
        frame,
        pl.col("start") < pl.col("submit") - 1,
        "record left out: the job started before it was submitted",
    )
    tally.add(
        "job that was suspended for a while, taken to have run without the pause",
        _count(frame, pl.col("suspended") > 0),
    )
    for word, what in (
        ("requeued", "run of a job that was requeued or preempted, taken as a job of its own"),
        ("node failure", "job ended by the failure of a node, taken to have run so long as it did"),
    ):
        tally.add(what, _count(frame, state == word))
    return frame


def _walltimes(
    frame: pl.DataFrame, limits: Mapping[str, float], tally: Tally
) -> tuple[pl.DataFrame, int]:
    """Each job with a limit: its own, else its partition's (how many have one?), else its run time."""
    if limits:
        label = pl.col("partition").cast(pl.String)
        longest = label.replace_strict(dict(limits), default=None, return_dtype=pl.Float64)
        own = pl.col("walltime") > 0
        none = frame.select((~own.fill_null(False) & longest.is_not_null()).sum()).item()
        tally.add("job without walltime, given its partition's limit", none)
        frame = frame.with_columns(walltime=pl.when(own).then("walltime").otherwise(longest))
    known = _count(frame, pl.col("walltime") > 0)
    instead = pl.max_horizontal(pl.col("runtime"), pl.lit(0.001))
    limit = pl.when(pl.col("walltime") > 0).then("walltime").otherwise(instead)
    return frame.with_columns(walltime=limit), known


def _in_our_columns(frame: pl.DataFrame, tally: Tally, machine: Machine) -> pl.DataFrame:
    each = "task" if machine.shared else "node"
    asked = (
        ("cores", "gpus", "memory_gb")
        if machine.memory or not machine.shared
        else ("cores", "gpus")
    )
    sized = pl.col("nodes") >= 1
    tally.add(
        "job of which the number of nodes is unknown, given one",
        _count(frame, ~sized.fill_null(False)),
    )
    nodes = pl.when(sized).then(pl.col("nodes").ceil()).otherwise(1.0)
    frame = frame.with_columns(nodes=nodes)
    failed = pl.col("state").cast(pl.String) == "failed"
    columns = [
        pl.col("job_id"),
        pl.col("submit").alias("submit_s"),
        pl.col("runtime").alias("runtime_s"),
        pl.col("walltime").alias("walltime_s"),
        pl.col("nodes").cast(pl.Int64),
        *(pl.col(name) for name in (*LABELS, "features", "priority") if frame[name].count()),
        *(
            _per_node(name).fill_null(_least(name, each)).alias(f"{name}_per_{each}")
            for name in asked
            if (frame[name] > 0).any()
        ),
    ]
    if each == "task":
        columns.append(pl.col("nodes").cast(pl.Int64).alias("tasks"))
        had, others = had_of(frame, machine.consumables)
        columns += had
        for why, count in others.items():
            tally.add(why, count)
        if frame["group_by"].count():
            columns.append(pl.col("group_by"))
    else:
        tally.add(
            "job that asks for nodes of one group, which is read where nodes are shared, taken for one that "
            "may have any",
            frame["group_by"].count(),
        )
    if frame["start"].count():
        columns.append(pl.col("start").alias("recorded_start_s"))
    if measured := frame["used_memory_gb"].count():
        tally.add("job of which it is known how much memory it used", measured)
        columns.append(pl.col("used_memory_gb"))
    if _count(frame, failed):
        columns.append(failed.fill_null(False).cast(pl.Int8).alias("fails"))
    if frame["recorded_nodes"].count():
        columns.append(pl.col("recorded_nodes"))
    if frame["row"].count():
        columns.append(pl.col("row"))
    found = frame.select(columns)
    several = machine.shared and frame["kinds"].count() > 0
    if several:
        found = _of_several_kinds(found, frame, asked, machine.consumables)
    if not (machine.shared and machine.memory):
        return found
    alike = frame.select(pl.when(pl.col("kinds").is_null()).then("request"))["request"]
    return as_asked(found, alike, machine.consumables)


def _of_several_kinds(
    found: pl.DataFrame, frame: pl.DataFrame, asked: Collection[str], consumables: Collection[str]
) -> pl.DataFrame:
    """Our columns, in which jobs with tasks of several kinds ask for these, wherever they were."""
    texts = frame["kinds"].unique().drop_nulls().to_list()
    kinds = [
        [
            replace(
                one,
                memory_gb=one.memory_gb if "memory_gb" in asked else 0.0,
                consumables=tuple(pair for pair in one.consumables if pair[0] in consumables),
            )
            for one in each
        ]
        for each in map(read_more_tasks, texts)
    ]
    first = {f"{name}_per_task": [one[0].asks(name) for one in kinds] for name in PER_TASK}
    first |= {
        f"{COLUMN}{name}": [one[0].asks(name) for one in kinds]
        for name in consumables
        if any(dict(one[0].consumables).get(name) for one in kinds)
    }
    about = pl.DataFrame(
        {
            "kinds": texts,
            "nodes": [1] * len(texts),
            "tasks": [one[0].tasks for one in kinds],
            **first,
            "more_tasks": [more_tasks_text(one[1:]) for one in kinds],
        },
        schema_overrides={"kinds": pl.String, **dict.fromkeys(first, pl.Float64)},
    )
    told = frame.select("kinds", "tasks_per_node").join(
        about, on="kinds", how="left", maintain_order="left"
    )
    return found.with_columns(
        pl.Series(told[name]).fill_null(found[name]) if name in found.columns else told[name]
        for name in ("nodes", "tasks", *first, "more_tasks", "tasks_per_node")
    )


def _least(name: str, each: str) -> float:
    """What is asked where nothing is known: a task has a core at least, a node nothing."""
    return 1.0 if (name, each) == ("cores", "task") else 0.0


def _per_node(name: str) -> pl.Expr:
    """The share of each node; cores and GPUs are whole where the job's are."""
    share = pl.col(name) / pl.col("nodes")
    return share if name == "memory_gb" else pl.when(share > 1).then(share.ceil()).otherwise(share)


def _count(frame: pl.DataFrame, which: pl.Expr) -> int:
    return int(frame.select(which.fill_null(False).sum()).item()) if len(frame) else 0
