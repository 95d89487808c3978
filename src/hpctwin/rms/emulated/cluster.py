"""The emulated cluster itself: jobs, nodes and a virtual clock; no thread, no socket."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from hpctwin.errors import HpctwinError
from hpctwin.model import MS_PER_S, PER_NODE, Cluster, DependencyKind, Workload
from hpctwin.policies import parse_policy
from hpctwin.rms import events as ev
from hpctwin.rms.emulated.faults import Channel, Faults
from hpctwin.rms.manager import Outcome
from hpctwin.rms.present import present
from hpctwin.rms.records import (
    JobDependency,
    JobRecord,
    JobSpec,
    NodeRecord,
    NodeReservation,
    Snapshot,
)

__all__ = ["EmulatedCluster"]

# What happens at one instant happens in this order.
_END, _NODE, _SUBMIT, _CANCEL, _OTHER = range(5)


@dataclass
class _Job:
    """A job that has not ended."""

    spec: JobSpec
    runtime_s: float
    start_s: float | None = None
    nodes: tuple[int, ...] = ()
    requeues: int = 0
    attempt: int = 0
    ending: bool = False
    waits_on: set[str] = field(default_factory=set)


class EmulatedCluster:
    """A resource manager with jobs of its own.

    Args:
        machine: its nodes, partitions and resources.
        workload: jobs that are submitted at their times; how long they run is its secret.
        publish: takes each event.
        faults: what goes wrong.
        policy: of its own scheduling, where nobody else starts jobs.
        start_s: its clock's beginning; the workload's time zero.
        record: keep ``history``: time, job and what happened to it.
    """

    def __init__(
        self,
        machine: Cluster,
        workload: Workload | None = None,
        *,
        publish: Callable[[ev.Event], None] = lambda event: None,
        faults: Faults | None = None,
        policy: str = "fcfs+easy",
        start_s: float = 0.0,
        record: bool = False,
    ) -> None:
        self.machine = machine
        self.faults = faults or Faults()
        self.policy = parse_policy(policy)
        self.now_s = start_s
        self.own_scheduling = True
        self.run = "1"
        self.seq = 0
        self.jobs: dict[str, _Job] = {}
        self.ended = 0
        self.submitted = 0
        self.history: list[tuple[float, str, str]] | None = [] if record else None
        self.heard = 0
        self._random = random.Random(self.faults.seed)
        self._channel = Channel(publish, self.faults, self._at)
        self._names = tuple(f"n{i + 1:04}" for i in range(machine.node_count))
        self._number = {name: i for i, name in enumerate(self._names)}
        self._states: list[str] = ["up"] * machine.node_count
        self._holder: list[str | None] = [None] * machine.node_count
        self._group = [g for g, group in enumerate(machine.nodes) for _ in range(group.count)]
        self._reservations: dict[str, NodeReservation] = {}
        self._used = dict.fromkeys(machine.resources, 0)
        self._dependants: dict[str, set[str]] = {}
        self._heap: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number_of_event = count()
        self._free = list(range(machine.node_count))
        self._look = False
        if workload is not None:
            self._plan(workload, start_s)
        if self.faults.mtbf_s > 0:
            for node in range(machine.node_count):
                self._plan_failure(node)

    # --- time ------------------------------------------------------------------------------------

    def next_time(self) -> float | None:
        """When the next thing happens by itself; None if nothing will (failures alone do not count)."""
        if not self._heap or (self.faults.mtbf_s > 0 and self._idle()):
            return None
        return self._heap[0][0]

    def advance(self, until_s: float) -> None:
        """Let everything happen up to a time, instant by instant."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s = max(self.now_s, heap[0][0])
            while heap and heap[0][0] <= self.now_s:
                heapq.heappop(heap)[3]()
            self.schedule()
        self.now_s = max(self.now_s, until_s)

    def schedule(self) -> None:
        """Start jobs by the cluster's own policy, if nobody else does and something has changed."""
        if not (self.own_scheduling and self._look):
            return
        self._look = False
        if not any(job.start_s is None for job in self.jobs.values()):
            return
        found = present(
            self.machine, self._records(), self._nodes(), self._open_reservations(), self.now_s,
            self.policy,
        )  # fmt: skip
        for job_id in found.starts():
            self._begin(self.jobs[job_id])

    # --- what users and operators do -------------------------------------------------------------

    def submit(self, spec: JobSpec, runtime_s: float) -> Outcome:
        """Submit a job; refused if it could never run here."""
        if spec.id in self.jobs:
            return Outcome("refused", f"job {spec.id} is there already")
        why_not = self._never(spec)
        if why_not:
            return Outcome("refused", why_not)
        left = tuple(edge for edge in spec.dependencies if edge.on in self.jobs)
        if left != spec.dependencies:
            spec = spec.model_copy(update={"dependencies": left})
        job = _Job(spec, max(0.0, runtime_s))
        self.jobs[spec.id] = job
        self.submitted += 1
        for edge in spec.dependencies:
            self._dependants.setdefault(edge.on, set()).add(spec.id)
        if spec.not_before_s is not None and spec.not_before_s > self.now_s:
            self._at(spec.not_before_s, self._changed)
        self._note(spec.id, "submitted")
        self._tell(ev.JobSubmitted, job=spec)
        self._changed()
        return Outcome("done")

    def cancel(self, job_id: str) -> Outcome:
        """End a job, whether it waits or runs."""
        job = self.jobs.get(job_id)
        if job is None or job.ending:
            return Outcome("refused", f"job {job_id} is not there")
        if job.start_s is not None:
            self._end(job, "cancelled")
        else:
            self._delete(job)
        return Outcome("done")

    def hold(self, job_id: str) -> Outcome:
        """Keep a waiting job from starting."""
        return self._change(job_id, ev.JobHeld, held=True)

    def release(self, job_id: str) -> Outcome:
        """Undo `hold`."""
        return self._change(job_id, ev.JobReleased, held=False)

    def modify(self, job_id: str, **changes: Any) -> Outcome:
        """Change what a waiting job asks for."""
        return self._change(job_id, ev.JobModified, **changes)

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a waiting job's priority."""
        return self._change(job_id, ev.JobModified, priority=priority)

    def start(self, job_id: str) -> Outcome:
        """Start a waiting job now; refused if it does not wait, may not start, or does not fit."""
        job = self.jobs.get(job_id)
        if job is None:
            return Outcome("refused", f"job {job_id} is not there")
        if self._random.random() < self.faults.refused:
            return Outcome("refused", "the server is busy")
        why_not = self._why_not(job)
        if why_not:
            return Outcome("refused", why_not)
        self._begin(job)
        if self._random.random() < self.faults.lost_answers:
            return Outcome("unknown", "the answer was lost")
        return Outcome("done")

    def node_up(self, name: str) -> None:
        """A node takes jobs again."""
        self._set_node(self._number[name], "up")

    def node_down(self, name: str) -> None:
        """A node fails; its job waits again or ends, as the faults say."""
        node = self._number[name]
        holder = self._holder[node]
        self._set_node(node, "down")
        if holder is not None:
            job = self.jobs[holder]
            if self.faults.requeue:
                self._throw_back(job)
            else:
                self._end(job, "node_failure")

    def node_drain(self, name: str) -> None:
        """A node finishes its job and takes no other."""
        self._set_node(self._number[name], "drained")

    def set_reservation(self, reservation: NodeReservation) -> None:
        """Keep nodes from jobs for a span of time."""
        self._reservations[reservation.name] = reservation
        for time_s in (reservation.start_s, reservation.end_s):
            if time_s > self.now_s:
                self._at(time_s, self._changed)
        self._tell(ev.ReservationSet, reservation=reservation)
        self._changed()

    def remove_reservation(self, name: str) -> None:
        """Give them back."""
        if self._reservations.pop(name, None) is not None:
            self._tell(ev.ReservationRemoved, name=name)
            self._changed()

    def restart(self) -> None:
        """The resource manager starts anew: its events count from 1 in a new run."""
        self._tell(ev.SchedulerRestarted)
        self._channel.flush()
        self.run = str(int(self.run) + 1)
        self.seq = 0

    def take_scheduling(self) -> Outcome:
        """Start no job by itself from now on."""
        self.own_scheduling = False
        return Outcome("done")

    def give_scheduling(self) -> Outcome:
        """Start jobs by itself again."""
        self.own_scheduling = True
        self._look = True
        self.schedule()
        return Outcome("done")

    def heartbeat(self, seq: int) -> None:
        """Whoever schedules has dealt with all events up to ``seq``."""
        self.heard = seq

    def snapshot(self) -> Snapshot:
        """Everything it knows now."""
        self._channel.flush()
        skew_s = self.faults.clock_skew_s
        return Snapshot.model_construct(
            cluster=self.machine.name,
            time_s=self.now_s + skew_s,
            run=self.run,
            seq=self.seq,
            machine=self.machine,
            nodes=tuple(self._nodes()),
            jobs=tuple(self._skewed(record) for record in self._records()),
            reservations=tuple(self._open_reservations()),
            own_scheduling=self.own_scheduling,
        )

    # --- inside ----------------------------------------------------------------------------------

    def _plan(self, workload: Workload, start_s: float) -> None:
        edges: dict[int, list[JobDependency]] = {}
        depends = workload.dependencies
        for job, on, kind, delay_ms in zip(
            depends.job.tolist(), depends.on.tolist(), depends.kind.tolist(),
            depends.delay_ms.tolist(), strict=True,
        ):  # fmt: skip
            edge = JobDependency.model_validate(
                {
                    "on": str(workload.job_id[on]),
                    "kind": DependencyKind(kind).name.lower(),
                    "delay_s": delay_ms / MS_PER_S,
                }
            )
            edges.setdefault(job, []).append(edge)
        labels = {
            name: (getattr(workload, name).codes.tolist(), getattr(workload, name).labels)
            for name in ("user", "account", "partition", "qos")
        }
        for row in range(len(workload)):
            submit_s = start_s + int(workload.submit_ms[row]) / MS_PER_S
            about: dict[str, Any] = {
                name: label[codes[row]] if codes[row] >= 0 else ""
                for name, (codes, label) in labels.items()
            }
            about.update({n: float(v[row]) for n, v in workload.per_node.items() if n in PER_NODE})
            spec = JobSpec.model_validate(
                {
                    "id": str(workload.job_id[row]),
                    "submit_s": submit_s,
                    "nodes": int(workload.nodes[row]),
                    "walltime_s": int(workload.walltime_ms[row]) / MS_PER_S,
                    "priority": float(workload.priority[row]),
                    "resources": {n: int(v[row]) for n, v in workload.resources.items()},
                    "dependencies": tuple(edges.get(row, ())),
                    **about,
                }
            )
            runtime_s = int(workload.runtime_ms[row]) / MS_PER_S
            self._put(submit_s, _SUBMIT, partial(self.submit, spec, runtime_s))
            cancel_ms = int(workload.cancel_ms[row])
            if cancel_ms >= 0:
                when_s = max(submit_s, start_s + cancel_ms / MS_PER_S)
                self._put(when_s, _CANCEL, partial(self.cancel, spec.id))

    def _put(self, time_s: float, order: int, action: Callable[[], Any]) -> None:
        # Whole milliseconds, as in the engine: sums of decimal fractions must not miss each other.
        heapq.heappush(self._heap, (round(time_s, 3), order, next(self._number_of_event), action))

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        self._put(time_s, _OTHER, action)

    def _changed(self) -> None:
        self._look = True

    def _tell(self, kind: type[Any], **fields: Any) -> None:
        self.seq += 1
        time_s = self.now_s + self.faults.clock_skew_s
        event = kind.model_construct(
            cluster=self.machine.name, run=self.run, seq=self.seq, time_s=time_s, **fields
        )
        if self.faults.clock_skew_s and isinstance(event, ev.JobSubmitted | ev.JobModified):
            event = event.model_copy(update={"job": self._skewed_spec(event.job)})
        self._channel.send(event, self.now_s)

    def _note(self, job_id: str, what: str) -> None:
        if self.history is not None:
            self.history.append((self.now_s, job_id, what))

    def _change(self, job_id: str, kind: type[Any], **changes: Any) -> Outcome:
        job = self.jobs.get(job_id)
        if job is None or job.start_s is not None:
            return Outcome("refused", f"job {job_id} does not wait")
        spec = JobSpec.model_validate(job.spec.model_dump() | changes)
        why_not = self._never(spec)
        if why_not:
            return Outcome("refused", why_not)
        job.spec = spec
        self._tell(kind, **({"job": spec} if kind is ev.JobModified else {"job_id": job_id}))
        self._changed()
        return Outcome("done")

    def _never(self, spec: JobSpec) -> str | None:
        """Why a job could never run here."""
        groups = self._groups(spec)
        if groups is None:
            return f"there is no partition {spec.partition!r}"
        nodes = sum(self.machine.nodes[g].count for g in groups)
        if spec.nodes > nodes:
            return f"job {spec.id} asks for {spec.nodes} nodes, {nodes} could take it"
        for name, amount in spec.resources.items():
            has = self.machine.resources.get(name, 0)
            if amount > has:
                return f"job {spec.id} asks for {amount} of {name}, there are {has}"
        return None

    def _groups(self, spec: JobSpec) -> list[int] | None:
        """Node groups that may take a job; None if its partition is not there."""
        partitions = self.machine.partitions
        allowed: tuple[str, ...] | None = None
        if partitions:
            chosen = [p for p in partitions if p.name == spec.partition] or [
                p for p in partitions if p.default and not spec.partition
            ]
            if not chosen:
                return None
            allowed = chosen[0].groups
        return [
            g
            for g, group in enumerate(self.machine.nodes)
            if (allowed is None or group.name in allowed)
            and all(
                getattr(group, name) is None or getattr(group, name) >= getattr(spec, name)
                for name in PER_NODE
            )
        ]

    def _why_not(self, job: _Job) -> str | None:
        """Why a job may not start now."""
        spec = job.spec
        if job.start_s is not None:
            return f"job {spec.id} does not wait"
        if spec.held:
            return f"job {spec.id} is held"
        if spec.dependencies:
            return f"job {spec.id} waits for job {spec.dependencies[0].on}"
        if spec.not_before_s is not None and spec.not_before_s > self.now_s:
            return f"job {spec.id} may not start before {spec.not_before_s:g}"
        for name, amount in spec.resources.items():
            if self._used[name] + amount > self.machine.resources[name]:
                return f"not enough of {name} is free"
        if self._pick(spec) is None:
            return "not enough nodes are free"
        return None

    def _pick(self, spec: JobSpec) -> tuple[int, ...] | None:
        """The free nodes of lowest number that a job may have."""
        groups = self._groups(spec) or []
        away: set[str] = set()
        everything = False
        for r in self._reservations.values():
            if r.start_s < self.now_s + spec.walltime_s and r.end_s > self.now_s:
                everything |= not r.node_names
                away.update(r.node_names)
        if everything:
            return None
        chosen: list[int] = []
        any_group = len(groups) == len(self.machine.nodes)
        for node in self._free:
            if (any_group or self._group[node] in groups) and self._names[node] not in away:
                chosen.append(node)
                if len(chosen) == spec.nodes:
                    return tuple(chosen)
        return None

    def _begin(self, job: _Job) -> None:
        spec = job.spec
        nodes = self._pick(spec)
        if nodes is None or job.start_s is not None:
            raise HpctwinError(f"emulated cluster: job {spec.id} cannot be started")
        taken = set(nodes)
        self._free = [node for node in self._free if node not in taken]
        for node in nodes:
            if self._holder[node] is not None:
                raise HpctwinError(f"emulated cluster: node {self._names[node]} is held twice")
            self._holder[node] = spec.id
        for name, amount in spec.resources.items():
            self._used[name] += amount
        if spec.dependencies or spec.held:
            job.spec = spec.model_copy(update={"dependencies": (), "held": False})
        job.start_s, job.nodes = self.now_s, nodes
        job.attempt += 1
        lasts_s = min(job.runtime_s, spec.walltime_s)
        reason = "exit" if job.runtime_s <= spec.walltime_s else "walltime"
        attempt = job.attempt
        self._put(self.now_s + lasts_s, _END, lambda: self._finish(job, attempt, reason))
        self._note(spec.id, "started")
        self._tell(ev.JobStarted, job_id=spec.id, node_names=tuple(self._names[n] for n in nodes))
        self._fulfil(spec.id, ("after",))

    def _finish(self, job: _Job, attempt: int, reason: str) -> None:
        """A job's own end, unless that attempt is over already."""
        if job.attempt != attempt or job.start_s is None or job.ending:
            return
        if self.faults.cleanup_s > 0:
            job.ending = True
            delay_s = self._random.random() * self.faults.cleanup_s

            def clean() -> None:
                if job.attempt == attempt and job.start_s is not None:
                    self._end(job, reason)

            self._put(self.now_s + delay_s, _END, clean)
            return
        self._end(job, reason)

    def _end(self, job: _Job, reason: str) -> None:
        self._give_back(job)
        del self.jobs[job.spec.id]
        self.ended += 1
        self._note(job.spec.id, reason)
        code = 0 if reason == "exit" else 1
        self._tell(ev.JobEnded, job_id=job.spec.id, reason=reason, exit_code=code)
        self._fulfil(job.spec.id, ("after", "afterany", *(("afterok",) if code == 0 else ())))
        self._fail(job.spec.id)
        self._changed()

    def _delete(self, job: _Job) -> None:
        del self.jobs[job.spec.id]
        self.ended += 1
        self._note(job.spec.id, "deleted")
        self._tell(ev.JobDeleted, job_id=job.spec.id)
        self._fulfil(job.spec.id, ("after", "afterany"))
        self._fail(job.spec.id)
        self._changed()

    def _throw_back(self, job: _Job) -> None:
        self._give_back(job)
        job.start_s, job.nodes, job.ending = None, (), False
        job.requeues += 1
        self._note(job.spec.id, "requeued")
        self._tell(ev.JobRequeued, job_id=job.spec.id)
        self._changed()

    def _give_back(self, job: _Job) -> None:
        job.attempt += 1  # an end that was planned for it is void
        back = []
        for node in job.nodes:
            self._holder[node] = None
            if self._states[node] == "up":
                back.append(node)
        self._free = sorted([*self._free, *back])
        for name, amount in job.spec.resources.items():
            self._used[name] -= amount

    def _fulfil(self, job_id: str, kinds: tuple[str, ...]) -> None:
        """Strike out the dependencies on a job that have come true."""
        for other_id in sorted(self._dependants.get(job_id, ())):
            other = self.jobs.get(other_id)
            if other is None or other.start_s is not None:
                continue
            edges = other.spec.dependencies
            true = [e for e in edges if e.on == job_id and e.kind in kinds]
            if not true:
                continue
            changes: dict[str, Any] = {"dependencies": tuple(e for e in edges if e not in true)}
            delay_s = max(e.delay_s for e in true)
            if delay_s > 0:
                due_s = max(self.now_s + delay_s, other.spec.not_before_s or 0.0)
                changes["not_before_s"] = due_s
                self._at(due_s, self._changed)
            other.spec = other.spec.model_copy(update=changes)
            self._changed()

    def _fail(self, job_id: str) -> None:
        """A job is gone: those that needed it to end well can never run, and are deleted."""
        for other_id in sorted(self._dependants.pop(job_id, ())):
            other = self.jobs.get(other_id)
            if other is not None and any(e.on == job_id for e in other.spec.dependencies):
                self._delete(other)

    def _set_node(self, node: int, state: str) -> None:
        if self._states[node] == state:
            return
        self._states[node] = state
        if self._holder[node] is None:
            self._free = (
                sorted({*self._free, node})
                if state == "up"
                else [n for n in self._free if n != node]
            )
        kind = {"up": ev.NodeUp, "down": ev.NodeDown, "drained": ev.NodeDrained}[state]
        self._tell(kind, node_name=self._names[node])
        self._changed()

    def _plan_failure(self, node: int) -> None:
        faults = self.faults
        fails_s = self.now_s - faults.mtbf_s * math.log(1.0 - self._random.random())
        back_s = fails_s - faults.mttr_s * math.log(1.0 - self._random.random())

        def back() -> None:
            self.node_up(self._names[node])
            self._plan_failure(node)

        self._put(fails_s, _NODE, lambda: self.node_down(self._names[node]))
        self._put(back_s, _NODE, back)

    def _idle(self) -> bool:
        """Whether no job is there or will come by itself."""
        return not self.jobs and not any(order == _SUBMIT for _, order, _, _ in self._heap)

    def _nodes(self) -> list[NodeRecord]:
        return [
            NodeRecord.model_construct(name=name, state=state)  # type: ignore[arg-type]
            for name, state in zip(self._names, self._states, strict=True)
        ]

    def _records(self) -> list[JobRecord]:
        return [
            JobRecord.model_construct(
                spec=job.spec,
                start_s=job.start_s,
                node_names=tuple(self._names[n] for n in job.nodes),
                requeues=job.requeues,
            )
            for job in self.jobs.values()
        ]

    def _open_reservations(self) -> list[NodeReservation]:
        return [r for r in self._reservations.values() if r.end_s > self.now_s]

    def _skewed(self, record: JobRecord) -> JobRecord:
        skew_s = self.faults.clock_skew_s
        if not skew_s:
            return record
        start_s = None if record.start_s is None else record.start_s + skew_s
        spec = self._skewed_spec(record.spec)
        return record.model_copy(update={"spec": spec, "start_s": start_s})

    def _skewed_spec(self, spec: JobSpec) -> JobSpec:
        skew_s = self.faults.clock_skew_s
        begin_s = None if spec.not_before_s is None else spec.not_before_s + skew_s
        return spec.model_copy(update={"submit_s": spec.submit_s + skew_s, "not_before_s": begin_s})
