"""SimGrid's platforms in XML, of all versions that Batsim's files have (4 and 4.1).

Source:
    https://simgrid.org/doc/latest/XML_reference.html
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from hpctwin.errors import ConfigError, near
from hpctwin.formats.files import Element, parse_xml
from hpctwin.network import units
from hpctwin.network.builder import MOST_HOSTS, Builder, HostOptions, Link, Watts
from hpctwin.network.platform import Devices, Platform, PowerStates, Role, SleepState
from hpctwin.network.zones import Attached, Declared, Gateways, Links, Shortest, Star, Zone

MASTERS = ("master_host", "master_host0")
"""Names of the host of Batsim's scheduler, by default and in Batsim's files."""

_ZONES: dict[str, type[Zone]] = {
    "full": Declared,
    "floyd": Shortest,
    "dijkstra": Shortest,
    "dijkstracache": Shortest,
    "cluster": Star,
    "vivaldi": Star,
    "none": Zone,
}
_READ: dict[str, tuple[str, ...]] = {
    "platform": ("version",),
    "config": ("id",),
    "zone": ("id", "routing"),
    "host": ("id", "speed", "power", "core", "pstate", "coordinates"),
    "peer": ("id", "speed", "bw_in", "bw_out", "coordinates"),
    "cluster": (
        "id", "prefix", "suffix", "radical", "speed", "power", "core", "pstate", "bw", "lat",
        "sharing_policy", "bb_bw", "bb_lat", "bb_sharing_policy", "router_id", "limiter_link",
        "loopback_bw", "loopback_lat", "topology", "topo_parameters",
    ),
    "cabinet": ("id", "prefix", "suffix", "radical", "speed", "power", "bw", "lat", "pstate", "core"),
    "backbone": ("id", "bandwidth", "latency", "sharing_policy"),
    "host_link": ("id", "up", "down"),
    "router": ("id", "coordinates"),
    "link": ("id", "bandwidth", "latency", "sharing_policy"),
    "link_ctn": ("id", "direction"),
    "route": ("src", "dst", "symmetrical"),
    "zoneRoute": ("src", "dst", "gw_src", "gw_dst", "symmetrical"),
    "bypassRoute": ("src", "dst"),
    "bypassZoneRoute": ("src", "dst", "gw_src", "gw_dst"),
    "prop": ("id", "value"),
}  # fmt: skip
"""Attributes that are read, by tag."""

_OLD_NAMES = {
    "AS": "zone",
    "ASroute": "zoneRoute",
    "bypassASroute": "bypassZoneRoute",
    "process": "actor",
}
_IGNORED = ("actor", "disk", "mount", "storage", "storage_type", "trace", "trace_connect")
"""Tags of what jobs do not use: programs, disks, and changes over time."""
_HOSTS = ("host", "peer", "cluster", "cabinet")
_PROPERTIES = (
    "role", "wattage_per_state", "watt_per_state", "sleep_pstates",
    "batch_system", "pfs_host", "pfs_targets", "node_local_bb", "bb_read_bw", "bb_write_bw",
    "wide_striping", "flops_per_byte", "num_gpus", "flops_per_gpu", "gpu_to_gpu_bw",
)  # fmt: skip
"""Properties of hosts that are read: Batsim's, then ElastiSim's."""
_CONFIG = {
    "network/TCP-gamma": units.number,
    "network/TCP_gamma": units.number,
    "network/loopback-bw": units.bandwidth,
    "network/loopback-lat": units.latency,
}
"""Options that are read."""


def read_platform(path: Path, text: str, counts: dict[str, int]) -> Platform:
    """Read a platform.

    A host is Batsim's master if its property ``role`` says so; if none does, it is the host
    ``master_host`` or ``master_host0``.

    Args:
        path: File, for messages and the platform's name.
        text: Content of the file.
        counts: Gets the tags and attributes that are not read, with their numbers.

    Raises:
        ConfigError: The file is not a valid platform; the message names line and tag.
    """
    root = parse_xml(path, text)
    if root.tag != "platform":
        raise root.fault(
            "expected 'platform' as the outermost tag; is this a platform of SimGrid or Batsim?"
        )
    for element in root.all():
        element.tag = _OLD_NAMES.get(element.tag, element.tag)
        if element.tag not in _READ and element.tag not in _IGNORED:
            raise element.fault(f"this tag is not supported.{near(element.tag, _READ)}")
    reader = _Reader(path, root)
    platform = reader.platform()
    counts |= _not_read(root)
    return platform


def _not_read(root: Element) -> dict[str, int]:
    """Return sentences about what is not read, with their counts."""
    found: Counter[str] = Counter()
    options: Counter[str] = Counter()
    for element in root.all():
        if element.tag in _IGNORED:
            found[f"field {element.tag!r} of the platform, ignored"] += 1
            continue
        what = "host" if element.tag in _HOSTS else element.tag
        for name in element.attributes:
            if name not in _READ[element.tag]:
                found[f"field {name[:40]!r} of a {what}, ignored"] += 1
        for prop in (one.attributes.get("id", "")[:40] for one in element.inside("prop")):
            if what == "host" and prop not in _PROPERTIES:
                found[f"field {prop!r} of a host's properties, ignored"] += 1
            if what == "config" and prop not in _CONFIG:
                options[prop] += 1
    if options:
        names = ", ".join([*options][:8]) + (", …" if len(options) > 8 else "")
        found[f"option of SimGrid for other models, ignored: {names}"] = options.total()
    return found


@contextmanager
def _at(element: Element) -> Iterator[None]:
    """Name the element in errors about its values."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        if said.startswith(str(element.path)):
            raise
        name = element.attributes.get("id")
        raise element.fault(said.removeprefix(f"{element.tag} {name!r}: ")) from error


