"""Recent, running and forecast jobs on nodes, and their rows in a Gantt chart.

Recent jobs come from the cluster's events. Rows are nodes by number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.model import Cluster
from hpctwin.rms.node_capacity import AMOUNTS
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.simulation.result.counts import core_map

__all__ = [
    "PAST_S",
    "History",
    "Ran",
    "Rows",
    "Runs",
    "Stretch",
    "ends_s",
    "lanes_of",
    "past",
    "placed",
    "rows_of",
    "runs_of",
    "shares_of",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


MOST = 100_000
"""Maximum number of past jobs in the history."""

_TOLD = (
    '"job_submitted"', '"job_modified"', '"job_started"', '"job_ended"', '"job_requeued"',
    '"job_deleted"',
)  # fmt: skip

_ENDED = {
    "exit": "completed",
    "cancelled": "cancelled",
    "walltime": "time limit",
    "node_failure": "node failure",
}


@dataclass(frozen=True)
class Ran:
    """A job that ran on nodes.

    Args:
        job: Id of the job.
        start_s, end_s: Start and end, in seconds.
        node_names: Names of its nodes.
        amounts: Cores, memory and GPUs that it held of each node [nodes, 3]; None for whole nodes,
            or if unknown.
        spec: Its request; None if it is not known any more.
        state: How it ended.
    """

    job: str
    start_s: float
    end_s: float
    node_names: tuple[str, ...]
    amounts: FloatArray | None = None
    spec: JobSpec | None = None
    state: str = "ended"


class History:
    """Past stretches of jobs on nodes, oldest first."""

    def __init__(self) -> None:
        self.ran: deque[Ran] = deque(maxlen=MOST)
        self._runs: dict[str, tuple[float, tuple[str, ...], FloatArray | None]] = {}
        self._specs: dict[str, JobSpec] = {}

    def take(self, event: ev.Event) -> None:
        """Update the history by an event."""
        if isinstance(event, ev.JobSubmitted | ev.JobModified):
            self._specs[event.job.id] = event.job
        elif isinstance(event, ev.JobDeleted):
            self._specs.pop(event.job_id, None)
        elif isinstance(event, ev.JobStarted):
            parts = [(part.cores, part.memory_gb, part.gpus) for part in event.parts]
            self._runs[event.job_id] = (
                event.time_s, event.node_names, np.array(parts) if parts else None
            )  # fmt: skip
        elif isinstance(event, ev.JobEnded):
            failed = event.reason == "exit" and event.exit_code
            self._over(event.job_id, event.time_s, "failed" if failed else _ENDED[event.reason])
            self._specs.pop(event.job_id, None)
        elif isinstance(event, ev.JobRequeued):
            self._over(event.job_id, event.time_s, "requeued")

    def read(self, texts: Iterable[str]) -> None:
        """Update the history by events in the journal's text form."""
        for text in texts:
            if any(kind in text for kind in _TOLD):
                self.take(ev.parse_event(text))

    def set_right(self, jobs: Mapping[str, JobRecord], time_s: float) -> None:
        """Correct the history by the existing jobs; a job that no longer runs has ended."""
        for job_id in [i for i in self._runs if i not in jobs or jobs[i].start_s is None]:
            self._over(job_id, time_s, "ended")
        self._specs = {job_id: job.spec for job_id, job in jobs.items()}
        for job_id, job in jobs.items():
            if job.start_s is not None:
                self._runs[job_id] = (job.start_s, job.node_names, job.amounts)

    def last(self, job_id: str) -> Ran | None:
        """Return the last run of a job that has ended; None if there is none."""
        return next((one for one in reversed(self.ran) if one.job == job_id), None)

    def _over(self, job_id: str, end_s: float, state: str) -> None:
        found = self._runs.pop(job_id, None)
        if found is not None and found[1]:
            spec = self._specs.get(job_id)
            self.ran.append(Ran(job_id, found[0], end_s, *found[1:], spec, state))


Runs = tuple[tuple[int, int], ...]


def runs_of(numbers: IntArray) -> Runs:
    """Return increasing node numbers as ranges: first, count."""
    if not len(numbers):
        return ()
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
    counts = np.diff(begins, append=len(numbers))
    return tuple(zip(numbers[begins].tolist(), counts.tolist(), strict=True))


class Rows:
    """Guess of nodes for future jobs: the lowest-numbered ones free at their start.

    A simulation of whole nodes only counts nodes if their names make no difference. So a job's
    nodes are unknown, but enough nodes are free when it starts.
    """

    def __init__(self, free_s: Mapping[int, float]) -> None:
        self._free_s = np.full(max(free_s, default=-1) + 1, np.inf)
        self._free_s[list(free_s)] = list(free_s.values())

    def place(self, start_s: float, end_s: float, nodes: int) -> IntArray:
        """Return the rows of the next job by start; fewer than its nodes if not all are free."""
        taken = np.flatnonzero(self._free_s <= start_s)[:nodes]
        self._free_s[taken] = end_s
        return taken


