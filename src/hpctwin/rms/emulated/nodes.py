"""The nodes of an emulated cluster: who holds which, and which are free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Literal

from hpctwin.errors import HpctwinError
from hpctwin.model import PER_NODE, Cluster, Partition, Reservation
from hpctwin.model.cluster import parse_nodes
from hpctwin.rms.records import JobSpec, NodeRecord, NodeReservation

__all__ = ["NodeState", "Nodes", "planned_reservations"]

NodeState = Literal["up", "down", "drained"]


class Nodes:
    """Nodes with names n0001, n0002, … in the order of their numbers.

    As in the engine, nodes of one group under the same reservations form a pool, pools are ordered
    by their lowest number, and a job takes the free nodes of lowest number in the first pools.

    Args:
        machine: the node groups and partitions.
    """

    def __init__(self, machine: Cluster) -> None:
        self.machine = machine
        count = machine.node_count
        self.names = tuple(f"n{i + 1:04}" for i in range(count))
        self.number = {name: i for i, name in enumerate(self.names)}
        self.records = [NodeRecord(name=name) for name in self.names]
        self.reservations: dict[str, NodeReservation] = {}
        self._holder: list[str | None] = [None] * count
        self._group = [g for g, group in enumerate(machine.nodes) for _ in range(group.count)]
        self._eligible: dict[tuple[str, float, float, float], tuple[int, ...]] = {}
        self._pool: list[int]
        self._free: list[list[int]]
        self._windows: list[list[NodeReservation]]
        self._form_pools()

    def partition_of(self, spec: JobSpec) -> Partition | None:
        """The partition that a job goes to; None if it is not there."""
        partitions = self.machine.partitions
        if not partitions:
            return Partition(name="all")
        fits = (p.name == spec.partition if spec.partition else p.default for p in partitions)
        return next((p for p, fit in zip(partitions, fits, strict=True) if fit), None)

    def eligible_count(self, spec: JobSpec) -> int:
        """How many nodes have what a job asks for."""
        pools = set(self._pools_for(spec))
        return sum(pool in pools for pool in self._pool)

    def pick(self, spec: JobSpec, now_s: float) -> tuple[int, ...] | None:
        """Free nodes that a job may have from now to its walltime; None if there are not enough."""
        chosen: list[int] = []
        until_s = now_s + spec.walltime_s
        for pool in self._pools_for(spec):
            if any(r.start_s < until_s and r.end_s > now_s for r in self._windows[pool]):
                continue
            chosen += self._free[pool][: spec.nodes - len(chosen)]
            if len(chosen) == spec.nodes:
                return tuple(chosen)
        return None

    def lowest(self, counts: Sequence[int], pool: Sequence[int]) -> tuple[int, ...] | None:
        """So many free nodes of each pool, of lowest number; None if a pool has fewer.

        Args:
            counts: how many of each pool.
            pool: the pool of each node, as the plan has them: what is reserved may be told otherwise there.
        """
        left = list(counts)
        chosen = []
        for node, number in enumerate(pool):
            if left[number] and self._holder[node] is None and self.records[node].state == "up":
                left[number] -= 1
                chosen.append(node)
        return None if any(left) else tuple(chosen)

    def hold(self, nodes: Iterable[int], job_id: str) -> None:
        """Give free nodes to a job.

        Raises:
            HpctwinError: one is not free.
        """
        for node in nodes:
            if self._holder[node] is not None or self.records[node].state != "up":
                raise HpctwinError(f"emulated cluster: node {self.names[node]} is not free")
            free = self._free[self._pool[node]]
            del free[bisect_left(free, node)]
            self._holder[node] = job_id

    def give_back(self, nodes: Iterable[int], job_id: str) -> None:
        """Take nodes back from a job.

        Raises:
            HpctwinError: it does not hold one of them.
        """
        for node in nodes:
            if self._holder[node] != job_id:
                raise HpctwinError(
                    f"emulated cluster: node {self.names[node]} is not held by job {job_id}"
                )
            self._holder[node] = None
            if self.records[node].state == "up":
                insort(self._free[self._pool[node]], node)

    def holder(self, node: int) -> str | None:
        """The job on a node."""
        return self._holder[node]

    def set_state(self, node: int, state: NodeState) -> bool:
        """Change a node's state; whether that was a change."""
        before = self.records[node].state
        if before == state:
            return False
        self.records[node] = NodeRecord.model_construct(name=self.names[node], state=state)
        if self._holder[node] is None:
            free = self._free[self._pool[node]]
            if state == "up":
                insort(free, node)
            elif before == "up":
                del free[bisect_left(free, node)]
        return True

    def set_reservation(self, reservation: NodeReservation) -> None:
        """Add or replace a reservation; its nodes are known."""
        self.reservations[reservation.name] = reservation
        self._form_pools()

    def remove_reservation(self, name: str) -> bool:
        """Whether there was one."""
        found = self.reservations.pop(name, None) is not None
        if found:
            self._form_pools()
        return found

    def slowest(self, nodes: Iterable[int]) -> float:
        """Relative speed of the slowest of some nodes."""
        return min(
            self.machine.nodes[g].speed_at_first for g in {self._group[node] for node in nodes}
        )

    def _form_pools(self) -> None:
        under: list[list[str]] = [[] for _ in self.names]
        for reservation in self.reservations.values():
            for name in reservation.node_names or self.names:
                under[self.number[name]].append(reservation.name)
        pools: dict[tuple[int, tuple[str, ...]], int] = {}
        self._pool = [
            pools.setdefault((group, tuple(names)), len(pools))
            for group, names in zip(self._group, under, strict=True)
        ]
        self._pool_group = [group for group, _ in pools]
        self._windows = [[self.reservations[name] for name in names] for _, names in pools]
        self._free = [[] for _ in pools]
        for node, pool in enumerate(self._pool):
            if self._holder[node] is None and self.records[node].state == "up":
                self._free[pool].append(node)
        self._eligible.clear()

    def _pools_for(self, spec: JobSpec) -> tuple[int, ...]:
        key = (spec.partition, spec.cores, spec.gpus, spec.memory_gb)
        if key not in self._eligible:
            partition = self.partition_of(spec)
            self._eligible[key] = tuple(
                pool
                for pool, group in enumerate(self._pool_group)
                if partition is not None and self._has(group, spec, partition)
            )
        return self._eligible[key]

    def _has(self, number: int, spec: JobSpec, partition: Partition) -> bool:
        group = self.machine.nodes[number]
        if partition.groups is not None and group.name not in partition.groups:
            return False
        amounts = [(getattr(group, name), getattr(spec, name)) for name in PER_NODE]
        return all(has is None or has >= needs for has, needs in amounts)


def planned_reservations(
    machine: Cluster, names: Sequence[str], zero_s: float
) -> list[NodeReservation]:
    """The reservations that a machine's description has, as a resource manager tells of them.

    Args:
        machine: the description.
        names: of the nodes.
        zero_s: the time zero of the description.
    """
    found: dict[str, NodeReservation] = {}
    for number, window in enumerate(machine.reservations):
        name = f"{window.name}-{number + 1}" if window.name in found else window.name
        found[name] = NodeReservation(
            name=name,
            start_s=zero_s + window.start,
            end_s=zero_s + window.end,
            node_names=tuple(names[n] for n in _nodes_of(window, machine)),
        )
    return list(found.values())


def _nodes_of(window: Reservation, machine: Cluster) -> list[int]:
    """Node numbers of a reservation of the machine; none where it has all."""
    if window.groups is None and window.nodes is None:
        return []
    numbers = set(parse_nodes(window.nodes, machine.node_count)) if window.nodes else set()
    first = 0
    for group in machine.nodes:
        if group.name in (window.groups or ()):
            numbers.update(range(first, first + group.count))
        first += group.count
    return sorted(numbers)