class _Reader:
    """One file being read."""

    def __init__(self, path: Path, root: Element) -> None:
        options = {
            "network/TCP-gamma": 0.0, "network/loopback-bw": 10e9, "network/loopback-lat": 0.0,
        }  # fmt: skip
        for prop in (one for child in root.inside("config") for one in child.children):
            with _at(prop):
                name = prop.text("id")
                if name in _CONFIG:
                    options[name.replace("_", "-")] = _CONFIG[name](prop.text("value"))
        gamma, bandwidth, latency = options.values()
        self._root = root
        self._builder = Builder(
            path.stem, gamma=gamma or units.DEFAULT_GAMMA, loopback=(bandwidth, latency)
        )
        self._later: list[tuple[Element, Callable[[], None]]] = []
        self._backbones: dict[int, Links] = {}
        self._hosts = 0
        masters = ("role", "master"), ("batch_system", "true")
        self._masters = any(
            (one.attributes.get("id"), one.attributes.get("value")) in masters
            for one in root.all()
            if one.tag == "prop"
        )
        names = {one.attributes.get("id") for one in root.all() if one.tag == "host"}
        self._master = next((name for name in MASTERS if name in names), MASTERS[1])

    def platform(self) -> Platform:
        """Return the platform."""
        outer = [*self._root.inside("zone", "cluster")]
        if not outer:
            raise self._root.fault("no 'zone' or 'cluster' inside")
        around = self._builder.add_zone(Zone, "") if len(outer) > 1 else None
        for element in outer:
            with _at(element):
                self._add_zone(element, around, {}) if element.tag == "zone" else self._add_cluster(
                    element, around, {}
                )
        for element, add in self._later:
            with _at(element):
                add()
        with _at(self._root):
            self._add_burst_buffers()
            self._check_file_systems()
            return self._builder.build()

    def _add_burst_buffers(self) -> None:
        """Add the burst buffer of each host that has one in ElastiSim's form."""
        hosts = [
            one for one in self._builder.hosts() if _is_true(one[1].properties, "node_local_bb")
        ]
        if not hosts:
            return
        zone = self._builder.add_zone(Attached, "bb", self._builder.zones[0])
        for name, host in hosts:
            self._builder.add_host(
                zone, f"bb-{name}", HostOptions((0.0,), role="storage"), storage="bb"
            )
            zone.base.append(self._builder.point(name))
            for links, key in ((zone.out, "bb_read_bw"), (zone.into, "bb_write_bw")):
                bandwidth = units.bandwidth(host.properties.get(key, ""))
                links += self._builder.add_link(f"{key}_{name}", (bandwidth, 0.0))

    def _check_file_systems(self) -> None:
        """Check that hosts exist that others name as their file systems."""
        for targets in {host.devices.file_systems for _, host in self._builder.hosts()}:
            for name in targets:
                self._builder.point(name)

    def _add_zone(
        self, element: Element, parent: Zone | None, properties: Mapping[str, str]
    ) -> None:
        routing = element.text("routing")
        kind = _ZONES.get(routing.lower())
        if kind is None:
            raise element.fault(
                f"routing {routing[:40]!r} is not supported; supported are Full, Floyd, Dijkstra, "
                "Cluster, Vivaldi and None"
            )
        zone = self._builder.add_zone(kind, element.text("id"), parent)
        inherited = {**properties, **_properties(element)}
        for child in element.children:
            with _at(child):
                self._add_to_zone(child, zone, inherited)

    def _add_to_zone(self, element: Element, zone: Zone, inherited: Mapping[str, str]) -> None:
        later = {
            "host_link": self._add_host_link,
            "route": self._add_route,
            "zoneRoute": self._add_zone_route,
            "bypassRoute": self._add_bypass,
            "bypassZoneRoute": self._add_zone_bypass,
        }
        match element.tag:
            case "zone":
                self._add_zone(element, zone, inherited)
            case "cluster":
                self._add_cluster(element, zone, inherited)
            case "cabinet":
                self._add_cabinet(element, zone, inherited)
            case "host" | "peer":
                self._add_host(element, zone, inherited)
            case "router":
                point = self._builder.add_router(zone, element.text("id"))
                self._set_coordinates(element, zone, point)
            case "link":
                self._add_link(element, _link_power(_properties(element)))
            case "backbone":
                self._backbones[zone.number] = self._add_link(element)
            case tag if tag in later:
                self._later.append((element, partial(later[tag], element, zone)))
            case tag if tag not in ("prop", "config", *_IGNORED):
                raise element.fault("this tag is not supported inside a zone")

    def _add_link(self, element: Element, watts: Watts = (0.0, 0.0)) -> Links:
        latency = units.latency(element.attributes.get("latency", "0"))
        link = (units.bandwidth(element.text("bandwidth")), latency)
        policy = element.attributes.get("sharing_policy", "SHARED").upper()
        return self._builder.add_link(element.text("id"), link, policy, watts=watts)

    def _add_host(self, element: Element, zone: Zone, inherited: Mapping[str, str]) -> None:
        name = element.text("id")
        point = self._builder.add_host(zone, name, self._options(element, name, inherited))
        self._set_coordinates(element, zone, point)
        if element.tag == "peer":
            star = _star(zone)
            star.up[point] = self._builder.add_link(
                f"link_{name}_UP", (units.bandwidth(element.text("bw_out")), 0.0)
            )
            star.down[point] = self._builder.add_link(
                f"link_{name}_DOWN", (units.bandwidth(element.text("bw_in")), 0.0)
            )

    def _set_coordinates(self, element: Element, zone: Zone, point: int) -> None:
        text = element.attributes.get("coordinates")
        if text is None or not isinstance(zone, Star):
            return
        values = [units.number(part) for part in text.split()]
        if len(values) != 3:
            raise element.fault(
                f"coordinates {text[:40]!r} must be three numbers: x, y and height in ms"
            )
        zone.coordinates[point] = (values[0], values[1], values[2])

    def _options(self, element: Element, name: str, inherited: Mapping[str, str]) -> HostOptions:
        attributes = element.attributes
        old = "power" in attributes and "speed" not in attributes
        text = element.text("power" if old else "speed")
        properties = {**inherited, **_properties(element)}
        speeds = tuple(units.speed(part) for part in text.split(","))
        return HostOptions(
            speeds=speeds,
            cores=_whole(attributes.get("core", "1"), "core"),
            pstate=_whole(attributes.get("pstate", "0"), "pstate"),
            role=self._role(name, properties),
            power=_power(properties, len(speeds)),
            devices=_devices(properties),
            properties=properties,
        )

    def _role(self, name: str, properties: Mapping[str, str]) -> Role:
        role = properties.get("role", "").strip()
        if _is_true(properties, "batch_system"):
            return "master"
        if _is_true(properties, "pfs_host"):
            return "storage"
        if not role:
            return "master" if name == self._master and not self._masters else "compute_node"
        roles = get_args(Role)
        if role not in roles:
            raise ConfigError(
                f"role is {role[:40]!r}; supported are {', '.join(roles)}.{near(role, roles)}"
            )
        return cast("Role", role)

    def _names(self, element: Element) -> dict[int, str]:
        numbers = _radical(element.text("radical"), MOST_HOSTS - self._hosts)
        self._hosts += len(numbers)
        prefix, suffix = element.text("prefix"), element.text("suffix")
        return {number: f"{prefix}{number}{suffix}" for number in numbers}

    def _add_cluster(
        self, element: Element, parent: Zone | None, inherited: Mapping[str, str]
    ) -> None:
        attributes = element.attributes
        hosts = self._names(element)
        name = element.text("id")
        kind = attributes.get("topology", "FLAT").upper()
        limiter = attributes.get("limiter_link")
        options = self._options(element, "", inherited)
        self._builder.add_cluster(
            name,
            parent,
            {
                number: (host, replace(options, role=self._role(host, options.properties)))
                for number, host in hosts.items()
            },
            _required_link(element),
            kind=kind,
            fields=_parameters(kind, attributes.get("topo_parameters", ""), len(hosts)),
            policy=attributes.get("sharing_policy", "SPLITDUPLEX").upper(),
            backbone=_link(element, "bb_bw", "bb_lat"),
            backbone_policy=attributes.get("bb_sharing_policy", "SHARED").upper(),
            loopback=_link(element, "loopback_bw", "loopback_lat"),
            limiter=units.bandwidth(limiter) if limiter else None,
            router=attributes.get("router_id")
            or f"{attributes['prefix']}{name}_router{attributes['suffix']}",
        )

    def _add_cabinet(self, element: Element, zone: Zone, inherited: Mapping[str, str]) -> None:
        star = _star(zone)
        link = _required_link(element)
        points = []
        for name in self._names(element).values():
            point = self._builder.add_host(zone, name, self._options(element, name, inherited))
            up, down = self._builder.add_link(f"link_{name}", link, "SPLITDUPLEX")
            points.append((point, up, down))

        def connect() -> None:
            shared = self._backbones.get(zone.number, ())
            for point, up, down in points:
                star.up[point], star.down[point] = (up, *shared), (*shared, down)

        self._later.append((element, connect))

    def _add_host_link(self, element: Element, zone: Zone) -> None:
        star = _star(zone)
        point = self._builder.point(element.text("id"))
        shared = self._backbones.get(zone.number, ())
        star.up[point] = (self._builder.link_of(element.text("up"), "UP"), *shared)
        star.down[point] = (*shared, self._builder.link_of(element.text("down"), "DOWN"))

    def _add_route(self, element: Element, zone: Zone) -> None:
        source, target = (self._builder.point(element.text(name)) for name in ("src", "dst"))
        symmetrical = _symmetrical(element)
        self._builder.add_route(zone, source, target, self._links(element), symmetrical=symmetrical)

    def _add_zone_route(self, element: Element, zone: Zone) -> None:
        source, target = (self._builder.zone(element.text(name)) for name in ("src", "dst"))
        self._builder.add_gateways(
            zone, source, target, self._gateways(element), symmetrical=_symmetrical(element)
        )

    def _add_bypass(self, element: Element, zone: Zone) -> None:
        source, target = (self._builder.point(element.text(name)) for name in ("src", "dst"))
        zone.bypassed[source, target] = self._links(element)

    def _add_zone_bypass(self, element: Element, zone: Zone) -> None:
        source, target = (self._builder.zone(element.text(name)) for name in ("src", "dst"))
        zone.bypasses[source.number, target.number] = self._gateways(element)

    def _gateways(self, element: Element) -> Gateways:
        source, target = (self._builder.point(element.text(name)) for name in ("gw_src", "gw_dst"))
        return Gateways(source, target, self._links(element))

    def _links(self, element: Element) -> Links:
        found = []
        for one in element.inside("link_ctn"):
            with _at(one):
                direction = one.attributes.get("direction", "NONE").upper()
                found.append(self._builder.link_of(one.text("id"), direction))
        return tuple(found)


