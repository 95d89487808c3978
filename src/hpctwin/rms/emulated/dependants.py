"""Dependencies between jobs of an emulated cluster, and the fate of ended jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hpctwin.rms.emulated.agenda import AgendaEntry
from hpctwin.rms.records.records import JobDependency, JobRecord, JobSpec

__all__ = ["ENDED", "STARTED", "WELL", "Dependants", "EmulatedJob", "EndedJob", "Settled"]

STARTED = ("after",)
ENDED = ("after", "afterany")
WELL = ("after", "afterany", "afterok")
"""Kinds of dependency that are true once a job has started, ended, or ended well."""

REMEMBERED = 10_000
"""Number of ended jobs known for later dependencies.

A job that others of the workload depend on is always known.
"""


@dataclass
class EmulatedJob:
    """A job that has not ended.

    Args:
        record: Record that the cluster reports.
        runtime_s: Runtime, unless its walltime ends it before, in seconds.
        fails: Whether it ends with an error.
        nodes: Numbers of the nodes that it runs on.
        first_start_s: Time of its first start, which dependencies use.
        end: Entry of its end; None while it is pending.
        begin: Entry of the time when its nodes will be on; None if they are.
        ending: Reason of its end, while its nodes are cleaned up.
        lease_s: End of its lease; it does not start before.
    """

    record: JobRecord
    runtime_s: float
    fails: bool = False
    nodes: tuple[int, ...] = ()
    first_start_s: float | None = None
    end: AgendaEntry | None = None
    begin: AgendaEntry | None = None
    ending: str | None = None
    lease_s: float = 0.0


class EndedJob(NamedTuple):
    """A job that has ended.

    Args:
        first_start_s: Time of its first start; None if it never started.
        end_s: Time of its end.
        well: Whether it ended without an error.
    """

    first_start_s: float | None
    end_s: float
    well: bool


class Settled(NamedTuple):
    """Effects on other jobs after a job has started or is gone.

    Args:
        fulfilled: Jobs with their dependencies that have become true, and the remaining ones.
        doomed: Jobs whose dependency on it cannot become true any more.
    """

    fulfilled: list[tuple[EmulatedJob, list[JobDependency], tuple[JobDependency, ...]]]
    doomed: list[EmulatedJob]


class Dependants:
    """Records the dependants of each job, and the jobs that are gone.

    Args:
        jobs: Jobs that have not ended, by id.
        awaited: Jobs that others will depend on; they are never forgotten.
    """

    def __init__(self, jobs: Mapping[str, EmulatedJob], awaited: Iterable[str] = ()) -> None:
        self._jobs = jobs
        self._awaited = set(awaited)
        self._dependants: dict[str, dict[str, None]] = {}
        self._past: dict[str, EndedJob] = {}
        self._forgettable: deque[str] = deque()

    def why_never(self, spec: JobSpec) -> str | None:
        """Return why a new job's dependencies can never become true."""
        for edge in spec.dependencies:
            past = self._past.get(edge.on)
            if past is not None and edge.kind == "afterok" and not past.well:
                return f"job {spec.id} waits for job {edge.on}, which did not end well"
            if past is None and edge.on not in self._jobs and edge.on not in self._awaited:
                return f"job {spec.id} waits for job {edge.on}, which is not there"
        return None

    def left(self, spec: JobSpec) -> tuple[tuple[JobDependency, ...], float]:
        """Return a new job's dependencies that are not true yet, and its earliest start.

        The earliest start follows from the fulfilled dependencies and the requested begin time.
        """
        left, due_s = [], spec.not_before_s or 0.0
        for edge in spec.dependencies:
            when_s = self._true_since(edge)
            if when_s is None:
                left.append(edge)
            else:
                due_s = max(due_s, when_s + edge.delay_s)
        return tuple(left), due_s

    def add(self, spec: JobSpec) -> None:
        """Add a job with its remaining dependencies."""
        self._past.pop(spec.id, None)
        for edge in spec.dependencies:
            self._dependants.setdefault(edge.on, {})[spec.id] = None

    def remember(self, job_id: str, past: EndedJob) -> None:
        """Record that a job is gone."""
        self._past[job_id] = past
        if job_id not in self._awaited:
            self._forgettable.append(job_id)
            if len(self._forgettable) > REMEMBERED:
                self._past.pop(self._forgettable.popleft(), None)

    def settle(self, job_id: str, kinds: tuple[str, ...]) -> Settled:
        """Return which dependencies on a job become true, and which never can.

        Args:
            job_id: Job that has started or is gone.
            kinds: Kinds of dependency that are true now.
        """
        gone = job_id in self._past
        waiting = self._dependants.pop(job_id, {}) if gone else self._dependants.get(job_id, {})
        settled = Settled([], [])
        for other in [self._jobs[i] for i in waiting if i in self._jobs]:
            edges = other.record.spec.dependencies
            true = [e for e in edges if e.on == job_id and e.kind in kinds]
            left = tuple(e for e in edges if e not in true)
            if true:
                settled.fulfilled.append((other, true, left))
            if gone and any(e.on == job_id for e in left):
                settled.doomed.append(other)
        return settled

    def _true_since(self, edge: JobDependency) -> float | None:
        """Return the time since when a dependency is fulfilled; None if it is not yet."""
        job = self._jobs.get(edge.on)
        if job is not None:
            return job.first_start_s if edge.kind == "after" else None
        past = self._past.get(edge.on)
        if past is None:
            return None
        if edge.kind == "after" and past.first_start_s is not None:
            return past.first_start_s
        return past.end_s
