"""Agenda of an emulated cluster: arriving jobs, dependencies, future actions.

Jobs arrive from a workload, or are drawn without end.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model import MS_PER_S, Cluster, DependencyKind, Workload
from hpctwin.model.cluster.cluster import Partition
from hpctwin.model.requests.chunks import WHOLE_CHUNKS
from hpctwin.model.settings import first_fault
from hpctwin.rms.records.records import JobDependency, JobId, JobRecord, JobSpec, Label

_LABELS = ("user", "account", "partition", "qos", "features")
_NAMED = (*_LABELS, "more_tasks")


@dataclass(frozen=True)
class Arrival:
    """A job that is submitted.

    Args:
        spec: Request of the job; ``submit_s`` is its arrival.
        runtime_s: Runtime on nodes of speed 1, in seconds.
        cancel_s: Time at which its user cancels it, not before its submission; None for never.
        fails: Whether it ends with an error after its runtime.
    """

    spec: JobSpec
    runtime_s: float
    cancel_s: float | None
    fails: bool = False


def arrivals(workload: Workload, start_s: float) -> Iterator[Arrival]:
    """Return the jobs in order of submission; ``start_s`` is the workload's time zero.

    Raises:
        WorkloadError: A resource manager would refuse an id or label, or a job shares its nodes
            only with jobs of its user or account, or requests nodes of one group.
    """
    _check_company(workload)
    _check_groups(workload)
    ids = [str(job_id) for job_id in workload.job_id]
    _check(ids, list[JobId], "job id")
    for name in _LABELS:
        _check(list(getattr(workload, name).labels), list[Label], name)
    return _each(workload, ids, start_s)


def waited_for(workload: Workload) -> set[str]:
    """Return the ids of the jobs that others depend on."""
    return {str(workload.job_id[row]) for row in workload.dependencies.on}


def _check_company(workload: Workload) -> None:
    if workload.chunks and workload.chunks["shared_with"].any():
        row = int(np.argmax(workload.chunks["shared_with"]))
        raise WorkloadError(
            f"job {workload.job_id[row]}: 'shared_with' is not supported by the emulated cluster; "
            "remove it, or request exclusive nodes with 'exclusive'"
        )


def _check_groups(workload: Workload) -> None:
    if workload.group_by.labels:
        row = int(np.argmax(workload.group_by.codes >= 0))
        name = workload.group_by.labels[workload.group_by.codes[row]]
        raise WorkloadError(
            f"job {workload.job_id[row]}: 'group_by' ({name}) is not supported by the emulated cluster; "
            "remove it"
        )


def _check(values: list[str], kind: Any, what: str) -> None:
    try:
        TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        says = first_fault(error).partition(": ")[2]  # without the place in the list
        raise WorkloadError(f"{what}: {says}") from error


def _each(workload: Workload, ids: list[str], start_s: float) -> Iterator[Arrival]:
    edges = _edges(workload, ids)
    labels = {n: (getattr(workload, n).codes, getattr(workload, n).labels) for n in _NAMED}
    per_node = {name: column for name, column in workload.per_node.items() if column.any()}
    resources = {name: column for name, column in workload.resources.items() if column.any()}
    consumables = {name: column for name, column in workload.consumables.items() if column.any()}
    columns = (workload.submit_ms, workload.runtime_ms, workload.walltime_ms, workload.nodes,
               workload.priority, workload.cancel_ms)  # fmt: skip
    for row, job_id in enumerate(ids):
        submit_ms, runtime_ms, walltime_ms, nodes, priority, cancel_ms = (
            column[row].item() for column in columns
        )
        about: dict[str, Any] = {n: float(column[row]) for n, column in per_node.items()}
        if workload.chunks and workload.chunks["tasks"][row]:
            about |= {name: column[row].item() for name, column in workload.chunks.items()}
            about |= {name: int(about[name]) for name in WHOLE_CHUNKS}
            for name in ("exclusive", "spread_job"):
                about[name] = about[name] == 1
        for name, (codes, known) in labels.items():
            if codes[row] >= 0:
                about[name] = known[codes[row]]
        if resources:
            about["resources"] = {n: int(c[row]) for n, c in resources.items() if c[row]}
        if consumables:
            about["consumables"] = {n: float(c[row]) for n, c in consumables.items() if c[row]}
        if row in edges:
            about["dependencies"] = edges[row]
        spec = JobSpec.model_construct(
            id=job_id,
            submit_s=round(start_s + submit_ms / MS_PER_S, 3),
            nodes=nodes,
            walltime_s=walltime_ms / MS_PER_S,
            priority=priority,
            **about,
        )
        cancel_s = None
        if cancel_ms >= 0:
            cancel_s = round(start_s + max(submit_ms, cancel_ms) / MS_PER_S, 3)
        fails = workload.fails is not None and bool(workload.fails[row])
        yield Arrival(spec, runtime_ms / MS_PER_S, cancel_s, fails)


def _edges(workload: Workload, ids: list[str]) -> dict[int, tuple[JobDependency, ...]]:
    depends = workload.dependencies
    edges: dict[int, tuple[JobDependency, ...]] = {}
    for job, on, kind, delay_ms in zip(
        depends.job.tolist(), depends.on.tolist(), depends.kind.tolist(),
        depends.delay_ms.tolist(), strict=True,
    ):  # fmt: skip
        # Resource managers have no think times: the job waits for the other in the queue.
        kind = DependencyKind.AFTERANY if kind == DependencyKind.THINK else DependencyKind(kind)
        edge = JobDependency.model_validate(
            {"on": ids[on], "kind": kind.name.lower(),
             "delay_s": delay_ms / MS_PER_S}
        )  # fmt: skip
        edges[job] = (*edges.get(job, ()), edge)
    return edges


# Actions at the same time happen in this order.
END, NODE, SUBMIT, CANCEL, OTHER = range(5)


@dataclass
class AgendaEntry:
    """One action.

    Args:
        action: The action; None once it is done or dropped.
        counts: Whether a caller waits for it.
    """

    action: Callable[[], Any] | None
    counts: bool


class Agenda:
    """Actions ordered by time (rounded to milliseconds), then kind, then arrival."""

    def __init__(self) -> None:
        self.due = 0
        """How many actions that count are to come."""
        self._heap: list[tuple[float, int, int, AgendaEntry]] = []
        self._numbers = count()

    def put(
        self, kind: int, time_s: float, action: Callable[[], Any], *, counts: bool = True
    ) -> AgendaEntry:
        """Schedule an action; ``counts`` is false if no caller waits for it."""
        entry = AgendaEntry(action, counts)
        self.due += counts
        heapq.heappush(self._heap, (round(time_s, 3), kind, next(self._numbers), entry))
        return entry

    def drop(self, entry: AgendaEntry | None) -> None:
        """Cancel an action that is not done yet."""
        if entry is not None and entry.action is not None:
            entry.action = None
            self.due -= entry.counts

    def next_time(self) -> float | None:
        """Return the time of the next action."""
        heap = self._heap
        while heap and heap[0][3].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now_s: float) -> Callable[[], Any] | None:
        """Return the next action that is due."""
        due_s = self.next_time()
        if due_s is None or due_s > now_s:
            return None
        entry = heapq.heappop(self._heap)[3]
        action, entry.action = entry.action, None
        self.due -= entry.counts
        return action


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
                return f"job {spec.id} depends on job {edge.on}, which failed"
            if past is None and edge.on not in self._jobs and edge.on not in self._awaited:
                return f"job {spec.id} depends on job {edge.on}, which does not exist"
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
        """Return which dependencies on a job become true, and which never can."""
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


MAX_PENDING = 300
"""Number of pending jobs above which users submit no further job."""

USERS, ACCOUNTS = 12, 4
MEAN_RUNTIME_S, SIGMA = 1800.0, 1.0
SHORTEST_S, LONGEST_S = 60.0, 4 * 3600.0
WALLTIME_STEP_S = 300.0
WIDEST_PART = 4
"""The widest job requests the nodes of its partition divided by this."""
AT_FIRST = 2.5
"""Nodes requested at the start, as a multiple of the cluster's nodes."""


