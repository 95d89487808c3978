"""What-if: the cluster with and without a change, both run ahead under a policy."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hpctwin.energy.power.states import node_watts
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.policies import Policy, parse_policy
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, NodeReservation, Snapshot
from hpctwin.simulation import Simulation
from hpctwin.simulation.result.counts import core_map
from hpctwin.twin.core.core import Core
from hpctwin.twin.start_times.estimate import usual_priority
from hpctwin.twin.what_if.objective import METRICS
from hpctwin.twin.what_if.present import Present
from hpctwin.twin.what_if.run import Past, course_of, outlooks_of
from hpctwin.web.views.job_history import Rows, Runs, numbers_of, runs_of
from hpctwin.web.views.node_selection import node_sets, select_nodes
from hpctwin.web.views.views import Bar, Change, Future, WhatIfAnswer

__all__ = ["PRETEND", "Asking", "prepare"]

PRETEND = "pretend"
"""Id of a job that is not submitted."""
_RESERVATION = "what-if"
_NEW_NODE = "new-{}"
_POWER = "what-if power"


@dataclass(frozen=True)
class Asking:
    """A what-if that is ready to run, independent of later changes of the mirror.

    Args:
        now_s: Current time of the cluster's clock, in seconds.
        as_is, changed: The two clusters as simulations that begin now.
        before, after: Snapshots of both.
        pretend: Id of the pretended job; None without one.
    """

    now_s: float
    as_is: Present
    changed: Present
    before: Snapshot
    after: Snapshot
    pretend: str | None

    def answer(self) -> WhatIfAnswer:
        """Run both ahead until their queues are empty."""
        began = time.perf_counter()
        as_is = _future(self.as_is, self.before, self.now_s)
        changed = _future(self.changed, self.after, self.now_s)
        return WhatIfAnswer(
            time_s=self.now_s,
            nodes=(len(self.before.nodes), len(self.after.nodes)),
            as_is=as_is,
            changed=changed,
            pretend=self.pretend,
            took_ms=1000 * (time.perf_counter() - began),
        )


def prepare(core: Core, now_s: float, policy: str, change: Change) -> Asking:
    """Prepare both simulations.

    Args:
        core: The mirror; it is not changed.
        now_s: Current time of the cluster's clock, in seconds.
        policy: Current policy of the cluster.
        change: Changes to simulate.

    Raises:
        ConfigError, UnknownNameError: A policy, node or job is unknown, or may not be used here.
        HpctwinError: The changed cluster cannot be simulated.
    """
    before = core.mirror.snapshot()
    after = _changed(before, now_s, change)
    other = policy if change.policy is None else _policy(core, change.policy)
    return Asking(
        now_s=now_s,
        as_is=core.present(now_s, policy),
        changed=core.changed(after).present(now_s, other),
        before=before,
        after=after,
        pretend=None if change.job is None else PRETEND,
    )


def _policy(core: Core, text: str) -> Policy:
    """Return a policy of the pool or a built-in one; a remote request must not name code."""
    for known in (*core.pool, *([] if core.own is None else [core.own])):
        if known.name == text:
            return known
    if ".py" in text:
        raise ConfigError(f"policy {text!r}: a Python file is accepted only if it is in core.pool")
    return parse_policy(text)


def _changed(now: Snapshot, now_s: float, change: Change) -> Snapshot:
    machine, names = now.machine, [node.name for node in now.nodes]
    sets = node_sets(machine, names) if change.drain or change.reserve else {}
    nodes = _drained(now.nodes, set(select_nodes(change.drain, names, sets)))
    if change.add_nodes:
        first, *others = machine.nodes
        more = first.model_copy(update={"count": first.count + change.add_nodes})
        machine = machine.model_copy(update={"nodes": (more, *others)})
        new = tuple(NodeRecord(name=_NEW_NODE.format(i + 1)) for i in range(change.add_nodes))
        nodes = (*nodes[: first.count], *new, *nodes[first.count :])
    reservations = now.reservations
    if change.reserve is not None:
        asked = change.reserve
        start_s = now_s + asked.in_s
        reservations += (
            NodeReservation(
                name=_RESERVATION,
                start_s=start_s,
                end_s=start_s + asked.for_s,
                node_names=select_nodes(asked.nodes, [node.name for node in nodes], sets),
            ),
        )
    waiting = [job.spec.id for job in now.jobs if job.start_s is None]
    _known("pending job", change.withdraw, waiting)
    gone = set(change.withdraw)
    jobs = tuple(job for job in now.jobs if job.spec.id not in gone)
    if change.job is not None:
        partition = _partition(now, change.job.partition)
        spec = JobSpec(
            id=PRETEND,
            submit_s=now_s,
            nodes=change.job.nodes,
            walltime_s=change.job.walltime_s,
            partition=partition,
            user=change.job.user,
            priority=usual_priority(now.jobs),
        )
        jobs += (JobRecord(spec=spec),)
    if change.cap_w is not None:
        machine, jobs = _capped(machine, jobs, change.cap_w)
    return now.model_copy(
        update={"nodes": nodes, "machine": machine, "reservations": reservations, "jobs": jobs}
    )


def _capped(
    machine: Cluster, jobs: tuple[JobRecord, ...], cap_w: float
) -> tuple[Cluster, tuple[JobRecord, ...]]:
    """Return the nodes' power above idle as a resource that all jobs share.

    A job takes the maximum additional power of its nodes, whichever group they are in.
    """
    if not machine.has_power:
        raise ConfigError("cap_w: the cluster has no power model; add 'modes' to its node groups")
    watts = node_watts(machine)
    idle_w = float(watts[IDLE].sum())
    each_w = math.ceil((watts[COMPUTING] - watts[IDLE]).max())
    if cap_w < idle_w:
        raise ConfigError(f"cap_w: idle nodes already draw {idle_w:,.0f} W; give a higher cap")
    capped = machine.model_copy(
        update={"resources": {**machine.resources, _POWER: math.floor(cap_w - idle_w)}}
    )
    asking = []
    for job in jobs:
        resources = {**job.spec.resources, _POWER: job.spec.nodes * each_w}
        spec = job.spec.model_copy(update={"resources": resources})
        asking.append(job.model_copy(update={"spec": spec}))
    return capped, tuple(asking)


def _drained(nodes: tuple[NodeRecord, ...], chosen: set[str]) -> tuple[NodeRecord, ...]:
    return tuple(
        node.model_copy(update={"state": "drained"})
        if node.name in chosen and node.state == "up"
        else node
        for node in nodes
    )


def _known(what: str, asked: tuple[str, ...], there: list[str]) -> None:
    unknown = set(asked) - set(there)
    if unknown:
        raise UnknownNameError(what, min(unknown), there[:50])


def _partition(now: Snapshot, asked: str) -> str:
    names = [one.name for one in now.machine.partitions]
    if asked and asked not in names:
        raise UnknownNameError("partition", asked, names)
    default = next((one.name for one in now.machine.partitions if one.default), "")
    return asked or default or (names[0] if len(names) == 1 else "")


def _future(now: Present, snapshot: Snapshot, now_s: float) -> Future:
    simulation = now.fork()
    simulation.advance()
    start, end = simulation.column("start"), simulation.column("end")
    (outlook,) = outlooks_of([course_of(now, simulation, Past.none(), None)])[0].each()
    metrics = {name: float(outlook.value(name)) for name in METRICS}
    rows = now.waiting[np.argsort(start[now.waiting], kind="stable")]
    started = rows[start[rows] >= 0]
    spans = {
        int(row): (float(start[row]) / MS_PER_S, float(end[row]) / MS_PER_S) for row in started
    }
    shared = simulation.workload.shares_nodes
    where = _lanes(simulation, now) if shared else _guessed(simulation, snapshot, now_s, spans)
    return Future(
        policy=simulation.policy.name,
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
        units={name: metric.unit for name, metric in METRICS.items()},
        never=len(rows) - len(started),
        starts={now.ids[row]: span[0] for row, span in spans.items()},
        lanes=sum(
            group.count * (max(1, round(group.cores or 0)) if shared else 1)
            for group in snapshot.machine.nodes
        ),
        bars=tuple(
            Bar(job=now.ids[row], kind="forecast", start_s=span[0], end_s=span[1], rows=where[row])
            for row, span in spans.items()
        ),
    )


def _guessed(
    simulation: Simulation,
    snapshot: Snapshot,
    now_s: float,
    spans: Mapping[int, tuple[float, float]],
) -> dict[int, Runs]:
    """Return guessed nodes of each job that starts, if nodes are only counted."""
    place, counts = _places(snapshot, now_s), simulation.workload.nodes
    return {row: runs_of(place.place(*span, int(counts[row]))) for row, span in spans.items()}


def _lanes(simulation: Simulation, now: Present) -> dict[int, Runs]:
    """Return the cores of each job that starts, if jobs share nodes."""
    placements = simulation.result().placements
    assert placements is not None
    number = {job: row for row, job in enumerate(simulation.workload.job_id.tolist())}
    waits = set(now.waiting.tolist())
    found: dict[int, list[tuple[int, int]]] = {row: [] for row in waits}
    for job, first, count in (
        core_map(simulation.cluster, placements).select("job_id", "first_node", "count").iter_rows()
    ):
        if number[job] in waits:
            found[number[job]].append((first, count))
    return {row: tuple(rows) for row, rows in found.items()}


def _places(snapshot: Snapshot, now_s: float) -> Rows:
    """Return rows with the time when each available node is free."""
    number = {node.name: i for i, node in enumerate(snapshot.nodes)}
    free = {i: 0.0 for i, node in enumerate(snapshot.nodes) if node.state == "up"}
    for job in snapshot.jobs:
        if job.start_s is not None:
            ends_s = max(now_s, job.start_s + job.spec.walltime_s)
            for i in numbers_of(job.node_names, number):
                if i in free:
                    free[i] = max(free[i], ends_s)
    return Rows(free)
