"""Which jobs of an emulated cluster wait for which others, and what has become of those."""

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
"""The kinds of dependency that are true once a job has started, ended somehow, ended well."""

REMEMBERED = 10_000
"""So many ended jobs are known for dependencies of jobs to come; those that a workload names, all."""


@dataclass
class EmulatedJob:
    """A job that has not ended.

    Args:
        record: what the cluster tells of it.
        runtime_s: how long it runs, if its walltime does not end it before.
        fails: whether it ends with an error.
        nodes: numbers of those that it runs on.
        first_start_s: when it started for the first time; dependencies look at that.
        end: when it will end; None while it waits.
        begin: when its nodes will be on; None if they are.
        ending: why it has ended, while its nodes are cleaned up.
        lease_s: by a lease it does not start before then.
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
        first_start_s: when it started for the first time; None if it never did.
        end_s: when it ended.
        well: whether without an error.
    """

    first_start_s: float | None
    end_s: float
    well: bool


class Settled(NamedTuple):
    """What came of a job that has started or is gone.

    Args:
        fulfilled: jobs with the dependencies that have come true, and those that are left.
        doomed: jobs whose dependency on it cannot come true any more.
    """

    fulfilled: list[tuple[EmulatedJob, list[JobDependency], tuple[JobDependency, ...]]]
    doomed: list[EmulatedJob]


class Dependants:
    """Knows the dependants of each job, and the jobs that are gone.

    Args:
        jobs: those that have not ended, by id.
        awaited: jobs that others will depend on; they are never forgotten.
    """

    def __init__(self, jobs: Mapping[str, EmulatedJob], awaited: Iterable[str] = ()) -> None:
        self._jobs = jobs
        self._awaited = set(awaited)
        self._dependants: dict[str, dict[str, None]] = {}
        self._past: dict[str, EndedJob] = {}
        self._forgettable: deque[str] = deque()

    def why_never(self, spec: JobSpec) -> str | None:
        """Why what a new job waits for can never come true."""
        for edge in spec.dependencies:
            past = self._past.get(edge.on)
            if past is not None and edge.kind == "afterok" and not past.well:
                return f"job {spec.id} waits for job {edge.on}, which did not end well"
            if past is None and edge.on not in self._jobs and edge.on not in self._awaited:
                return f"job {spec.id} waits for job {edge.on}, which is not there"
        return None

    def left(self, spec: JobSpec) -> tuple[tuple[JobDependency, ...], float]:
        """The dependencies of a new job that are not true yet, and since when the others let it start."""
        left, due_s = [], spec.not_before_s or 0.0
        for edge in spec.dependencies:
            when_s = self._true_since(edge)
            if when_s is None:
                left.append(edge)
            else:
                due_s = max(due_s, when_s + edge.delay_s)
        return tuple(left), due_s

    def add(self, spec: JobSpec) -> None:
        """A job is there, with the dependencies that are left."""
        self._past.pop(spec.id, None)
        for edge in spec.dependencies:
            self._dependants.setdefault(edge.on, {})[spec.id] = None

    def remember(self, job_id: str, past: EndedJob) -> None:
        """A job is gone."""
        self._past[job_id] = past
        if job_id not in self._awaited:
            self._forgettable.append(job_id)
            if len(self._forgettable) > REMEMBERED:
                self._past.pop(self._forgettable.popleft(), None)

    def settle(self, job_id: str, kinds: tuple[str, ...]) -> Settled:
        """What comes true, and what cannot any more, of the dependencies on a job.

        Args:
            job_id: the job that has started or is gone.
            kinds: the kinds of dependency that are true now.
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
        """Since when a dependency is fulfilled; None if it is not, so far."""
        job = self._jobs.get(edge.on)
        if job is not None:
            return job.first_start_s if edge.kind == "after" else None
        past = self._past.get(edge.on)
        if past is None:
            return None
        if edge.kind == "after" and past.first_start_s is not None:
            return past.first_start_s
        return past.end_s
