"""Free capacity of nodes that jobs may share, counted as a resource manager does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.model import PER_NODE, Cluster, Partition
from hpctwin.model.requests.chunks import spread_over
from hpctwin.model.requests.features import has_features
from hpctwin.rms.records.records import JobRecord, JobSpec, NodePart

AMOUNTS = ("cores", "memory_gb", "gpus")
SLACK = 1e-6
"""Amounts that differ by less are equal."""

Taken = Sequence[tuple[int, tuple[int, ...]]]
"""Numbers of nodes, each with the number of tasks of each kind on it."""
FloatArray = npt.NDArray[np.float64]
_Owner = tuple[str, str, int]
"""The user and the account of a job, and the jobs with which it shares its nodes."""


def partition_of(machine: Cluster, spec: JobSpec) -> Partition | None:
    """Return the partition of a job; None if it does not exist."""
    if not machine.partitions:
        return Partition(name="all")
    for partition in machine.partitions:
        if partition.name == spec.partition if spec.partition else partition.default:
            return partition
    return None


class Room:
    """The nodes of a cluster, and what jobs hold of them.

    An amount that no node group states is never short. If any group states it, a group that does
    not has none. Amounts are cores, memory, GPUs and the consumables of the cluster's nodes, by
    ``names``.

    Args:
        machine: Node groups and partitions. All nodes are up at first, and empty.
        owned: Whether some jobs share their nodes only with jobs of their user or account. Then the
            owners of the jobs on each node are recorded.
    """

    def __init__(self, machine: Cluster, *, owned: bool = False) -> None:
        self.machine = machine
        self.owned = owned
        self._who: dict[int, Counter[_Owner]] = {}
        self._choosy = 0
        groups = machine.nodes
        self.group = np.repeat(np.arange(len(groups)), [group.count for group in groups])
        self.names = (*AMOUNTS, *machine.consumables)
        has = np.array(
            [[_amount(machine, g, name) for name in self.names] for g in range(len(groups))]
        )
        self.whole: FloatArray = has[self.group]
        self.free = self.whole.copy()
        self.jobs = np.zeros(len(self.group), np.int64)
        self.alone = np.zeros(len(self.group), bool)
        self.up = np.ones(len(self.group), bool)
        self._eligible: dict[tuple[str | float, ...], npt.NDArray[np.bool_]] = {}
        self._fits: dict[tuple[str | float, ...], bool] = {}

    @classmethod
    def of(
        cls,
        machine: Cluster,
        states: Sequence[str],
        jobs: Iterable[JobRecord],
        names: Mapping[str, int],
    ) -> Room:
        """Return the current capacity.

        Args:
            jobs: Jobs; running ones hold what they report.
            names: Numbers of the nodes, by name.
        """
        jobs = list(jobs)
        room = cls(machine, owned=any(job.spec.shared_with for job in jobs))
        room.up = np.array([state == "up" for state in states], bool)
        for job in jobs:
            if job.node_names:
                nodes = [names[name] for name in job.node_names]
                room.hold(nodes, room.held_by(job), of=job.spec)
        return room

    def held_by(self, job: JobRecord) -> FloatArray | None:
        """Return what a job holds of each of its nodes [nodes, amounts]; None for all."""
        return job.holds(self.names[len(AMOUNTS) :])

    def hold(
        self, nodes: Sequence[int], parts: FloatArray | None, sign: int = 1, *, of: JobSpec
    ) -> None:
        """Allocate nodes to a job, whole or in part.

        Args:
            parts: Amounts held of each node [nodes, amounts]; None for all.
            sign: -1 to free them.
        """
        if self.owned:
            self._choosy += sign * len(nodes) * bool(of.shared_with)
            for node in nodes:
                who = self._who.setdefault(node, Counter())
                who[_owner(of)] += sign
                if not who[_owner(of)]:
                    del who[_owner(of)]
        rows = np.asarray(nodes, np.int64)
        self.jobs[rows] += sign
        if parts is None:
            self.alone[rows] = sign > 0
        else:
            self.free[rows] -= sign * parts
        self._fits.clear()

    def eligible(self, spec: JobSpec) -> npt.NDArray[np.bool_]:
        """Return the nodes that a job may ever be on, as flags [nodes]."""
        needs = tuple(getattr(spec, name) for name in PER_NODE)
        consumables = () if spec.tasks else tuple(sorted(spec.consumables.items()))
        key = (spec.partition, spec.features, *needs, *map(str, consumables))
        found = self._eligible.get(key)
        if found is None:
            partition = partition_of(self.machine, spec)
            groups = self.machine.nodes
            fine = [
                partition is not None
                and (partition.groups is None or group.name in partition.groups)
                and (not spec.features or has_features(spec.features, group.all_features))
                and all(
                    has is None or has >= asked
                    for asked, has in zip(needs, (getattr(group, n) for n in PER_NODE), strict=True)
                )
                and all(group.consumables.get(name, 0.0) >= asked for name, asked in consumables)
                for group in groups
            ]
            found = self._eligible[key] = np.array(fine, bool)[self.group]
        return found

    def place(
        self,
        spec: JobSpec,
        among: npt.NDArray[np.bool_] | None = None,
        *,
        empty: bool = False,
    ) -> Taken | None:
        """Return a placement on the lowest-numbered nodes, kind of tasks by kind.

        Args:
            among: Allowed nodes [nodes]; by default all.
            empty: Whether to assume that all nodes are up and empty.

        Returns:
            The placement; None if the job does not fit.
        """
        there = self.eligible(spec) if empty else self.open(spec)
        if among is not None:
            there = there & among
        if not spec.tasks:
            nodes = np.flatnonzero(there)[: spec.nodes].tolist()
            return [(node, (1,)) for node in nodes] if len(nodes) == spec.nodes else None
        free = self.whole if empty else self.free_for(spec)
        kinds = spec.kinds
        found: dict[int, list[int]] = {}
        for number, kind in enumerate(kinds):
            each = [kind.asks(name) for name in self.names]
            fits = _room_for(kind.tasks, each, free, there)
            if any(name not in self.names for name, amount in kind.consumables if amount):
                return None
            if spec.tasks_per_node:
                most = np.full(len(fits), float(spec.tasks_per_node))
                most[list(found)] -= [sum(tasks) for tasks in found.values()]
                np.minimum(fits, most, out=fits)
            given = _by_number(fits, kind.tasks, spec.nodes)
            if given is None:
                return None
            if spec.spread_job:
                nodes = np.flatnonzero(fits > 0)[: kind.tasks]
                room = fits[nodes].astype(int).tolist()
                given = list(zip(nodes.tolist(), spread_over(room, kind.tasks), strict=True))
            if len(kinds) > 1:
                free = free.copy()
            for node, tasks in given:
                found.setdefault(node, [0] * len(kinds))[number] = tasks
                if len(kinds) > 1:
                    free[node] -= np.multiply(tasks, each)
        return [(node, tuple(tasks)) for node, tasks in sorted(found.items())]

    def open(self, spec: JobSpec) -> npt.NDArray[np.bool_]:
        """Return the nodes on which a job may start now if enough of each is free [nodes]."""
        there = self.eligible(spec) & self.up & ~self.alone
        if not spec.shares:
            there &= self.jobs == 0
        return there & ~self._apart(spec)

    def free_for(self, spec: JobSpec) -> FloatArray:
        """Return the capacity of each node for a job that may be on it [nodes, amounts]."""
        return self.free if spec.shares else self.whole

    def tasks_that_fit(
        self, spec: JobSpec, there: npt.NDArray[np.bool_], free: FloatArray
    ) -> FloatArray:
        """Return how many tasks of a job fit on each node [nodes].

        A job of whole nodes counts as 1 or 0.

        Args:
            spec: The job; if it has several kinds of tasks, the first counts.
            there: Nodes that it may be on [nodes].
            free: Capacity of each node [nodes, amounts].
        """
        if not spec.tasks:
            return there.astype(np.float64)
        kind = spec.kinds[0]
        fits = _room_for(kind.tasks, [kind.asks(name) for name in self.names], free, there)
        return np.minimum(fits, spec.tasks_per_node) if spec.tasks_per_node else fits

    def beside(self, one: JobSpec, other: JobSpec) -> bool:
        """Return whether jobs that share nodes may be on one node at the same time."""
        return _go_together(_owner(one), _owner(other))

    def asked(self, spec: JobSpec) -> tuple[str | float, ...]:
        """Return what decides where a job fits; equal for jobs with the same request."""
        return (
            spec.partition, spec.features, spec.nodes, spec.tasks, spec.tasks_per_node, spec.exclusive,
            spec.more_tasks, str(spec.consumables) if spec.consumables else "",
            *(getattr(spec, name) for name in PER_NODE),
            *(getattr(spec, f"{name}_per_task") for name in AMOUNTS),
            *(_owner(spec) if self._choosy or spec.shared_with else ()),
        )  # fmt: skip

    def fits(self, spec: JobSpec) -> bool:
        """Return whether a job fits now."""
        key = self.asked(spec)
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = self.place(spec) is not None
        return found

    def has(self, spec: JobSpec, taken: Taken) -> bool:
        """Return whether each of these nodes has capacity now for its tasks of a job."""
        rows = np.array([node for node, _ in taken], np.int64)
        there = self.up[rows] & ~self.alone[rows]
        if not spec.shares:
            return bool((there & (self.jobs[rows] == 0)).all())
        held = amounts_held(spec, taken, self.names)
        there &= ~self._apart(spec)[rows]
        return bool(there.all() and (self.free[rows] + SLACK >= held).all())

    def _apart(self, spec: JobSpec) -> npt.NDArray[np.bool_]:
        """Return the nodes with a job that may not share a node with this one."""
        found = np.zeros(len(self.group), bool)
        if self._choosy or spec.shared_with:
            own = _owner(spec)
            for node, who in self._who.items():
                found[node] = not all(_go_together(own, other) for other in who)
        return found

    def set_up(self, node: int, up: bool) -> None:
        """Set whether jobs may start on a node."""
        self.up[node] = up
        self._fits.clear()

    def idle(self) -> int:
        """Return the number of nodes that are up and hold no job."""
        return int((self.up & (self.jobs == 0)).sum())


def _owner(spec: JobSpec) -> _Owner:
    return spec.user, spec.account, spec.shared_with


def _go_together(one: _Owner, other: _Owner) -> bool:
    """Return whether jobs may share a node as far as their owners matter."""
    asked = {one[2], other[2]}
    return not (1 in asked and one[0] != other[0]) and not (2 in asked and one[1] != other[1])


def parts_of(spec: JobSpec, taken: Taken) -> tuple[NodePart, ...]:
    """Return what a job holds of each node placed on; empty unless nodes are shared."""
    if not spec.shares:
        return ()
    others = tuple(dict.fromkeys(name for kind in spec.kinds for name, _ in kind.consumables))
    held = amounts_held(spec, taken, (*AMOUNTS, *others)).tolist()
    return tuple(
        NodePart(
            **dict(zip(AMOUNTS, amounts, strict=False)),
            consumables=dict(zip(others, amounts[len(AMOUNTS) :], strict=True)),
        )
        for amounts in held
    )


def amounts_held(spec: JobSpec, taken: Taken, names: Sequence[str] = AMOUNTS) -> FloatArray:
    """Return what a job's tasks hold of each node [nodes, names]."""
    tasks = np.array([tasks for _, tasks in taken], np.float64)
    held: FloatArray = tasks @ np.array(
        [[kind.asks(name) for name in names] for kind in spec.kinds]
    )
    return held