def _properties(element: Element) -> dict[str, str]:
    return {one.text("id"): one.attributes.get("value", "") for one in element.inside("prop")}


def _link_power(properties: Mapping[str, str]) -> Watts:
    """Return the power draw of a link when idle and busy; 0 if it is unknown."""
    text = properties.get("wattage_range") or properties.get("watt_range")
    if not text:
        return 0.0, 0.0
    if text.count(":") != 1:
        raise ConfigError(f"wattage_range is {text[:40]!r}; it must be idle:busy, in W")
    idle, _, busy = _wattage(text)
    return idle, busy


def _power(properties: Mapping[str, str], speeds: int) -> PowerStates | None:
    """Return the power states in a host's properties; None if there are none."""
    text = properties.get("wattage_per_state") or properties.get("watt_per_state")
    if not text:
        return None
    watts = [_wattage(part) for part in text.split(",")]
    sleep = []
    for triplet in filter(str.strip, properties.get("sleep_pstates", "").split(",")):
        if not re.fullmatch(r"\s*\d{1,4}\s*:\s*\d{1,4}\s*:\s*\d{1,4}\s*", triplet, re.ASCII):
            raise ConfigError(
                f"sleep_pstates has {triplet[:40]!r}; it must be three numbers such as 3:4:5"
            )
        numbers = SleepState(*(int(number) for number in triplet.split(":")))
        states = max(speeds, len(watts))
        for number in numbers:
            if number >= states:
                raise ConfigError(
                    f"sleep_pstates names power state {number}, but there are {states}, from 0"
                )
        sleep.append(numbers)
    idle, one_core, busy = zip(*watts, strict=True)
    return PowerStates(idle, one_core, busy, tuple(sleep))