Kind = Literal["ran", "runs", "forecast"]

PAST_S = 86_400.0
"""Length of the history, in seconds."""


class Stretch(NamedTuple):
    """A job on nodes.

    Args:
        job: Id of the job.
        kind: Whether it has ended, runs (up to its limit), or is forecast.
        start_s, end_s: Start and end, in seconds.
        nodes: Numbers of its nodes, increasing [nodes].
        amounts: Cores, memory and GPUs that it holds of each node [nodes, 3]; None for whole nodes.
        spec: Request of the job; None if unknown.
        state: State of the job in a word.
    """

    job: str
    kind: Kind
    start_s: float
    end_s: float
    nodes: IntArray
    amounts: FloatArray | None
    spec: JobSpec | None = None
    state: str = ""


def ends_s(job: JobRecord, start_s: float) -> float:
    """Return when a job ends at its limit."""
    return start_s + job.spec.walltime_s


def past(history: History, now_s: float, number: Mapping[str, int]) -> list[Stretch]:
    """Return jobs that ended in the last `PAST_S`.

    Args:
        history: The past.
        now_s: Current time of the cluster's clock, in seconds.
        number: Numbers of the nodes by name.
    """
    return [
        _stretch(
            one.job, "ran", (one.start_s, one.end_s), one.node_names, one.amounts, number
        )._replace(spec=one.spec, state=one.state)
        for one in history.ran
        if one.end_s > now_s - PAST_S
    ]


def placed(job: JobRecord, end_s: float, number: Mapping[str, int]) -> Stretch:
    """Return a running job on its nodes up to a time."""
    assert job.start_s is not None
    span = job.start_s, end_s
    found = _stretch(job.spec.id, "runs", span, job.node_names, job.amounts, number)
    return found._replace(spec=job.spec, state="running")


def _stretch(
    job: str,
    kind: Kind,
    span: tuple[float, float],
    names: Sequence[str],
    amounts: FloatArray | None,
    number: Mapping[str, int],
) -> Stretch:
    known = [i for i, name in enumerate(names) if name in number]
    nodes = np.array([number[names[i]] for i in known], np.int64)
    order = np.argsort(nodes)
    return Stretch(
        job, kind, *span, nodes[order], None if amounts is None else amounts[known][order]
    )


def lanes_of(machine: Cluster, stretches: Sequence[Stretch]) -> list[int]:
    """Return the lanes per node of each group: its cores for shared nodes, else 1."""
    if all(one.amounts is None for one in stretches):
        return [1] * len(machine.nodes)
    return [max(1, round(group.cores or 0)) for group in machine.nodes]


def rows_of(machine: Cluster, stretches: Sequence[Stretch]) -> list[Runs]:
    """Return each job's lanes in a Gantt chart: nodes, or cores for shared nodes."""
    if all(one.amounts is None for one in stretches):
        return [runs_of(one.nodes) for one in stretches]
    lanes = np.repeat(lanes_of(machine, stretches), [group.count for group in machine.nodes])
    sizes = [len(one.nodes) for one in stretches]
    cores = [
        lanes[one.nodes].astype(np.float64) if one.amounts is None else one.amounts[:, 0]
        for one in stretches
    ]
    placements = pl.DataFrame(
        {
            "job_id": np.repeat(np.arange(len(stretches)), sizes),
            "node": np.concatenate([one.nodes for one in stretches]),
            "start_s": np.repeat([one.start_s for one in stretches], sizes),
            "end_s": np.repeat([one.end_s for one in stretches], sizes),
            "cores": np.concatenate(cores),
        }
    )
    found: list[list[tuple[int, int]]] = [[] for _ in stretches]
    for row, first, count in (
        core_map(machine, placements).select("job_id", "first_node", "count").iter_rows()
    ):
        found[row].append((first, count))
    return [tuple(rows) for rows in found]


def shares_of(machine: Cluster, one: Stretch) -> FloatArray:
    """Return a job's shares of its nodes' resources [nodes, 3]; 0 if unknown."""
    if one.amounts is None:
        return np.ones((len(one.nodes), len(AMOUNTS)))
    whole = np.array(
        [[getattr(group, name) or np.inf for name in AMOUNTS] for group in machine.nodes]
    )
    ends = np.cumsum([group.count for group in machine.nodes])
    found: FloatArray = one.amounts / whole[np.searchsorted(ends, one.nodes, side="right")]
    return np.minimum(found, 1.0)
