"""Events between two snapshots, for a manager that can only be polled, and pushed events.

`Doubts` records nodes for which jobs and resource manager disagree on what is held.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobRecord, NodePart, NodePower, Snapshot

LASTING_S = 10.0
"""Time after which a doubtful node is not known well enough to act on.

Jobs and nodes are queried one after the other, and a job that completes frees its nodes one by one.
"""


class Doubts:
    """Doubtful nodes, since when, and why.

    A node that differs in another way than at the last poll is doubtful from now on. While jobs
    come and go, each poll has some nodes whose job began or ended just then.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._differs: dict[str, str] = {}
        self._seen_s = 0.0

    def seen(self, differs: Mapping[str, str], now_s: float) -> None:
        """Set the nodes that are doubtful now.

        Args:
            differs: Difference of each such node, by name.
        """
        same = {name for name, how in differs.items() if self._differs.get(name) == how}
        self._since = {name: self._since[name] if name in same else now_s for name in differs}
        self._differs = dict(differs)
        self._seen_s = now_s

    def lasting(self) -> set[str]:
        """Return the nodes that had been doubtful for some time at the last poll."""
        return {n for n, since_s in self._since.items() if self._seen_s - since_s >= LASTING_S}


_NODE_EVENTS = {"up": ev.NodeUp, "down": ev.NodeDown, "drained": ev.NodeDrained}


SAME_START_S = 10.0
"""Two starts of one run of a job that differ by at most this are one start."""


class End(NamedTuple):
    """How a job ended, if the resource manager reports it.

    Args:
        reason: Reason, see `events.JobEnded`.
        exit_code: Exit code of the job.
    """

    reason: Literal["exit", "cancelled", "walltime", "node_failure"] = "exit"
    exit_code: int = 0


_BY_ITSELF = End()


class Changes:
    """Turns a series of snapshots into numbered events.

    A job or node that came and went between two snapshots is not seen. A running job that is gone
    counts as ended by itself, unless something else is known. A pending job that is gone counts as
    deleted. Ends have the time of the later snapshot.

    Args:
        first: First snapshot; its ``seq`` is that of the last event before it.
        run: Name of this run of the source.
    """

    def __init__(self, first: Snapshot, run: str) -> None:
        self.run = run
        self.last = first.model_copy(update={"run": run})

    def to(self, snapshot: Snapshot, ends: Mapping[str, End] | None = None) -> list[ev.Event]:
        """Return the events from the last snapshot to this one, which becomes `last`."""
        events: list[ev.Event] = []
        snapshot = _as_told(snapshot, self.last)
        seq = self.last.seq
        for kind, time_s, fields in _between(self.last, snapshot, ends or {}):
            seq += 1
            common = {"cluster": snapshot.cluster, "run": self.run, "seq": seq, "time_s": time_s}
            events.append(kind.model_construct(**common, **fields))
        self.last = snapshot.model_copy(update={"run": self.run, "seq": seq})
        return events


