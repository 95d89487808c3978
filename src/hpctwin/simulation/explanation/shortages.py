"""Requests of waiting jobs, and the resources that are short for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.layout import AMOUNTS
from hpctwin.simulation.lowering.gpus import SingleGpus
from hpctwin.simulation.lowering.shared_nodes import ALONE, columns_of, units_of
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["FRAGMENTATION", "SharedShortages", "WholeShortages"]

FRAGMENTATION = "fragmentation"
"""Name reported if each amount is free in total, but not on the same nodes."""

Rooms = npt.NDArray[np.int64]


class WholeShortages:
    """Request and shortages of a job on a cluster whose jobs all use whole nodes.

    Args:
        simulation: Simulation that holds the job.
        row: Row of the job.
    """

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        sim = simulation.state
        pools, amount = sim.pools, sim["amount"]
        self.names = ["nodes", *simulation.cluster.resources]
        self.asked = [int(sim["job"]["nodes"][row]), *sim["asks"][row].tolist()]
        self.total = [int(amount[:pools].sum()), *amount[pools:].tolist()]

    def asks(self) -> str:
        """Return the job's request in words."""
        asked = zip(self.names, self.asked, strict=True)
        return ", ".join(f"{name} {amount:,}" for name, amount in asked if amount)

    def short(self) -> tuple[str, ...]:
        """Return the resources whose free amount after this pass is below the request."""
        sim = self.simulation.state
        free = [self.simulation.free_nodes(), *sim["stock"]["free"][sim.pools :].tolist()]
        needs = zip(self.names, self.asked, free, strict=True)
        return tuple(name for name, asked, have in needs if asked > have)

    def why_pushed(self, number: int) -> str:
        """Return in words that resource ``number`` was short, so the job was pushed down."""
        return (
            f"{self.names[number]} was short ({self.asked[number]:,} asked of "
            f"{self.total[number]:,} in all)"
        )


class SharedShortages:
    """Request and shortages of a job on shared nodes; see `WholeShortages`."""

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        self.row = row
        self.names = ["nodes", *simulation.cluster.resources]
        self.asked = simulation.state["asks"][row].tolist()

    def asks(self) -> str:
        """Return the job's request in words; amounts are those of its first kind of task."""
        sim, cluster = self.simulation.state, self.simulation.cluster
        kind = next(self._kinds())
        shape, units = sim["shape"][kind], units_of(cluster)
        tasks = int(shape["tasks"])
        parts = [f"tasks {tasks:,}"]
        for column, name, unit in columns_of(cluster):
            amount = int(sim["needs"][kind, column])
            if amount:
                parts.append(f"{name} {amount / units.get(name, unit):g} for each")
        if shape["exclusive"]:
            parts.append("nodes of its own")
        if shape["nodes"] > 1:
            parts.append(f"on {int(shape['nodes']):,} nodes at least")
        if len(list(self._kinds())) > 1:
            parts.append("and tasks of other kinds")
        resources = zip(self.names[1:], self.asked, strict=True)
        return ", ".join([*parts, *(f"{name} {n:,}" for name, n in resources if n)])

    def short(self) -> tuple[str, ...]:
        """Return the resources that are short for the job after this pass.

        - An amount of nodes is short if the nodes that the job may use could not hold all its tasks
          even if the tasks asked for that amount alone.
        - `FRAGMENTATION` means that each amount alone would suffice, but all of them together do
          not.
        - ``nodes`` means that too few nodes are free for exclusive use, or occupied only by jobs
          that the job may share them with.
        """
        sim = self.simulation.state
        free = sim["stock"]["free"][sim.pools :].tolist()
        needs = zip(self.names[1:], self.asked, free, strict=True)
        found = [name for name, asked, have in needs if asked > have]
        of_nodes = dict.fromkeys(name for kind in self._kinds() for name in self._short_of(kind))
        return (*of_nodes, *found)

    def why_pushed(self, number: int) -> str:
        """Return in words that resource ``number``, or space on nodes, was short."""
        if not number:
            return "there was no room for its tasks on nodes"
        return f"{self.names[number]} was short ({self.asked[number - 1]:,} asked)"

    def _kinds(self) -> Iterator[int]:
        """Yield the kinds of the job's tasks."""
        sim = self.simulation.state
        kind = int(sim["job"]["kind"][self.row])
        while kind >= 0:
            yield kind
            kind = int(sim["shape"]["more"][kind])

    def _short_of(self, kind: int) -> list[str]:
        """Return the resources that are short for tasks of one kind alone."""
        sim = self.simulation.state
        node, shape, needs = sim["node"], sim["shape"][kind], sim["needs"][kind]
        may = (sim["eligible"][kind][sim["pool_of"]] != 0) & (node["down"] == 0)
        may &= node["hidden"] == 0
        left, gpus = sim["left"], SingleGpus.of_sim(sim)
        most = int(shape["most"])

        def suffice(rooms: Rooms) -> bool:
            enough = int(rooms.sum()) >= shape["tasks"]
            return bool(enough and np.count_nonzero(rooms) >= shape["nodes"])

        # Each amount alone, and the minimum over all amounts: the difference is fragmentation.
        rooms = np.where(may, most, 0)
        found = []
        for column, name, _ in columns_of(self.simulation.cluster):
            if needs[column]:
                room = left[:, column] // needs[column]
                if name == "gpus" and gpus is not None:
                    room = np.minimum(room, gpus.room(needs, gpus.single(left)))
                alone = np.where(may, np.clip(room, 0, most), 0)
                rooms = np.minimum(rooms, alone)
                if not suffice(alone):
                    found.append(name)
        open_to_it = np.array([self._may_join(kind, number) for number in range(len(node))])
        if not suffice(np.where(may & open_to_it, most, 0)):
            found.append("nodes")
        if not found and not suffice(np.where(open_to_it, rooms, 0)):
            found.append(FRAGMENTATION)
        return found

    def _may_join(self, kind: int, number: int) -> bool:
        """Return whether a job of this kind may join the jobs that are on a node."""
        sim = self.simulation.state
        mine, has = sim["shape"][kind], int(sim["left"][number, AMOUNTS - 1])
        if has < (ALONE if mine["exclusive"] else 1):
            return False
        part = int(sim["share"]["part"][number])
        while part >= 0:
            other = sim["shape"][int(sim["part"]["kind"][part])]
            for with_whom, label in ((1, "user"), (2, "account")):
                asked = with_whom in (mine["shared_with"], other["shared_with"])
                if asked and mine[label] != other[label]:
                    return False
            part = int(sim["part"]["after"][part])
        return True