def _devices(properties: Mapping[str, str]) -> Devices:
    """Return what ElastiSim's properties of a host say."""
    given = {name: text.strip() for name, text in properties.items() if text.strip()}
    targets = re.split("[,;]", given.get("pfs_targets", ""))
    return Devices(
        gpus=_whole(given.get("num_gpus", "0"), "num_gpus"),
        gpu_speed=units.speed(given.get("flops_per_gpu", "0")),
        gpu_bandwidth=units.bandwidth(given.get("gpu_to_gpu_bw", "0")),
        file_systems=tuple(name for name in map(str.strip, targets) if name),
        striped=_is_true(properties, "wide_striping"),
        stripe_flops=units.speed(given.get("flops_per_byte", "0")),
    )


def _wattage(text: str) -> tuple[float, float, float]:
    """Return the wattages of ``idle:busy``, or of ``idle:one busy core:busy``."""
    try:
        numbers = [units.number(part) for part in text.split(":")]
    except ValueError as error:
        raise ConfigError(f"wattage {text[:40]!r} must be numbers such as 95:190") from error
    if min(numbers) < 0:
        raise ConfigError(f"wattage {text.strip()[:40]!r} must not be negative")
    if len(numbers) > 3:
        raise ConfigError(f"wattage {text[:40]!r} has more than three numbers, such as 95:100:190")
    return numbers[0], numbers[-2 if len(numbers) == 3 else 0], numbers[-1]


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _symmetrical(element: Element) -> bool:
    said = element.attributes.get("symmetrical", "YES")
    if said.upper() not in ("YES", "NO"):
        raise element.fault(f"symmetrical is {said[:40]!r}; it must be YES or NO")
    return said.upper() == "YES"


