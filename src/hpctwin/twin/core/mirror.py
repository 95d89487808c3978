"""The mirror: a copy of a live cluster, updated by events and snapshots."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from hpctwin.errors import ContradictionError
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import (
    JobRecord,
    JobSpec,
    NodeRecord,
    NodeReservation,
    Record,
    Snapshot,
)
from hpctwin.twin.core.reported import Reported

__all__ = ["Applied", "Mirror", "Taken"]

Applied = tuple[ev.Event, JobRecord | None]
"""An event that was applied, and its job before it (None if it did not exist)."""

Taken = Literal["applied", "duplicate", "early", "ignored", "contradiction"]
"""What happened to an event.

- ``applied``: the event is part of the state now.
- ``duplicate``: the event was known already.
- ``early``: it is kept until the events before it have arrived.
- ``ignored``: it belongs to an earlier run or another cluster, or precedes the snapshot.
- ``contradiction``: it cannot be true, so a snapshot is needed.
"""

MAX_EARLY = 10_000
"""Maximum number of events kept while an earlier one is missing.

Beyond it, a snapshot is needed.
"""

_NODE_STATES: dict[str, Literal["up", "down", "drained"]] = {
    "node_up": "up",
    "node_down": "down",
    "node_drained": "drained",
}
_DIGEST_BYTES = 16
_MODULUS = 1 << (8 * _DIGEST_BYTES)


class Mirror:
    """Jobs, nodes and reservations of one cluster, as its events report them.

    Applying an event twice, or events of one run in another order, ends in the same state. A gap,
    or an event that cannot be true, sets ``needs_snapshot`` to the reason; `adopt` corrects the
    state.

    Args:
        snapshot: First snapshot of the resource manager; without it, one is needed first.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.cluster = ""
        self.run = ""
        self.seq: int | None = None
        self.time_s = 0.0
        self.own_scheduling = True
        self.unix_time = True
        self.shared: frozenset[str] = frozenset()
        self.needs_snapshot: str | None = "no snapshot yet"
        self.jobs: dict[str, JobRecord] = {}
        self._depend: set[str] = set()
        self._with_reason: set[str] = set()
        self.not_modeled: dict[str, str] = {}
        """Why a job cannot be simulated as it is, by id: it requests what is not reported."""
        self.nodes: dict[str, NodeRecord] = {}
        self._node_records: tuple[NodeRecord, ...] | None = None
        self.reservations: dict[str, NodeReservation] = {}
        self.snapshots = 0
        self._holder: dict[str, str] = {}
        self._sharing: Counter[str] = Counter()
        self._early: dict[tuple[str, int], ev.Event] = {}
        self._old_runs: set[str] = set()
        self._snapshot_time_s = 0.0
        self._sum = 0
        if snapshot is not None:
            self.adopt(snapshot)

    # --- inputs -----------------------------------------------------------------------------------

    def take(self, event: ev.Event) -> tuple[Taken, list[Applied]]:
        """Process one event.

        Returns:
            What happened to it, and all events that were applied: this one, and those kept for it.
        """
        if self.snapshots == 0:
            self._keep_early(event)
            return "early", []
        if event.run in self._old_runs or event.cluster != self.cluster:
            return "ignored", []
        if event.run != self.run:
            self._keep_early(event)
            self._ask(f"events of another run of the scheduler ({event.run or 'unnamed'}) arrived")
            return "early", []
        if self.seq is None:
            if event.time_s <= self._snapshot_time_s:
                return "ignored", []
            self.seq = event.seq - 1
        if event.seq <= self.seq:
            return "duplicate", []
        if event.seq > self.seq + 1:
            known = (event.run, event.seq) in self._early
            self._keep_early(event)
            return ("duplicate" if known else "early"), []
        return self._apply_with_followers(event)

    @property
    def missing(self) -> int | None:
        """Sequence number of the event that kept events wait for; None if none do."""
        if self.seq is None or not any(run == self.run for run, _ in self._early):
            return None
        return self.seq + 1

    def give_up_waiting(self) -> None:
        """Ask for a snapshot instead of the missing event."""
        if self.missing is not None:
            self._ask(f"event {self.missing} is missing")

    def adopt(self, snapshot: Snapshot) -> tuple[bool, list[Applied]]:
        """Replace the state with a snapshot, unless it is older than the mirror.

        Returns:
            Whether the snapshot was used, and the kept events that were applied after it.
        """
        same_run = self.snapshots > 0 and snapshot.run == self.run
        # Without a sequence number, the time decides which events the snapshot includes.
        counted = bool(snapshot.seq or snapshot.run)
        if same_run and counted and self.seq is not None and snapshot.seq < self.seq:
            return False, []
        if not same_run and self.snapshots:
            self._old_runs.add(self.run)
        self.snapshots += 1
        self.cluster = snapshot.cluster
        self.machine = snapshot.machine
        self.reported = Reported(snapshot.machine)
        self.not_modeled = {}
        self.run = snapshot.run
        self.seq = snapshot.seq if counted else None
        self._snapshot_time_s = snapshot.time_s
        self.time_s = snapshot.time_s if not same_run else max(self.time_s, snapshot.time_s)
        self.own_scheduling = snapshot.own_scheduling
        self.unix_time = snapshot.unix_time
        self.shared = frozenset(snapshot.shared)
        self.needs_snapshot = None
        self.jobs = {}
        self._depend, self._with_reason = set(), set()
        self.nodes = {}
        self.reservations = {}
        self._holder = {}
        self._sharing = Counter()
        self._sum = 0
        self._node_records = None
        for node in snapshot.nodes:
            self._put(self.nodes, node.name, node)
        for reservation in snapshot.reservations:
            self._put(self.reservations, reservation.name, reservation)
        for job in snapshot.jobs:
            self._put_job(job)
            self._hold(job.spec, job.node_names)
        kept = [self._early[key] for key in sorted(self._early)]
        self._early = {}
        applied: list[Applied] = []
        for event in kept:
            applied += self.take(event)[1]
        return True, applied

    # --- contents ---------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """Hash of all jobs, nodes and reservations; equal if and only if they are equal."""
        return f"{self._sum:032x}"

    @property
    def not_started(self) -> list[JobSpec]:
        """Pending jobs that the manager says it would not start, in the order of all jobs."""
        if not self._with_reason:
            return []
        told = [self.jobs[i] for i in filter(self._with_reason.__contains__, self.jobs)]
        return [job.spec for job in told if job.start_s is None]

    def modeled(self, jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
        """Return jobs in a form that can be simulated; see `Reported.modeled`."""
        odd = self.not_modeled
        if not odd:
            return jobs
        return [self.reported.modeled(job) if job.spec.id in odd else job for job in jobs]

    @property
    def node_records(self) -> tuple[NodeRecord, ...]:
        """Nodes in the order of their numbers; the same object while they are unchanged."""
        if self._node_records is None:
            self._node_records = tuple(self.nodes.values())
        return self._node_records

    def copy(self) -> Mirror:
        """Return a mirror of the same state, independent of later changes of this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set):
                setattr(other, name, value.copy())
        return other

    def snapshot(self) -> Snapshot:
        """Return the mirror in the form of a resource manager's snapshot.

        Raises:
            ValueError: The mirror has no snapshot yet.
        """
        if not self.snapshots:
            raise ValueError("mirror has received no snapshot yet")
        return Snapshot.model_construct(
            cluster=self.cluster,
            time_s=self.time_s,
            run=self.run,
            seq=self.seq or 0,
            machine=self.machine,
            nodes=self.node_records,
            jobs=tuple(self.jobs.values()),
            reservations=tuple(self.reservations.values()),
            own_scheduling=self.own_scheduling,
            shared=tuple(sorted(self.shared)),
            unix_time=self.unix_time,
        )

    def difference(self, snapshot: Snapshot) -> list[str]:
        """Return the differences between the mirror and a snapshot, one sentence each."""
        words = _jobs_differ(self.jobs, {job.spec.id: job for job in snapshot.jobs})
        words += _nodes_differ(self.nodes, snapshot.nodes)
        mine, theirs = set(self.reservations), {r.name for r in snapshot.reservations}
        return words + [f"reservation {n!r} is in one of them only" for n in mine ^ theirs]

    # --- one event -------------------------------------------------------------------------------

    def _apply_with_followers(self, event: ev.Event) -> tuple[Taken, list[Applied]]:
        applied: list[Applied] = []
        following: ev.Event | None = event
        while following is not None:
            before = self.jobs.get(getattr(following, "job_id", ""))
            try:
                self._apply(following)
            except ContradictionError as fault:
                self._ask(f"event {following.seq} ({following.kind}): {fault}")
                self._keep_early(following)
                return ("contradiction" if not applied else "applied"), applied
            self.seq = following.seq
            self.time_s = max(self.time_s, following.time_s)
            applied.append((following, before))
            following = self._early.pop((following.run, following.seq + 1), None)
        return "applied", applied

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                if event.job.id in self.jobs:
                    raise ContradictionError(f"job {event.job.id} was submitted again; it exists")
                self._put_job(JobRecord.model_construct(spec=event.job))
            case ev.JobModified():
                self._update(event.job.id, spec=event.job)
            case ev.JobHeld() | ev.JobReleased():
                job = self._waiting(event.job_id)
                spec = job.spec.model_copy(update={"held": isinstance(event, ev.JobHeld)})
                self._update(event.job_id, spec=spec)
            case ev.JobStarted():
                self._start(event)
            case ev.JobEnded():
                self._free(event.job_id, event.time_s)
                self._forget(event.job_id)
                well = event.reason == "exit" and not event.exit_code
                self._fulfil(event.job_id, event.time_s, ended_well=well)
            case ev.JobRequeued():
                known = self.jobs.get(event.job_id)
                # A pending job may have run and been requeued unseen, if the event has a count.
                unseen = known is not None and known.start_s is None and event.requeues is not None
                job = (
                    known
                    if known is not None and unseen
                    else self._free(event.job_id, event.time_s)
                )
                count = job.requeues + 1 if event.requeues is None else event.requeues
                self._update(event.job_id, start_s=None, node_names=(), parts=(), requeues=count)
            case ev.JobDeleted():
                self._waiting(event.job_id)
                self._forget(event.job_id)
                self._fulfil(event.job_id, event.time_s)
            case ev.NodeUp() | ev.NodeDown() | ev.NodeDrained():
                if event.node_name not in self.nodes:
                    raise ContradictionError(f"node {event.node_name} is unknown")
                self._change_node(event.node_name, state=_NODE_STATES[event.kind])
            case ev.NodePowered():
                if event.node_name not in self.nodes:
                    raise ContradictionError(f"node {event.node_name} is unknown")
                self._change_node(event.node_name, power=event.power)
            case ev.ReservationSet():
                unknown = [n for n in event.reservation.node_names if n not in self.nodes]
                if unknown:
                    raise ContradictionError(f"node {unknown[0]} is unknown")
                self._put(self.reservations, event.reservation.name, event.reservation)
            case ev.ReservationRemoved():
                self._drop(self.reservations, event.name)
            case ev.SchedulerRestarted():
                self._ask("the scheduler has restarted, or its nodes or partitions have changed")

    def _start(self, event: ev.JobStarted) -> None:
        known = self.jobs.get(event.job_id)
        if (
            event.begins_s is not None
            and known is not None
            and known.start_s is not None
            and known.node_names == event.node_names
        ):
            # Its nodes are ready sooner or later than expected.
            self._update(event.job_id, start_s=event.begins_s)
            return
        job = self._waiting(event.job_id)
        for name in event.node_names:
            if name not in self.nodes:
                raise ContradictionError(f"node {name} is unknown")
            if name in self.shared:
                continue
            if name in self._holder:
                raise ContradictionError(f"node {name} is allocated to job {self._holder[name]}")
            if self._sharing[name] and not job.spec.shares:
                raise ContradictionError(f"node {name} is allocated to jobs that share it")
        if event.parts and len(event.parts) != len(event.node_names):
            raise ContradictionError(
                f"job {event.job_id} has parts of nodes that differ from its list of nodes"
            )
        spec = job.spec
        if spec.dependencies or spec.held:
            spec = spec.model_copy(update={"dependencies": (), "held": False})
        self._hold(spec, event.node_names)
        start_s = event.time_s if event.begins_s is None else event.begins_s
        self._update(
            event.job_id,
            spec=spec,
            start_s=start_s,
            node_names=event.node_names,
            parts=event.parts,
        )
        if start_s <= event.time_s:
            self._fulfil(event.job_id, event.time_s, started=True)

    def _fulfil(
        self, job_id: str, time_s: float, *, ended_well: bool = False, started: bool = False
    ) -> None:
        """Remove the dependencies that are fulfilled; failed ones stay."""
        for other in [self.jobs[i].spec for i in self._depend]:
            true = [
                edge
                for edge in other.dependencies
                if edge.on == job_id
                and (edge.kind == "after" if started else edge.kind != "afterok" or ended_well)
            ]
            if not true:
                continue
            left = tuple(edge for edge in other.dependencies if edge not in true)
            changes: dict[str, Any] = {"dependencies": left}
            delay_s = max(edge.delay_s for edge in true)
            if delay_s > 0:
                changes["not_before_s"] = max(time_s + delay_s, other.not_before_s or 0.0)
            self._update(other.id, spec=other.model_copy(update=changes))

    def _waiting(self, job_id: str) -> JobRecord:
        job = self.jobs.get(job_id)
        if job is None:
            raise ContradictionError(f"job {job_id} is unknown")
        if job.start_s is not None:
            raise ContradictionError(f"job {job_id} is already running")
        return job

    def _free(self, job_id: str, time_s: float) -> JobRecord:
        """Release a job's nodes; nodes that it used are idle from now on."""
        job = self.jobs.get(job_id)
        if job is None:
            raise ContradictionError(f"job {job_id} is unknown")
        if job.start_s is None:
            raise ContradictionError(f"job {job_id} is not running")
        if job.spec.shares:
            self._sharing.subtract(job.node_names)
        for name in job.node_names:
            if self._holder.get(name) == job_id:
                del self._holder[name]
            power = self.nodes[name].power
            if power is not None and power.state == "on" and job.start_s <= time_s:
                self._change_node(name, power=power.model_copy(update={"since_s": time_s}))
        return job

    def _hold(self, spec: JobSpec, names: Iterable[str]) -> None:
        if spec.shares:
            self._sharing.update(names)
        else:
            self._holder.update(dict.fromkeys(names, spec.id))

    # --- tables and their hash --------------------------------------------------------------------

    def _update(self, job_id: str, **changes: Any) -> None:
        job = self.jobs.get(job_id)
        if job is None:
            raise ContradictionError(f"job {job_id} is unknown")
        self._put_job(job.model_copy(update=changes))

    def _put_job(self, job: JobRecord) -> None:
        """Store a job, and index it by what events and decisions look for.

        Only jobs with dependencies or with a reason need to be searched then.
        """
        job_id, spec = job.spec.id, job.spec
        self._put(self.jobs, job_id, job)
        for noted, is_so in ((self._depend, spec.dependencies), (self._with_reason, spec.reason)):
            if is_so:
                noted.add(job_id)
            else:
                noted.discard(job_id)
        if lacks := self.reported.lacks(spec):
            self.not_modeled[job_id] = lacks
        else:
            self.not_modeled.pop(job_id, None)

    def _change_node(self, name: str, **changes: Any) -> None:
        self._node_records = None
        self._put(self.nodes, name, self.nodes[name].model_copy(update=changes))

    def _put(self, table: dict[str, Any], key: str, record: Record) -> None:
        self._drop(table, key, keep_place=True)
        table[key] = record
        self._sum = (self._sum + _digest(record)) % _MODULUS

    def _forget(self, job_id: str) -> None:
        self._drop(self.jobs, job_id)
        self._depend.discard(job_id)
        self._with_reason.discard(job_id)
        self.not_modeled.pop(job_id, None)

    def _drop(self, table: dict[str, Any], key: str, *, keep_place: bool = False) -> None:
        record = table.get(key)
        if record is not None:
            self._sum = (self._sum - _digest(record)) % _MODULUS
            if not keep_place:
                del table[key]

    def _keep_early(self, event: ev.Event) -> None:
        self._early[event.run, event.seq] = event
        if len(self._early) > MAX_EARLY:
            self._early = dict(sorted(self._early.items())[-MAX_EARLY // 2 :])
            self._ask(f"more than {MAX_EARLY} events are waiting for a missing one")

    def _ask(self, reason: str) -> None:
        if self.needs_snapshot is None:
            self.needs_snapshot = reason


def _digest(record: Record) -> int:
    text = f"{type(record).__name__}{record.model_dump_json()}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest())


def _jobs_differ(mine: Mapping[str, JobRecord], theirs: Mapping[str, JobRecord]) -> list[str]:
    """Return a sentence for each job that differs between the mirror and the snapshot."""
    words = [f"job {i} is only in the mirror" for i in mine if i not in theirs]
    words += [f"job {i} is only in the snapshot" for i in theirs if i not in mine]
    return words + [
        f"job {i}: {_first_difference(mine[i], job)}"
        for i, job in theirs.items()
        if i in mine and mine[i] != job
    ]


def _nodes_differ(mine: Mapping[str, NodeRecord], theirs: Iterable[NodeRecord]) -> list[str]:
    """Return a sentence for each node that is in another state in the snapshot."""
    words = []
    for node in theirs:
        own = mine.get(node.name)
        if own is None or _as_it_is(own) != _as_it_is(node):
            known = _as_it_is(own) if own else "known"
            words.append(f"node {node.name} is {_as_it_is(node)}, not {known}")
    return words


def _as_it_is(node: NodeRecord) -> str:
    """Return a node's state in words, without the time since when.

    Sources know this time to different precision.
    """
    power = node.power
    if power is None:
        return node.state
    return f"{node.state} and {power.state}" + (f" ({power.depth})" if power.depth else "")


def _first_difference(mine: JobRecord, theirs: JobRecord) -> str:
    pairs: Iterable[tuple[str, Any, Any]] = [
        *((f, getattr(mine.spec, f), getattr(theirs.spec, f)) for f in JobSpec.model_fields),
        *((f, getattr(mine, f), getattr(theirs, f)) for f in JobRecord.model_fields if f != "spec"),
    ]
    field, a, b = next((f, a, b) for f, a, b in pairs if a != b)
    return f"{field} is {b!r}, not {a!r}"
