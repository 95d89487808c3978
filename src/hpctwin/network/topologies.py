"""Topologies of clusters: fat tree, torus and dragonfly.

Their links and routes are those of SimGrid 3.32, also where SimGrid takes a detour, so that jobs
end at the same time. Links are numbered from `first_link` in the order of `link_names`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.network.zones import IntArray, LinkArray, Zone

__all__ = ["Dragonfly", "FatTree", "Topology", "Torus"]

Digits = npt.NDArray[np.int64]


class Cables(NamedTuple):
    """Connections of switches or hosts at one level, or at several in turns.

    Args:
        names: Name of the link of each; ``_UP`` and ``_DOWN`` are appended if it has two.
        levels: Places in the topology, in words; cable *i* is at level *i* modulo their number.
        switches: Numbers of the switches at the ends of each [cables, switches].
        factor: Their bandwidth as a multiple of the topology's.
    """

    names: list[str]
    levels: tuple[str, ...]
    switches: IntArray
    factor: float = 1.0


@dataclass(eq=False)
class Topology(Zone):
    """A zone of equal hosts in a regular network.

    Args:
        hosts: Number of hosts; they are the first points of the zone, routers follow.
        to_router: Whether a route between a host and a router passes the host's own cable; in
            SimGrid, it is empty.
        first_link: Number of the first link.
        two_ways: Whether each cable has a link for each direction.
        loopback: First of the links from a host to itself; -1 for none.
        limiter: First of the links that each route of a host passes; -1 for none.
    """

    own_cables: ClassVar[bool] = True
    """Whether cable *i* is the only one of host *i*."""

    hosts: int = 0
    to_router: bool = False
    first_link: int = 0
    two_ways: bool = True
    loopback: int = -1
    limiter: int = -1

    @property
    def places(self) -> int:
        """Number of hosts for which there is room."""
        raise NotImplementedError

    @property
    def cable_count(self) -> int:
        """Number of its cables."""
        raise NotImplementedError

    def cables(self) -> Iterator[Cables]:
        """Yield the cables in the order of their numbers."""
        raise NotImplementedError

    def link(self, cable: IntArray, down: bool | npt.NDArray[np.bool_]) -> IntArray:
        """Return the numbers of links.

        Args:
            cable: Numbers of cables; -1 for none.
            down: Direction, from the end to the beginning of the cable.
        """
        number = cable * 2 + down if self.two_ways else cable
        links: IntArray = np.where(cable < 0, -1, self.first_link + number)
        return links

    def hops(self, source: IntArray, target: IntArray) -> list[IntArray]:
        """Return the links between hosts, as columns of a matrix.

        Args:
            source: First hosts, from 0 [pairs].
            target: Second hosts [pairs].
        """
        raise NotImplementedError

    def links(self, source: IntArray, target: IntArray, rank: IntArray) -> LinkArray:
        """See `Zone`."""
        a, b = rank[source], rank[target]
        hosts = (a < self.hosts) & (b < self.hosts)
        columns = self.hops(np.where(hosts, a, 0), np.where(hosts, b, 0))
        if self.loopback >= 0:
            to_itself = a == b
            columns = [np.where(to_itself, -1, column) for column in columns]
            columns.append(np.where(to_itself, self.loopback + a, -1))
        found = np.stack(columns, 1) if columns else np.empty((len(a), 0))
        found[~hosts] = -1
        if self.to_router and self.own_cables:
            found[~hosts, 0] = np.maximum(
                self.link(np.where(a < self.hosts, a, -1), False)[~hosts],
                self.link(np.where(b < self.hosts, b, -1), True)[~hosts],
            )
        return found.astype(np.int32)

    def limited(self, host: IntArray, where: npt.NDArray[np.bool_]) -> list[IntArray]:
        """Return the column of a host's limiter, if there are limiters."""
        return [np.where(where, self.limiter + host, -1)] if self.limiter >= 0 else []