def _between(
    old: Snapshot, new: Snapshot, ends: Mapping[str, End]
) -> Iterator[tuple[type[Any], float, dict[str, Any]]]:
    """Yield kind, time and fields of each event.

    Events that free nodes come before events that request nodes.
    """
    now_s = new.time_s
    if (old.machine, old.shared) != (new.machine, new.shared):
        # No event reports other nodes or partitions: only a snapshot does.
        yield ev.SchedulerRestarted, now_s, {}
    before = {job.spec.id: job for job in old.jobs}
    after = {job.spec.id: job for job in new.jobs}
    for job_id, job in before.items():
        still = after.get(job_id)
        if job.start_s is None:
            if still is None:
                yield ev.JobDeleted, now_s, {"job_id": job_id}
        elif still is None:
            end = ends.get(job_id, _BY_ITSELF)
            yield ev.JobEnded, now_s, {"job_id": job_id, **end._asdict()}
        elif still.start_s is None and still.requeues == job.requeues:
            yield ev.JobRequeued, now_s, {"job_id": job_id}
        elif _elsewhere(job, still) and not _still_to_begin(job, still, old.time_s):
            yield ev.JobRequeued, now_s, {"job_id": job_id, "requeues": still.requeues}
    nodes = {node.name: node for node in old.nodes}
    for node in new.nodes:
        known_node = nodes.get(node.name)
        if known_node is None or known_node.state != node.state:
            yield _NODE_EVENTS[node.state], now_s, {"node_name": node.name}
        power = node.power
        if power is not None and (known_node is None or not _as_before(power, known_node.power)):
            yield ev.NodePowered, now_s, {"node_name": node.name, "power": power}
    off = {node.name for node in new.nodes if node.power is not None and node.power.state != "on"}
    kept = {r.name: r for r in old.reservations}
    for reservation in new.reservations:
        if kept.pop(reservation.name, None) != reservation:
            yield ev.ReservationSet, now_s, {"reservation": reservation}
    for name in kept:
        yield ev.ReservationRemoved, now_s, {"name": name}
    for job_id, job in after.items():
        if job_id not in before:
            yield ev.JobSubmitted, job.spec.submit_s, {"job": job.spec}
        known = before[job_id].requeues if job_id in before else 0
        if job.requeues != known:
            yield ev.JobRequeued, now_s, {"job_id": job_id, "requeues": job.requeues}
    for job_id, job in after.items():
        earlier = before.get(job_id)
        if job.start_s is not None and (earlier is None or _began(earlier, job)):
            fields = {"job_id": job_id, "node_names": job.node_names, "parts": job.parts}
            again = earlier is not None and _still_to_begin(earlier, job, old.time_s)
            if again or not off.isdisjoint(job.node_names):
                yield ev.JobStarted, now_s, {**fields, "begins_s": job.start_s}
            else:
                yield ev.JobStarted, job.start_s, fields
    moved = {i for i, job in before.items() if _moved(job, after.get(i))}
    for job_id, job in after.items():
        earlier = before.get(job_id)
        # When a job starts or is gone, a reader removes dependencies on it by itself.
        struck = any(edge.on in moved for edge in job.spec.dependencies)
        if earlier is not None and (earlier.spec != job.spec or struck):
            yield ev.JobModified, now_s, {"job": job.spec}


def _moved(before: JobRecord, after: JobRecord | None) -> bool:
    return after is None or (after.start_s is not None and _began(before, after))


def _began(before: JobRecord, after: JobRecord) -> bool:
    return before.start_s is None or after.requeues != before.requeues or _elsewhere(before, after)


def _elsewhere(before: JobRecord, after: JobRecord) -> bool:
    """Return whether a job runs in both records with another start or other nodes.

    A job that was requeued does not count.
    """
    return (
        before.start_s is not None
        and after.start_s is not None
        and before.requeues == after.requeues
        and (
            before.start_s != after.start_s
            or before.node_names != after.node_names
            or before.parts != after.parts
        )
    )


def _still_to_begin(before: JobRecord, after: JobRecord, then_s: float) -> bool:
    """Return whether a job had its nodes already and waited for them to switch on."""
    if before.start_s is None or before.start_s <= then_s:
        return False
    return before.requeues == after.requeues and set(before.node_names) == set(after.node_names)


def _is_on(power: NodePower | None) -> bool:
    return power is not None and power.state == "on"


def _as_before(power: NodePower, known: NodePower | None) -> bool:
    """Return whether a node is in the same power state.

    The time since when a node is idle follows from its jobs.
    """
    return known is not None and (power.state, power.depth) == (known.state, known.depth)


def _as_told(snapshot: Snapshot, last: Snapshot) -> Snapshot:
    """Return a snapshot that keeps published starts and power if only times differ.

    News report a job's start to fractions of a second. The resource manager's lists round, and may
    count from a little later.
    """
    told = {job.spec.id: job for job in last.jobs if job.start_s is not None}
    jobs = []
    for job in snapshot.jobs:
        known = told.get(job.spec.id)
        if known is not None and known.start_s is not None and _elsewhere(known, job):
            near = abs((job.start_s or 0.0) - known.start_s) <= SAME_START_S
            if near and _holds(job) == _holds(known):
                same = {
                    "start_s": known.start_s,
                    "node_names": known.node_names,
                    "parts": known.parts,
                }
                job = job.model_copy(update=same)
        jobs.append(job)
    powers = {node.name: node.power for node in last.nodes}
    # Idle since its job's end, if it had one.
    used = {name for job in last.jobs for name in job.node_names if _is_on(powers.get(name))}
    nodes = tuple(
        node.model_copy(update={"power": powers[node.name]})
        if node.name not in used
        and node.power is not None
        and _as_before(node.power, powers.get(node.name))
        else node
        for node in snapshot.nodes
    )
    return snapshot.model_copy(update={"jobs": tuple(jobs), "nodes": nodes})


