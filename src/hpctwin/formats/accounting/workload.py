"""From recorded jobs of a resource manager or a table to a workload.

Readers of accounting (Slurm's `sacct`, PBS's logs, any CSV) bring their records into one form,
`RECORD`. This module treats all of them alike: duplicates, heterogeneous jobs, states, missing
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from hpctwin.formats.accounting.our_columns import in_our_columns
from hpctwin.formats.job_table import AT_ONCE, Collected, JobTable, ranges
from hpctwin.formats.record import (
    LABELS,
    RECORD,
    Machine,
    Running,
    Tally,
    count_of,
    empty_records,
)
from hpctwin.model import Workload
from hpctwin.model.requests.features import has_features

_LONGEST_S = 1e12
_GRACE_S = 3600.0


def job_table(
    records: Iterable[pl.DataFrame],
    tally: Tally,
    machine: Machine | None = None,
    *,
    at_once: int = AT_ONCE,
) -> JobTable:
    """Return jobs in hpctwin's columns, times in seconds since the epoch.

    The columns are those of `hpctwin.model.workload.frame`. The jobs may be more than fit in memory.

    Args:
        records: Frames with the fields of `RECORD`; missing fields are unknown.
        at_once: Number of records that are processed together.
    """
    machine = machine or Machine()
    made = Collected(at_once)
    limited = 0
    recorded = _Recorded()
    for frame in ranges(_with_submission(records, tally, recorded), at_once):
        frame = _once(frame, tally)
        frame = _heterogeneous(frame, tally)
        frame = _running(frame, tally, machine.running, recorded.at_s)
        frame = _that_ran(frame, tally).sort("submit", maintain_order=True)
        frame = _with_features(frame, machine, tally)
        frame, known = _walltimes(frame, machine.limits, tally)
        limited += known
        made.add(in_our_columns(frame, tally, machine))
    if not made.size:
        made.add(in_our_columns(empty_records(), tally, machine))
    tally.add("job without an id, given a new id", made.unnamed)
    table = made.table()
    tally.add("further run under the same job id, renamed as in 12r2", made.repeats)
    if not limited and len(table):
        tally.remarks.append(
            "no walltimes found: each job gets its run time as walltime, so the scheduler knows "
            "exact run times"
        )
    else:
        tally.add("job without walltime, given its run time", len(table) - limited)
    return table


def _with_features(frame: pl.DataFrame, machine: Machine, tally: Tally) -> pl.DataFrame:
    """Drop features that no node is known to have.

    Otherwise no job that requests them could start.
    """
    if machine.features is None:
        return frame
    asked = frame["features"].cast(pl.String)
    there = [
        text
        for text in asked.drop_nulls().unique().to_list()
        if any(has_features(text, features) for features in machine.features)
    ]
    open_ = asked.is_not_null() & ~asked.is_in(there)
    if open_.any():
        row = int(open_.arg_max() or 0)
        example = f"job {frame['job_id'][row]}: {asked[row]}"
        tally.add("job with features that no node has: ignored", int(open_.sum()), example)
    return frame.with_columns(features=asked.set(open_, None).cast(pl.Categorical()))


@dataclass
class _Recorded:
    """Time of recording: the latest time in any record, in seconds since the epoch."""

    at_s: float = 0.0


def _with_submission(
    records: Iterable[pl.DataFrame], tally: Tally, recorded: _Recorded
) -> Iterator[pl.DataFrame]:
    unknown = pl.col("submit").is_null()
    for frame in records:
        frame = _complete(frame)
        times = frame.select(pl.col("submit", "start", "end").max()).row(0)
        recorded.at_s = max(
            recorded.at_s, *(time for time in times if time is not None and time < _LONGEST_S), 0.0
        )
        yield tally.drop(frame, unknown, "record skipped: unknown submit time")


def workload_of(
    jobs: pl.DataFrame, name: str, tally: Tally, *, zero_s: float | None = None
) -> Workload:
    """Return a workload of jobs from `job_table`.

    By default, its time zero is the first submission.
    """
    zero = zero_s
    if zero is None:
        first = jobs["submit_s"].min() if len(jobs) else None
        zero = float(first) if isinstance(first, int | float) else 0.0
    times = [one for one in ("submit_s", "recorded_start_s") if one in jobs.columns]
    frame = jobs.with_columns(pl.col(times) - zero)
    # Times in these early years are no dates, but counted from the file's own time zero.
    known = zero if zero > _EARLIEST_EPOCH else None
    return Workload.from_frame(frame, name=name, start_epoch_s=known, notes=tally.notes())


def workloads_of(table: JobTable, name: str, tally: Tally) -> Iterator[Workload]:
    """Yield the workload of all jobs of a table, a part at a time."""
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
    """Return each run of a job once: dumps overlap, and a later one knows its end."""
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
        "record skipped: another record of the same submission has more data",
        len(twice) - len(best),
    )
    return pl.concat([frame.filter(~repeated), best])


def _heterogeneous(frame: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the parts of a heterogeneous job as one job.

    The parts, ``12+0`` and ``12+1``, start together.
    """
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
            # The sum is unknown if no part is known.
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
                "licenses",
                "row",
            ).first(),
            pl.when(pl.col("recorded_nodes").count() > 0)
            .then(pl.col("recorded_nodes").str.join(","))
            .alias("recorded_nodes"),
        )
        .select(list(RECORD))
    )
    tally.add("heterogeneous job, its parts merged into one job with all their nodes", len(whole))
    return pl.concat([frame.filter(~is_part), whole])


