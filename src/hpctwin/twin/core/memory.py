"""State of the core besides the mirror: requested starts and started jobs."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np

from hpctwin.rms.guaranteed_fit import fit_together
from hpctwin.rms.manager import Where
from hpctwin.rms.node_capacity import Room, Taken, amounts_held, parts_of
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.forecast.workload_model import Expectations
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.run import Past

__all__ = ["Blocked", "Memory", "StartedJob", "room_of", "waits"]

_ALONE = ("dependency", "hold", "policy")
"""Reasons that say nothing about other jobs."""
_OF_USER = ("account", "limit")
"""Reasons that apply to all jobs of the same user, account and QOS.

A limit of a named resource applies to those of them that request it.

Other reasons apply to jobs with the same request.
"""

_NAMED = re.compile("GRES|License|BB")
"""Words of Slurm's reasons that are limits of a named resource, such as ``AssocGrpGRES``."""


@dataclass(frozen=True)
class StartedJob:
    """A job that has started, as the objective remembers it.

    Args:
        id: Id of the job.
        submit_s, start_s: Submission and start, in seconds since the epoch.
        nodes: Number of its nodes.
        end_s: Its end; None while it runs.
    """

    id: str
    submit_s: float
    start_s: float
    nodes: int
    end_s: float | None = None


