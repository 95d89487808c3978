"""Nodes of an emulated cluster: their allocation, and their power states."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from hpctwin.errors import HpctwinError
from hpctwin.model import Cluster, Reservation
from hpctwin.model.cluster.node_group import Sleep
from hpctwin.model.text import parse_nodes, since
from hpctwin.rms.emulated.agenda import NODE, Agenda
from hpctwin.rms.node_capacity import Room, Taken
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobRecord, JobSpec, NodePower, NodeRecord, NodeReservation

NodeState = Literal["up", "down", "drained"]


class Nodes:
    """Nodes named n0001, n0002, … in the order of their numbers.

    As in the engine, nodes of one group under the same reservations form a pool, and pools are
    ordered by their lowest number. A job takes the lowest-numbered free nodes in the first pools. A
    job with tasks takes capacity on the lowest-numbered nodes.

    Args:
        machine: Node groups and partitions.
    """

    def __init__(self, machine: Cluster) -> None:
        self.machine = machine
        count = machine.node_count
        self.names = tuple(f"n{i + 1:04}" for i in range(count))
        self.number = {name: i for i, name in enumerate(self.names)}
        self.records = [NodeRecord(name=name) for name in self.names]
        self.reservations: dict[str, NodeReservation] = {}
        self.room = Room(machine, owned=True)
        self._jobs: list[list[str]] = [[] for _ in range(count)]
        self._group = [g for g, group in enumerate(machine.nodes) for _ in range(group.count)]
        self._pool: list[int]
        self._free: list[list[int]]
        self._windows: list[list[NodeReservation]]
        self._form_pools()

    def pick(self, spec: JobSpec, now_s: float, *, soonest: bool = False) -> Taken | None:
        """Return nodes that a job may have from now to its walltime; None if too few.

        Args:
            soonest: Whether to prefer, in each pool, the nodes that can be on first.
        """
        until_s = now_s + spec.walltime_s
        there = [
            not any(r.start_s < until_s and r.end_s > now_s for r in windows)
            for windows in self._windows
        ]
        if spec.tasks:
            return self.room.place(spec, np.array(there, bool)[self._pool])
        chosen: list[int] = []
        eligible = self.room.eligible(spec)
        for pool, free in enumerate(self._free):
            if there[pool] and free and eligible[free[0]]:
                if soonest:
                    free = sorted(free, key=lambda node: (self._ready_s(node, now_s), node))
                chosen += free[: spec.nodes - len(chosen)]
        return [(node, (1,)) for node in chosen] if len(chosen) == spec.nodes else None

    def lowest(self, counts: Sequence[int], pool: Sequence[int]) -> Taken | None:
        """Return the lowest-numbered free nodes of each pool; None if a pool has too few.

        Args:
            pool: Pool of each node in the plan, which may divide reserved nodes otherwise.
        """
        left = list(counts)
        chosen = []
        for node, number in enumerate(pool):
            if left[number] and not self._jobs[node] and self.records[node].state == "up":
                left[number] -= 1
                chosen.append((node, (1,)))
        return None if any(left) else chosen

    def sleep_of(self, node: int) -> tuple[Sleep, ...]:
        """Return the sleep states of a node."""
        return self.machine.nodes[self._group[node]].sleep

    def set_power(self, node: int, power: NodePower) -> None:
        """Set a node's power state."""
        self.records[node] = self.records[node].model_copy(update={"power": power})

    def _ready_s(self, node: int, now_s: float) -> float:
        power = self.records[node].power
        return now_s if power is None else power.ready_s(self.sleep_of(node), now_s)

    def hold(self, job: JobRecord, taken: Taken) -> None:
        """Allocate nodes to a starting job."""
        job_id = job.spec.id
        if not self.room.has(job.spec, taken):
            raise HpctwinError(f"emulated cluster: job {job_id} does not fit on its nodes")
        self.room.hold([node for node, _ in taken], self.room.held_by(job), of=job.spec)
        for node, _ in taken:
            if not self._jobs[node]:
                free = self._free[self._pool[node]]
                del free[bisect_left(free, node)]
            self._jobs[node].append(job_id)

    def give_back(self, job: JobRecord, nodes: Sequence[int]) -> None:
        """Free a job's nodes."""
        self.room.hold(nodes, self.room.held_by(job), -1, of=job.spec)
        for node in nodes:
            self._jobs[node].remove(job.spec.id)
            if not self._jobs[node] and self.records[node].state == "up":
                insort(self._free[self._pool[node]], node)

    def jobs_on(self, node: int) -> tuple[str, ...]:
        """Return the jobs on a node."""
        return tuple(self._jobs[node])

    def set_state(self, node: int, state: NodeState) -> bool:
        """Set a node's state; return whether it changed."""
        before = self.records[node].state
        if before == state:
            return False
        self.records[node] = self.records[node].model_copy(update={"state": state})
        self.room.set_up(node, state == "up")
        if not self._jobs[node]:
            free = self._free[self._pool[node]]
            if state == "up":
                insort(free, node)
            elif before == "up":
                del free[bisect_left(free, node)]
        return True

    def set_reservation(self, reservation: NodeReservation) -> None:
        """Add or replace a reservation of known nodes."""
        self.reservations[reservation.name] = reservation
        self._form_pools()

    def remove_reservation(self, name: str) -> bool:
        """Remove a reservation; return whether it existed."""
        found = self.reservations.pop(name, None) is not None
        if found:
            self._form_pools()
        return found

    def slowest(self, nodes: Iterable[int]) -> float:
        """Return the relative speed of the slowest of some nodes."""
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
        self._windows = [[self.reservations[name] for name in names] for _, names in pools]
        self._free = [[] for _ in pools]
        for node, pool in enumerate(self._pool):
            if not self._jobs[node] and self.records[node].state == "up":
                self._free[pool].append(node)


