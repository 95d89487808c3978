"""Hosts, links and zones, added one by one, become a platform."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import TypeVar

import numpy as np

from hpctwin.errors import ConfigError, in_brief, near
from hpctwin.network.platform import Devices, Platform, PowerStates, Role
from hpctwin.network.topologies import Dragonfly, FatTree, Topology, Torus
from hpctwin.network.units import DEFAULT_GAMMA
from hpctwin.network.zones import Declared, FloatArray, Gateways, IntArray, Links, Star, Zone

__all__ = ["MOST_HOSTS", "TOPOLOGIES", "Builder", "HostOptions", "Link", "Watts"]

MOST_HOSTS = 1_000_000
"""Limit of hosts in one platform; links are limited to ten times as many."""

Z = TypeVar("Z", bound=Zone)
Link = tuple[float, float]
"""Bandwidth in B/s and latency in seconds."""
Watts = tuple[float, float]
"""Power draw when idle and at full load, in W."""

TOPOLOGIES: Mapping[str, type[Topology]] = {
    "FAT_TREE": FatTree,
    "TORUS": Torus,
    "DRAGONFLY": Dragonfly,
}
TWO_WAYS = ("SPLITDUPLEX", "FULLDUPLEX")
"""Ways of sharing in which a link has two directions."""
WAYS = {"_UP": " up", "_DOWN": " down"}
"""Ends of the names and of the levels of the two directions of a link."""


@dataclass(frozen=True)
class HostOptions:
    """Properties of hosts.

    Args:
        speeds: Speed of one core in each power state, in flop/s.
        cores: Number of cores.
        pstate: Power state at the beginning.
        role: Purpose of the host.
        power: Power draw by power state; None if unknown.
        devices: Its GPUs, and storages that it uses.
        properties: Its properties, with those of the zones around it.
    """

    speeds: tuple[float, ...]
    cores: int = 1
    pstate: int = 0
    role: Role = "compute_node"
    power: PowerStates | None = None
    devices: Devices = field(default_factory=Devices)
    properties: Mapping[str, str] = field(default_factory=dict)


class Builder:
    """Collects hosts, links and zones.

    All methods raise a `ConfigError` if a name is given twice or is unknown, or a value is
    impossible.

    Args:
        name: Name of the platform.
        gamma: Largest number of bytes in flight of one flow.
        loopback: Link from a host to itself in zones of declared routes.
    """

    def __init__(
        self, name: str, *, gamma: float = DEFAULT_GAMMA, loopback: Link = (10e9, 0.0)
    ) -> None:
        self.name, self.gamma, self.loopback = name, gamma, loopback
        self.zones: list[Zone] = []
        self._zone_number: dict[str, int] = {}
        self._link_names: list[str] = []
        self._bandwidth: list[float] = []
        self._latency: list[float] = []
        self._fatpipe: list[bool] = []
        self._levels: list[str] = []
        self._idle_w: list[float] = []
        self._busy_w: list[float] = []
        self._to_opposite: list[int] = []
        self._switches: list[IntArray] = []
        self._switch_names: list[str] = []
        self._link_numbers: dict[str, int] = {}
        self._points: list[str] = []
        self._point_number: dict[str, int] = {}
        self._point_zone: list[int] = []
        self._point_rank: list[int] = []
        self._hosts: list[int] = []
        self._options: list[HostOptions] = []
        self._in_trees = 0
        self._storages: dict[str, list[int]] = {}

    def add_zone(self, zone: type[Z], name: str, parent: Zone | None = None, **fields: object) -> Z:
        """Add a zone in another one.

        Args:
            zone: Kind of zone.
            name: Name, unique among zones.
            parent: The zone around it; None for the outermost.
            fields: Further fields of the zone.
        """
        if name in self._zone_number:
            raise ConfigError(f"zone {name!r} is given twice")
        made = zone(name, len(self.zones), parent, **fields)  # type: ignore[arg-type]
        self.zones.append(made)
        self._zone_number[name] = made.number
        return made

    def add_link(
        self,
        name: str,
        link: Link,
        policy: str = "SHARED",
        *,
        level: str = "links",
        watts: Watts = (0.0, 0.0),
        switch: int = -1,
    ) -> Links:
        """Add a link, or two for the two directions, and return their numbers.

        Args:
            name: Name, unique among links.
            link: Bandwidth in B/s and latency in seconds.
            policy: ``SHARED``, ``FATPIPE`` (no sharing), or ``SPLITDUPLEX`` (one link for each
                direction, with names that end in ``_UP`` and ``_DOWN``).
            level: Place in the network that it shares with others, in words; a direction is
                appended.
            watts: Power draw of each direction, when idle and at full load.
            switch: Number of the switch at one of its ends; -1 for none.
        """
        switches = np.array([[switch, -1]])
        self._add_links([name], link, policy, [level], np.array([watts]), switches)
        return self._numbers(name)

    def _add_links(
        self,
        names: Sequence[str],
        link: Link,
        policy: str,
        levels: Sequence[str],
        watts: FloatArray,
        switches: IntArray,
    ) -> None:
        """Add links of the same kind, each or each direction with the next number."""
        bandwidth, latency = link
        first = len(self._link_names)
        if not (0 < bandwidth < math.inf):
            raise ConfigError(
                f"link {names[0]!r}: bandwidth is {bandwidth:g}, expected a number above 0"
            )
        if not (0 <= latency < math.inf):
            raise ConfigError(
                f"link {names[0]!r}: latency is {latency:g}, expected a number, 0 or more"
            )
        for name in names:
            if name in self._link_numbers:
                raise ConfigError(f"link {name!r} is given twice")
        if policy not in ("SHARED", "FATPIPE", *TWO_WAYS):
            raise ConfigError(
                f"link {names[0]!r}: sharing_policy is {in_brief(policy)}; supported are SHARED, "
                "SPLITDUPLEX (FULLDUPLEX) and FATPIPE"
            )
        ways = WAYS if policy in TWO_WAYS else {"": ""}
        if first >= 10 * MOST_HOSTS:
            raise ConfigError(f"more than {10 * MOST_HOSTS:,} links")
        count = len(names) * len(ways)
        self._link_names += [name + way for name in names for way in ways]
        self._levels += [level + way for level in levels for way in ways.values()]
        self._idle_w += watts[:, 0].repeat(len(ways)).tolist()
        self._busy_w += watts[:, 1].repeat(len(ways)).tolist()
        self._switches.append(switches.repeat(len(ways), axis=0))
        self._bandwidth += [bandwidth] * count
        self._latency += [latency] * count
        self._fatpipe += [policy == "FATPIPE"] * count
        self._to_opposite += ([1, -1] if len(ways) == 2 else [0]) * len(names)
        self._link_numbers |= zip(names, range(first, first + count, len(ways)), strict=True)

    def add_host(self, zone: Zone, name: str, host: HostOptions, *, storage: str = "") -> int:
        """Add a host to a zone and return its point.

        Args:
            zone: The zone.
            name: Name, unique among hosts and routers.
            host: Its properties.
            storage: Name of the storage to which a host of this role belongs; by default its own.
        """
        speeds, cores, pstate = host.speeds, host.cores, host.pstate
        if not speeds or not all(0 <= speed < math.inf for speed in speeds):
            raise ConfigError(
                f"host {name!r}: speed is {in_brief(list(speeds))}, expected 0 or more"
            )
        if not 0 <= pstate < len(speeds):
            raise ConfigError(
                f"host {name!r}: pstate is {pstate}, but there are {len(speeds)} speeds"
            )
        if not 1 <= cores <= MOST_HOSTS:
            raise ConfigError(f"host {name!r}: core is {cores}, expected 1 to {MOST_HOSTS:,}")
        if len(self._hosts) >= MOST_HOSTS:
            raise ConfigError(f"more than {MOST_HOSTS:,} hosts")
        point = self.add_router(zone, name)
        self._hosts.append(point)
        if host.role == "storage":
            self._storages.setdefault(storage or name, []).append(len(self._options))
        self._options.append(host)
        return point

    def add_router(self, zone: Zone, name: str) -> int:
        """Add a router to a zone and return its point."""
        if name in self._point_number:
            raise ConfigError(f"host or router {name!r} is given twice")
        point = len(self._points)
        self._points.append(name)
        self._point_number[name] = point
        self._point_zone.append(zone.number)
        self._point_rank.append(len(zone.points))
        zone.points.append(point)
        return point

    def add_cluster(
        self,
        name: str,
        parent: Zone | None,
        hosts: Mapping[int, tuple[str, HostOptions]],
        link: Link,
        *,
        kind: str = "FLAT",
        fields: Mapping[str, object] | None = None,
        policy: str = "SPLITDUPLEX",
        backbone: Link | None = None,
        backbone_policy: str = "SHARED",
        loopback: Link | None = None,
        limiter: float | None = None,
        router: str | None = None,
        switch_watts: Watts = (0.0, 0.0),
    ) -> Zone:
        """Add a zone of hosts, with all its links and a router.

        Args:
            name: Name of the zone.
            parent: The zone around it.
            hosts: Names and properties of its hosts by their numbers, which are in the names of
                links.
            link: Connection of each host, and each cable of a topology.
            kind: ``FLAT`` for hosts around one switch, ``FAT_TREE``, ``TORUS`` or ``DRAGONFLY``.
            fields: Parameters of the topology.
            policy: Sharing of each connection.
            backbone: Link that each route of a flat cluster passes, if any.
            backbone_policy: Sharing of the backbone.
            loopback: Link from each host to itself, if any.
            limiter: Bandwidth of a limit on each host, if any.
            router: Name of its router; by default ``NAME_router``.
            switch_watts: Power draw of each switch, when idle and at full load of all its links.
        """
        topology = TOPOLOGIES.get(kind)
        if topology is None and kind != "FLAT":
            raise ConfigError(
                f"topology {kind!r} is unknown; known: FLAT, {', '.join(TOPOLOGIES)}."
                f"{near(kind, TOPOLOGIES)}"
            )
        loopbacks: dict[int, Links] = {}
        limiters: dict[int, Links] = {}
        if loopback is not None:
            for number in hosts:
                link_name = f"{name}_link_{number}_loopback"
                loopbacks[number] = self.add_link(link_name, loopback, "FATPIPE")
        if limiter is not None:
            for number in hosts:
                limiters[number] = self.add_link(
                    f"{name}_link_{number}_limiter", (limiter, 0.0), level="limiters"
                )
        first = next(iter(hosts))
        made: Zone
        if topology is None:
            star = made = self.add_zone(Star, name, parent)
            shared = (
                self.add_link(f"{name}_backbone", backbone, backbone_policy, level="backbone")
                if backbone
                else ()
            )
            ((idle_w, busy_w),) = _share(switch_watts, np.array([1 / len(hosts)]), policy).tolist()
            for number, (host_name, host) in hosts.items():
                point = self.add_host(star, host_name, host)
                ways = self.add_link(
                    f"{name}_link_{number}",
                    link,
                    policy,
                    level="nodes",
                    watts=(idle_w, busy_w),
                    switch=len(self._switch_names),
                )
                limits = limiters.get(number, ())
                star.up[point] = (*limits, ways[0], *shared)
                star.down[point] = (*shared, ways[-1], *limits)
                if loopbacks:
                    star.loopbacks[point] = loopbacks[number][0]
            self._switch_names.append(f"{name}_switch")
        else:
            more = dict(fields or {})
            if topology is FatTree:
                more["offset"] = self._in_trees
                self._in_trees += len(hosts)
            regular = made = self.add_zone(
                topology,
                name,
                parent,
                hosts=len(hosts),
                first_link=len(self._link_names),
                two_ways=policy in TWO_WAYS,
                loopback=loopbacks[first][0] if loopbacks else -1,
                limiter=limiters[first][0] if limiters else -1,
                **more,
            )
            if len(hosts) > regular.places:
                raise ConfigError(
                    f"zone {name!r}: the {regular.kind} has room for {regular.places:,} hosts, "
                    f"not {len(hosts):,}"
                )
            if regular.cable_count > 10 * MOST_HOSTS:
                raise ConfigError(
                    f"zone {name!r}: the {regular.kind} has {regular.cable_count:,} links; at most "
                    f"{10 * MOST_HOSTS:,} are supported"
                )
            cables = [*regular.cables()]
            switches, ports = np.unique(
                np.concatenate([one.switches.ravel() for one in cables]), return_counts=True
            )
            first_switch = len(self._switch_names)
            self._switch_names += [f"{name}_switch_{number}" for number in switches.tolist()]
            for one in cables:
                place = np.searchsorted(switches, one.switches)
                shares = (1 / ports[place]).sum(1)
                ends = np.full((len(place), 2), -1)
                ends[:, : place.shape[1]] = first_switch + place
                self._add_links(
                    one.names,
                    (link[0] * one.factor, link[1]),
                    policy,
                    [*islice(cycle(one.levels), len(one.names))],
                    _share(switch_watts, shares, policy),
                    ends,
                )
            for host_name, host in hosts.values():
                self.add_host(made, host_name, host)
        self.add_router(made, router or f"{name}_router")
        return made

    def hosts(self) -> list[tuple[str, HostOptions]]:
        """Return the names and properties of the hosts so far."""
        names = (self._points[point] for point in self._hosts)
        return list(zip(names, self._options, strict=True))

    def point(self, name: str) -> int:
        """Return the point of a host or router."""
        if name not in self._point_number:
            raise ConfigError(f"unknown host or router {name!r}.{near(name, self._point_number)}")
        return self._point_number[name]

    def zone(self, name: str) -> Zone:
        """Return a zone by name."""
        if name not in self._zone_number:
            raise ConfigError(f"unknown zone {name!r}.{near(name, self._zone_number)}")
        return self.zones[self._zone_number[name]]

    def link_of(self, name: str, direction: str = "NONE") -> int:
        """Return the number of a link.

        Args:
            name: Name of the link.
            direction: ``UP`` or ``DOWN`` of a link with two directions.
        """
        numbers = self._numbers(name)
        if len(numbers) == 1:
            return numbers[0]
        if direction not in ("UP", "DOWN"):
            raise ConfigError(
                f"link {name!r} has two directions; give direction='UP' or direction='DOWN'"
            )
        return numbers[direction == "DOWN"]

    def _numbers(self, name: str) -> Links:
        """Return the numbers of a link, or of one of its directions."""
        number = self._link_numbers.get(name)
        if number is not None:
            return (number, number + 1) if self._to_opposite[number] else (number,)
        for place, way in enumerate(WAYS):
            number = self._link_numbers.get(name.removesuffix(way)) if name.endswith(way) else None
            if number is not None and self._to_opposite[number]:
                return (number + place,)
        raise ConfigError(f"unknown link {name!r}.{near(name, self._link_numbers)}")

    def add_route(
        self, zone: Zone, source: int, target: int, links: Links, *, symmetrical: bool = True
    ) -> None:
        """Add the route between two points of a zone, and that in the other direction."""
        if not isinstance(zone, Declared):
            raise ConfigError(
                f"zone {zone.name!r} of kind {zone.kind} takes no routes between hosts"
            )
        for point in (source, target):
            if self._point_zone[point] != zone.number:
                raise ConfigError(f"{self._points[point]!r} is not in zone {zone.name!r}")
        if (source, target) in zone.routes:
            raise ConfigError(
                f"the route from {self._points[source]!r} to {self._points[target]!r} is given twice"
            )
        zone.routes[source, target] = links
        if symmetrical and source != target:
            zone.implied.setdefault((target, source), self._reversed(links))

    def add_gateways(
        self,
        zone: Zone,
        source: Zone,
        target: Zone,
        gateways: Gateways,
        *,
        symmetrical: bool = True,
    ) -> None:
        """Add the connection of two zones in a zone, and that in the other direction."""
        for one, point in ((source, gateways.source), (target, gateways.target)):
            if one.parent is not zone:
                raise ConfigError(f"zone {one.name!r} is not in zone {zone.name!r}")
            if one not in self.zones[self._point_zone[point]].around():
                raise ConfigError(f"gateway {self._points[point]!r} is not in zone {one.name!r}")
        pair = (source.number, target.number)
        if pair in zone.gateways:
            raise ConfigError(
                f"the route from zone {source.name!r} to {target.name!r} is given twice"
            )
        zone.gateways[pair] = gateways
        if symmetrical:
            links = self._reversed(gateways.links)
            back = Gateways(gateways.target, gateways.source, links)
            zone.implied_gateways.setdefault(pair[::-1], back)

    def _reversed(self, links: Links) -> Links:
        """Return the links of the other direction."""
        return tuple(link + self._to_opposite[link] for link in reversed(links))

    def build(self) -> Platform:
        """Return the platform."""
        if not self._hosts:
            raise ConfigError(f"platform {self.name!r} has no hosts")
        with_hosts = {self._point_zone[point] for point in self._hosts}
        for zone in self.zones:
            if isinstance(zone, Declared):
                zone.routes = zone.implied | zone.routes
                if zone.number in with_hosts:
                    name = "__loopback__"
                    if name not in self._link_numbers:
                        self.add_link(name, self.loopback, "FATPIPE")
                    (zone.loopback,) = self._numbers(name)
            zone.gateways = zone.implied_gateways | zone.gateways
            zone.finish()
        hosts = self._options
        return Platform(
            name=self.name,
            host_names=tuple(self._points[point] for point in self._hosts),
            host_cores=np.array([host.cores for host in hosts], np.int64),
            host_speed=np.array([host.speeds[host.pstate] for host in hosts], np.float64),
            host_speeds=tuple(host.speeds for host in hosts),
            host_pstate=np.array([host.pstate for host in hosts], np.int64),
            host_properties=tuple(host.properties for host in hosts),
            host_roles=tuple(host.role for host in hosts),
            host_power=tuple(host.power for host in hosts),
            host_devices=tuple(host.devices for host in hosts),
            storages={name: np.array(own, np.int64) for name, own in self._storages.items()},
            link_names=tuple(self._link_names),
            link_bandwidth=np.array(self._bandwidth, np.float64),
            link_latency=np.array(self._latency, np.float64),
            link_fatpipe=np.array(self._fatpipe, np.bool_),
            link_levels=tuple(self._levels),
            link_idle_w=np.array(self._idle_w, np.float64),
            link_busy_w=np.array(self._busy_w, np.float64),
            link_switches=np.concatenate([np.empty((0, 2)), *self._switches]).astype(np.int32),
            switch_names=tuple(self._switch_names),
            zones=tuple(self.zones),
            point_names=tuple(self._points),
            point_zone=np.array(self._point_zone, np.int64),
            point_rank=np.array(self._point_rank, np.int64),
            host_point=np.array(self._hosts, np.int64),
            gamma=self.gamma,
        )


def _share(watts: Watts, switches: FloatArray, policy: str) -> FloatArray:
    """Return the power draw of each direction of links that stand for parts of switches.

    Args:
        watts: Power draw of a switch.
        switches: Number of switches, such as a quarter of one with four links [links].
        policy: Sharing of the links.
    """
    return np.outer(switches / (2 if policy in TWO_WAYS else 1), watts)