def _holds(job: JobRecord) -> dict[str, NodePart | None]:
    """Return what a job holds of each of its nodes; None for all, or if not reported."""
    return dict(zip_longest(job.node_names, job.parts))


MOST_CHARACTERS = 200_000
"""Longest line, in characters."""


@dataclass(frozen=True)
class _AtTime:
    """An event; ``time_s`` is its time, in seconds since the epoch."""

    time_s: float


@dataclass(frozen=True)
class Look(_AtTime):
    """An event whose result only a poll can show."""


@dataclass(frozen=True)
class JobSeen(_AtTime):
    """A job was submitted."""

    record: JobRecord


@dataclass(frozen=True)
class JobBegan(_AtTime):
    """A job has its nodes."""

    job_id: str
    node_names: tuple[str, ...]


@dataclass(frozen=True)
class JobGone(_AtTime):
    """A job has ended, or is gone from the queue; ``end`` is how it ended, if it ran."""

    job_id: str
    end: End


@dataclass(frozen=True)
class JobBack(_AtTime):
    """A running job was stopped and is pending again; ``requeues`` counts this."""

    job_id: str
    requeues: int


News = JobSeen | JobBegan | JobBack | JobGone | Look


UNREADABLE = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""Errors of lines that are not what a script writes."""


def read_line(line: str) -> tuple[float, Any]:
    """Return the time, in seconds since the epoch, and the content of a script's line.

    The script runs on the manager's side.

    Raises:
        UNREADABLE: The line cannot be read.
    """
    if len(line) > MOST_CHARACTERS:
        raise ValueError(f"a line has {len(line)} characters; the limit is {MOST_CHARACTERS}")
    about = json.loads(line)
    return read_time_s(about, "t"), about


def read_time_s(about: Any, key: str) -> float:
    """Return a time in a line, in seconds since the epoch.

    Raises:
        UNREADABLE: It is missing or no time.
    """
    time_s = float(about[key])
    if not 0 < time_s < 1e11:
        raise ValueError(f"time {time_s}")
    return time_s


@dataclass(frozen=True)
class Updated:
    """A snapshot with events applied.

    Args:
        snapshot: The snapshot.
        ends: How jobs ended that ran in the snapshot before.
        look: Whether something stays unclear without another poll.
    """

    snapshot: Snapshot
    ends: dict[str, End]
    look: bool


def _held(names: Sequence[str], jobs: Mapping[str, JobRecord], shared: Sequence[str]) -> bool:
    wanted = set(names) - set(shared)
    return any(not wanted.isdisjoint(job.node_names) for job in jobs.values())


def updated(snapshot: Snapshot, news: Sequence[News]) -> Updated:
    """Apply events to a snapshot; events that it contains already change nothing."""
    jobs = {job.spec.id: job for job in snapshot.jobs}
    nodes = {node.name for node in snapshot.nodes}
    ends: dict[str, End] = {}
    look = False
    time_s = snapshot.time_s
    for item in news:
        time_s = max(time_s, item.time_s)
        if isinstance(item, JobSeen):
            jobs.setdefault(item.record.spec.id, item.record)
        elif isinstance(item, JobBegan):
            job = jobs.get(item.job_id)
            # PBS also names the node of a host that has no cores itself.
            names = tuple(name for name in item.node_names if name in nodes)
            if job is None or not names or (job.start_s is None and job.spec.shares):
                # If its nodes are shared, only a poll shows what it holds.
                look = True
            elif job.start_s is None and _held(names, jobs, snapshot.shared):
                # The job that held these nodes has ended, and no event reported it.
                look = True
            elif job.start_s is None:
                began = {"start_s": item.time_s, "node_names": names}
                jobs[item.job_id] = job.model_copy(update=began)
        elif isinstance(item, JobBack):
            job = jobs.get(item.job_id)
            if job is None:
                look = True
            elif job.requeues < item.requeues:
                back = {"start_s": None, "node_names": (), "parts": (), "requeues": item.requeues}
                jobs[item.job_id] = job.model_copy(update=back)
        elif isinstance(item, JobGone):
            job = jobs.get(item.job_id)
            # A start later than this end is that of a requeued job.
            if job is not None and (job.start_s is None or job.start_s <= item.time_s):
                del jobs[item.job_id]
                ends[item.job_id] = item.end
        else:
            look = True
    after = snapshot.model_copy(update={"time_s": time_s, "jobs": tuple(jobs.values())})
    return Updated(after, ends, look)
