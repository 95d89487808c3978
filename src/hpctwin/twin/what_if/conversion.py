"""Conversion of a manager's records to a workload, a cluster and power states.

Some data is kept from one present of a cluster to the next; then only changes are read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from hpctwin.model import (
    MS_PER_S,
    PER_NODE,
    Category,
    Cluster,
    Dependencies,
    DependencyKind,
    Workload,
)
from hpctwin.model.columns import alike, every
from hpctwin.model.requests.chunks import CHUNKS
from hpctwin.rms.records.columns import LABELS, JobRows, Jobs, jobs_to_come
from hpctwin.rms.records.records import JobSpec, NodePower, NodeRecord

if TYPE_CHECKING:
    from hpctwin.policies import Policy
    from hpctwin.simulation import Simulation
    from hpctwin.simulation.running.incremental import NodePowers

__all__ = [
    "Reused",
    "Spare",
    "as_expected",
    "id_key",
    "in_ms",
    "in_order",
    "may_run",
    "powers_of",
    "switched",
    "workload_of",
]

MOST_SPARE = 16
"""Maximum number of spare simulations: as many as run at once in threads."""


class Spare:
    """Finished simulations whose memory is reused for new ones.

    A fork into one takes half as long as a fork into new memory.
    """

    def __init__(self) -> None:
        self._left: deque[Simulation] = deque(maxlen=MOST_SPARE)
        self._out: WeakSet[Simulation] = WeakSet()
        self._lock = Lock()

    def fork(self, simulation: Simulation, policy: Policy | None = None) -> Simulation:
        """Return a fork under a policy, by default the same; see `Simulation.fork`.

        The caller has it exclusively until it gives it back.
        """
        try:
            into = self._left.pop()
        except IndexError:
            into = None
        fork = simulation.fork(policy, into=into)
        with self._lock:
            self._out.add(fork)
        return fork

    def give_back(self, simulation: Simulation) -> None:
        """Return a simulation for reuse; the caller must not use it or its arrays again."""
        with self._lock:
            self._out.discard(simulation)
        if not simulation.stopped:
            self._left.append(simulation)

    def running(self) -> list[Simulation]:
        """Return the forks that have not been given back."""
        with self._lock:
            return list(self._out)


@dataclass
class Reused:
    """Data that successive presents of one cluster share; results never depend on it.

    Args:
        rows: Jobs and nodes read so far.
        base: Simulation of the last present, whose data of the cluster are reused.
        spare: Finished simulations whose memory is reused.
    """

    rows: JobRows = field(default_factory=JobRows)
    base: Simulation | None = None
    spare: Spare = field(default_factory=Spare)


LATE_MS = 60_000
"""An overdue power transition is expected to end within this time, in ms.

It ends at the next multiple of this span after the time at which it should have ended.
"""


@lru_cache(1 << 14)
def id_key(job_id: str) -> tuple[int | str, ...]:
    """Return a sort key for job ids by which ``9.pbs`` comes before ``10.pbs``."""
    parts = re.split(r"(\d+)", job_id)
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def in_order(
    there: Jobs, arrivals: Sequence[JobSpec], now_s: float
) -> tuple[Jobs, npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return present and arriving jobs as rows, ordered by submission, then by id.

    The result does not depend on the order of the inputs.

    Returns:
        The jobs, whether each is present, when it joins the queue (ms), and the rank of its id.
    """
    now_ms = round(now_s * MS_PER_S)
    jobs = there.and_also(jobs_to_come(arrivals)) if arrivals else there
    submit_ms = in_ms(jobs.of("submit_s"))
    here, coming = submit_ms[: len(there)], submit_ms[len(there) :]
    np.minimum(here, now_ms, out=here)
    if len(coming):
        np.maximum(coming, now_ms + 1, out=coming)
    if "later" in there.known:
        # A job with a requested begin time joins the queue at that time.
        later = ((there.of("not_before_s") > now_s) & ~there.runs).nonzero()[0]
        here[later] = in_ms(there.of("not_before_s")[later])
    rank = _ranks(jobs)
    order = np.lexsort((rank, submit_ms))
    return jobs.in_order(order), order < len(there), submit_ms[order], rank[order]


