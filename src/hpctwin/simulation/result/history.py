"""History of a run: jobs, their sizes, and nodes that are up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin import metrics
from hpctwin.attributes import kept
from hpctwin.engine.operations.job_history import course_of, submitted_ms
from hpctwin.engine.operations.transfer import are_suspended, begun_ms, paused_ms, started_ms
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Sim
from hpctwin.metrics.sources import ExactSum, JobsInMs, JobTable
from hpctwin.metrics.summary import RunningSummary
from hpctwin.model import MS_PER_S, Category, State, Workload
from hpctwin.model.columns import known_seconds

__all__ = [
    "Course",
    "StretchSums",
    "attempts_of",
    "capacity_over_time",
    "course_so_far",
    "lost_stretches",
    "sized_course",
    "sized_figures",
    "sized_series",
    "stretches_of",
    "stretches_of_attempts",
    "stretches_on_nodes",
]

IntArray = npt.NDArray[np.int64]


def capacity_over_time(
    known: Mapping[str, Any] | Sim,
    outages: tuple[IntArray, IntArray, IntArray],
    worth: IntArray | None = None,
) -> pl.DataFrame:
    """Return the nodes that are neither in maintenance nor failed, as a step function.

    Args:
        known: Pools and maintenance windows, in the engine's form.
        outages: Node, start and end (ms) of each failure.
        worth: Amount that a node of each pool counts [pools]; 1 by default.

    Returns:
        ``time_s``, ``nodes``; the first row holds from the beginning.
    """
    node, start, end = outages
    pools = len(known["pool"])
    window = known["window"]
    amount = known["amount"][:pools]
    if worth is None:
        worth = np.ones(pools, np.int64)
    else:
        amount = amount * worth
    total = int(amount.sum())
    if not len(window) and not len(node):
        return _always(total)
    away = [
        (int(p), *span)
        for p in range(pools)
        for span in _union(
            window["start"][window["pool"] == p],
            window["end"][window["pool"] == p],
        )
    ]
    times = [0]
    changes = [total]
    for p, begins, ends in away:
        times += [begins, ends]
        changes += [-int(amount[p]), int(amount[p])]
    for one in np.unique(node):
        pool = known["pool_of"][one]
        gone = [(begins, ends) for p, begins, ends in away if p == pool]
        mine = node == one
        for begins, ends in _union(start[mine], end[mine]):
            for free_from, free_to in _without(begins, ends, gone):
                times += [free_from, free_to]
                changes += [-int(worth[pool]), int(worth[pool])]
    order = np.argsort(times, kind="stable")
    at, first = np.unique(np.array(times)[order], return_index=True)
    level = np.add.reduceat(np.array(changes)[order], first).cumsum()
    return pl.DataFrame({"time_s": at / MS_PER_S, "nodes": level})


@lru_cache(maxsize=64)
def _always(nodes: int) -> pl.DataFrame:
    return pl.DataFrame({"time_s": [0.0], "nodes": [nodes]})


def _union(start: IntArray, end: IntArray) -> list[tuple[int, int]]:
    """Return the union of intervals that overlap or touch, sorted."""
    spans: list[tuple[int, int]] = []
    for begins, ends in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if spans and begins <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], ends))
        else:
            spans.append((begins, ends))
    return spans


def _without(begins: int, ends: int, gone: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of an interval outside other, sorted and separate intervals."""
    parts = []
    for gone_from, gone_to in gone:
        if gone_to <= begins or gone_from >= ends:
            continue
        if gone_from > begins:
            parts.append((begins, gone_from))
        begins = gone_to
    if begins < ends:
        parts.append((begins, ends))
    return parts


_LABELS = [state.label for state in State]