def _room_for(
    tasks: int, each: Sequence[float], free: FloatArray, there: npt.NDArray[np.bool_]
) -> FloatArray:
    """Return how many tasks with this request per amount fit on each node [nodes]."""
    fits = np.where(there, np.float64(tasks), 0.0)
    for column, asked in enumerate(each):
        if asked > 0:
            np.minimum(fits, np.floor(free[:, column] / asked + SLACK), out=fits)
    return np.maximum(fits, 0.0)


def _by_number(fits: FloatArray, tasks: int, least: int) -> list[tuple[int, int]] | None:
    """Give tasks to the lowest-numbered nodes that fit, to at least ``least`` nodes."""
    nodes = np.flatnonzero(fits > 0)
    if fits[nodes].sum() < tasks or len(nodes) < least:
        return None
    found: list[tuple[int, int]] = []
    left = tasks
    for node in nodes.tolist():
        # One task is left for each node that it must have besides.
        given = min(int(fits[node]), left - max(0, least - len(found) - 1))
        found.append((node, given))
        left -= given
        if left == 0:
            break
    return found


def _amount(machine: Cluster, group: int, name: str) -> float:
    has = machine.nodes[group].amount(name)
    if has is not None:
        return float(has)
    return 0.0 if any(g.amount(name) is not None for g in machine.nodes) else np.inf