def _ranks(jobs: Jobs) -> npt.NDArray[np.int64]:
    """Return the rank of each job's id; numbers in ids compare as numbers [jobs]."""
    numbers = jobs.of("number")
    if every(numbers[:1] >= 0) and every(numbers[1:] > numbers[:-1]):
        return np.arange(len(numbers))
    if every(numbers >= 0):
        order = numbers.argsort(kind="stable")
    else:
        ids = jobs.told("id")
        order = np.array(sorted(range(len(ids)), key=lambda i: (id_key(ids[i]), ids[i])), np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def may_run(jobs: Jobs) -> npt.NDArray[np.bool_]:
    """Return whether each job runs or may start now or later [jobs].

    A pending job may not if it is barred, or depends, directly or through others, on a barred or
    missing job.
    """
    runs = jobs.runs
    may: npt.NDArray[np.bool_] = runs | (jobs.of("barred") == 0)
    if "depends" in jobs.known:
        dependencies = jobs.told("dependencies")
        ids = jobs.told("id")
        depend = [i for i in np.flatnonzero(may & ~runs).tolist() if dependencies[i]]
        known = {ids[i] for i in np.flatnonzero(may).tolist()}
        while omitted := [i for i in depend if any(e.on not in known for e in dependencies[i])]:
            may[omitted] = False
            known -= {ids[i] for i in omitted}
            depend = [i for i in depend if may[i]]
    return may


def in_ms(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return whole milliseconds, rounded like `round`."""
    return np.rint(seconds * MS_PER_S).astype(np.int64)


def workload_of(
    jobs: Jobs,
    submit_ms: npt.NDArray[np.int64],
    rank: npt.NDArray[np.int64],
    runtime_s: Mapping[str, float],
    now_s: float,
) -> Workload:
    """Return the jobs as a workload; their records are already validated.

    Args:
        jobs: The jobs.
        submit_ms: Time at which each joins the queue, in ms [jobs].
        rank: Rank of each job's id [jobs].
        runtime_s: Expected runtimes by job id, in seconds; the walltime for jobs not in it.
        now_s: The present, in seconds.
    """
    size = len(jobs)
    walltime_ms = in_ms(jobs.of("walltime_s"))
    runtime_ms = walltime_ms.copy()
    if runtime_s:
        pairs = zip(jobs.told("id"), jobs.of("walltime_s").tolist(), strict=True)
        expected = np.array([runtime_s.get(i, walltime_s) for i, walltime_s in pairs])
        # At least 1 ms; else the nodes of a job that starts now would be free again at once.
        runtime_ms = np.clip(in_ms(expected), 1, walltime_ms)
    unknown, nobody = alike(-1, size, np.int64), Category.unknown(size)
    known = jobs.known
    amounts = _by_name(jobs.told("resources")) if "uses" in known else {}
    consumables = _by_name(jobs.told("consumables")) if "uses" in known else {}
    labels = {name: _labels(jobs.told(name)) if name in known else nobody for name in LABELS}
    return Workload(
        job_id=rank,
        submit_ms=submit_ms,
        runtime_ms=runtime_ms,
        walltime_ms=walltime_ms,
        nodes=jobs.of("nodes").astype(np.int64),
        user=labels["user"],
        account=labels["account"],
        partition=labels["partition"],
        qos=labels["qos"],
        features=labels["features"],
        more_tasks=labels["more_tasks"],
        group_by=nobody,
        profile=nobody,
        priority=jobs.of("priority"),
        per_node={n: jobs.of(n) for n in PER_NODE} if "needs" in known else {},
        resources={name: np.array(column, np.int64) for name, column in amounts.items()},
        dependencies=_dependencies(jobs, now_s),
        recorded_start_ms=unknown,
        recorded_nodes=None,
        cancel_ms=unknown,
        name="present",
        chunks=_chunks(jobs),
        consumables={name: np.array(column, np.float64) for name, column in consumables.items()},
    )


def _by_name(asked: Sequence[Mapping[str, float] | None]) -> dict[str, list[float]]:
    """Return the requested amounts as one column per name."""
    names = dict.fromkeys(name for has in asked if has for name in has)
    return {name: [(has or {}).get(name, 0) for has in asked] for name in names}


def _labels(values: Sequence[str]) -> Category:
    labels = sorted(set(values) - {""})
    code = {label: i for i, label in enumerate(labels)}
    code[""] = -1
    codes = np.fromiter(map(code.__getitem__, values), np.int32, len(values))
    return Category(codes, tuple(labels))


def _chunks(jobs: Jobs) -> dict[str, npt.NDArray[np.float64]]:
    if "tasks" not in jobs.known:
        return {}
    nothing = (0.0,) * len(CHUNKS)
    table = np.array([row or nothing for row in jobs.told("tasks")], np.float64)
    return dict(zip(CHUNKS, table.T.copy(), strict=True))


def _dependencies(jobs: Jobs, now_s: float) -> Dependencies:
    if "depends" not in jobs.known:
        return Dependencies.none()
    told = jobs.told("dependencies")
    row = {job_id: number for number, job_id in enumerate(jobs.told("id"))}
    # A job with nodes may begin later, when they are switched on: then it has not begun yet.
    begun = (jobs.of("start_s") <= now_s).tolist()
    return Dependencies.of(
        [
            (job, row[edge.on], DependencyKind[edge.kind.upper()], round(edge.delay_s * MS_PER_S))
            for job, edges in enumerate(told)
            for edge in edges or ()
            if edge.on in row and not (edge.kind == "after" and begun[row[edge.on]])
        ]
    )


def as_expected(machine: Cluster, nodes: Sequence[NodeRecord]) -> Cluster:
    """Return the cluster with one speed, and without unreported power states.

    Expected runtimes are for this cluster already, so no speed must be applied again. Power states
    remain if any node's state is reported.
    """
    if machine.cap is None and all(
        group.speed == 1.0 and not group.modes for group in machine.nodes
    ):
        return machine
    powered = any(node.power is not None for node in nodes)
    groups = []
    for group in machine.nodes:
        changes: dict[str, Any] = {"speed": 1.0}
        if powered and group.modes:
            own = group.initial.model_copy(update={"speed": 1.0})
            changes |= {"modes": {group.first_mode: own}}
        else:
            changes |= {"modes": {}, "mode": "", "sleep": (), "components": {}, "racks": None}
        groups.append(group.model_copy(update=changes))
    return machine.model_copy(update={"nodes": tuple(groups), "cap": None})


def powers_of(nodes: Sequence[NodeRecord], now_ms: int) -> NodePowers:
    """Return the nodes' power states; a node without one is on, and idle from now."""
    from hpctwin.simulation.running.incremental import POWER_STATES, NodePowers

    on = NodePower(since_s=now_ms / MS_PER_S)
    told = [node.power or on for node in nodes]
    ready = np.array([round((p.until_s or 0.0) * MS_PER_S) for p in told], np.int64)
    late = np.maximum(now_ms - ready, 0) // LATE_MS + 1
    return NodePowers(
        np.array([POWER_STATES[p.state] for p in told], np.int64),
        np.array([p.depth for p in told], np.int64),
        np.array([min(round(p.since_s * MS_PER_S), now_ms) for p in told], np.int64),
        np.where(ready > now_ms, ready, ready + late * LATE_MS),
    )


def switched(before: Simulation, after: Simulation) -> list[tuple[int, NodePower]]:
    """Return nodes whose power state differs between two simulations of one cluster.

    Returns:
        Number and later power state of each of these nodes.
    """
    from hpctwin.simulation.running.incremental import POWER_STATES, power_of_nodes

    old, new = power_of_nodes(before), power_of_nodes(after)
    names = {number: name for name, number in POWER_STATES.items()}
    found = []
    for node in np.flatnonzero((old.power != new.power) | (old.depth != new.depth)).tolist():
        state = names[int(new.power[node])]
        switches = state.startswith("switching")
        power = NodePower.model_validate(
            {
                "state": state,
                "depth": int(new.depth[node]),
                "since_s": int(new.since_ms[node]) / MS_PER_S,
                "until_s": int(new.ready_ms[node]) / MS_PER_S if switches else None,
            }
        )
        found.append((node, power))
    return found