@dataclass(frozen=True, eq=False)
class Course:
    """History of jobs; times in ms, -1 for events that have not happened.

    Args:
        workload: The jobs.
        submit: Submission of each job: of the workload, or the end of its think time.
        eligible, start, end: Times [jobs].
        state: State of each job, of `hpctwin.model.State` [jobs].
        requeues: Number of times a node failure requeued it [jobs].
        more: Further columns [jobs]: ``preemptions`` and ``preempted_s``, the time each job ran in
            vain, if any job may be preempted; ``suspended_s``, the time each was suspended, if any
            may be; ``contention_slowdown`` if jobs share a network.
    """

    workload: Workload
    submit: IntArray
    eligible: IntArray
    start: IntArray
    end: IntArray
    state: npt.NDArray[Any]
    requeues: IntArray | None = None
    more: dict[str, npt.NDArray[Any] | pl.Series] = field(default_factory=dict)

    @kept
    def source(self) -> JobsInMs:
        """Input of a summary."""
        workload = self.workload
        times = self.submit, self.eligible, self.start, self.end
        return JobsInMs(*times, workload.nodes, self.state, workload.user)

    @kept
    def table(self) -> pl.DataFrame:
        """Table of `hpctwin.Result.jobs`."""
        workload, start, end = self.workload, self.start, self.end
        submit = self.submit
        submit_s = pl.Series(submit / MS_PER_S)
        columns: dict[str, Any] = {
            "job_id": workload.job_id,
            "submit_s": submit_s,
            "eligible_s": (
                submit_s
                if (self.eligible == submit).all()
                else known_seconds(self.eligible, self.eligible >= 0)
            ),
            "start_s": known_seconds(start, start >= 0),
            "end_s": known_seconds(end, end >= 0),
            "wait_s": known_seconds(start - submit, start >= 0),
            "turnaround_s": known_seconds(end - submit, (end >= 0) & (start >= 0)),
            "nodes": workload.nodes,
            # Polars copies its input: with series, only one column at a time exists twice.
            "walltime_s": pl.Series(workload.walltime_ms / MS_PER_S),
            "runtime_s": pl.Series(workload.runtime_ms / MS_PER_S),
            "state": pl.Series(_LABELS, dtype=pl.String)[self.state],
            "user": _labels(workload.user),
            "account": _labels(workload.account),
            "partition": _labels(workload.partition),
            "requeues": pl.lit(0, pl.Int64) if self.requeues is None else self.requeues,
            **({"profile": workload.profile.to_series("")} if workload.profile.labels else {}),
            **self.more,
        }
        # A value that is the same for all jobs takes no memory as a literal.
        given = {name: one for name, one in columns.items() if not isinstance(one, pl.Expr)}
        told = (pl.col(name) if name in given else columns[name].alias(name) for name in columns)
        # One column after the other: otherwise this thread would have to wait for Polars's threads.
        return pl.DataFrame(given).select_seq(*told)


def course_so_far(workload: Workload, sim: Sim) -> Course:
    """Return the history of the jobs up to now."""
    told = course_of(sim)
    return Course(
        workload,
        submit=submitted_ms(sim, workload.submit_ms),
        eligible=told.eligible,
        start=started_ms(sim) if len(sim["beneath"]) else told.start,
        end=told.end,
        state=told.phase,
        requeues=sim["state"]["requeues"].astype(np.int64) if told.put_back else None,
        more=_preempted(sim, told.phase) if len(sim["cut"]) else {},
    )


def sized_course(workload: Workload, sim: Sim) -> Course:
    """Return `course_so_far` for decided sizes: jobs start with the first stretch."""
    return dataclasses.replace(course_so_far(workload, sim), start=begun_ms(sim))


def _preempted(sim: Sim, phase: npt.NDArray[np.int8]) -> dict[str, npt.NDArray[Any] | pl.Series]:
    """Return how often each job was preempted, and how long it ran in vain."""
    state, cut = sim["state"], sim["cut"]
    ended = phase == layout.PREEMPTED
    lost = cut["lost"] + np.where(ended, state["end"] - state["start"], 0)
    told: dict[str, npt.NDArray[Any] | pl.Series] = {
        "preemptions": cut["times"] + ended,
        "preempted_s": lost / MS_PER_S,
    }
    if len(sim["beneath"]):
        told["suspended_s"] = paused_ms(sim) / MS_PER_S
    return told


def _labels(column: Category) -> pl.Series | pl.Expr:
    return column.to_series("") if column.labels else pl.lit(None, pl.String)


def stretches_of(workload: Workload, sim: Sim, until_ms: int | None = None) -> pl.DataFrame:
    """Return the table ``stretches`` of `Result`; see `stretches_of_attempts`."""
    return stretches_of_attempts(workload, sim, until_ms).drop("attempt_s")


