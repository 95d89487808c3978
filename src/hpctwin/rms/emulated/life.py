"""Jobs of an emulated cluster from start to end, and operators' view of its nodes.

Jobs: why one may not start, and its events. Nodes: up, down, drained, reserved.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hpctwin.model import MS_PER_S, Cluster
from hpctwin.model.text import count_text, exact
from hpctwin.rms.emulated.agenda import (
    END,
    ENDED,
    OTHER,
    STARTED,
    WELL,
    Agenda,
    Dependants,
    EmulatedJob,
    EndedJob,
)
from hpctwin.rms.emulated.faults import Channel, Faults
from hpctwin.rms.emulated.nodes import NodePowers, Nodes, NodeState
from hpctwin.rms.manager import Outcome
from hpctwin.rms.node_capacity import Taken, partition_of, parts_of
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobDependency, JobRecord, JobSpec, NodeReservation


class JobLife:
    """Starts, ends and requeues jobs, and publishes an event for each.

    Args:
        machine: Nodes, partitions and resources.
        faults: Faults to inject.
        publish: Function that takes each event.
        now_s: Start of its clock.
        run: Name of its first run, a number.
        awaited: Jobs that others will depend on.
        record: Whether to keep ``history``: time, job and what happened to it.
    """

    def __init__(
        self,
        machine: Cluster,
        faults: Faults,
        publish: Callable[[ev.Event], None],
        now_s: float,
        run: int,
        awaited: Iterable[str],
        *,
        record: bool,
    ) -> None:
        self.machine = machine
        self.faults = faults
        self.now_s = now_s
        self.run = str(run)
        self.seq = 0
        self.jobs: dict[str, EmulatedJob] = {}
        self.ended = 0
        self.history: list[tuple[float, str, str]] | None = [] if record else None
        self.nodes = Nodes(machine)
        self.agenda = Agenda()
        self.powers = NodePowers(self.nodes, self.agenda, lambda: self.now_s, self._switched)
        self._waiting = 0
        self._used = dict.fromkeys(machine.resources, 0)
        self._dependants = Dependants(self.jobs, awaited)
        self._look = False
        self._channel = Channel(publish, faults, partial(self.agenda.put, OTHER))
        self._cleanups = faults.draws("cleanups")

    # --- why not ---------------------------------------------------------------------------------

    def _never(self, spec: JobSpec) -> str | None:
        """Return why a new job could never run here."""
        if spec.id in self.jobs:
            return f"job {spec.id} exists already"
        return self._dependants.why_never(spec) or self._too_large(spec)

    def _too_large(self, spec: JobSpec) -> str | None:
        """Return why a job could not run on the whole cluster, empty and healthy."""
        partition = partition_of(self.machine, spec)
        if partition is None:
            named = f"partition {spec.partition!r}" if spec.partition else "a default partition"
            return f"job {spec.id}: {named} does not exist"
        if self.nodes.room.place(spec, empty=True) is None:
            asks = (
                count_text(sum(kind.tasks for kind in spec.kinds), "task")
                if spec.tasks
                else count_text(spec.nodes, "node")
            )
            return f"job {spec.id} requests {asks}, which do not fit on the cluster"
        if not partition.min_nodes <= spec.nodes <= (partition.max_nodes or math.inf):
            return (
                f"job {spec.id}: partition {partition.name} accepts no jobs with "
                f"{count_text(spec.nodes, 'node')}"
            )
        if spec.walltime_s > (partition.max_walltime or math.inf):
            return f"job {spec.id}: its walltime exceeds max_walltime of partition {partition.name}"
        for name, amount in spec.resources.items():
            has = self.machine.resources.get(name, 0)
            if amount > has:
                return f"job {spec.id} requests {amount} {name}; the cluster has {has}"
        return None

    def _why_not(self, job: EmulatedJob) -> str | None:
        """Return why a job may not start now, whatever nodes are free."""
        spec = job.record.spec
        if job.record.start_s is not None:
            return f"job {spec.id} is not pending"
        if spec.held:
            return f"job {spec.id} is held"
        if spec.dependencies:
            return f"job {spec.id} depends on job {spec.dependencies[0].on}"
        if spec.not_before_s is not None and spec.not_before_s > self.now_s:
            return f"job {spec.id} may not start before {spec.not_before_s:g} s"
        for name, amount in spec.resources.items():
            if self._used.get(name, 0) + amount > self.machine.resources.get(name, 0):
                return f"not enough {name} is free"
        return None

    # --- from start to end -----------------------------------------------------------------------

    def _begin(self, job: EmulatedJob, taken: Taken) -> None:
        spec = job.record.spec
        nodes = tuple(node for node, _ in taken)
        names = tuple(self.nodes.names[node] for node in nodes)
        parts = parts_of(spec, taken)
        start_s = self.powers.wake(nodes)
        record = JobRecord.model_construct(
            spec=spec,
            start_s=start_s,
            node_names=names,
            parts=parts,
            requeues=job.record.requeues,
        )
        self.nodes.hold(record, taken)
        for name, amount in spec.resources.items():
            if amount:
                self._used[name] += amount
        job.record = record
        job.nodes = nodes
        self._waiting -= 1
        lasts_s = job.runtime_s
        if (speed := self.nodes.slowest(nodes)) != 1:
            lasts_s = math.ceil(round(lasts_s * MS_PER_S) / exact(speed)) / MS_PER_S
        reason = "exit" if lasts_s <= spec.walltime_s else "walltime"
        end_s = start_s + min(lasts_s, spec.walltime_s)
        job.end = self.agenda.put(END, end_s, partial(self._finish, job, reason))
        late = start_s > self.now_s
        begins = {"begins_s": start_s} if late else {}
        self._tell(ev.JobStarted, job_id=spec.id, node_names=names, parts=parts, **begins)
        if late:
            job.begin = self.agenda.put(OTHER, start_s, partial(self._begun, job, late))
        else:
            self._begun(job, late)

    def _begun(self, job: EmulatedJob, late: bool) -> None:
        """Start a job; ``late`` if it had to wait for its nodes to be on."""
        job_id = job.record.spec.id
        if job.first_start_s is None:
            job.first_start_s = self.now_s
        self._note(job_id, "started")
        self._settle(job_id, STARTED, tell=late)

    def _finish(self, job: EmulatedJob, reason: str) -> None:
        """Finish a job; its nodes are free once they are cleaned up."""
        if self.machine.cleanup == self.faults.cleanup_s == 0:
            self._end(job, reason)
            return
        self.agenda.drop(job.end)
        job.ending = reason
        longer_s = self._cleanups.random() * self.faults.cleanup_s
        clean_s = self.now_s + self.machine.cleanup + longer_s
        job.end = self.agenda.put(END, clean_s, partial(self._end, job, reason))

    def _end(self, job: EmulatedJob, reason: str) -> None:
        job_id = job.record.spec.id
        well = reason == "exit" and not job.fails
        self._give_back(job)
        self._note(job_id, reason)
        self._tell(ev.JobEnded, job_id=job_id, reason=reason, exit_code=0 if well else 1)
        self._clear_away(self._gone(job, well))

    def _clear_away(self, doomed: list[EmulatedJob]) -> None:
        """Delete pending jobs, and jobs that can never run without them."""
        queue = deque(doomed)
        while queue:
            job = queue.popleft()
            job_id = job.record.spec.id
            if job_id in self.jobs:
                self._waiting -= 1
                self._note(job_id, "deleted")
                self._tell(ev.JobDeleted, job_id=job_id)
                queue += self._gone(job, False)

    def _gone(self, job: EmulatedJob, well: bool) -> list[EmulatedJob]:
        """Remove a job; return the jobs that can never run without it."""
        job_id = job.record.spec.id
        del self.jobs[job_id]
        self.ended += 1
        self._dependants.remember(job_id, EndedJob(job.first_start_s, self.now_s, well))
        self._changed()
        return self._settle(job_id, WELL if well else ENDED)

    def _throw_back(self, job: EmulatedJob) -> None:
        self._give_back(job)
        requeues = job.record.requeues + 1
        job.record = JobRecord.model_construct(spec=job.record.spec, requeues=requeues)
        self._waiting += 1
        self._note(job.record.spec.id, "requeued")
        self._tell(ev.JobRequeued, job_id=job.record.spec.id, requeues=requeues)

    def _give_back(self, job: EmulatedJob) -> None:
        spec = job.record.spec
        self.nodes.give_back(job.record, job.nodes)
        assert job.record.start_s is not None
        if job.record.start_s <= self.now_s:
            self.powers.used(job.nodes)
        job.nodes = ()
        for entry in (job.end, job.begin):
            self.agenda.drop(entry)
        job.end = job.begin = None
        for name, amount in spec.resources.items():
            if amount:
                self._used[name] -= amount

    # --- dependencies ----------------------------------------------------------------------------

    def _settle(
        self, job_id: str, kinds: tuple[str, ...], *, tell: bool = False
    ) -> list[EmulatedJob]:
        """Remove the dependencies on a job that have become true.

        Args:
            tell: Whether events must report it, since no event has reported the job itself.

        Returns:
            Once the job is gone, the jobs whose dependency on it cannot become true any more.
        """
        settled = self._dependants.settle(job_id, kinds)
        for other, true, left in settled.fulfilled:
            self._strike_out(other, true, left, tell=tell)
        return settled.doomed

    def _strike_out(
        self,
        job: EmulatedJob,
        true: list[JobDependency],
        left: tuple[JobDependency, ...],
        *,
        tell: bool,
    ) -> None:
        changes: dict[str, Any] = {"dependencies": left}
        delay_s = max(edge.delay_s for edge in true)
        spec = job.record.spec
        if delay_s > 0:
            due_s = max(self.now_s + delay_s, spec.not_before_s or 0.0)
            changes["not_before_s"] = due_s
            self.agenda.put(OTHER, due_s, self._changed)
        spec = spec.model_copy(update=changes)
        job.record = job.record.model_copy(update={"spec": spec})
        if tell:
            self._tell(ev.JobModified, job=spec)
        self._changed()

    def _switched(self, kind: type[Any], **fields: Any) -> None:
        self._tell(kind, **fields)
        self._changed()

    # --- events ----------------------------------------------------------------------------------

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


_NODE_EVENTS = {"up": ev.NodeUp, "down": ev.NodeDown, "drained": ev.NodeDrained}


class NodeLife(JobLife):
    """Actions of operators on nodes, and their effects on the jobs there."""

    def node_up(self, name: str) -> Outcome:
        """Let a node accept jobs again."""
        return self._set_node(name, "up")

    def node_down(self, name: str) -> Outcome:
        """Fail a node; its jobs are requeued or end, as the faults say."""
        return self._set_node(name, "down")

    def node_drain(self, name: str) -> Outcome:
        """Drain a node: it finishes its jobs and accepts no other."""
        return self._set_node(name, "drained")

    def set_reservation(self, reservation: NodeReservation) -> Outcome:
        """Reserve nodes for a time; jobs that run there stay."""
        for name in reservation.node_names:
            if name not in self.nodes.number:
                return Outcome("refused", f"node {name} does not exist")
        if reservation.end_s <= self.now_s:
            return Outcome("refused", f"reservation {reservation.name} ends in the past")
        self._reserve(reservation)
        self._tell(ev.ReservationSet, reservation=reservation)
        self._changed()
        return Outcome("done")

    def remove_reservation(self, name: str) -> Outcome:
        """Remove a reservation."""
        if not self.nodes.remove_reservation(name):
            return Outcome("refused", f"reservation {name} does not exist")
        self._tell(ev.ReservationRemoved, name=name)
        self._changed()
        return Outcome("done")

    def _set_node(self, name: str, state: NodeState) -> Outcome:
        node = self.nodes.number.get(name)
        if node is None:
            return Outcome("refused", f"node {name} does not exist")
        if not self.nodes.set_state(node, state):
            return Outcome("done")
        self._tell(_NODE_EVENTS[state], node_name=name)
        for job_id in self.nodes.jobs_on(node) if state == "down" else ():
            job = self.jobs[job_id]
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
        self.agenda.put(OTHER, reservation.start_s, self._changed, counts=False)
        over = partial(self._reservation_over, reservation)
        self.agenda.put(OTHER, reservation.end_s, over, counts=False)

    def _reservation_over(self, reservation: NodeReservation) -> None:
        if self.nodes.reservations.get(reservation.name) is reservation:
            self.remove_reservation(reservation.name)