def endless_arrivals(
    machine: Cluster, *, load: float = 0.9, seed: int = 0, start_s: float = 0.0
) -> Iterator[Arrival]:
    """Yield jobs in order of submission, without end and at a constant load.

    The cluster is full from the start. From then on, each job is followed by a pause in which the
    cluster can do the job's work at this load, so the queue stays in balance. If the nodes have
    cores, half of the jobs share a node.

    Args:
        machine: Nodes and partitions, whose limits the jobs respect.
        load: Offered load, work divided by capacity.

    Raises:
        ConfigError: The load is not a number above 0, or no job fits into a partition.
    """
    if not (math.isfinite(load) and 0 < load <= 10):
        raise ConfigError(f"load is {load:g}; it must be above 0, and 10 at most")
    partitions = [(one, _nodes_of(machine, one)) for one in machine.partitions] or [
        (Partition(name=""), machine.node_count)
    ]
    for one, nodes in partitions:
        if one.min_nodes > nodes or (one.max_walltime or math.inf) < SHORTEST_S:
            raise ConfigError(f"partition {one.name}: generated jobs do not fit into its limits")
    return _drawn(machine, partitions, load, seed, start_s)


def _drawn(
    machine: Cluster, partitions: list[tuple[Partition, int]], load: float, seed: int, now_s: float
) -> Iterator[Arrival]:
    draws = random.Random(f"{seed} submissions")
    cores = min(int(group.cores or 0) for group in machine.nodes)
    requested = 0.0
    for number in count(1):
        partition, most = draws.choice(partitions)
        runtime_s, walltime_s = _times(draws, partition)
        user = int((USERS + 1) ** draws.random())
        about = {
            "id": str(number), "submit_s": round(now_s, 3), "walltime_s": walltime_s,
            "user": f"user{user}", "account": f"project{user % ACCOUNTS + 1}",
            "partition": partition.name,
        }  # fmt: skip
        if cores > 1 and draws.random() < 0.5:
            tasks = round(2 ** draws.uniform(0, math.log2(cores)))
            nodes = tasks / cores
            spec = JobSpec(nodes=1, tasks=tasks, cores_per_task=1.0, **about)
        else:
            nodes = _width(draws, partition, most)
            spec = JobSpec(nodes=nodes, **about)
        yield Arrival(spec, runtime_s, None)
        requested += nodes
        if requested > AT_FIRST * machine.node_count:
            pause_s = nodes * runtime_s / (machine.node_count * load)
            now_s += draws.expovariate(1 / pause_s)


def _nodes_of(machine: Cluster, partition: Partition) -> int:
    groups = [g for g in machine.nodes if partition.groups is None or g.name in partition.groups]
    return sum(group.count for group in groups)


def _times(draws: random.Random, partition: Partition) -> tuple[float, float]:
    """Return the runtime and the walltime of a job, in seconds."""
    limit_s = min(LONGEST_S, partition.max_walltime or math.inf)
    drawn_s = draws.lognormvariate(math.log(MEAN_RUNTIME_S) - SIGMA**2 / 2, SIGMA)
    runtime_s = round(min(max(drawn_s, SHORTEST_S), limit_s))
    steps = math.ceil(runtime_s * draws.uniform(1, 3) / WALLTIME_STEP_S)
    return runtime_s, min(max(steps * WALLTIME_STEP_S, runtime_s), limit_s)


def _width(draws: random.Random, partition: Partition, count: int) -> int:
    """Return the number of whole nodes of a job; small numbers and powers of two are common."""
    widest = max(min(count // WIDEST_PART, partition.max_nodes or count), partition.min_nodes)
    power = draws.uniform(0, math.log2(widest + 1))
    width = int(2 ** (int(power) if draws.random() < 0.75 else power))
    return min(max(width, partition.min_nodes), widest)