def stretches_of_attempts(
    workload: Workload, sim: Sim, until_ms: int | None = None
) -> pl.DataFrame:
    """Return the table ``stretches`` of `Result`, by job, then start, and ``attempt_s``.

    The end of a running stretch is null. ``attempt_s`` is the start of its attempt.

    Args:
        workload: The jobs.
        sim: Their simulation.
        until_ms: Time reached, if it is later than the last event time.
    """
    before, state = sim["lost"][: sim.clock.lost], sim["state"]
    before = before[before["what"] != layout.PAUSES]
    starts = started_ms(sim)
    # A job that waits for its nodes to power on has not begun.
    begun = (starts >= 0) & (starts <= (sim.clock.now if until_ms is None else until_ms))
    if len(sim["beneath"]):
        begun &= sim["cut"]["suspended"] == 0
        starts = np.where(are_suspended(sim), sim["cut"]["since"], starts)
    last = np.flatnonzero((state["phase"] >= layout.RUNNING) & begun)
    runs = state["phase"][last] == layout.RUNNING
    if sim["rules"]["cleanup"][0] > 0:
        runs &= state["end"][last] > sim.clock.now
    ended = np.where(runs, -1, state["end"][last])
    row = np.concatenate([before["job"], last])
    start = np.concatenate([before["start"], starts[last]])
    end = np.concatenate([before["end"], ended])
    nodes = np.concatenate([before["nodes"], sim["job"]["nodes"][last]])
    attempt = np.concatenate([before["attempt"], started_ms(sim)[last]])
    order = np.lexsort((start, row))
    return pl.DataFrame(
        {
            "job_id": workload.job_id[row[order]],
            "start_s": start[order] / MS_PER_S,
            "end_s": known_seconds(end[order], end[order] >= 0),
            "nodes": nodes[order],
            "attempt_s": attempt[order] / MS_PER_S,
        }
    )


def stretches_on_nodes(stretches: pl.DataFrame) -> pl.DataFrame:
    """Return stretches of `stretches_of_attempts` in which jobs used nodes.

    A job that is requeued while it is suspended has a last stretch without length.
    """
    of_last = pl.col("attempt_s") == pl.col("attempt_s").max().over("job_id")
    return stretches.filter(of_last | (pl.col("end_s") > pl.col("start_s")))


def lost_stretches(workload: Workload, sim: Sim) -> pl.DataFrame:
    """Return the stretches that a node failure ended; the job then waited again.

    All of their work is lost.
    """
    past = sim["lost"][: sim.clock.lost]
    lost = past[past["kept"] < past["end"] - past["start"]]
    return pl.DataFrame(
        {
            "job_id": workload.job_id[lost["job"]],
            "start_s": lost["start"] / MS_PER_S,
            "end_s": lost["end"] / MS_PER_S,
            "nodes": lost["nodes"].copy(),
        }
    )


