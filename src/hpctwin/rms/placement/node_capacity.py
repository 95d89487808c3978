"""What is free of nodes that several jobs may share, as a resource manager counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.model import PER_NODE, Cluster, Partition
from hpctwin.model.requests.chunks import spread_over
from hpctwin.model.requests.features import has_features
from hpctwin.rms.records.records import JobRecord, JobSpec, NodePart

__all__ = ["Room", "Taken", "amounts_held", "partition_of", "parts_of"]

AMOUNTS = ("cores", "memory_gb", "gpus")
SLACK = 1e-6
"""Amounts that differ by less are the same."""

Taken = Sequence[tuple[int, tuple[int, ...]]]
"""Numbers of nodes, and how many tasks of each kind are on each."""
FloatArray = npt.NDArray[np.float64]
_Owner = tuple[str, str, int]
"""The user and the account of a job, and with whose it shares its nodes."""


def partition_of(machine: Cluster, spec: JobSpec) -> Partition | None:
    """The partition that a job goes to; None if it is not there."""
    if not machine.partitions:
        return Partition(name="all")
    for partition in machine.partitions:
        if partition.name == spec.partition if spec.partition else partition.default:
            return partition
    return None


class Room:
    """The nodes of a machine, and what jobs hold of them.

    An amount that no node group states is never short; if any states it, a group that does not has none.
    Amounts are cores, memory, GPUs and the consumables of the machine's nodes, by ``names``.

    Args:
        machine: node groups and partitions. All nodes are up at first, and empty.
        owned: whether some jobs share their nodes with those of their user or account only; then it is kept
            whose jobs are where.
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
        """As things are.

        Args:
            machine: the nodes.
            states: of each.
            jobs: those of them that run hold what they say.
            names: numbers of the nodes.
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
        """What a job holds of each of its nodes [nodes, amounts]; None for all."""
        return job.holds(self.names[len(AMOUNTS) :])

    def hold(
        self, nodes: Sequence[int], parts: FloatArray | None, sign: int = 1, *, of: JobSpec
    ) -> None:
        """Let a job have nodes, whole or in part.

        Args:
            nodes: their numbers.
            parts: what it holds of each [nodes, amounts]; None for all.
            sign: -1 to give them back.
            of: the job.
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
        """Which nodes a job may ever be on [nodes]."""
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
        """Where a job finds room, by the lowest numbers, one kind of its tasks after the other.

        Args:
            spec: what it asks for.
            among: only these nodes [nodes].
            empty: as if all nodes were up and empty.

        Returns:
            None if it does not fit.
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
        """Which nodes a job may be on now, if there is enough left of them [nodes]."""
        there = self.eligible(spec) & self.up & ~self.alone
        if not spec.shares:
            there &= self.jobs == 0
        return there & ~self._apart(spec)

    def free_for(self, spec: JobSpec) -> FloatArray:
        """What there is of each node for a job that may be on it [nodes, amounts]."""
        return self.free if spec.shares else self.whole

    def tasks_that_fit(
        self, spec: JobSpec, there: npt.NDArray[np.bool_], free: FloatArray
    ) -> FloatArray:
        """For how many tasks of a job each node has room; of one with whole nodes for 1 or 0 [nodes].

        Args:
            spec: the job; of several kinds of tasks the first counts.
            there: on which nodes it may be [nodes].
            free: what there is of each [nodes, amounts].
        """
        if not spec.tasks:
            return there.astype(np.float64)
        kind = spec.kinds[0]
        fits = _room_for(kind.tasks, [kind.asks(name) for name in self.names], free, there)
        return np.minimum(fits, spec.tasks_per_node) if spec.tasks_per_node else fits

    def beside(self, one: JobSpec, other: JobSpec) -> bool:
        """Whether jobs that share nodes may be on one at the same time."""
        return _go_together(_owner(one), _owner(other))

    def asked(self, spec: JobSpec) -> tuple[str | float, ...]:
        """What decides where a job finds room; the same of jobs that ask for the same."""
        return (
            spec.partition, spec.features, spec.nodes, spec.tasks, spec.tasks_per_node, spec.exclusive,
            spec.more_tasks, str(spec.consumables) if spec.consumables else "",
            *(getattr(spec, name) for name in PER_NODE),
            *(getattr(spec, f"{name}_per_task") for name in AMOUNTS),
            *(_owner(spec) if self._choosy or spec.shared_with else ()),
        )  # fmt: skip

    def fits(self, spec: JobSpec) -> bool:
        """Whether a job finds room now."""
        key = self.asked(spec)
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = self.place(spec) is not None
        return found

    def has(self, spec: JobSpec, taken: Taken) -> bool:
        """Whether there is room now on each of some nodes for so many of a job's tasks."""
        rows = np.array([node for node, _ in taken], np.int64)
        there = self.up[rows] & ~self.alone[rows]
        if not spec.shares:
            return bool((there & (self.jobs[rows] == 0)).all())
        held = amounts_held(spec, taken, self.names)
        there &= ~self._apart(spec)[rows]
        return bool(there.all() and (self.free[rows] + SLACK >= held).all())

    def _apart(self, spec: JobSpec) -> npt.NDArray[np.bool_]:
        """On which nodes there is a job beside which this one may not be, or which may not be beside it."""
        found = np.zeros(len(self.group), bool)
        if self._choosy or spec.shared_with:
            own = _owner(spec)
            for node, who in self._who.items():
                found[node] = not all(_go_together(own, other) for other in who)
        return found

    def set_up(self, node: int, up: bool) -> None:
        """Say whether jobs may start on a node."""
        self.up[node] = up
        self._fits.clear()

    def idle(self) -> int:
        """How many nodes are up and held by nobody."""
        return int((self.up & (self.jobs == 0)).sum())


def _owner(spec: JobSpec) -> _Owner:
    return spec.user, spec.account, spec.shared_with


def _go_together(one: _Owner, other: _Owner) -> bool:
    """Whether jobs may be on a node at the same time, as far as it matters whose they are."""
    asked = {one[2], other[2]}
    return not (1 in asked and one[0] != other[0]) and not (2 in asked and one[1] != other[1])


def parts_of(spec: JobSpec, taken: Taken) -> tuple[NodePart, ...]:
    """What a job holds of each node on which it has so many tasks; empty if it has them for itself."""
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
    """What a job's tasks have of each node [nodes, names]."""
    tasks = np.array([tasks for _, tasks in taken], np.float64)
    held: FloatArray = tasks @ np.array(
        [[kind.asks(name) for name in names] for kind in spec.kinds]
    )
    return held


def _room_for(
    tasks: int, each: Sequence[float], free: FloatArray, there: npt.NDArray[np.bool_]
) -> FloatArray:
    """For how many tasks that ask so much of each amount each node has room [nodes]."""
    fits = np.where(there, np.float64(tasks), 0.0)
    for column, asked in enumerate(each):
        if asked > 0:
            np.minimum(fits, np.floor(free[:, column] / asked + SLACK), out=fits)
    return np.maximum(fits, 0.0)


def _by_number(fits: FloatArray, tasks: int, least: int) -> list[tuple[int, int]] | None:
    """Give tasks to the nodes of lowest number that have room, to so many nodes at least."""
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
