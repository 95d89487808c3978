"""What a waiting job asks, and what of it is short at an instant: of whole nodes, and of shared ones."""

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
"""Enough of each amount is free, but not on the same nodes."""

Rooms = npt.NDArray[np.int64]


class WholeShortages:
    """Of a job that asks for whole nodes, as all do.

    Args:
        simulation: whose job it is.
        row: the job's.
    """

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        sim = simulation.state
        pools, amount = sim.pools, sim["amount"]
        self.names = ["nodes", *simulation.cluster.resources]
        self.asked = [int(sim["job"]["nodes"][row]), *sim["asks"][row].tolist()]
        self.total = [int(amount[:pools].sum()), *amount[pools:].tolist()]

    def asks(self) -> str:
        """What the job asks, in words."""
        asked = zip(self.names, self.asked, strict=True)
        return ", ".join(f"{name} {amount:,}" for name, amount in asked if amount)

    def short(self) -> tuple[str, ...]:
        """Resources that it asks more of than is free after this instant's pass."""
        sim = self.simulation.state
        free = [self.simulation.free_nodes(), *sim["stock"]["free"][sim.pools :].tolist()]
        needs = zip(self.names, self.asked, free, strict=True)
        return tuple(name for name, asked, have in needs if asked > have)

    def why_pushed(self, number: int) -> str:
        """Why it was pushed down: resource ``number`` was short."""
        return (
            f"{self.names[number]} was short ({self.asked[number]:,} asked of "
            f"{self.total[number]:,} in all)"
        )


class SharedShortages:
    """Of a job where nodes are shared; arguments as of `WholeShortages`."""

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        self.row = row
        self.names = ["nodes", *simulation.cluster.resources]
        self.asked = simulation.state["asks"][row].tolist()

    def asks(self) -> str:
        """What the job asks, in words; what its first tasks do, if these are of several kinds."""
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
        """What it asks more of than is free after this instant's pass.

        Amounts of nodes: the nodes that it may have would have no room for all its tasks if these asked for
        that amount alone. `FRAGMENTATION`: there would be for each alone, and is not for all. ``nodes``:
        those that it may have for itself, or beside those that are there, do not suffice.
        """
        sim = self.simulation.state
        free = sim["stock"]["free"][sim.pools :].tolist()
        needs = zip(self.names[1:], self.asked, free, strict=True)
        found = [name for name, asked, have in needs if asked > have]
        of_nodes = dict.fromkeys(name for kind in self._kinds() for name in self._short_of(kind))
        return (*of_nodes, *found)

    def why_pushed(self, number: int) -> str:
        """Why it was pushed down: resource ``number`` was short, or room on nodes."""
        if not number:
            return "there was no room for its tasks on nodes"
        return f"{self.names[number]} was short ({self.asked[number - 1]:,} asked)"

    def _kinds(self) -> Iterator[int]:
        """The kinds of its tasks."""
        sim = self.simulation.state
        kind = int(sim["job"]["kind"][self.row])
        while kind >= 0:
            yield kind
            kind = int(sim["shape"]["more"][kind])

    def _short_of(self, kind: int) -> list[str]:
        """What is short for tasks of a kind, other kinds apart."""
        sim = self.simulation.state
        node, shape, needs = sim["node"], sim["shape"][kind], sim["needs"][kind]
        may = (sim["eligible"][kind][sim["pool_of"]] != 0) & (node["down"] == 0)
        may &= node["hidden"] == 0
        left, gpus = sim["left"], SingleGpus.of_sim(sim)
        most = int(shape["most"])

        def suffice(rooms: Rooms) -> bool:
            enough = int(rooms.sum()) >= shape["tasks"]
            return bool(enough and np.count_nonzero(rooms) >= shape["nodes"])

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
        """Whether a kind of job may be on a node beside those that are there."""
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