@dataclass(eq=False)
class FatTree(Topology):
    """A tree of switches in which upper levels may have several equal switches.

    A node of the tree has a label with a digit for each level. A switch is connected to the nodes
    below whose labels differ in its level's digit alone.

    Args:
        children: Nodes below each switch, by level from the hosts up.
        parents: Switches above each node, by level.
        ports: Parallel cables between a node and a switch above, by level.
        offset: Number of hosts in fat trees before this one; hosts are counted over all.
    """

    children: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    offset: int = 0

    kind = "fat tree"

    @property
    def places(self) -> int:
        """See `Topology`."""
        return math.prod(self.children)

    def __post_init__(self) -> None:
        levels = range(len(self.children))
        # Nodes of a level: digits of switches chosen below, digits of hosts above.
        self._radix = [(*self.parents[:i], *self.children[i:]) for i in (*levels, len(levels))]
        self._nodes = [math.prod(radix) for radix in self._radix]
        self._slots = [self.parents[i] * self.ports[i] for i in levels]
        cables = [self._nodes[i] * self._slots[i] for i in levels]
        self._base = [sum(cables[:i]) for i in range(len(cables) + 1)]

    @property
    def cable_count(self) -> int:
        """See `Topology`."""
        return self._base[-1]

    def cables(self) -> Iterator[Cables]:
        """See `Topology`."""
        top = 2 * self.places - 1 + self.offset
        first = [
            self.offset - self.places,
            *(top - sum(self._nodes[1:i]) for i in range(1, len(self._nodes))),
        ]
        for level, slots in enumerate(self._slots):
            node, slot = np.divmod(np.arange(self._nodes[level] * slots), slots)
            own = self.offset + node if level == 0 else first[level] - node
            above = self._digits(node, level)
            above[level] = slot // self.ports[level]
            upper = first[level + 1] - self._index(above, level + 1)
            ends = enumerate(zip(own.tolist(), upper.tolist(), strict=True), self._base[level])
            names = [f"link_from_{a}_{b}_{number}" for number, (a, b) in ends]
            switches = np.stack((upper,) if level == 0 else (own, upper), 1)
            yield Cables(names, (f"level {level + 1}",), switches)

    def hops(self, source: IntArray, target: IntArray) -> list[IntArray]:
        """See `Topology`."""
        levels = len(self.children)
        now, there = self._digits(source, 0), self._digits(target, 0)
        differ = np.stack([a != b for a, b in zip(now, there, strict=True)], 1)
        # The lowest level at which both hosts are below one switch; a host is not its own.
        turn = np.where(differ.any(1), levels - np.argmax(differ[:, ::-1], 1), 1)
        columns = self.limited(source, np.ones(len(source), bool))
        for level in range(levels):
            parents, ports = self.parents[level], self.ports[level]
            slot = (target + self.offset) // math.prod(self.parents[:level]) % self._slots[level]
            parent, port = slot % parents, slot // parents
            up = level < turn
            cable = self._cable(level, self._index(now, level), parent, port)
            columns.append(self.link(np.where(up, cable, -1), False))
            now[level] = np.where(up, parent, now[level])
        scanned = np.full(len(source), -1)
        for level in range(levels - 1, -1, -1):
            children, ports = self.children[level], self.ports[level]
            down = level < turn
            first = (source + self.offset) % ports * children
            scanned = np.where(scanned < 0, first, scanned)
            slot = scanned + (there[level] - scanned) % children
            # The scan of a switch's slots continues where that of the switch above ended.
            slot = np.where(slot < children * ports, slot, first + there[level])
            parent = now[level]
            now[level] = np.where(down, there[level], now[level])
            cable = self._cable(level, self._index(now, level), parent, slot // children)
            columns.append(self.link(np.where(down, cable, -1), True))
            scanned = np.where(down, slot + 1, -1)
        return [*columns, *self.limited(target, source != target)]

    def _digits(self, node: IntArray, level: int) -> list[Digits]:
        digits = []
        for radix in self._radix[level]:
            digits.append(node % radix)
            node = node // radix
        return digits

    def _index(self, digits: Sequence[Digits], level: int) -> IntArray:
        index = np.zeros_like(digits[0])
        for digit, radix in zip(reversed(digits), reversed(self._radix[level]), strict=True):
            index = index * radix + digit
        return index

    def _cable(self, level: int, node: IntArray, parent: IntArray, port: IntArray) -> IntArray:
        return self._base[level] + node * self._slots[level] + parent * self.ports[level] + port


@dataclass(eq=False)
class Torus(Topology):
    """A grid in which each host is connected to the next one in each dimension, around the edge.

    Args:
        sizes: Number of hosts in each dimension; the first one counts fastest.
    """

    sizes: tuple[int, ...] = ()

    kind = "torus"
    own_cables = False

    @property
    def places(self) -> int:
        """See `Topology`."""
        return math.prod(self.sizes)

    @property
    def cable_count(self) -> int:
        """See `Topology`."""
        return self.places * len(self.sizes)

    def cables(self) -> Iterator[Cables]:
        """See `Topology`."""
        host = np.arange(self.places)
        after = np.empty((self.places, len(self.sizes)), np.int64)
        stride = 1
        for dimension, size in enumerate(self.sizes):
            at_edge = host // stride % size == size - 1
            after[:, dimension] = host + stride * np.where(at_edge, 1 - size, 1)
            stride *= size
        ends = zip(np.repeat(host, len(self.sizes)).tolist(), after.ravel().tolist(), strict=True)
        names = [f"{self.name}_link_from_{one}_to_{other}" for one, other in ends]
        levels = tuple(f"dimension {number + 1}" for number in range(len(self.sizes)))
        yield Cables(names, levels, np.empty((len(names), 0), np.int64))

    def hops(self, source: IntArray, target: IntArray) -> list[IntArray]:
        """See `Topology`."""
        columns: list[IntArray] = []
        now, stride = source, 1
        for dimension, size in enumerate(self.sizes):
            mine, theirs = source // stride % size, target // stride % size
            half = size // 2
            up = (theirs > mine) & (theirs <= mine + half)
            up |= (mine > half) & ((mine + half) % size >= theirs)
            steps = np.where(up, theirs - mine, mine - theirs) % size
            for step in range(int(steps.max(initial=0))):
                here = mine + np.where(up, step, -step)
                moved = (here + np.where(up, 1, -1)) % size
                after = now + (moved - here % size) * stride
                going = step < steps
                columns += self.limited(now, going)
                cable = np.where(up, now, after) * len(self.sizes) + dimension
                columns.append(self.link(np.where(going, cable, -1), ~up))
                now = np.where(going, after, now)
            stride *= size
        return [*columns, *self.limited(target, np.ones(len(source), bool))]


@dataclass(eq=False)
class Dragonfly(Topology):
    """Groups of chassis of blades, with all-to-all cables at each level.

    Green cables join the blades of a chassis, black ones the chassis of a group, and blue ones the
    groups. A blade is a router with its hosts.

    Args:
        sizes: Groups, chassis in a group, blades in a chassis, hosts of a blade.
        factors: Bandwidth of blue, black and green cables as multiples of a host's.
    """

    sizes: tuple[int, int, int, int] = (1, 1, 1, 1)
    factors: tuple[float, float, float] = (1.0, 1.0, 1.0)

    kind = "dragonfly"

    @property
    def places(self) -> int:
        """See `Topology`."""
        return math.prod(self.sizes)

    def __post_init__(self) -> None:
        groups, chassis, blades, _ = self.sizes
        if groups > blades:
            raise ConfigError(
                f"a dragonfly of {groups} groups needs as many blades in a chassis, not {blades}, "
                "since the blade with a group's number leads to it"
            )
        self._greens, self._blacks = blades * (blades - 1) // 2, chassis * (chassis - 1) // 2
        self._green = self.places
        self._black = self._green + groups * chassis * self._greens
        self._blue = self._black + groups * self._blacks * blades

    @property
    def cable_count(self) -> int:
        """See `Topology`."""
        return self._blue + self.sizes[0] * (self.sizes[0] - 1) // 2

    def cables(self) -> Iterator[Cables]:
        """See `Topology`."""
        groups, chassis, blades, hosts = self.sizes
        blue, black, green = self.factors
        names = [
            f"local_link_from_router_{number // hosts}_to_node_{number % hosts}_{number}"
            for number in range(self.places)
        ]
        yield Cables(names, ("nodes",), np.arange(self.places)[:, None] // hosts)
        between = [(one, a, b) for one in range(groups * chassis) for a, b in _pairs(blades)]
        names = [
            f"green_link_in_chassis_{one % chassis}_between_routers_{a}_and_{b}_{number}"
            for number, (one, a, b) in enumerate(between, self._green)
        ]
        routers = [(one * blades + a, one * blades + b) for one, a, b in between]
        yield Cables(names, ("blades",), _ends(routers), green)
        chassis_pairs = [
            (group, a, b, blade)
            for group in range(groups)
            for a, b in _pairs(chassis)
            for blade in range(blades)
        ]
        names = [
            f"black_link_in_group_{group}_between_chassis_{a}_and_{b}_blade_{blade}_{number}"
            for number, (group, a, b, blade) in enumerate(chassis_pairs, self._black)
        ]
        routers = [
            ((group * chassis + a) * blades + blade, (group * chassis + b) * blades + blade)
            for group, a, b, blade in chassis_pairs
        ]
        yield Cables(names, ("chassis",), _ends(routers), black)
        routers = [(a * chassis * blades + b, b * chassis * blades + a) for a, b in _pairs(groups)]
        names = [
            f"blue_link_between_group_{a}_and_{b}_routers_{one}_and_{other}_{number}"
            for number, ((a, b), (one, other)) in enumerate(
                zip(_pairs(groups), routers, strict=True), self._blue
            )
        ]
        yield Cables(names, ("groups",), _ends(routers), blue)

    def hops(self, source: IntArray, target: IntArray) -> list[IntArray]:
        """See `Topology`."""
        group, chassis, blade = self._place(source)
        to_group, to_chassis, to_blade = self._place(target)
        other_router = source // self.sizes[3] != target // self.sizes[3]
        other_group = group != to_group
        everywhere = np.ones(len(source), bool)
        columns = self.limited(source, everywhere)
        columns.append(self.link(source, False))
        # To the blade that leads to the target's group, and there.
        columns.append(self._green_hop(group, chassis, blade, to_group, other_group))
        columns.append(self._black_hop(group, chassis, chassis * 0, to_group, other_group))
        pair = self._blue + _pair(group, to_group, self.sizes[0])
        columns.append(self.link(np.where(other_group, pair, -1), group > to_group))
        chassis = np.where(other_group, 0, chassis)
        blade = np.where(other_group, group, blade)
        # Within the target's group. SimGrid takes a blade reached by a green cable to be in the
        # first chassis.
        columns.append(self._green_hop(to_group, chassis, blade, to_blade, other_router))
        chassis = np.where(blade != to_blade, 0, chassis)
        columns.append(self._black_hop(to_group, chassis, to_chassis, to_blade, other_router))
        columns.append(self.link(target, True))
        return [*columns, *self.limited(target, source != target)]

    def _place(self, host: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        _, chassis, blades, hosts = self.sizes
        blade = host // hosts
        return blade // (blades * chassis), blade // blades % chassis, blade % blades

    def _green_hop(
        self,
        group: IntArray,
        chassis: IntArray,
        blade: IntArray,
        to_blade: IntArray,
        where: npt.NDArray[np.bool_],
    ) -> IntArray:
        cable = (group * self.sizes[1] + chassis) * self._greens
        cable = self._green + cable + _pair(blade, to_blade, self.sizes[2])
        return self.link(np.where(where & (blade != to_blade), cable, -1), blade > to_blade)

    def _black_hop(
        self,
        group: IntArray,
        chassis: IntArray,
        to_chassis: IntArray,
        blade: IntArray,
        where: npt.NDArray[np.bool_],
    ) -> IntArray:
        pair = group * self._blacks + _pair(chassis, to_chassis, self.sizes[1])
        cable = self._black + pair * self.sizes[2] + blade
        return self.link(np.where(where & (chassis != to_chassis), cable, -1), chassis > to_chassis)


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for a in range(count) for b in range(a + 1, count))


def _ends(routers: list[tuple[int, int]]) -> IntArray:
    return np.array(routers, np.int64).reshape(-1, 2)


def _pair(a: IntArray, b: IntArray, count: int) -> IntArray:
    """Return the place of the pair of two numbers in `_pairs`."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    place: IntArray = low * (2 * count - low - 1) // 2 + high - low - 1
    return place