def planned_reservations(
    machine: Cluster, names: Sequence[str], zero_s: float
) -> list[NodeReservation]:
    """Return a cluster description's reservations as a resource manager reports them."""
    found: dict[str, NodeReservation] = {}
    for number, window in enumerate(machine.reservations):
        name = f"{window.name}-{number + 1}" if window.name in found else window.name
        found[name] = NodeReservation(
            name=name,
            start_s=zero_s + since(window.start, None, name),
            end_s=zero_s + since(window.end, None, name),
            node_names=tuple(names[n] for n in _nodes_of(window, machine)),
        )
    return list(found.values())


def _nodes_of(window: Reservation, machine: Cluster) -> list[int]:
    """Return the node numbers of a reservation; none if it has all nodes."""
    if window.groups is None and window.nodes is None:
        return []
    numbers = set(parse_nodes(window.nodes, machine.node_count)) if window.nodes else set()
    first = 0
    for group in machine.nodes:
        if group.name in (window.groups or ()):
            numbers.update(range(first, first + group.count))
        first += group.count
    return sorted(numbers)


class NodePowers:
    """Power states of nodes, and the ends of their transitions.

    Args:
        nodes: Nodes; those of clusters without sleep states are always on.
        agenda: Agenda for the ends of transitions.
        now: Function that returns the time of the cluster's clock, in seconds.
        tell: Function that takes an event's class and fields.
    """

    def __init__(
        self,
        nodes: Nodes,
        agenda: Agenda,
        now: Callable[[], float],
        tell: Callable[..., None],
    ) -> None:
        self._nodes = nodes
        self._agenda = agenda
        self._now = now
        self._tell = tell
        self._ends: dict[int, Any] = {}
        self.there = nodes.machine.depths > 0
        """Whether there are any sleep states."""
        if self.there:
            for node in range(len(nodes.names)):
                nodes.set_power(node, NodePower(since_s=now()))

    def wake(self, nodes: Iterable[int]) -> float:
        """Switch on the nodes given to a job; return the time when all are on, in seconds."""
        now_s = self._now()
        ready_s = now_s
        if self.there:
            for node in nodes:
                power = self._power(node)
                ready_s = max(ready_s, power.ready_s(self._nodes.sleep_of(node), now_s))
                if power.state == "asleep":
                    self._switch_on(node, power.depth)
        return ready_s

    def used(self, nodes: Iterable[int]) -> None:
        """Record that nodes on which a job ran are idle from now on."""
        if self.there:
            for node in nodes:
                power = self._power(node)
                if power.state == "on":
                    idle = power.model_copy(update={"since_s": self._now()})
                    self._nodes.set_power(node, idle)

    def set(self, node: int, power: NodePower) -> None:
        """Put a node into a power state now; later transitions follow by themselves."""
        if power == self._power(node):
            return
        self._agenda.drop(self._ends.pop(node, None))
        self._nodes.set_power(node, power)
        self._tell(ev.NodePowered, node_name=self._nodes.names[node], power=power)
        if power.until_s is not None:
            over = partial(self._over, node, power)
            self._ends[node] = self._agenda.put(NODE, power.until_s, over, counts=False)

    def _over(self, node: int, power: NodePower) -> None:
        now_s = self._now()
        if power.state == "switching_on":
            self.set(node, NodePower(since_s=now_s))
        elif not self._nodes.jobs_on(node):
            self.set(node, NodePower(state="asleep", depth=power.depth, since_s=now_s))
        else:
            self._switch_on(node, power.depth)

    def _switch_on(self, node: int, depth: int) -> None:
        now_s = self._now()
        ready_s = round(now_s + self._nodes.sleep_of(node)[depth].switch_on.time, 3)
        if ready_s <= now_s:
            self.set(node, NodePower(since_s=now_s))
            return
        self.set(node, NodePower(state="switching_on", depth=depth, since_s=now_s, until_s=ready_s))

    def _power(self, node: int) -> NodePower:
        power = self._nodes.records[node].power
        assert power is not None
        return power
