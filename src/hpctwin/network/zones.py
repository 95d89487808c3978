"""Zones: parts of a network, each with its own way to route.

A zone connects points: hosts, and routers, which are names for gateways. It may contain zones.
Routes of many pairs of points are a matrix of link numbers with a row for each pair. Rows are
padded with -1 anywhere, and in the order of the links.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpctwin.errors import NoRouteError

__all__ = ["Attached", "Declared", "Gateways", "Shortest", "Star", "Zone", "links_matrix"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
LinkArray = npt.NDArray[np.int32]

Links = tuple[int, ...]


@dataclass(frozen=True)
class Gateways:
    """Connection of two zones.

    Args:
        source: Point at which a route leaves the first zone.
        target: Point at which it enters the second zone.
        links: Links between the two points.
    """

    source: int
    target: int
    links: Links


def links_matrix(routes: Iterable[Sequence[int]]) -> LinkArray:
    """Return routes as a matrix, padded with -1."""
    rows = [tuple(route) for route in routes]
    width = max(map(len, rows), default=0)
    padded = [row + (-1,) * (width - len(row)) for row in rows]
    return np.array(padded, np.int32).reshape(len(rows), width)


@dataclass(eq=False)
class Zone:
    """A zone without routes between its points; other zones derive from it.

    Args:
        name: Name of the zone.
        number: Its place in the platform's list of zones.
        parent: The zone around it; None for the outermost.
        points: Its points; `rank` of a point is its place here.
        gateways: Connections of pairs of its inner zones, by their numbers.
        implied_gateways: Connections in the other direction; those in ``gateways`` override them.
        bypasses: Connections of pairs of zones anywhere inside, which override all others.
        bypassed: Routes of pairs of points that override the zone's own.
    """

    name: str
    number: int
    parent: Zone | None = None
    points: list[int] = field(default_factory=list)
    gateways: dict[tuple[int, int], Gateways] = field(default_factory=dict)
    implied_gateways: dict[tuple[int, int], Gateways] = field(default_factory=dict)
    bypasses: dict[tuple[int, int], Gateways] = field(default_factory=dict)
    bypassed: dict[tuple[int, int], Links] = field(default_factory=dict)

    kind = "none"

    def around(self) -> list[Zone]:
        """Return the zone and those around it, from the inside out."""
        return [self, *(self.parent.around() if self.parent else ())]

    def finish(self) -> None:
        """Prepare for routing, once all points, links and routes are known."""

    def links(self, source: IntArray, target: IntArray, rank: IntArray) -> LinkArray:
        """Return the links between points of this zone.

        Args:
            source: First points [pairs].
            target: Second points [pairs].
            rank: Place of each point in its zone [points].

        Raises:
            NoRouteError: Two of the points are not connected; it has their numbers.
        """
        raise NoRouteError(self.name, int(source[0]), int(target[0]))

    def further_latency_s(self, source: IntArray, target: IntArray) -> FloatArray | float:
        """Return the latency between points that is not of links, in seconds [pairs]."""
        return 0.0


@dataclass(eq=False)
class Declared(Zone):
    """A zone with a declared route for each pair of points.

    A pair without one has an empty route. A host reaches itself by the platform's loopback.

    Args:
        routes: Routes by pair of points.
        implied: Routes in the other direction; those in ``routes`` override them.
        loopback: Link from each host to itself.
    """

    routes: dict[tuple[int, int], Links] = field(default_factory=dict)
    implied: dict[tuple[int, int], Links] = field(default_factory=dict)
    loopback: int = -1

    kind = "declared routes"

    def finish(self) -> None:
        """See `Zone`."""
        place = {point: rank for rank, point in enumerate(self.points)}
        pairs = sorted(
            (place[a] * len(place) + place[b], way) for (a, b), way in self.routes.items()
        )
        self._keys = np.array([key for key, _ in pairs], np.int64)
        self._links = links_matrix([*(way for _, way in pairs), (self.loopback,), ()])

    def links(self, source: IntArray, target: IntArray, rank: IntArray) -> LinkArray:
        """See `Zone`."""
        keys = rank[source] * len(self.points) + rank[target]
        rows = np.searchsorted(self._keys, keys)
        size = len(self._keys)
        known = rows < size
        known[known] = self._keys[rows[known]] == keys[known]
        return self._links[np.where(known, rows, np.where(source == target, size, size + 1))]


@dataclass(eq=False)
class Shortest(Declared):
    """A zone whose routes are sequences of declared ones, with the fewest links."""

    kind = "shortest routes"

    def finish(self) -> None:
        """See `Zone`."""
        self._next: dict[int, list[tuple[int, Links]]] = {}
        for (a, b), way in self.routes.items():
            self._next.setdefault(a, []).append((b, way))
        self._from: dict[int, dict[int, Links]] = {}

    def links(self, source: IntArray, target: IntArray, rank: IntArray) -> LinkArray:
        """See `Zone`."""
        return links_matrix(
            self._route(a, b) for a, b in zip(source.tolist(), target.tolist(), strict=True)
        )

    def _route(self, source: int, target: int) -> Links:
        if source == target:
            return self.routes.get((source, target), (self.loopback,))
        if source not in self._from:
            self._from[source] = self._routes_from(source)
        try:
            return self._from[source][target]
        except KeyError:
            raise NoRouteError(self.name, source, target) from None

    def _routes_from(self, source: int) -> dict[int, Links]:
        reached: dict[int, Links] = {}
        heap: list[tuple[int, int, Links]] = [(0, source, ())]
        while heap:
            _, point, way = heapq.heappop(heap)
            if point in reached:
                continue
            reached[point] = way
            for neighbor, links in self._next.get(point, ()):
                if neighbor not in reached:
                    heapq.heappush(heap, (len(way) + len(links), neighbor, way + links))
        return reached


@dataclass(eq=False)
class Star(Zone):
    """A zone in which each host has links to and from a middle, as below one switch.

    Args:
        up: Links from a point to the middle, by point; routers have none.
        down: Links from the middle to a point.
        loopbacks: Link from a point to itself; a host without one passes the middle.
        coordinates: Coordinates in the plane and height, in ms, by point; further latency is
            their distance.
    """

    up: dict[int, Links] = field(default_factory=dict)
    down: dict[int, Links] = field(default_factory=dict)
    loopbacks: dict[int, int] = field(default_factory=dict)
    coordinates: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    kind = "star"

    def finish(self) -> None:
        """See `Zone`."""
        self._up = links_matrix(self.up.get(point, ()) for point in self.points)
        self._down = links_matrix(self.down.get(point, ()) for point in self.points)
        self._loopback = np.array([self.loopbacks.get(p, -1) for p in self.points], np.int32)

    def links(self, source: IntArray, target: IntArray, rank: IntArray) -> LinkArray:
        """See `Zone`."""
        found = np.hstack([self._up[rank[source]], self._down[rank[target]]])
        # A link that both directions share, such as a backbone, is passed once.
        for column in range(1, found.shape[1]):
            twice = (found[:, :column] == found[:, column, None]).any(1)
            found[twice, column] = -1
        if self.loopbacks:
            loopback = self._loopback[rank[source]]
            to_itself = (source == target) & (loopback >= 0)
            found[to_itself] = -1
            found[to_itself, 0] = loopback[to_itself]
        return found

    def further_latency_s(self, source: IntArray, target: IntArray) -> FloatArray | float:
        """See `Zone`."""
        if not self.coordinates:
            return 0.0
        nowhere = (0.0, 0.0, 0.0)
        a, b = (
            np.array([self.coordinates.get(point, nowhere) for point in one.tolist()]).reshape(
                -1, 3
            )
            for one in (source, target)
        )
        plane = np.hypot(a[:, 0] - b[:, 0], a[:, 1] - b[:, 1])
        latency_ms: FloatArray = plane + np.abs(a[:, 2]) + np.abs(b[:, 2])
        return np.where(source == target, 0.0, latency_ms / 1000)


@dataclass(eq=False)
class Attached(Zone):
    """A zone of hosts that are each attached to another host, such as disks to nodes.

    Args:
        base: Host to which a point is attached [points of this zone].
        out: Link from a point to its base [points of this zone].
        into: Link from the base to a point [points of this zone].
    """

    base: list[int] = field(default_factory=list)
    out: list[int] = field(default_factory=list)
    into: list[int] = field(default_factory=list)

    kind = "attached to nodes"

    def finish(self) -> None:
        """See `Zone`."""
        self.bases = np.array(self.base, np.int64)
        self.out_links = np.array(self.out, np.int32)
        self.into_links = np.array(self.into, np.int32)
