"""The emulated cluster itself: jobs, nodes and a virtual clock; no thread, no socket."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.cluster import Failures, parse_nodes
from hpctwin.policies import Policy, parse_policy
from hpctwin.rms import events as ev
from hpctwin.rms.emulated.agenda import CANCEL, END, NODE, OTHER, SUBMIT, Agenda, Entry
from hpctwin.rms.emulated.arrivals import Arrival, arrivals, waited_for
from hpctwin.rms.emulated.faults import Channel, Faults
from hpctwin.rms.emulated.nodes import Nodes, NodeState
from hpctwin.rms.manager import Outcome
from hpctwin.rms.present import Present, present
from hpctwin.rms.records import JobDependency, JobRecord, JobSpec, NodeReservation, Snapshot
from hpctwin.simulation.lower import pool_of_nodes

__all__ = ["EmulatedCluster"]

FIRST_LEASE_S = 20.0
"""So long is the lease of a job that is submitted while leases are given."""
REMEMBERED = 10_000
"""So many ended jobs are known for dependencies of jobs to come; those that a workload names, all."""

_ENDED = ("after", "afterany")
_WELL = ("after", "afterany", "afterok")
_NODE_EVENTS = {"up": ev.NodeUp, "down": ev.NodeDown, "drained": ev.NodeDrained}


@dataclass
class _Job:
    """A job that has not ended; ``ending``: why it has, while its nodes are cleaned up.

    ``lease_s``: by a lease it does not start before then.
    """

    record: JobRecord
    runtime_s: float
    fails: bool = False
    nodes: tuple[int, ...] = ()
    first_start_s: float | None = None
    end: Entry | None = None
    ending: str | None = None
    lease_s: float = 0.0


class _Past(NamedTuple):
    """A job that has ended."""

    first_start_s: float | None
    end_s: float
    well: bool


class EmulatedCluster:
    """A resource manager with jobs of its own.

    The same arguments and the same calls give the same events, whatever the faults.

    Args:
        machine: its nodes, partitions and resources; reservations and failures are taken over.
        workload: jobs that are submitted at their times; how long they run is its secret.
        publish: takes each event.
        faults: what goes wrong.
        policy: of its own scheduling, where nobody else starts jobs.
        start_s: its clock's beginning; the workload's time zero.
        run: name of its first run, a number; see `restart`.
        record: keep ``history``: time, job and what happened to it. It grows with each job.

    Raises:
        ConfigError: the clock would begin before 0.
        WorkloadError: a job has an id or label that resource managers do not take.
        UnknownNameError, PolicyError: there is no such policy.
    """

    def __init__(
        self,
        machine: Cluster,
        workload: Workload | None = None,
        *,
        publish: Callable[[ev.Event], None] = lambda event: None,
        faults: Faults | None = None,
        policy: str | Policy = "fcfs+easy",
        start_s: float = 0.0,
        run: int = 1,
        record: bool = False,
    ) -> None:
        self.machine = machine.model_copy(update={"reservations": (), "failures": Failures()})
        self.faults = _with_failures(faults or Faults(), machine.failures)
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        # A clock that is wrong by a constant tells all times wrong by it.
        self.now_s = start_s + self.faults.clock_skew_s
        if self.now_s < 0:
            raise ConfigError(
                f"the clock begins at {start_s:g} s with a skew of {self.faults.clock_skew_s:g} s: "
                "begin it later, times must not be below 0"
            )
        self.own_scheduling = True
        self.first_lease_s = 0.0
        self.leased_until_s = 0.0
        self.run = str(run)
        self.seq = 0
        self.heard = 0
        self.jobs: dict[str, _Job] = {}
        self.submitted = 0
        self.ended = 0
        self.rejected = 0
        self.history: list[tuple[float, str, str]] | None = [] if record else None
        self.nodes = Nodes(self.machine)
        self._waiting = 0
        self._used = dict.fromkeys(machine.resources, 0)
        self._dependants: dict[str, dict[str, None]] = {}
        self._past: dict[str, _Past] = {}
        self._forgettable: deque[str] = deque()
        self._awaited: set[str] = set()
        self._look = False
        self._agenda = Agenda()
        self._channel = Channel(publish, self.faults, partial(self._agenda.put, OTHER))
        self._runtimes = self.faults.draws("runtimes")
        self._cleanups = self.faults.draws("cleanups")
        self._actions = self.faults.draws("actions")
        self._failures = self.faults.draws("failures")
        self._begin_machine(machine)
        if workload is not None:
            self._awaited = waited_for(workload)
            self._arrivals = arrivals(workload, self.now_s)
            self._expect(next(self._arrivals, None))

    # --- time ------------------------------------------------------------------------------------

    def next_time(self) -> float | None:
        """When the next thing happens by itself; None if nothing will.

        There are no node failures while there is no job and none to come.
        """
        if not self.jobs and not self._agenda.due:
            return None
        return self._agenda.next_time()

    def advance(self, until_s: float) -> None:
        """Let everything happen up to a time, instant by instant; after each, `schedule`."""
        agenda = self._agenda
        while (due_s := agenda.next_time()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            while (action := agenda.pop(self.now_s)) is not None:
                action()
            self.schedule()
        self.now_s = max(self.now_s, until_s)

    def schedule(self) -> None:
        """Start jobs by the cluster's own policy, if nobody else does and something has changed."""
        if not (self.own_scheduling and self._look and self._waiting):
            return
        self._look = False
        found = present(
            self.machine,
            [job.record for job in self.jobs.values() if self._plannable(job)],
            self.nodes.records,
            tuple(self.nodes.reservations.values()),
            self.now_s,
            self.policy,
        )
        pool = pool_of_nodes(found.base.cluster).tolist()
        for job_id, counts in _planned(found):
            job = self.jobs[job_id]
            nodes = self.nodes.lowest(counts, pool)
            if self._why_not(job) is None and nodes is not None:
                self._begin(job, nodes)
        if self._look:
            # At the same time still, but after the ends of jobs without length.
            self._agenda.put(OTHER, self.now_s, self._changed)

    def _plannable(self, job: _Job) -> bool:
        """Whether a job runs, or may start now if it fits."""
        record, spec = job.record, job.record.spec
        due_s = max(spec.not_before_s or 0.0, job.lease_s)
        may_start = not spec.held and not spec.dependencies and due_s <= self.now_s
        return record.start_s is not None or may_start

    # --- what users and operators do -------------------------------------------------------------

    def submit(
        self, spec: JobSpec, runtime_s: float | None = None, *, fails: bool = False
    ) -> Outcome:
        """Submit a job.

        Args:
            spec: what it asks for.
            runtime_s: how long it would run on nodes of speed 1; without, a share of its walltime
                as the faults say.
            fails: whether it ends with an error when its runtime is over.

        Returns:
            Refused if it could never run here, or waits for a job that is not known.
        """
        why_not = self._never(spec)
        if why_not:
            return Outcome("refused", why_not)
        due_s, left = spec.not_before_s or 0.0, []
        for edge in spec.dependencies:
            when_s = self._true_since(edge)
            if when_s is None:
                left.append(edge)
            else:
                due_s = max(due_s, when_s + edge.delay_s)
        if due_s > self.now_s:
            spec = spec.model_copy(update={"not_before_s": due_s})
            self._agenda.put(OTHER, due_s, self._changed)
        if len(left) < len(spec.dependencies):
            spec = spec.model_copy(update={"dependencies": tuple(left)})
        if runtime_s is None:
            share = self._runtimes.uniform(self.faults.shortest_run, self.faults.longest_run)
            runtime_s = share * spec.walltime_s
        record = JobRecord.model_construct(spec=spec)
        job = self.jobs[spec.id] = _Job(record, max(0.0, runtime_s), fails)
        if self.now_s < self.leased_until_s:
            self._lease(job, self.now_s + self.first_lease_s)
        self._past.pop(spec.id, None)
        self._waiting += 1
        self.submitted += 1
        for edge in left:
            self._dependants.setdefault(edge.on, {})[spec.id] = None
        self._note(spec.id, "submitted")
        self._tell(ev.JobSubmitted, job=spec)
        self._changed()
        return Outcome("done")

    def cancel(self, job_id: str) -> Outcome:
        """End a job, whether it waits or runs."""
        job = self.jobs.get(job_id)
        if job is None or job.ending is not None:
            return Outcome("refused", f"job {job_id} is not there")
        if job.record.start_s is not None:
            self._finish(job, "cancelled")
        else:
            self._clear_away([job])
        return Outcome("done")

    def hold(self, job_id: str) -> Outcome:
        """Keep a waiting job from starting."""
        return self._act(lambda: self._change(job_id, ev.JobHeld, held=True))

    def release(self, job_id: str) -> Outcome:
        """Undo `hold`."""
        return self._act(lambda: self._change(job_id, ev.JobReleased, held=False))

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a waiting job's priority; larger is sooner."""
        return self._act(lambda: self._change(job_id, ev.JobModified, priority=priority))

    def modify(
        self,
        job_id: str,
        *,
        walltime_s: float | None = None,
        nodes: int | None = None,
        priority: float | None = None,
    ) -> Outcome:
        """Change what a waiting job asks for; what is None stays."""
        asked = {"walltime_s": walltime_s, "nodes": nodes, "priority": priority}
        changes = {name: value for name, value in asked.items() if value is not None}
        return self._change(job_id, ev.JobModified, **changes)

    def start(self, job_id: str) -> Outcome:
        """Start a waiting job now; refused if it does not wait, may not start, or does not fit."""
        return self._act(lambda: self._start(job_id))

    def leases(self) -> dict[str, float]:
        """The waiting jobs, and until when each is leased; 0 where it is not."""
        return {i: job.lease_s for i, job in self.jobs.items() if job.record.start_s is None}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Let waiting jobs not start before a time; jobs submitted soon after get a first lease.

        Without further leases, that ends when the longest of these would.
        """
        self.first_lease_s = FIRST_LEASE_S
        for end_s in until_s.values():
            self.leased_until_s = max(self.leased_until_s, end_s)
        return {i: self._act(partial(self._set_lease, i, s)) for i, s in until_s.items()}

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """End leases: the cluster's own scheduling starts the jobs, if it may."""
        return {i: self._act(partial(self._set_lease, i, 0.0)) for i in job_ids}

    def node_up(self, name: str) -> Outcome:
        """A node takes jobs again."""
        return self._set_node(name, "up")

    def node_down(self, name: str) -> Outcome:
        """A node fails; its job waits again or ends, as the faults say."""
        return self._set_node(name, "down")

    def node_drain(self, name: str) -> Outcome:
        """A node finishes its job and takes no other."""
        return self._set_node(name, "drained")

    def set_reservation(self, reservation: NodeReservation) -> Outcome:
        """Keep nodes from jobs for a span of time; jobs that run there stay."""
        for name in reservation.node_names:
            if name not in self.nodes.number:
                return Outcome("refused", f"there is no node {name}")
        if reservation.end_s <= self.now_s:
            return Outcome("refused", f"reservation {reservation.name} would be over already")
        self._reserve(reservation)
        self._tell(ev.ReservationSet, reservation=reservation)
        self._changed()
        return Outcome("done")

    def remove_reservation(self, name: str) -> Outcome:
        """Give them back."""
        if not self.nodes.remove_reservation(name):
            return Outcome("refused", f"there is no reservation {name}")
        self._tell(ev.ReservationRemoved, name=name)
        self._changed()
        return Outcome("done")

    def restart(self) -> None:
        """The resource manager starts anew: a new run, whose events count from 1."""
        self._channel.flush()
        self.run = str(int(self.run) + 1)
        self.seq = self.heard = 0
        self._tell(ev.SchedulerRestarted)

    def take_scheduling(self) -> Outcome:
        """Start no job by itself from now on."""
        self.own_scheduling = False
        return Outcome("done")

    def give_scheduling(self) -> Outcome:
        """Schedule by itself again, at once."""
        self.own_scheduling = True
        self._changed()
        self.schedule()
        return Outcome("done")

    def heartbeat(self, seq: int) -> None:
        """Whoever schedules has dealt with all events up to ``seq``."""
        # A number that is too high is from before a restart.
        if self.heard < seq <= self.seq:
            self.heard = seq

    @property
    def confirmed(self) -> bool:
        """Whether a heartbeat has told of all events that were sent."""
        return self.heard >= self._channel.last_seq(self.run)

    def snapshot(self) -> Snapshot:
        """Everything it knows now."""
        self._channel.flush()
        return Snapshot.model_construct(
            cluster=self.machine.name,
            time_s=self.now_s,
            run=self.run,
            seq=self.seq,
            machine=self.machine,
            nodes=tuple(self.nodes.records),
            jobs=tuple(job.record for job in self.jobs.values()),
            reservations=tuple(self.nodes.reservations.values()),
            own_scheduling=self.own_scheduling,
        )

    # --- jobs ------------------------------------------------------------------------------------

    def _expect(self, arrival: Arrival | None) -> None:
        """Have the next job of the workload submitted at its time."""
        if arrival is not None:
            self._agenda.put(SUBMIT, arrival.spec.submit_s, partial(self._arrive, arrival))

    def _arrive(self, arrival: Arrival) -> None:
        outcome = self.submit(arrival.spec, arrival.runtime_s, fails=arrival.fails)
        job_id = arrival.spec.id
        if outcome.result == "refused":
            self.rejected += 1
            self._note(job_id, "rejected")
            self._remember(job_id, _Past(None, self.now_s, False))
            self._clear_away(self._settle(job_id, _ENDED, tell=True))
        elif arrival.cancel_s is not None:
            self._agenda.put(CANCEL, arrival.cancel_s, partial(self.cancel, job_id))
        self._expect(next(self._arrivals, None))

    def _act(self, action: Callable[[], Outcome]) -> Outcome:
        """Do what a scheduler asks for, or fail as the faults say."""
        if self._actions.random() < self.faults.refused:
            return Outcome("refused", "the server is busy")
        outcome = action()
        if outcome.result == "done" and self._actions.random() < self.faults.lost_answers:
            return Outcome("unknown", "the answer was lost")
        return outcome

    def _change(self, job_id: str, kind: type[Any], **changes: Any) -> Outcome:
        job = self.jobs.get(job_id)
        if job is None or job.record.start_s is not None:
            return Outcome("refused", f"job {job_id} does not wait")
        before = job.record.spec
        try:
            spec = JobSpec.model_validate(before.model_dump() | changes)
        except ValidationError as error:
            fault = error.errors()[0]
            field = ".".join(str(part) for part in fault["loc"])
            return Outcome("refused", f"job {job_id}, {field}: {fault['msg']}")
        why_not = self._too_large(spec)
        if why_not:
            return Outcome("refused", why_not)
        if spec != before:
            job.record = job.record.model_copy(update={"spec": spec})
            self._tell(kind, **({"job": spec} if kind is ev.JobModified else {"job_id": job_id}))
            self._changed()
        return Outcome("done")

    def _set_lease(self, job_id: str, until_s: float) -> Outcome:
        job = self.jobs.get(job_id)
        if job is None or job.record.start_s is not None:
            return Outcome("refused", f"job {job_id} does not wait")
        if job.record.spec.held and until_s:
            return Outcome("refused", f"job {job_id} is held")
        self._lease(job, until_s)
        return Outcome("done")

    def _lease(self, job: _Job, until_s: float) -> None:
        job.lease_s = until_s
        if until_s > self.now_s:
            self._agenda.put(OTHER, until_s, self._changed)
        else:
            self._changed()

    def _start(self, job_id: str) -> Outcome:
        job = self.jobs.get(job_id)
        if job is None:
            return Outcome("refused", f"job {job_id} is not there")
        why_not = self._why_not(job)
        if why_not is not None:
            return Outcome("refused", why_not)
        nodes = self.nodes.pick(job.record.spec, self.now_s)
        if nodes is None:
            return Outcome("refused", "not enough nodes are free")
        self._begin(job, nodes)
        return Outcome("done")

    def _never(self, spec: JobSpec) -> str | None:
        """Why a new job could never run here."""
        if spec.id in self.jobs:
            return f"job {spec.id} is there already"
        for edge in spec.dependencies:
            past = self._past.get(edge.on)
            if past is not None and edge.kind == "afterok" and not past.well:
                return f"job {spec.id} waits for job {edge.on}, which did not end well"
            if past is None and edge.on not in self.jobs and edge.on not in self._awaited:
                return f"job {spec.id} waits for job {edge.on}, which is not there"
        return self._too_large(spec)

    def _too_large(self, spec: JobSpec) -> str | None:
        """Why a job could not run on the whole cluster, empty and healthy."""
        partition = self.nodes.partition_of(spec)
        if partition is None:
            named = f"partition {spec.partition!r}" if spec.partition else "default partition"
            return f"there is no {named}"
        if spec.nodes > self.nodes.eligible_count(spec):
            return f"job {spec.id} asks for {spec.nodes} nodes, more than could take it"
        if not partition.min_nodes <= spec.nodes <= (partition.max_nodes or math.inf):
            return f"job {spec.id}: partition {partition.name} takes no jobs of {spec.nodes} nodes"
        if spec.walltime_s > (partition.max_walltime or math.inf):
            return f"job {spec.id}: its walltime is longer than partition {partition.name} allows"
        for name, amount in spec.resources.items():
            has = self.machine.resources.get(name, 0)
            if amount > has:
                return f"job {spec.id} asks for {amount} of {name}, there are {has}"
        return None

    def _why_not(self, job: _Job) -> str | None:
        """Why a job may not start now, whatever nodes are free."""
        spec = job.record.spec
        if job.record.start_s is not None:
            return f"job {spec.id} does not wait"
        if spec.held:
            return f"job {spec.id} is held"
        if spec.dependencies:
            return f"job {spec.id} waits for job {spec.dependencies[0].on}"
        if spec.not_before_s is not None and spec.not_before_s > self.now_s:
            return f"job {spec.id} may not start before {spec.not_before_s:g}"
        for name, amount in spec.resources.items():
            if self._used.get(name, 0) + amount > self.machine.resources.get(name, 0):
                return f"not enough of {name} is free"
        return None

    def _begin(self, job: _Job, nodes: tuple[int, ...]) -> None:
        spec = job.record.spec
        self.nodes.hold(nodes, spec.id)
        for name, amount in spec.resources.items():
            if amount:
                self._used[name] += amount
        names = tuple(self.nodes.names[node] for node in nodes)
        job.record = JobRecord.model_construct(
            spec=spec, start_s=self.now_s, node_names=names, requeues=job.record.requeues
        )
        job.nodes = nodes
        if job.first_start_s is None:
            job.first_start_s = self.now_s
        self._waiting -= 1
        lasts_s = job.runtime_s
        if (speed := self.nodes.slowest(nodes)) != 1:
            lasts_s = math.ceil(round(lasts_s * MS_PER_S) / speed) / MS_PER_S
        reason = "exit" if lasts_s <= spec.walltime_s else "walltime"
        end_s = self.now_s + min(lasts_s, spec.walltime_s)
        job.end = self._agenda.put(END, end_s, partial(self._finish, job, reason))
        self._note(spec.id, "started")
        self._tell(ev.JobStarted, job_id=spec.id, node_names=names)
        self._settle(spec.id, ("after",))

    def _finish(self, job: _Job, reason: str) -> None:
        """A job is over; its nodes are free when they are cleaned up."""
        if self.faults.cleanup_s == 0:
            self._end(job, reason)
            return
        self._agenda.drop(job.end)
        job.ending = reason
        clean_s = self.now_s + self._cleanups.random() * self.faults.cleanup_s
        job.end = self._agenda.put(END, clean_s, partial(self._end, job, reason))

    def _end(self, job: _Job, reason: str) -> None:
        job_id = job.record.spec.id
        well = reason == "exit" and not job.fails
        self._give_back(job)
        self._note(job_id, reason)
        self._tell(ev.JobEnded, job_id=job_id, reason=reason, exit_code=0 if well else 1)
        self._clear_away(self._gone(job, well))

    def _clear_away(self, doomed: list[_Job]) -> None:
        """Delete jobs that wait, and those that can never run without them."""
        queue = deque(doomed)
        while queue:
            job = queue.popleft()
            job_id = job.record.spec.id
            if job_id in self.jobs:
                self._waiting -= 1
                self._note(job_id, "deleted")
                self._tell(ev.JobDeleted, job_id=job_id)
                queue += self._gone(job, False)

    def _gone(self, job: _Job, well: bool) -> list[_Job]:
        """A job is no more; those that can never run without it."""
        job_id = job.record.spec.id
        del self.jobs[job_id]
        self.ended += 1
        self._remember(job_id, _Past(job.first_start_s, self.now_s, well))
        self._changed()
        return self._settle(job_id, _WELL if well else _ENDED)

    def _throw_back(self, job: _Job) -> None:
        self._give_back(job)
        requeues = job.record.requeues + 1
        job.record = JobRecord.model_construct(spec=job.record.spec, requeues=requeues)
        self._waiting += 1
        self._note(job.record.spec.id, "requeued")
        self._tell(ev.JobRequeued, job_id=job.record.spec.id, requeues=requeues)

    def _give_back(self, job: _Job) -> None:
        spec = job.record.spec
        self.nodes.give_back(job.nodes, spec.id)
        job.nodes = ()
        self._agenda.drop(job.end)
        job.end = None
        for name, amount in spec.resources.items():
            if amount:
                self._used[name] -= amount

    # --- dependencies ----------------------------------------------------------------------------

    def _true_since(self, edge: JobDependency) -> float | None:
        """Since when a dependency is fulfilled; None if it is not, so far."""
        job = self.jobs.get(edge.on)
        if job is not None:
            return job.first_start_s if edge.kind == "after" else None
        past = self._past.get(edge.on)
        if past is None:
            return None
        if edge.kind == "after" and past.first_start_s is not None:
            return past.first_start_s
        return past.end_s

    def _settle(self, job_id: str, kinds: tuple[str, ...], *, tell: bool = False) -> list[_Job]:
        """Strike out the dependencies on a job that have come true.

        Args:
            job_id: the job that has started or is gone.
            kinds: the kinds of dependency that are true now.
            tell: whether events have to tell, since none has told of the job itself.

        Returns:
            Once the job is gone, those whose dependency on it cannot come true any more.
        """
        gone = job_id in self._past
        waiting = self._dependants.pop(job_id, {}) if gone else self._dependants.get(job_id, {})
        doomed = []
        for other in [self.jobs[i] for i in waiting if i in self.jobs]:
            edges = other.record.spec.dependencies
            true = [e for e in edges if e.on == job_id and e.kind in kinds]
            left = tuple(e for e in edges if e not in true)
            if true:
                self._strike_out(other, true, left, tell=tell)
            if gone and any(e.on == job_id for e in left):
                doomed.append(other)
        return doomed

    def _strike_out(
        self, job: _Job, true: list[JobDependency], left: tuple[JobDependency, ...], *, tell: bool
    ) -> None:
        changes: dict[str, Any] = {"dependencies": left}
        delay_s = max(edge.delay_s for edge in true)
        spec = job.record.spec
        if delay_s > 0:
            due_s = max(self.now_s + delay_s, spec.not_before_s or 0.0)
            changes["not_before_s"] = due_s
            self._agenda.put(OTHER, due_s, self._changed)
        spec = spec.model_copy(update=changes)
        job.record = job.record.model_copy(update={"spec": spec})
        if tell:
            self._tell(ev.JobModified, job=spec)
        self._changed()

    def _remember(self, job_id: str, past: _Past) -> None:
        self._past[job_id] = past
        if job_id not in self._awaited:
            self._forgettable.append(job_id)
            if len(self._forgettable) > REMEMBERED:
                self._past.pop(self._forgettable.popleft(), None)

    # --- nodes -----------------------------------------------------------------------------------

    def _begin_machine(self, machine: Cluster) -> None:
        """Take over the reservations and failures that the machine's description has."""
        zero_s = self.now_s
        for number, window in enumerate(machine.reservations):
            names = [self.nodes.names[n] for n in _nodes_of(window, machine)]
            taken = window.name in self.nodes.reservations
            reservation = NodeReservation(
                name=f"{window.name}-{number + 1}" if taken else window.name,
                start_s=zero_s + window.start,
                end_s=zero_s + window.end,
                node_names=tuple(names),
            )
            self._reserve(reservation)
        for node, fails_s, back_s in _outages(machine.failures):
            name = self.nodes.names[node]
            self._agenda.put(NODE, zero_s + fails_s, partial(self.node_down, name), counts=False)
            self._agenda.put(NODE, zero_s + back_s, partial(self.node_up, name), counts=False)
        if self.faults.mtbf_s > 0:
            for name in self.nodes.names:
                self._expect_failure(name)

    def _expect_failure(self, name: str) -> None:
        fails_s = self.now_s + self._failures.expovariate(1 / self.faults.mtbf_s)
        self._agenda.put(NODE, fails_s, partial(self._fail, name), counts=False)

    def _fail(self, name: str) -> None:
        if not self.jobs and not self._agenda.due:
            # While nothing goes on, nothing is told.
            self._expect_failure(name)
            return
        self.node_down(name)
        back_s = self.now_s + self._failures.expovariate(1 / self.faults.mttr_s)
        self._agenda.put(NODE, back_s, partial(self._repair, name), counts=False)

    def _repair(self, name: str) -> None:
        # An operator may have drained it meanwhile.
        if self.nodes.records[self.nodes.number[name]].state == "down":
            self.node_up(name)
        self._expect_failure(name)

    def _set_node(self, name: str, state: NodeState) -> Outcome:
        node = self.nodes.number.get(name)
        if node is None:
            return Outcome("refused", f"there is no node {name}")
        if not self.nodes.set_state(node, state):
            return Outcome("done")
        self._tell(_NODE_EVENTS[state], node_name=name)
        holder = self.nodes.holder(node)
        if state == "down" and holder is not None:
            job = self.jobs[holder]
            if job.ending is not None:
                self._end(job, job.ending)
            elif self.faults.requeue:
                self._throw_back(job)
            else:
                self._end(job, "node_failure")
        self._changed()
        return Outcome("done")

    def _reserve(self, reservation: NodeReservation) -> None:
        self.nodes.set_reservation(reservation)
        self._agenda.put(OTHER, reservation.start_s, self._changed, counts=False)
        over = partial(self._reservation_over, reservation)
        self._agenda.put(OTHER, reservation.end_s, over, counts=False)

    def _reservation_over(self, reservation: NodeReservation) -> None:
        if self.nodes.reservations.get(reservation.name) is reservation:
            self.remove_reservation(reservation.name)

    # --- the rest --------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._look = True

    def _tell(self, kind: type[Any], **fields: Any) -> None:
        self.seq += 1
        event = kind.model_construct(
            cluster=self.machine.name, run=self.run, seq=self.seq, time_s=self.now_s, **fields
        )
        self._channel.send(event, self.now_s)

    def _note(self, job_id: str, what: str) -> None:
        if self.history is not None:
            self.history.append((self.now_s, job_id, what))