def attempts_of(
    jobs: pl.DataFrame, stretches: pl.DataFrame, lost: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return jobs as they ran last, and their stretches before, as attempts.

    Args:
        jobs: Table of a result; jobs start with their first stretch.
        stretches: Table of the same result.
        lost: Attempts or stretches that were cut off.

    Returns:
        The jobs with start, end and nodes of the last stretch, which a job that is suspended now
        does not have. The second table is the other stretches, with the part of each that was not
        in vain.
    """
    last = stretches.group_by("job_id", maintain_order=True).last()
    last = last.join(jobs.select("job_id", job_end_s="end_s"), on="job_id", maintain_order="left")
    # A job that was canceled while suspended did not run last.
    runs_last = pl.col("end_s").is_null() | (pl.col("end_s") == pl.col("job_end_s"))
    last = last.filter(runs_last).select("job_id", last_start_s="start_s", last_nodes="nodes")
    held = jobs.join(last, on="job_id", how="left", maintain_order="left").with_columns(
        start_s="last_start_s", nodes=pl.coalesce("last_nodes", "nodes")
    )
    held = held.drop("last_start_s", "last_nodes")
    before = with_kept(stretches, lost).join(
        last.rename({"last_start_s": "start_s"}), on=["job_id", "start_s"], how="anti"
    )
    return held, before.drop("cut_off")


def with_kept(stretches: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """Return stretches with what they kept of their time.

    Args:
        stretches: Table of a result.
        lost: Attempts or stretches that were cut off.

    Returns:
        The stretches with ``cut_off``, whether each ended as its attempt was cut off, and with
        ``kept_s``, the part of it that was not in vain. All time that an attempt lost counts when
        it is cut off, so ``kept_s`` of its last stretch may be below 0. ``nodes`` is that of the
        attempt.
    """
    saved_s = pl.col("kept_s") if "kept_s" in lost.columns else pl.lit(0.0)
    attempts = lost.select(
        "job_id", since_s="start_s", until_s="end_s", saved_s=saved_s, held=pl.col("nodes")
    )
    found = stretches.join_asof(
        attempts.sort("since_s", "until_s", maintain_order=True),
        left_on="start_s",
        right_on="since_s",
        by="job_id",
        check_sortedness=False,
    )
    within = (pl.col("end_s") <= pl.col("until_s")).fill_null(value=False)
    length_s = pl.col("end_s") - pl.col("start_s")
    lost_s = length_s.filter(within).sum().over("job_id", "since_s") - pl.col("saved_s")
    is_last = within & (pl.col("end_s") == pl.col("until_s"))
    found = found.with_columns(
        nodes=pl.when(within).then("held").otherwise("nodes"),
        kept_s=pl.when(is_last).then(length_s - lost_s).otherwise(length_s),
    ).drop("since_s", "until_s", "saved_s", "held")
    # Two attempts may begin at one time: the first was cut off then.
    ends = lost.select("job_id", "end_s", cut_off=pl.lit(value=True)).unique()
    found = found.join(ends, on=["job_id", "end_s"], how="left", maintain_order="left")
    return found.with_columns(pl.col("cut_off").fill_null(value=False))


def sized_figures(
    jobs: pl.DataFrame,
    stretches: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
    tau_s: float,
) -> dict[str, Any]:
    """Return metrics like `hpctwin.metrics.summarize`, and those of suspended jobs.

    These are how often and how long jobs were suspended, and how often resized.

    Args:
        jobs: Table of a result.
        stretches: Table of the same result.
        lost: Stretches that failures ended.
        capacity: Nodes that are up, over time.
        nodes: Number of nodes of the cluster.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """
    attempts = attempts_of(jobs, stretches, lost)
    running, asking = (RunningSummary(nodes, exact=True, tau_s=tau_s) for _ in range(2))
    last, before = attempts
    running.passed(JobTable(last), before, capacity)
    running.ended(JobTable(jobs))
    asked, before = _as_asked(jobs, *attempts)
    asking.passed(JobTable(asked), before, capacity)
    sums = StretchSums()
    sums.add(stretches, lost)
    return {
        **running.figures(),
        "mean_queued_nodes": asking.figures()["mean_queued_nodes"],
        **sums.figures(),
    }


class StretchSums:
    """Counts of suspensions and changes of size, and sums of the time between and in stretches."""

    def __init__(self) -> None:
        self._suspensions = self._resizes = 0
        self._suspended, self._held = ExactSum(), ExactSum()

    def add(self, stretches: pl.DataFrame, lost: pl.DataFrame) -> None:
        """Add all stretches of some jobs, each job once.

        Args:
            stretches: Table of a result.
            lost: Attempts or stretches that were cut off.
        """
        stretches = with_kept(stretches, lost)
        # A job that is suspended and continues at one time keeps its size.
        begins_again = stretches["start_s"] != stretches["end_s"].shift(1)
        begins_again |= stretches["nodes"] == stretches["nodes"].shift(1)
        # A job that continues after a failure was neither suspended nor resized.
        again = stretches["job_id"] == stretches["job_id"].shift(1)
        again &= ~stretches["cut_off"].shift(1, fill_value=False)
        self._suspensions += int((again & begins_again).sum())
        self._resizes += int((again & ~begins_again).sum())
        gaps = stretches["start_s"] - stretches["end_s"].shift(1)
        self._suspended.add(gaps.filter(again.fill_null(value=False)).to_numpy())
        held = stretches["nodes"] * (stretches["end_s"] - stretches["start_s"])
        self._held.add(held.fill_null(0.0).to_numpy())

    def figures(self) -> dict[str, Any]:
        """Return the metrics by name."""
        return {
            "suspensions": self._suspensions,
            "resizes": self._resizes,
            "suspended_s": self._suspended.total(),
            "held_node_s": self._held.total(),
        }


def sized_series(
    jobs: pl.DataFrame, stretches: pl.DataFrame, lost: pl.DataFrame, capacity: pl.DataFrame
) -> pl.DataFrame:
    """Return `hpctwin.metrics.time_series`; queued jobs count with requested nodes.

    Args:
        jobs: Table of a result.
        stretches: Table of the same result.
        lost: Stretches that failures ended.
        capacity: Nodes that are up, over time.
    """
    attempts = attempts_of(jobs, stretches, lost)
    used = metrics.series(*attempts, capacity)
    asked = metrics.series(*_as_asked(jobs, *attempts), capacity).select("time_s", "queued_nodes")
    columns = used.columns
    return used.drop("queued_nodes").join_asof(asked, on="time_s").select(columns)


def _as_asked(
    jobs: pl.DataFrame, held: pl.DataFrame, before: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return attempts with the nodes that their jobs request."""
    asked = jobs.select("job_id", "nodes")
    return (
        held.with_columns(jobs["nodes"]),
        before.drop("nodes").join(asked, on="job_id", how="left", maintain_order="left"),
    )
