"""What-if: the cluster with and without a change, both run ahead under a policy."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpctwin.energy.power.states import node_watts
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.errors import (
    ConfigError,
    FormatError,
    LateError,
    SimulationError,
    TooLargeError,
    UnknownNameError,
)
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.model.text import MOST, compact, expand, parse_nodes, split_list
from hpctwin.policies import Policy, parse_policy
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, NodeReservation
from hpctwin.simulation import Simulation
from hpctwin.simulation.result.node_use import AMOUNTS
from hpctwin.twin.core.core import Core
from hpctwin.twin.start_times.estimate import usual_priority
from hpctwin.twin.what_if.objective import METRICS
from hpctwin.twin.what_if.pool import Scene, StoppableRuns
from hpctwin.twin.what_if.present import Present
from hpctwin.twin.what_if.run import Past, course_of, outlooks_of
from hpctwin.web.views.cluster_views import bars
from hpctwin.web.views.job_history import Rows, Stretch, ends_s, lanes_of, placed
from hpctwin.web.views.views import Change, Future, PretendJob, WhatIfAnswer

__all__ = [
    "LONGEST_S",
    "PRETEND",
    "Question",
    "Schedule",
    "node_sets",
    "schedule_of",
    "select_nodes",
]


@dataclass(frozen=True)
class Schedule:
    """Starts of the pending jobs, if each job runs as long as expected.

    Args:
        policy: Policy of the schedule.
        metrics: Metrics of the pending jobs, by name.
        never: Number of pending jobs that would never start.
        starts_s: Start of each other pending job, by id, in seconds; the first ones first.
        stretches: Running jobs up to their expected ends, then pending jobs.
    """

    policy: str
    metrics: Mapping[str, float]
    never: int
    starts_s: Mapping[str, float]
    stretches: Sequence[Stretch]


def schedule_of(now: Present, scene: Scene, runs: StoppableRuns | None = None) -> Schedule:
    """Run a present ahead until its queue is empty.

    Args:
        now: The present as a simulation.
        scene: The same present as records.
        runs: With which the simulation can be stopped.
    """
    simulation = now.fork()
    if runs is not None:
        runs.begin(simulation)
    simulation.advance()
    start, end = simulation.column("start"), simulation.column("end")
    (outlook,) = outlooks_of([course_of(now, simulation, Past.none(), None)])[0].each()
    metrics = {name: float(outlook.value(name)) for name in METRICS}
    rows = now.waiting[np.argsort(start[now.waiting], kind="stable")]
    started = rows[start[rows] >= 0]
    spans = {
        now.ids[row]: (float(start[row]) / MS_PER_S, float(end[row]) / MS_PER_S)
        for row in started.tolist()
    }
    number = {node.name: i for i, node in enumerate(scene.nodes)}
    until_s = {now.ids[row]: float(end[row]) / MS_PER_S for row in now.running.tolist()}
    running = [
        placed(job, max(scene.now_s, until_s.get(job.spec.id, ends_s(job, job.start_s))), number)
        for job in scene.jobs
        if job.start_s is not None
    ]
    specs = {job.spec.id: job.spec for job in scene.jobs}
    if simulation.workload.shares_nodes:
        pending = _in_parts(simulation, now, spans, specs)
    else:
        pending = _guessed(scene, running, spans, specs)
    return Schedule(
        policy=simulation.policy.name,
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
        never=len(rows) - len(started),
        starts_s={job: span[0] for job, span in spans.items()},
        stretches=[*running, *pending],
    )


Spans = Mapping[str, tuple[float, float]]


def _guessed(
    scene: Scene, running: Sequence[Stretch], spans: Spans, specs: Mapping[str, JobSpec]
) -> list[Stretch]:
    """Return pending jobs on guessed nodes, because whole nodes are only counted."""
    free = {i: 0.0 for i, node in enumerate(scene.nodes) if node.state == "up"}
    for one in running:
        free.update({i: max(free[i], one.end_s) for i in one.nodes.tolist() if i in free})
    rows = Rows(free)
    return [
        Stretch(
            job, "forecast", *span, rows.place(*span, specs[job].nodes), None, specs[job], "pending"
        )
        for job, span in spans.items()
    ]


def _in_parts(
    simulation: Simulation, now: Present, spans: Spans, specs: Mapping[str, JobSpec]
) -> list[Stretch]:
    """Return pending jobs with the parts of nodes that the simulation gave them."""
    placements = simulation.result().placements
    assert placements is not None
    name = dict(zip(simulation.workload.job_id.tolist(), now.ids, strict=True))
    found = []
    for (number,), rows in placements.sort("node").group_by("job_id", maintain_order=True):
        job = name[number]
        if job in spans:
            nodes = rows["node"].to_numpy().astype(np.int64)
            amounts = rows.select(AMOUNTS).fill_null(0.0).to_numpy().astype(np.float64)
            found.append(
                Stretch(job, "forecast", *spans[job], nodes, amounts, specs[job], "pending")
            )
    return sorted(found, key=lambda one: one.start_s)


PRETEND = "pretend"
"""Id of a job that is not submitted."""
LONGEST_S = 30.0
"""Time after which a what-if is stopped, in seconds."""
MOST_WORK = 100_000_000
"""Maximum number of added nodes times simulated jobs."""
_RESERVATION = "what-if"
_NEW_NODE = "new-{}"
_POWER = "what-if power"


@dataclass(frozen=True)
class Question:
    """A what-if that is ready to run, independent of later changes of the mirror.

    Args:
        now: The cluster as it is.
        policy: Its current policy.
        pool: Policies that may be named although they are files.
        change: Changes to simulate.
    """

    now: Scene
    policy: Policy
    pool: tuple[Policy, ...]
    change: Change

    @classmethod
    def of(cls, core: Core, now_s: float, policy: str, change: Change) -> Question:
        """Read from a core what a what-if needs; this takes little time.

        Raises:
            TooLargeError: The what-if would take too long.
        """
        check_size(len(core.mirror.jobs), change)
        pool = (*core.pool, *(() if core.own is None else (core.own,)))
        now = core.scene(now_s)
        if change.job is not None:
            expected_s = core.expectations.runtime_s([_pretended(now, change.job)])
            now = replace(now, runtime_s={**now.runtime_s, **expected_s})
        return cls(now, core.policy_named(policy), pool, change)

    def answer(self, runs: StoppableRuns | None = None) -> WhatIfAnswer:
        """Run both clusters ahead until their queues are empty.

        Args:
            runs: With which the what-if can be stopped; after `LONGEST_S` it is in any case.

        Raises:
            ConfigError, UnknownNameError: A policy, node or job is unknown, or may not be used.
            LateError: The what-if was stopped.
            HpctwinError: The changed cluster cannot be simulated.
        """
        runs = runs or StoppableRuns(sliced=True)
        limit = threading.Timer(LONGEST_S, runs.stop)
        limit.start()
        began = time.perf_counter()
        try:
            other = self.policy if self.change.policy is None else self._other(self.change.policy)
            after = _changed(self.now, self.change)
            futures = _future(self.now, self.policy, runs), _future(after, other, runs)
        except SimulationError as error:
            if not runs.stopped:
                raise
            raise LateError(
                f"what-if stopped after {time.perf_counter() - began:.0f} s; simulate a smaller "
                "change, or a policy that plans fewer jobs"
            ) from error
        finally:
            limit.cancel()
        return WhatIfAnswer(
            time_s=self.now.now_s,
            nodes=(len(self.now.nodes), len(after.nodes)),
            as_is=futures[0],
            changed=futures[1],
            pretend=None if self.change.job is None else PRETEND,
            took_s=time.perf_counter() - began,
        )

    def _other(self, text: str) -> Policy:
        """Return a policy of the pool or a built-in one; a remote request must not name code."""
        for known in self.pool:
            if known.name == text:
                return known
        if ".py" in text:
            raise ConfigError(
                f"policy {text!r}: a Python file is accepted only if it is in core.pool"
            )
        return parse_policy(text)


def check_size(jobs: int, change: Change) -> None:
    """Check that a what-if takes little time.

    Raises:
        TooLargeError: It would take too long.
    """
    simulated = jobs + (change.job is not None)
    if change.add_nodes * simulated > MOST_WORK:
        raise TooLargeError(
            f"add_nodes: {change.add_nodes:,} nodes for {simulated:,} jobs exceed the limit of "
            f"{MOST_WORK:,} (nodes × jobs) of a what-if; add at most {MOST_WORK // simulated:,}"
        )


def _changed(now: Scene, change: Change) -> Scene:
    machine, names = now.machine, [node.name for node in now.nodes]
    sets = node_sets(machine, names) if change.drain or change.reserve else {}
    nodes = _drained(now.nodes, set(select_nodes(change.drain, names, sets)))
    if change.add_nodes:
        first, *others = machine.nodes
        more = first.model_copy(update={"count": first.count + change.add_nodes})
        machine = machine.model_copy(update={"nodes": (more, *others)})
        # Names need no validation, which takes most of the time of a what-if with 10,000 nodes.
        new = [
            NodeRecord.model_construct(name=_NEW_NODE.format(i + 1))
            for i in range(change.add_nodes)
        ]
        nodes = (*nodes[: first.count], *new, *nodes[first.count :])
    reservations = tuple(now.reservations)
    if change.reserve is not None:
        asked = change.reserve
        start_s = now.now_s + asked.in_s
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
        jobs += (_pretended(now, change.job),)
    if change.cap_w is not None:
        machine, jobs = _capped(machine, jobs, change.cap_w)
    return replace(now, nodes=nodes, machine=machine, reservations=reservations, jobs=jobs)


def _pretended(now: Scene, asked: PretendJob) -> JobRecord:
    spec = JobSpec(
        id=PRETEND,
        submit_s=now.now_s,
        nodes=asked.nodes,
        walltime_s=asked.walltime_s,
        partition=_partition(now.machine, asked.partition),
        user=asked.user,
        priority=usual_priority(now.jobs),
    )
    return JobRecord(spec=spec)


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


def _drained(nodes: Sequence[NodeRecord], chosen: set[str]) -> tuple[NodeRecord, ...]:
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


def _partition(machine: Cluster, asked: str) -> str:
    names = [one.name for one in machine.partitions]
    if asked and asked not in names:
        raise UnknownNameError("partition", asked, names)
    default = next((one.name for one in machine.partitions if one.default), "")
    return asked or default or (names[0] if len(names) == 1 else "")


def _future(scene: Scene, policy: Policy, runs: StoppableRuns) -> Future:
    machine = scene.machine
    schedule = schedule_of(scene.present(policy), scene, runs)
    lanes = lanes_of(machine, schedule.stretches)
    return Future(
        policy=schedule.policy,
        metrics=dict(schedule.metrics),
        units={name: metric.unit for name, metric in METRICS.items()},
        never=schedule.never,
        starts=dict(schedule.starts_s),
        lanes=sum(group.count * each for group, each in zip(machine.nodes, lanes, strict=True)),
        bars=tuple(bars(machine, schedule.stretches)),
    )


_LENGTH = 200


def select_nodes(
    lists: Iterable[str], names: Sequence[str], sets: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return the nodes that lists name, each once, in the order of the cluster.

    Args:
        lists: Texts such as ``n[1-4,7] partition=gpu``.
        names: All nodes of the cluster.
        sets: Nodes of each set, from `node_sets`.

    Raises:
        UnknownNameError: There is no such node or set.
        FormatError: A text cannot be read, or the lists name more than a million nodes.
    """
    known, total = set(names), 0
    chosen: set[str] = set()
    for part in (part for text in lists for word in text.split() for part in split_list(word)):
        if "=" in part and part not in sets:
            raise UnknownNameError("set of nodes", part, sets)
        found = sets[part] if part in sets else [part] if part in known else expand(part)
        unknown = next((name for name in found if name not in known), None)
        if unknown is not None:
            nodes = compact(names)
            short = nodes if len(nodes) <= _LENGTH else f"{nodes[:_LENGTH]}…"
            raise UnknownNameError("node", unknown, [short, *list(sets)[:10]])
        total += len(found)
        if total > MOST:
            raise FormatError(f"the node lists name more than {MOST:,} nodes")
        chosen.update(found)
    return tuple(name for name in names if name in chosen)


def node_sets(machine: Cluster, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the nodes of ``partition=NAME``, ``group=NAME``, ``rack=NUMBER``, ``switch=NAME``."""
    sets: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {}
    first = 0
    for group in machine.nodes:
        nodes = groups[group.name] = list(names[first : first + group.count])
        first += group.count
        if group.racks is not None:
            racks = group.racks
            each = racks.chassis_per_rack * racks.nodes_per_chassis
            there = sorted(set(range(racks.cdus * racks.racks_per_cdu)) - set(racks.missing))
            for i, name in enumerate(nodes):
                sets.setdefault(f"rack={there[i // each]}", []).append(name)
    for partition in machine.partitions:
        of = groups if partition.groups is None else partition.groups
        sets[f"partition={partition.name}"] = [name for one in of for name in groups[one]]
    sets |= {f"group={name}": nodes for name, nodes in groups.items()}
    below = {switch.name: switch for switch in machine.switches}

    def under(name: str) -> list[str]:
        switch = below[name]
        if switch.nodes is None:
            return [node for one in switch.switches for node in under(one)]
        return [names[i] for i in parse_nodes(switch.nodes, machine.node_count)]

    return sets | {f"switch={name}": under(name) for name in below}