def _star(zone: Zone) -> Star:
    if not isinstance(zone, Star):
        raise ConfigError(
            f"zone {zone.name!r} must have routing='Cluster' or 'Vivaldi' for this tag"
        )
    return zone


def _link(element: Element, bandwidth: str, latency: str) -> Link | None:
    """Return the link that two attributes describe; None if there is no bandwidth."""
    text = element.attributes.get(bandwidth)
    if not text:
        return None
    return units.bandwidth(text), units.latency(element.attributes.get(latency) or "0")


def _required_link(element: Element) -> Link:
    """Return the link of each host of a cluster or cabinet."""
    return units.bandwidth(element.text("bw")), units.latency(element.text("lat"))


def _whole(text: str, what: str) -> int:
    if not re.fullmatch(r"\s*\d{1,9}\s*", text, re.ASCII):
        raise ConfigError(f"{what} is {text[:40]!r}; it must be a whole number, 0 or more")
    return int(text)


def _radical(text: str, most: int) -> list[int]:
    """Return the numbers of a text such as ``0-15,20``."""
    ranges = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part, re.ASCII)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise ConfigError(f"radical {text[:40]!r} must be such as 0-15,20")
        ranges.append(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    if sum(map(len, ranges)) > most:
        raise ConfigError(f"radical {text[:40]!r}: a platform has at most {MOST_HOSTS:,} hosts")
    numbers = [number for one in ranges for number in one]
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"radical {text[:40]!r} names a host twice")
    return numbers


