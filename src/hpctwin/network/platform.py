"""The platform: hosts and links as arrays, and the route between each pair of hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, NoRouteError, UnknownNameError
from hpctwin.network.units import DEFAULT_GAMMA
from hpctwin.network.zones import Attached, Gateways, Zone, links_matrix

__all__ = ["Devices", "Platform", "PowerStates", "Role", "Routes", "SleepState"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
LinkArray = npt.NDArray[np.int32]

Role = Literal["compute_node", "storage", "master"]

_AT_ONCE = 1 << 16
"""Number of pairs whose routes are computed at a time, which bounds the memory."""


class SleepState(NamedTuple):
    """Numbers of the power states of a sleep state.

    Args:
        asleep: State in which the host sleeps.
        off: State that lasts one flop while the host falls asleep.
        on: State that lasts one flop while it wakes up.
    """

    asleep: int
    off: int
    on: int


class PowerStates(NamedTuple):
    """Power draw of a host in each power state, in W.

    A host of several cores draws from ``one_core_w`` to ``busy_w``, in proportion to its load.

    Args:
        idle_w: Power draw of an idle host [states].
        one_core_w: Power draw at the smallest load [states].
        busy_w: Power draw with all cores in use [states].
        sleep: Sleep states.
    """

    idle_w: tuple[float, ...]
    one_core_w: tuple[float, ...]
    busy_w: tuple[float, ...]
    sleep: tuple[SleepState, ...] = ()


class Devices(NamedTuple):
    """GPUs of a host, and storages that it uses.

    Args:
        gpus: Number of GPUs.
        gpu_speed: Speed of each, in flop/s; 0 if unknown.
        gpu_bandwidth: Bandwidth between two of them, in B/s; 0 if unknown.
        file_systems: Names of the hosts of its shared storage; all if empty.
        striped: Whether data in burst buffers are spread over those of all hosts of a job.
        stripe_flops: Computation for each byte of such data, on the host whose burst buffer has it.
    """

    gpus: int = 0
    gpu_speed: float = 0.0
    gpu_bandwidth: float = 0.0
    file_systems: tuple[str, ...] = ()
    striped: bool = False
    stripe_flops: float = 0.0


@dataclass(frozen=True, eq=False)
class Routes:
    """Routes of many pairs of hosts.

    Args:
        offsets: Start of each pair's links in ``links``, and their end [pairs + 1].
        links: Link numbers, in the order in which each route passes them.
        latency_s: Latency of each route, in seconds [pairs].
    """

    offsets: IntArray
    links: LinkArray
    latency_s: FloatArray


@dataclass(frozen=True, eq=False)
class Platform:
    """Hosts and links of a cluster; `hpctwin.network.builder.Builder` and the readers make it.

    Args:
        name: Name of the platform.
        host_names: Names of the hosts, in the order of the file.
        host_cores: Cores of each host.
        host_speed: Speed of one core in the host's power state, in flop/s.
        host_speeds: Speed of one core in each power state.
        host_pstate: Power state of each host at the beginning.
        host_properties: Properties of each host, with those of the zones around it.
        host_roles: Role of each host.
        host_power: Power draw of each host by power state, which may be fewer than its speeds;
            None if unknown.
        host_devices: GPUs of each host, and storages that it uses.
        storages: Hosts of each storage by its name: one, or one attached to each node.
        link_names: Names of the links.
        link_bandwidth: Bandwidth of each link, in B/s.
        link_latency: Latency of each link, in seconds.
        link_fatpipe: Whether a link gives each flow its full bandwidth.
        link_levels: Place in the network that each link shares with others, in words.
        link_idle_w, link_busy_w: Power draw of each link, and of its part of switches, when idle and
            at full load, in W; 0 if unknown.
        link_switches: Numbers of the switches at the ends of each link; -1 for none [links, 2].
        switch_names: Names of the switches of regular networks.
        zones: Zones of the network, each after the one around it.
        point_names: Names of the points of the network: hosts and routers.
        point_zone: Number of the zone of each point.
        point_rank: Place of each point in its zone.
        host_point: Point of each host.
        gamma: Largest number of bytes in flight of one flow.
    """

    name: str
    host_names: tuple[str, ...]
    host_cores: IntArray
    host_speed: FloatArray
    host_speeds: tuple[tuple[float, ...], ...]
    host_pstate: IntArray
    host_properties: tuple[Mapping[str, str], ...]
    host_roles: tuple[Role, ...]
    host_power: tuple[PowerStates | None, ...]
    host_devices: tuple[Devices, ...]
    storages: Mapping[str, IntArray]
    link_names: tuple[str, ...]
    link_bandwidth: FloatArray
    link_latency: FloatArray
    link_fatpipe: npt.NDArray[np.bool_]
    link_levels: tuple[str, ...]
    link_idle_w: FloatArray
    link_busy_w: FloatArray
    link_switches: LinkArray
    switch_names: tuple[str, ...]
    zones: tuple[Zone, ...] = field(repr=False)
    point_names: tuple[str, ...] = field(repr=False)
    point_zone: IntArray = field(repr=False)
    point_rank: IntArray = field(repr=False)
    host_point: IntArray = field(repr=False)
    gamma: float = DEFAULT_GAMMA

    def host(self, name: str) -> int:
        """Return the number of a host.

        Raises:
            UnknownNameError: There is no such host.
        """
        try:
            return self._hosts[name]
        except KeyError:
            raise UnknownNameError("host", name, self.host_names) from None

    def hosts_of(self, role: Role) -> IntArray:
        """Return the hosts of a role, in the order in which Batsim numbers them.

        Hosts that compute are sorted by name, numbers in names by value (a2 is before a10); others
        are in the order of the file.
        """
        found = [host for host, own in enumerate(self.host_roles) if own == role]
        if role == "compute_node":
            found.sort(key=lambda host: _by_number(self.host_names[host]))
        return np.array(found, np.int64)

    def storage(self, label: str, hosts: npt.ArrayLike) -> IntArray:
        """Return the host of a storage for each of some hosts.

        Args:
            label: Name of the storage or of its host; any label means the only storage, if there
                is one.
            hosts: Numbers of the hosts that use it; a storage on each node is their own.

        Raises:
            UnknownNameError: There is no such storage.
            ConfigError: One of the hosts has no such storage attached.
        """
        users = np.asarray(hosts, np.int64)
        found = self.storages.get(label)
        if (
            found is None
            and label in self._hosts
            and self.host_roles[self._hosts[label]] == "storage"
        ):
            found = np.array([self._hosts[label]])
        if found is None and len(self.storages) == 1:
            (found,) = self.storages.values()
        if found is None:
            raise UnknownNameError("storage", label, self.storages)
        zone = self.zones[self.point_zone[self.host_point[found[0]]]]
        if not isinstance(zone, Attached):
            return np.repeat(found[:1], len(users))
        at_point = np.full(len(self.point_names), -1)
        at_point[zone.bases[self.point_rank[self.host_point[found]]]] = found
        own: IntArray = at_point[self.host_point[users]]
        if (own < 0).any():
            without = self.host_names[int(users[own < 0][0])]
            raise ConfigError(f"platform {self.name!r}: host {without!r} has no storage {label!r}")
        return own

    def file_systems(self, host: int) -> IntArray:
        """Return the hosts of the shared storage that a host uses.

        Raises:
            ConfigError: There are none.
        """
        named = self.host_devices[host].file_systems
        if named:
            return np.array([self.host(name) for name in named], np.int64)
        if not len(self._shared):
            raise ConfigError(
                f"platform {self.name!r} has no storage that hosts share; give a host the property "
                "pfs_host='true', or add 'storage' to the cluster file"
            )
        return self._shared

    def burst_buffers(self, hosts: npt.ArrayLike) -> IntArray:
        """Return the burst buffer of each of some hosts.

        Raises:
            ConfigError: One of the hosts has none, or there are several kinds.
        """
        kinds = [name for name, own in self.storages.items() if self._is_attached(int(own[0]))]
        if len(kinds) != 1:
            raise ConfigError(
                f"platform {self.name!r} has {len(kinds)} kinds of storage on nodes, and jobs use a "
                "burst buffer; give hosts the property node_local_bb='true', or add one storage "
                "with 'place: node' to the cluster file"
            )
        return self.storage(kinds[0], hosts)

    @cached_property
    def _shared(self) -> IntArray:
        """Hosts of storages that are not attached to nodes."""
        hosts = self.hosts_of("storage").tolist()
        return np.array([one for one in hosts if not self._is_attached(one)], np.int64)

    def _is_attached(self, host: int) -> bool:
        return isinstance(self.zones[self.point_zone[self.host_point[host]]], Attached)

    def route(self, src: int, dst: int) -> tuple[LinkArray, float]:
        """Return the links between two hosts, and the latency in seconds.

        For many pairs, `routes` is much faster.

        Raises:
            NoRouteError: The hosts are not connected.
        """
        found = self.routes(np.array([src]), np.array([dst]))
        return found.links, float(found.latency_s[0])

    def routes(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> Routes:
        """Return the routes of many pairs of hosts.

        Args:
            src: Numbers of the first hosts [pairs].
            dst: Numbers of the second hosts [pairs].

        Raises:
            NoRouteError: Two of the hosts are not connected.
        """
        source, target = (self.host_point[np.asarray(one, np.int64)] for one in (src, dst))
        counts, links, latencies = [], [], []
        for start in range(0, max(len(source), 1), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            try:
                found, further_s = self._links(source[part], target[part])
            except NoRouteError as error:
                ends = (self.point_names[int(point)] for point in (error.source, error.target))
                raise NoRouteError(self.name, *ends) from error
            used = found >= 0
            counts.append(used.sum(1))
            links.append(found[used])
            latency = (
                np.where(used, self.link_latency[found], 0.0) if len(self.link_latency) else used
            )
            latencies.append(latency.sum(1) + further_s)
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        return Routes(offsets, np.concatenate(links), np.concatenate(latencies).astype(np.float64))

    @cached_property
    def _hosts(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.host_names)}

    def _links(self, source: IntArray, target: IntArray) -> tuple[LinkArray, FloatArray]:
        """Return links [pairs, …] between points, and latency that is not theirs [pairs]."""
        keys = self.point_zone[source] * len(self.zones) + self.point_zone[target]
        parts = []
        for key in np.unique(keys).tolist():
            rows = np.flatnonzero(keys == key)
            a, b = (self.zones[number] for number in divmod(key, len(self.zones)))
            parts.append((rows, *self._between(a, b, source[rows], target[rows])))
        found = np.full((len(source), max((p[1].shape[1] for p in parts), default=0)), -1, np.int32)
        further_s = np.zeros(len(source))
        for rows, links, more_s in parts:
            found[rows, : links.shape[1]] = links
            further_s[rows] = more_s
        return found, further_s

    def _between(
        self, a: Zone, b: Zone, source: IntArray, target: IntArray
    ) -> tuple[LinkArray, FloatArray | float]:
        """Return links and further latency between points of two zones."""
        if isinstance(a, Attached) or isinstance(b, Attached):
            return self._attached(a, b, source, target)
        if a is b:
            return _with_bypasses(a, source, target, self.point_rank)
        gateways = self._gateways(a, b, int(source[0]), int(target[0]))
        out, out_s = self._segment(source, np.full(len(source), gateways.source))
        into, into_s = self._segment(np.full(len(target), gateways.target), target)
        middle = np.tile(links_matrix([gateways.links]), (len(source), 1))
        return np.hstack([out, middle, into]), out_s + into_s

    def _attached(
        self, a: Zone, b: Zone, source: IntArray, target: IntArray
    ) -> tuple[LinkArray, FloatArray]:
        """Return links and further latency if some points are attached to others."""
        none = np.full((len(source), 1), -1, np.int32)
        out = into = none
        rank = self.point_rank
        if isinstance(a, Attached):
            out = np.where(source == target, -1, a.out_links[rank[source]])[:, None]
            source, to_itself = a.bases[rank[source]], source == target
            target = np.where(to_itself, source, target)
        if isinstance(b, Attached):
            own = np.isin(target, b.points)
            into = none.copy()
            into[own, 0] = b.into_links[rank[target[own]]]
            target = target.copy()
            target[own] = b.bases[rank[target[own]]]
        links, further_s = self._segment(source, target)
        return np.hstack([out, links, into]), further_s

    def _segment(self, source: IntArray, target: IntArray) -> tuple[LinkArray, FloatArray]:
        """Return links between points; none between a point and itself.

        Each distinct pair is routed once.
        """
        size = len(self.point_names)
        pairs, place = np.unique(source * size + target, return_inverse=True)
        a, b = np.divmod(pairs, size)
        apart = a != b
        links, further_s = self._links(a[apart], b[apart])
        every = np.full((len(pairs), links.shape[1]), -1, np.int32)
        every_s = np.zeros(len(pairs))
        every[apart], every_s[apart] = links, further_s
        return every[place], every_s[place]

    def _gateways(self, a: Zone, b: Zone, source: int, target: int) -> Gateways:
        above_a, above_b = a.around(), b.around()
        common = next(zone for zone in above_a if zone in above_b)
        below_a, below_b = (one[: one.index(common)] for one in (above_a, above_b))
        if common.bypasses:
            for first in below_a or [common]:
                for second in below_b or [common]:
                    if (first.number, second.number) in common.bypasses:
                        return common.bypasses[first.number, second.number]
        if below_a and below_b:
            found = common.gateways.get((below_a[-1].number, below_b[-1].number))
            if found is not None:
                return found
        raise NoRouteError(self.name, source, target)


def _with_bypasses(
    zone: Zone, source: IntArray, target: IntArray, rank: IntArray
) -> tuple[LinkArray, FloatArray | float]:
    """Return links and further latency between points of one zone."""
    further_s = zone.further_latency_s(source, target)
    ways = (
        [zone.bypassed.get(pair) for pair in zip(source.tolist(), target.tolist(), strict=True)]
        if zone.bypassed
        else []
    )
    other = np.array([way is None for way in ways], bool)
    if other.all():
        return zone.links(source, target, rank), further_s
    known = links_matrix(() if way is None else way for way in ways)
    links = zone.links(source[other], target[other], rank) if other.any() else known[:0]
    found = np.full((len(source), max(known.shape[1], links.shape[1])), -1, np.int32)
    found[:, : known.shape[1]] = known
    found[other, : links.shape[1]] = links
    return found, np.where(other, further_s, 0.0)


def _by_number(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers in names by value."""
    parts = enumerate(re.split(r"([0-9]+)", name))
    return [(0, int(part), part) if place % 2 else (1, 0, part) for place, part in parts]