def _planned(found: Present) -> list[tuple[str, list[int]]]:
    """The jobs that start now, and how many nodes each takes from each pool."""
    simulation = found.fork()
    simulation.advance(found.now_ms / MS_PER_S)
    begun = simulation.column("start")[found.waiting] == found.now_ms
    return [
        (found.ids[row], simulation.nodes_by_pool(row)) for row in found.waiting[begun].tolist()
    ]


def _with_failures(faults: Faults, failures: Failures) -> Faults:
    """Faults with the failures of the machine's description, where they have none of their own."""
    if faults.mtbf_s > 0:
        return faults
    changes: dict[str, Any] = {"requeue": failures.then == "requeue"} if failures.outages else {}
    if failures.mtbf is not None:
        changes = {"mtbf_s": failures.mtbf, "mttr_s": failures.mttr,
                   "requeue": failures.then == "requeue"}  # fmt: skip
    return faults.model_copy(update=changes)


def _outages(failures: Failures) -> list[tuple[int, float, float]]:
    """Node, start and end of each outage; those of one node that touch are one."""
    merged: list[tuple[int, float, float]] = []
    for outage in sorted(failures.outages, key=lambda o: (o.node, o.start)):
        node, start_s, end_s = outage.node, outage.start, outage.start + outage.duration
        if merged and merged[-1][0] == node and start_s <= merged[-1][2]:
            _, start_s, known_s = merged.pop()
            end_s = max(end_s, known_s)
        merged.append((node, start_s, end_s))
    return merged


def _nodes_of(window: Any, machine: Cluster) -> list[int]:
    """Node numbers of a reservation of the machine; none where it has all."""
    if window.groups is None and window.nodes is None:
        return []
    numbers = set(parse_nodes(window.nodes, machine.node_count)) if window.nodes else set()
    first = 0
    for group in machine.nodes:
        if group.name in (window.groups or ()):
            numbers.update(range(first, first + group.count))
        first += group.count
    return sorted(numbers)
