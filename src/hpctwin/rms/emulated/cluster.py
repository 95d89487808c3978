"""The emulated cluster itself: jobs, nodes, virtual clock; no thread, no socket.

`Planner` is the interface to its own scheduling, which the caller provides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.model.cluster.cluster import Failures
from hpctwin.model.settings import first_fault
from hpctwin.rms.emulated.agenda import (
    CANCEL,
    ENDED,
    MAX_PENDING,
    NODE,
    OTHER,
    SUBMIT,
    Arrival,
    EmulatedJob,
    EndedJob,
    arrivals,
    waited_for,
)
from hpctwin.rms.emulated.faults import Faults, NodeFailures, with_failures
from hpctwin.rms.emulated.life import NodeLife
from hpctwin.rms.emulated.nodes import planned_reservations
from hpctwin.rms.manager import Outcome
from hpctwin.rms.node_capacity import Taken
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import (
    JobRecord,
    JobSpec,
    NodePower,
    NodeRecord,
    NodeReservation,
    Snapshot,
)


class Plan(NamedTuple):
    """The jobs that start now, and the nodes that are switched.

    Args:
        starts: Id of each job, in the order of starting, and the number of its nodes in each pool.
        pool: Pool of each node.
        taken: If nodes are shared or have power states, the nodes of each job with its tasks there,
            by id.
        switched: Numbers of nodes, and the power states that they enter now.
        next_call_s: Next time to switch nodes if nothing else happens; None for never.
    """

    starts: Sequence[tuple[str, Sequence[int]]]
    pool: Sequence[int]
    taken: Mapping[str, Taken] = {}
    switched: Sequence[tuple[int, NodePower]] = ()
    next_call_s: float | None = None


class Planner(Protocol):
    """Decides which jobs start now, and which nodes are switched."""

    @property
    def soonest(self) -> bool:
        """Whether jobs get the nodes that can be on first."""

    @property
    def by_plan(self) -> bool:
        """Whether nodes are woken for the jobs that this planner will start."""

    def __call__(
        self,
        machine: Cluster,
        jobs: Sequence[JobRecord],
        nodes: Sequence[NodeRecord],
        reservations: Sequence[NodeReservation],
        now_s: float,
    ) -> Plan:
        """Return the jobs that start now.

        Args:
            machine: Node groups, partitions and resources.
            jobs: Running jobs, and jobs that may start now if they fit.
            now_s: Current time by the cluster's clock, in seconds.
        """


FIRST_LEASE_S = 20.0
"""Length of the lease of a job that is submitted while leases are given."""


class EmulatedCluster(NodeLife):
    """A resource manager that simulates its jobs.

    The same arguments and the same calls give the same events, whatever the faults.

    Args:
        machine: Its nodes, partitions and resources; reservations and failures apply, too.
        workload: Jobs that are submitted at their times; their runtimes are hidden from the
            scheduler. Jobs of `endless_arrivals` are not submitted while the queue is long.
        plan: Its own scheduling, used while no other scheduler starts jobs.
        publish: Function that takes each event.
        faults: Faults to inject.
        start_s: Start of its clock; the workload's time zero.
        unix_time: Whether its clock counts from 1970.
        run: Name of its first run, a number; see `restart`.
        record: Whether to keep ``history``: time, job and what happened to it. It grows with each
            job.

    Raises:
        ConfigError: The clock would begin before 0.
        WorkloadError: Resource managers would refuse an id or label of a job.
    """

    def __init__(
        self,
        machine: Cluster,
        workload: Workload | Iterator[Arrival] | None = None,
        *,
        plan: Planner,
        publish: Callable[[ev.Event], None] = lambda event: None,
        faults: Faults | None = None,
        start_s: float = 0.0,
        unix_time: bool = False,
        run: int = 1,
        record: bool = False,
    ) -> None:
        fixed = workload if isinstance(workload, Workload) else None
        zero, name = (start_s, "the emulated cluster") if fixed is None else (
            fixed.start_epoch_s, fixed.name
        )  # fmt: skip
        machine = machine.at(zero, name)
        faults = with_failures(faults or Faults(), machine.failures)
        # A clock with a constant error shifts all times by it.
        now_s = start_s + faults.clock_skew_s
        if now_s < 0:
            raise ConfigError(
                f"the clock starts at {start_s:g} s with clock_skew_s {faults.clock_skew_s:g}, which "
                "gives negative times; start it later"
            )
        bare = machine.model_copy(update={"reservations": (), "failures": Failures()})
        awaited = set() if fixed is None else waited_for(fixed)
        super().__init__(bare, faults, publish, now_s, run, awaited, record=record)
        self.plan = plan
        self.unix_time = unix_time
        self.own_scheduling = True
        self.first_lease_s = 0.0
        self.leased_until_s = 0.0
        self.heard = 0
        self.submitted = 0
        self.rejected = 0
        self._runtimes = faults.draws("runtimes")
        self._actions = faults.draws("actions")
        for reservation in planned_reservations(machine, self.nodes.names, now_s):
            self._reserve(reservation)
        self._failures = NodeFailures(self, machine.failures)
        if self.powers.there:
            # Nodes may have been idle for long before the first job comes.
            self.agenda.put(NODE, now_s, self._changed, counts=False)
        self._max_pending = MAX_PENDING if fixed is None else math.inf
        if workload is not None:
            self._arrivals = (
                arrivals(workload, now_s) if isinstance(workload, Workload) else workload
            )
            self._expect(next(self._arrivals, None))

    # --- time ------------------------------------------------------------------------------------

    def next_time(self) -> float | None:
        """Return the next time at which something happens by itself; None if nothing will.

        There are no node failures while there is no job and none to come.
        """
        if not self.jobs and not self.agenda.due:
            return None
        return self.agenda.next_time()

    def advance(self, until_s: float) -> None:
        """Process everything up to a time, with a `schedule` after each event time."""
        agenda = self.agenda
        while (due_s := agenda.next_time()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            while (action := agenda.pop(self.now_s)) is not None:
                action()
            self.schedule()
        self.now_s = max(self.now_s, until_s)

    def schedule(self) -> None:
        """Start jobs by the cluster's own planner, unless another scheduler does.

        It runs only if something has changed. It switches nodes in either case.
        """
        if not (self._look and (self.powers.there or (self.own_scheduling and self._waiting))):
            return
        self._look = False
        planned = self.plan(
            self.machine,
            [job.record for job in self.jobs.values() if self._plannable(job)],
            self.nodes.records,
            tuple(self.nodes.reservations.values()),
            self.now_s,
        )
        for job_id, counts in planned.starts:
            job = self.jobs[job_id]
            taken = planned.taken.get(job_id) or self.nodes.lowest(counts, planned.pool)
            if self._why_not(job) is None and taken and self.nodes.room.has(job.record.spec, taken):
                self._begin(job, taken)
        for node, power in planned.switched:
            self.powers.set(node, power)
        if planned.next_call_s is not None:
            self.agenda.put(NODE, planned.next_call_s, self._changed, counts=False)
        if self._look:
            # Still at the same time, but after the ends of jobs without length.
            self.agenda.put(OTHER, self.now_s, self._changed)

    def _plannable(self, job: EmulatedJob) -> bool:
        """Return whether a job runs, or may start now if it fits."""
        record, spec = job.record, job.record.spec
        due_s = max(spec.not_before_s or 0.0, job.lease_s)
        may_start = self.own_scheduling and not spec.held and not spec.dependencies
        may_start = may_start and due_s <= self.now_s
        return record.start_s is not None or may_start

    # --- what users and operators do -------------------------------------------------------------

    def submit(
        self, spec: JobSpec, runtime_s: float | None = None, *, fails: bool = False
    ) -> Outcome:
        """Submit a job.

        Args:
            runtime_s: Runtime on nodes of speed 1, in seconds; by default a share of its walltime,
                drawn as the faults say.
            fails: Whether it ends with an error after its runtime.

        Returns:
            The outcome; refused if the job could never run here, or waits for an unknown job.
        """
        why_not = self._never(spec)
        if why_not:
            return Outcome("refused", why_not)
        left, due_s = self._dependants.left(spec)
        if due_s > self.now_s:
            spec = spec.model_copy(update={"not_before_s": due_s})
            self.agenda.put(OTHER, due_s, self._changed)
        if len(left) < len(spec.dependencies):
            spec = spec.model_copy(update={"dependencies": left})
        if runtime_s is None:
            share = self._runtimes.uniform(self.faults.shortest_run, self.faults.longest_run)
            runtime_s = share * spec.walltime_s
        record = JobRecord.model_construct(spec=spec)
        job = self.jobs[spec.id] = EmulatedJob(record, max(0.0, runtime_s), fails)
        if self.now_s < self.leased_until_s:
            self._lease(job, self.now_s + self.first_lease_s)
        self._dependants.add(spec)
        self._waiting += 1
        self.submitted += 1
        self._note(spec.id, "submitted")
        self._tell(ev.JobSubmitted, job=spec)
        self._changed()
        return Outcome("done")

    def cancel(self, job_id: str) -> Outcome:
        """End a pending or running job."""
        job = self.jobs.get(job_id)
        if job is None or job.ending is not None:
            return Outcome("refused", f"job {job_id} does not exist")
        if job.record.start_s is not None:
            self._finish(job, "cancelled")
        else:
            self._clear_away([job])
        return Outcome("done")

    def hold(self, job_id: str) -> Outcome:
        """Keep a pending job from starting."""
        return self._act(lambda: self._change(job_id, ev.JobHeld, held=True))

    def release(self, job_id: str) -> Outcome:
        """Undo `hold`."""
        return self._act(lambda: self._change(job_id, ev.JobReleased, held=False))

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a pending job's priority; a larger one starts sooner."""
        return self._act(lambda: self._change(job_id, ev.JobModified, priority=priority))

    def modify(
        self,
        job_id: str,
        *,
        walltime_s: float | None = None,
        nodes: int | None = None,
        priority: float | None = None,
    ) -> Outcome:
        """Change a pending job's request; None keeps a value."""
        asked = {"walltime_s": walltime_s, "nodes": nodes, "priority": priority}
        changes = {name: value for name, value in asked.items() if value is not None}
        return self._change(job_id, ev.JobModified, **changes)

    def start(self, job_id: str) -> Outcome:
        """Start a pending job now; refused if not pending, not allowed, or not fitting."""
        return self._act(lambda: self._start(job_id))

    def leases(self) -> dict[str, float]:
        """Return the pending jobs with the end of each lease; 0 without one."""
        return {i: job.lease_s for i, job in self.jobs.items() if job.record.start_s is None}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Delay pending jobs until a time; jobs submitted soon after get a first lease.

        Without further leases, new jobs get no first lease once the longest of these ends.
        """
        self.first_lease_s = FIRST_LEASE_S
        for end_s in until_s.values():
            self.leased_until_s = max(self.leased_until_s, end_s)
        return {i: self._act(partial(self._set_lease, i, s)) for i, s in until_s.items()}

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """End leases: the cluster's own scheduling starts the jobs, if it may."""
        return {i: self._act(partial(self._set_lease, i, 0.0)) for i in job_ids}

    def restart(self) -> None:
        """Restart the resource manager: a new run, whose events count from 1."""
        self._channel.flush()
        self.run = str(int(self.run) + 1)
        self.seq = self.heard = 0
        self._tell(ev.SchedulerRestarted)

    def take_scheduling(self) -> Outcome:
        """Start no job by itself from now on.

        It is refused if nodes are woken for the jobs that it plans to start.
        """
        if self.powers.there and self.plan.by_plan:
            return Outcome(
                "refused", "the cluster's own scheduling decides which nodes are switched on"
            )
        self.own_scheduling = False
        return Outcome("done")

    def give_scheduling(self) -> Outcome:
        """Schedule by itself again, at once."""
        self.own_scheduling = True
        self._changed()
        self.schedule()
        return Outcome("done")

    def heartbeat(self, seq: int) -> None:
        """Record that the scheduler has processed all events up to ``seq``."""
        # A number that is too high is from before a restart.
        if self.heard < seq <= self.seq:
            self.heard = seq

    @property
    def confirmed(self) -> bool:
        """Whether a heartbeat has confirmed all events that were sent."""
        return self.heard >= self._channel.last_seq(self.run)

    def snapshot(self) -> Snapshot:
        """Return everything that the cluster knows now."""
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
            unix_time=self.unix_time,
        )

    # --- jobs ------------------------------------------------------------------------------------

    def _expect(self, arrival: Arrival | None) -> None:
        """Schedule the submission of the workload's next job."""
        if arrival is not None:
            self.agenda.put(SUBMIT, arrival.spec.submit_s, partial(self._arrive, arrival))

    def _arrive(self, arrival: Arrival) -> None:
        if self._waiting >= self._max_pending:
            self._expect(next(self._arrivals, None))
            return
        outcome = self.submit(arrival.spec, arrival.runtime_s, fails=arrival.fails)
        job_id = arrival.spec.id
        if outcome.result == "refused":
            self.rejected += 1
            self._note(job_id, "rejected")
            self._dependants.remember(job_id, EndedJob(None, self.now_s, False))
            self._clear_away(self._settle(job_id, ENDED, tell=True))
        elif arrival.cancel_s is not None:
            self.agenda.put(CANCEL, arrival.cancel_s, partial(self.cancel, job_id))
        self._expect(next(self._arrivals, None))

    def _act(self, action: Callable[[], Outcome]) -> Outcome:
        """Do what a scheduler requests, or fail as the faults say."""
        if self._actions.random() < self.faults.refused:
            return Outcome("refused", "the server is busy")
        outcome = action()
        if outcome.result == "done" and self._actions.random() < self.faults.lost_answers:
            return Outcome("unknown", "the answer was lost")
        return outcome

    def _change(self, job_id: str, kind: type[Any], **changes: Any) -> Outcome:
        job = self.jobs.get(job_id)
        if job is None or job.record.start_s is not None:
            return Outcome("refused", f"job {job_id} is not pending")
        before = job.record.spec
        try:
            spec = JobSpec.model_validate(before.model_dump() | changes)
        except ValidationError as error:
            return Outcome("refused", f"job {job_id}, {first_fault(error)}")
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
            return Outcome("refused", f"job {job_id} is not pending")
        if job.record.spec.held and until_s:
            return Outcome("refused", f"job {job_id} is held")
        self._lease(job, until_s)
        return Outcome("done")

    def _lease(self, job: EmulatedJob, until_s: float) -> None:
        job.lease_s = until_s
        if until_s > self.now_s:
            self.agenda.put(OTHER, until_s, self._changed)
        else:
            self._changed()

    def _start(self, job_id: str) -> Outcome:
        job = self.jobs.get(job_id)
        if job is None:
            return Outcome("refused", f"job {job_id} does not exist")
        why_not = self._why_not(job)
        if why_not is not None:
            return Outcome("refused", why_not)
        soonest = self.powers.there and self.plan.soonest
        taken = self.nodes.pick(job.record.spec, self.now_s, soonest=soonest)
        if taken is None:
            return Outcome("refused", "not enough nodes are free")
        self._begin(job, taken)
        return Outcome("done")
