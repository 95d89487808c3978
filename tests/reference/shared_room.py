"""What tasks could have of nodes that are shared, and where they are put."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.reference.shared_gpus import GPUS, Lying, Types, laid, room_on
from tests.reference.shared_places import ORDERS, choose_gpus, fragmentation_rise
from tests.reference.shared_requests import Amount, Amounts, Request, Tasks


class Room:
    """What a job's tasks of one kind could have of each node over a span.

    Args:
        request: with these as the first, or only, kind.
        least: what is least free of each node.
        taken: how many tasks of the job lie there already.
        gpus: what is least free of each GPU of each node, where these are counted one by one.
        types: of which type each is.
    """

    def __init__(
        self,
        request: Request,
        least: dict[int, Amounts],
        taken: dict[int, int] | None = None,
        gpus: dict[int, Amounts] | None = None,
        types: dict[int, Types] | None = None,
    ) -> None:
        self.request = request
        self.gpus = gpus or {}
        self.types = types or {}
        self.on_gpus: dict[int, Amounts] = {}  # of nodes whose GPUs the placement has chosen
        self.ready: Callable[[int], int] = lambda node: 0
        self.least = least
        self.job: Any = None
        self.simulation: Any = None
        self.a = {
            node: min((x // ask for x, ask in zip(left, request.each, strict=True) if ask), default=10**9)
            if min(left) >= 0
            else 0
            for node, left in least.items()
        }  # fmt: skip
        if request.each[GPUS] and gpus:
            for node in least:
                self.a[node] = min(
                    self.a[node], room_on(request.each, gpus[node], self.types[node])
                )
        for node, count in (taken or {}).items():
            if node in self.a:
                self.a[node] = max(0, min(self.a[node], request.most - count))
        self.f = {node: min(a, request.most) for node, a in self.a.items()}

    def takes(self, node: int, tasks: int) -> Amounts:
        """What its tasks have of each GPU of a node."""
        if not self.gpus:
            return ()
        if node in self.on_gpus:
            return self.on_gpus[node]
        taken = laid(self.request.each, tasks, self.gpus[node], self.types[node])
        assert taken is not None
        return taken

    def fits(self) -> bool:
        nodes = sum(f > 0 for f in self.f.values())
        return sum(self.f.values()) >= self.request.tasks and nodes >= self.request.nodes

    def left(self, node: int) -> tuple[Amount, Amount, Amount]:
        cores, memory, gpus, *_ = self.least[node]
        return gpus, cores, memory

    def place(self, placement: str) -> dict[int, int]:
        if self.request.spread:
            return self.widely()
        if placement == "spread":
            return self.one_by_one(lambda node, has: [-x for x in self.after(node, has)])
        if placement == "fragmentation":
            return self.one_by_one(
                lambda node, has: (
                    fragmentation_rise(self, node, has)[0],
                    self.after(node, has),
                ),
                lambda node, has: choose_gpus(self, node, has),
            )
        nodes = sorted(node for node in self.f if self.f[node] > 0)
        tasks, least_nodes = self.request.tasks, self.request.nodes
        if placement in ORDERS:
            nodes = ORDERS[placement](self, nodes)
        if placement == "best_fit":
            alone = [node for node in nodes if self.f[node] >= tasks]
            if least_nodes == 1 and alone:
                return {min(alone, key=lambda node: (self.ready(node), self.left(node))): tasks}
            nodes.sort(key=lambda node: (-self.a[node], self.left(node)))
        if placement in ("first_fit", "best_fit"):
            nodes.sort(key=self.ready)
        given: dict[int, int] = {}
        for node in nodes:
            if tasks:
                given[node] = min(self.f[node], tasks - max(0, least_nodes - len(given) - 1))
                tasks -= given[node]
        assert not tasks
        return given

    def widely(self) -> dict[int, int]:
        """Tasks in rounds by number, on as many nodes as can be."""
        most, left = dict[int, int](), self.request.tasks
        for node in sorted(node for node in self.f if self.f[node] > 0)[: self.request.tasks]:
            most[node] = min(self.f[node], max(1, left))
            left -= most[node]
        given = dict.fromkeys(most, 0)
        left = self.request.tasks
        while left > 0:
            for node in [node for node in most if given[node] < most[node]][:left]:
                given[node] += 1
                left -= 1
        return given

    def one_by_one(
        self,
        key: Callable[[int, int], Any],
        chosen: Callable[[int, int], None] = lambda node, has: None,
    ) -> dict[int, int]:
        """One task after the other, each to the node with the smallest key, given what it has of the job."""
        given: dict[int, int] = {}
        for left in range(self.request.tasks, 0, -1):
            only_new = left <= self.request.nodes - len(given)
            open_to = [
                node
                for node in sorted(self.f)
                if given.get(node, 0) < self.f[node] and not (only_new and node in given)
            ]
            best = min(open_to, key=lambda node: key(node, given.get(node, 0)))
            chosen(best, given.get(best, 0))
            given[best] = given.get(best, 0) + 1
        return given

    def after(self, node: int, tasks: int) -> Amounts:
        cores, memory, gpus, *_ = (
            x - tasks * ask for x, ask in zip(self.least[node], self.request.each, strict=True)
        )
        return gpus, cores, memory


def place_kinds(
    request: Request,
    least: dict[int, Amounts],
    placement: str,
    told: Callable[[Room], None] = lambda room: None,
    gpus: dict[int, Amounts] | None = None,
    types: dict[int, Types] | None = None,
) -> dict[int, Tasks] | None:
    """Of each kind of a job's tasks how many lie on each node, in the order given; None if it does not fit.

    Args:
        request: what the job asks.
        least: what is least free of each node.
        placement: how nodes are gone through.
        told: tells a room what placements ask of besides.
        gpus: what is least free of each GPU of each node, where these are counted one by one.
        types: of which type each is.
    """
    kinds = request.kinds
    ways = (placement,) if len(kinds) == 1 else (placement, "first_fit by number")
    for way in ways:
        left, found = dict(least), dict[int, Tasks]()
        single = dict(gpus or {})
        taken_gpus: dict[int, Amounts] = {}
        for number, kind in enumerate(kinds):
            taken = {node: sum(tasks) for node, tasks in found.items()}
            first = replace(request, tasks=kind.tasks, each=kind.each)
            room = Room(first, left, taken, single, types)
            told(room)
            if not room.fits():
                break
            if way != placement:
                room.ready = lambda node: 0
            for node, tasks in room.place(way.partition(" ")[0]).items():
                before = found.pop(node, (0,) * len(kinds))
                found[node] = (*before[:number], tasks, *before[number + 1 :])
                if single:
                    takes = room.takes(node, tasks)
                    nothing = (0,) * len(takes)
                    had = taken_gpus.get(node, nothing)
                    taken_gpus[node] = tuple(a + b for a, b in zip(had, takes, strict=True))
                    single[node] = tuple(a - b for a, b in zip(single[node], takes, strict=True))
                left[node] = tuple(
                    x - tasks * ask for x, ask in zip(left[node], kind.each, strict=True)
                )
        else:
            return {node: Lying(x, taken_gpus.get(node, ())) for node, x in found.items()}
    return None