def _parameters(kind: str, text: str, hosts: int) -> dict[str, Any]:
    """Return the fields of a topology from ``topo_parameters``."""
    forms = {"FAT_TREE": "2;4,4;1,2;1,2", "TORUS": "4,4,2", "DRAGONFLY": "3,4;4,3;5,1;2"}
    if kind not in forms:
        return {}
    malformed = f"topo_parameters {text[:40]!r} must be such as {forms[kind]}"
    try:
        lists = [
            tuple(_whole(one, "a number") for one in part.split(",")) for part in text.split(";")
        ]
    except ConfigError as error:
        raise ConfigError(malformed) from error
    levels = lists[0][0]
    lengths = {
        "FAT_TREE": [1, levels, levels, levels],
        "TORUS": [len(lists[0])],
        "DRAGONFLY": [2, 2, 2, 1],
    }[kind]
    if [*map(len, lists)] != lengths or any(0 in part for part in lists):
        raise ConfigError(malformed)
    fields: dict[str, Any]
    if kind == "TORUS":
        fields, sizes = {"sizes": lists[0]}, lists[0]
    elif kind == "FAT_TREE":
        _, sizes, parents, ports = lists
        fields = {"children": sizes, "parents": parents, "ports": ports}
    else:
        sizes = (lists[0][0], lists[1][0], lists[2][0], lists[3][0])
        fields = {"sizes": sizes, "factors": (lists[0][1], lists[1][1], lists[2][1])}
    if math.prod(sizes) != hosts:
        raise ConfigError(
            f"topo_parameters {text[:40]!r} need {math.prod(sizes):,} hosts, but radical has {hosts:,}"
        )
    return fields
