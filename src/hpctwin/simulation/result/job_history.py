"""History of jobs: arrays, and a table that is made on first use."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.engine.operations.job_history import course_of, submitted_ms
from hpctwin.engine.operations.transfer import begun_ms, paused_ms, started_ms
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Sim
from hpctwin.metrics.summary.sources import JobsInMs
from hpctwin.model import MS_PER_S, Category, State, Workload
from hpctwin.model.columns import known_seconds

__all__ = ["Course", "course_so_far", "sized_course"]

IntArray = npt.NDArray[np.int64]
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
        preempted: ``preemptions`` and ``preempted_s``, the time each job ran in vain, if any job
            may be preempted; ``suspended_s``, the time each was suspended, if any may be [jobs].
    """

    workload: Workload
    submit: IntArray
    eligible: IntArray
    start: IntArray
    end: IntArray
    state: npt.NDArray[Any]
    requeues: IntArray | None = None
    preempted: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

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
            **self.preempted,
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
        preempted=_preempted(sim) if len(sim["cut"]) else {},
    )


def sized_course(workload: Workload, sim: Sim) -> Course:
    """Return `course_so_far` for decided sizes: jobs start with the first stretch."""
    return dataclasses.replace(course_so_far(workload, sim), start=begun_ms(sim))


def _preempted(sim: Sim) -> dict[str, npt.NDArray[Any]]:
    """Return how often each job was preempted, and how long it ran in vain."""
    state, cut = sim["state"], sim["cut"]
    ended = state["phase"] == layout.PREEMPTED
    lost = cut["lost"] + np.where(ended, state["end"] - state["start"], 0)
    told = {"preemptions": cut["times"] + ended, "preempted_s": lost / MS_PER_S}
    if len(sim["beneath"]):
        told["suspended_s"] = paused_ms(sim) / MS_PER_S
    return told


def _labels(column: Category) -> pl.Series | pl.Expr:
    return column.to_series("") if column.labels else pl.lit(None, pl.String)