@dataclass
class Memory:
    """State of the core besides the mirror.

    Args:
        policy: The policy in force.
        policy_since_s: Time since which it is in force.
        decisions: Number of decisions made.
        asked: Time of the request for each job that was asked to start.
        told: Nodes given in the request, by job.
        put_off: Time until which each deferred job is not asked again.
        past: Jobs that have ended, within the objective's window.
        running: Running jobs, by id.
    """

    policy: str
    policy_since_s: float = 0.0
    decisions: int = 0
    asked: dict[str, float] = field(default_factory=dict)
    told: dict[str, Where] = field(default_factory=dict)
    put_off: dict[str, float] = field(default_factory=dict)
    past: deque[StartedJob] = field(default_factory=deque)
    running: dict[str, StartedJob] = field(default_factory=dict)

    def copy(self) -> Memory:
        """Return a memory of the same state, independent of later changes of this one."""
        return Memory(**{one.name: copy.copy(getattr(self, one.name)) for one in fields(self)})

    def plain(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {**asdict(self), "past": [asdict(job) for job in self.past]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return the memory that `plain` described."""
        found = dict(plain)
        found["past"] = deque(StartedJob(**job) for job in found["past"])
        found["running"] = {i: StartedJob(**job) for i, job in found["running"].items()}
        return cls(**found)

    # --- observations -----------------------------------------------------------------------------

    def saw_all(self, mirror: Mirror, time_s: float, settings: CoreSettings) -> None:
        """Update the state after a snapshot.

        Jobs that disappeared without an event ended at an unknown time.

        Args:
            mirror: The mirror after the snapshot.
            time_s: Time of the snapshot.
            settings: Settings with the start patience and the retry time.
        """
        jobs = mirror.jobs
        # A job that was asked to start before this time and does not run in the snapshot was not
        # started: the manager has its own reasons.
        oldest_s = time_s - settings.start_timeout
        asked = {
            i: t for i, t in self.asked.items() if waits(jobs.get(i)) and not jobs[i].spec.reason
        }
        self.asked = {i: t for i, t in asked.items() if t > oldest_s}
        self.told = {i: where for i, where in self.told.items() if i in self.asked}
        late = asked.keys() - self.asked.keys()
        self.put_off = {i: t for i, t in self.put_off.items() if waits(jobs.get(i))}
        for job_id in late:
            self.put_off[job_id] = time_s + settings.retry_after
        for job_id in [i for i in self.running if i not in jobs]:
            self.remember(self.running.pop(job_id), mirror.time_s, mirror.time_s, settings)
        for job_id, job in jobs.items():
            if job.start_s is not None and job_id not in self.running:
                self.saw_start(job)

    def saw_start(self, job: JobRecord | None) -> None:
        """Record that a job has started, or that it holds the nodes it will start on."""
        if job is not None and job.start_s is not None:
            spec = job.spec
            self.running[spec.id] = StartedJob(spec.id, spec.submit_s, job.start_s, spec.nodes)

    def remember(self, job: StartedJob, end_s: float, now_s: float, settings: CoreSettings) -> None:
        """Keep an ended job for the objective's window."""
        window_s = settings.objective.window
        if window_s <= 0:
            return
        self.past.append(StartedJob(job.id, job.submit_s, job.start_s, job.nodes, end_s))
        while self.past and (self.past[0].end_s or 0.0) < now_s - window_s:
            self.past.popleft()

    # --- consequences for the jobs ----------------------------------------------------------------

    def past_of(
        self, jobs: Sequence[JobRecord], expectations: Expectations, settings: CoreSettings
    ) -> Past:
        """Return the started jobs that count in the objective."""
        if settings.objective.window <= 0:
            return Past.none()
        expected = expectations.runtime_s(jobs)
        rows = [(j.submit_s, j.start_s, j.end_s or j.start_s, j.nodes) for j in self.past]
        for job in jobs:
            if job.start_s is not None:
                spec = job.spec
                runtime_s = expected.get(spec.id, spec.walltime_s)
                rows.append((spec.submit_s, job.start_s, job.start_s + runtime_s, spec.nodes))
        table = np.array(rows, np.float64).reshape(-1, 4).T
        return Past(*table)

    def jobs_as_of(self, mirror: Mirror, now_s: float) -> tuple[JobRecord, ...]:
        """Return the mirror's jobs, with requested starts as running.

        Jobs like a blocked one are blocked too: a job that the manager would not start holds no
        nodes, nor do jobs like it; see `Blocked`.
        """
        jobs = list(mirror.jobs.values())
        blocked = self.blocked(mirror, now_s)
        if not self.asked and not self.put_off and not blocked:
            return tuple(jobs)
        room, names = room_of(mirror, jobs), tuple(mirror.nodes)
        for i, job in enumerate(jobs):
            job_id = job.spec.id
            if job.start_s is not None or job.spec.reason:
                continue
            if job_id in self.asked and (taken := self._taken(job.spec, mirror, room)):
                jobs[i] = job.model_copy(
                    update={
                        "start_s": self.asked[job_id],
                        "node_names": tuple(names[node] for node, _ in taken),
                        "parts": parts_of(job.spec, taken),
                    }
                )
                room.hold([node for node, _ in taken], room.held_by(jobs[i]), of=job.spec)
            elif self.put_off.get(job_id, now_s) > now_s:
                spec = job.spec.model_copy(update={"not_before_s": self.put_off[job_id]})
                jobs[i] = job.model_copy(update={"spec": spec})
            elif blocked and (as_other := blocked.like(job.spec)):
                spec = job.spec.model_copy(update={"reason": f"policy: as job {as_other}"})
                jobs[i] = job.model_copy(update={"spec": spec})
        return tuple(jobs)

    def _taken(self, spec: JobSpec, mirror: Mirror, room: Room) -> Taken | None:
        """Return the nodes of a job that was asked to start: as requested if it fits."""
        return _as_told(spec, self.told.get(spec.id, ()), mirror, room) or room.place(spec)

    def told_together(
        self, mirror: Mirror, starts: Sequence[str], where: Mapping[str, Where]
    ) -> tuple[str, ...]:
        """Return the jobs to start that fit wherever the manager places any of them.

        Args:
            mirror: The mirror with the jobs.
            starts: Ids of pending jobs, the most important first.
            where: Nodes of the jobs whose nodes are part of the request, by id.

        Returns:
            The jobs with given nodes, then the others, each in the order of ``starts``.
        """
        specs = [mirror.jobs[i].spec for i in {*starts, *self.asked} if i in mirror.jobs]
        if len(specs) <= 1 or _are_alike(mirror, specs):
            return tuple(starts)
        room = room_of(mirror, list(mirror.jobs.values()))
        placed = [i for i in starts if where.get(i)]
        known = {**{i: self.told.get(i, ()) for i in self.asked}, **{i: where[i] for i in placed}}
        under_way = []
        for job_id, nodes in known.items():
            job = mirror.jobs.get(job_id)
            if job is None or job.start_s is not None or job.spec.reason:
                continue
            if taken := _as_told(job.spec, nodes, mirror, room):
                held = amounts_held(job.spec, taken, room.names) if job.spec.shares else None
                room.hold([node for node, _ in taken], held, of=job.spec)
            else:
                under_way.append(job.spec)
        # A job that depends on another one's start comes after it, and is dropped with it.
        waits_for = {
            i: {edge.on for edge in mirror.jobs[i].spec.dependencies}.intersection(starts)
            for i in starts
        }
        others = sorted((i for i in starts if i not in known), key=lambda i: bool(waits_for[i]))
        fit = fit_together(room, under_way, [mirror.jobs[i].spec for i in others])
        told: dict[str, None] = {}
        for job_id in (*placed, *(spec.id for spec in fit)):
            if waits_for[job_id] <= told.keys():
                told[job_id] = None
        return tuple(told)

    def blocked(self, mirror: Mirror, now_s: float) -> Blocked:
        """Return the jobs that the manager would not start, or did not start when asked."""
        put_off = self.put_off
        jobs = mirror.jobs
        late = [jobs[i].spec for i, t in put_off.items() if t > now_s and waits(jobs.get(i))]
        return Blocked(mirror.not_started, late)

    def left_to_manager(
        self, mirror: Mirror, now_s: float, never: Collection[str] = ()
    ) -> set[str]:
        """Return the pending jobs that must not be kept from starting.

        These are held jobs, jobs asked to start, jobs that request what the cluster does not
        report, and jobs that the manager would not start or has not started when asked. Jobs that no
        forecast sees starting belong to them too, unless they only wait behind a blocked job like
        them.

        Args:
            mirror: The mirror with the jobs.
            now_s: The present.
            never: Jobs without a start in the last decision's forecasts.
        """
        blocked = self.blocked(mirror, now_s)
        found = set()
        for job_id, job in mirror.jobs.items():
            spec = job.spec
            if job.start_s is None and (
                spec.reason
                or spec.held
                or job_id in mirror.not_modeled
                or job_id in self.asked
                or self.put_off.get(job_id, 0.0) > now_s
                or (job_id in never and blocked.like(spec) is None)
            ):
                found.add(job_id)
        return found


def room_of(mirror: Mirror, jobs: Sequence[JobRecord]) -> Room:
    """Return the free capacity of a mirror's nodes while given jobs run."""
    nodes = mirror.nodes
    states = [node.state for node in nodes.values()]
    return Room.of(mirror.machine, states, jobs, {name: i for i, name in enumerate(nodes)})


def _are_alike(mirror: Mirror, specs: Sequence[JobSpec]) -> bool:
    """Return whether jobs fit together wherever they run: all nodes are equal."""
    return len(mirror.machine.nodes) == 1 and not any(spec.tasks for spec in specs)


def _as_told(spec: JobSpec, where: Where, mirror: Mirror, room: Room) -> Taken | None:
    """Return the requested nodes of a job if it fits there, else None."""
    number = {name: i for i, name in enumerate(mirror.nodes)}
    taken = [(number[name], tuple(tasks)) for name, tasks in where if name in number]
    told = bool(taken) and len(taken) == len(where) and room.has(spec, taken)
    return taken if told else None


def waits(job: JobRecord | None) -> bool:
    """Return whether a job exists and has not started."""
    return job is not None and job.start_s is None


class Blocked:
    """Pending jobs that have no chance while other jobs are blocked.

    If a limit keeps one job of a user from starting, it also keeps the user's other jobs that are
    at least as large and as long. Asking for each of them in turn would leave nodes idle. They stay
    leased, and are considered again as soon as the job that represents them has started or has no
    reason any more.

    Args:
        reasons: Pending jobs with a reason; see `JobSpec.reason`.
        late: Jobs that did not start when asked, for unknown reasons.
    """

    def __init__(self, reasons: Iterable[JobSpec], late: Iterable[JobSpec] = ()) -> None:
        self._blocked: dict[tuple[str, ...], list[JobSpec]] = {}
        for spec in reasons:
            word = spec.reason.partition(":")[0]
            if word in _OF_USER and "Min" not in spec.reason:
                of = _of_request if _NAMED.search(spec.reason) else _of_user
                self._blocked.setdefault(of(spec), []).append(spec)
            elif word not in _ALONE and (spec.constraints or word == "partition"):
                self._blocked.setdefault(_of_demand(spec), []).append(spec)
        for spec in late:
            if spec.constraints:
                self._blocked.setdefault(_of_demand(spec), []).append(spec)

    def __bool__(self) -> bool:
        return bool(self._blocked)

    def like(self, spec: JobSpec) -> str | None:
        """Return the id of a blocked job that this job is like; None if there is none."""
        for key in (_of_user(spec), _of_request(spec), _of_demand(spec)):
            for other in self._blocked.get(key, ()):
                smaller = other.nodes <= spec.nodes and other.walltime_s <= spec.walltime_s
                if smaller and other.id != spec.id:
                    return other.id
        return None


def _of_user(spec: JobSpec) -> tuple[str, ...]:
    return "user", spec.user, spec.account, spec.qos, spec.partition


def _of_request(spec: JobSpec) -> tuple[str, ...]:
    """Return a key of the user's jobs that request the same kinds of named resources."""
    gpus = "gpus" if spec.gpus or any(kind.gpus for kind in spec.kinds) else ""
    kinds = (name for kind in spec.kinds for name, _ in kind.consumables)
    named = sorted({*spec.resources, *spec.consumables, *kinds})
    return "request", *_of_user(spec)[1:], spec.constraints, gpus, *named


def _of_demand(spec: JobSpec) -> tuple[str, ...]:
    return "demand", spec.partition, spec.constraints