def _running(frame: pl.DataFrame, tally: Tally, treated: Running, at_s: float) -> pl.DataFrame:
    """Give a run time to jobs that still ran when they were recorded, or skip them.

    Args:
        at_s: Time of recording, in seconds since the epoch.
    """
    running = (pl.col("state").cast(pl.String) == "running").fill_null(False)
    if treated == "drop":
        return tally.drop(
            frame, running, "record skipped: the job was still running at the end of the trace"
        )
    elapsed = pl.col("runtime").fill_null((at_s - pl.col("start")).clip(lower_bound=0))
    limit = pl.col("walltime")
    if treated == "limit":
        runtime = pl.max_horizontal(limit, elapsed)
        what = "job still running at the end of the trace, treated as running to its limit"
        tally.add(what, count_of(frame, running & runtime.is_not_null()))
    else:
        # Slurm and PBS end a job at its limit: such a record was never closed.
        open_ = (limit > 0) & (elapsed > limit + _GRACE_S)
        runtime = pl.when(open_).then(limit).otherwise(elapsed)
        for what, which in (
            (
                "job recorded as running long after its limit, treated as ended at its limit",
                open_,
            ),
            (
                "job still running at the end of the trace, treated as ended then (real "
                "run time is longer)",
                elapsed.is_not_null() & ~open_.fill_null(False),
            ),
        ):
            tally.add(what, count_of(frame, running & which))
    return frame.with_columns(runtime=pl.when(running).then(runtime).otherwise("runtime"))


def _that_ran(frame: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the records of jobs with a known run time."""
    state = pl.col("state").cast(pl.String)
    frame = tally.drop(
        frame, state == "waiting", "record skipped: the job had not started at the end of the trace"
    )
    span = pl.col("end") - pl.col("start") - pl.col("suspended").fill_null(0)
    frame = frame.with_columns(runtime=pl.col("runtime").fill_null(span))
    start = pl.col("start")
    nowhere = (
        start.is_null() & start.is_not_null().any()
    )  # without a column of starts, use run times
    never = (state == "cancelled") & (nowhere | (pl.col("runtime").fill_null(0) <= 0))
    frame = tally.drop(frame, never, "record skipped: the job was cancelled before it started")
    frame = tally.drop(frame, pl.col("runtime").is_null(), "record skipped: unknown run time")
    frame = tally.drop(
        frame, pl.col("runtime") < 0, "record skipped: the job ended before it started"
    )
    too_long = (pl.col("runtime") > _LONGEST_S) | ~pl.col("submit").is_between(0, _LONGEST_S)
    frame = tally.drop(frame, too_long, "record skipped: implausible time")
    frame = tally.drop(
        frame,
        pl.col("start") < pl.col("submit") - 1,
        "record skipped: the job started before its submission",
    )
    tally.add(
        "suspended job, treated as running without the pause",
        count_of(frame, pl.col("suspended") > 0),
    )
    for word, what in (
        ("requeued", "run of a requeued or preempted job, treated as a separate job"),
        ("node failure", "job ended by a node failure, with its recorded run time"),
    ):
        tally.add(what, count_of(frame, state == word))
    return frame


def _walltimes(
    frame: pl.DataFrame, limits: Mapping[str, float], tally: Tally
) -> tuple[pl.DataFrame, int]:
    """Return jobs with a time limit each, and the number of known limits.

    The limit is the job's own, else its partition's, else its run time.
    """
    if limits:
        label = pl.col("partition").cast(pl.String)
        longest = label.replace_strict(dict(limits), default=None, return_dtype=pl.Float64)
        own = pl.col("walltime") > 0
        none = frame.select((~own.fill_null(False) & longest.is_not_null()).sum()).item()
        tally.add("job without walltime, given its partition's limit", none)
        frame = frame.with_columns(walltime=pl.when(own).then("walltime").otherwise(longest))
    known = count_of(frame, pl.col("walltime") > 0)
    instead = pl.max_horizontal(pl.col("runtime"), pl.lit(0.001))
    limit = pl.when(pl.col("walltime") > 0).then("walltime").otherwise(instead)
    return frame.with_columns(walltime=limit), known
