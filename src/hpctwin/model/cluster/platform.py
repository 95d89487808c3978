"""The platform and the blocks of a described network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpctwin.model.cluster.network import Network, Part, Storage, paths_between
from hpctwin.network.blocks import Blocks
from hpctwin.network.builder import Builder, HostOptions
from hpctwin.network.platform import Devices, Platform
from hpctwin.network.zones import Attached, Declared, Gateways, Star, Zone

__all__ = ["blocks_of", "platform_of"]

Nodes = Sequence[tuple[str, int, int, int, float]]
"""Name, number of nodes, cores, GPUs and speed of each node group."""


def blocks_of(network: Network, groups: Sequence[tuple[str, int]]) -> list[Blocks]:
    """Return the blocks of a network."""
    counts = [count for _, count in groups]
    group = np.repeat(np.arange(len(groups)), counts)
    names = [name for name, _ in groups]
    found = []
    for _, part, own in network.members(names):
        nodes = np.isin(group, [names.index(name) for name in own]).nonzero()[0]
        found.append(Blocks(nodes, np.arange(len(nodes)), part.block_sizes))
    return found


def platform_of(name: str, network: Network, storage: Sequence[Storage], groups: Nodes) -> Platform:
    """Return the platform of a network; node 0 is its host ``n0``, and so on."""
    builder = Builder(name, gamma=network.window)
    outside = builder.add_zone(Declared, "")
    members: dict[str, dict[int, tuple[str, HostOptions]]] = {}
    part_of = {group: part.name for part in network.parts for group in part.groups}
    first = 0
    for group, count, cores, gpus, speed in groups:
        devices = Devices(gpus, network.gpu_speed or 0.0, network.gpu_bandwidth or 0.0)
        host = HostOptions(((network.core_speed or 0.0) * speed,), cores=cores, devices=devices)
        own = members.setdefault(part_of.get(group, name), {})
        own |= {number: (f"n{number}", host) for number in range(first, first + count)}
        first += count
    parts: dict[str, Part] = {part.name: part for part in network.parts} or {name: network}
    zones = {one: _add_part(builder, one, parts[one], outside, members[one]) for one in members}
    wans = [
        builder.add_link(f"{a}_{b}_{number}", (link.bandwidth, link.latency), level="WAN")
        for number, link in enumerate(network.links)
        for a, b in [link.between]
    ]
    routers = {one: builder.point(f"{one}_router") for one in zones}
    for (a, b), path in paths_between(network).items():
        links = tuple(link for number in path for link in wans[number])
        outside.gateways[zones[a].number, zones[b].number] = Gateways(routers[a], routers[b], links)
    for one in storage:
        if one.place == "node":
            _add_node_storage(builder, one, outside, first)
        else:
            _add_shared_storage(builder, one, outside, zones, routers)
    return builder.build()


def _add_part(
    builder: Builder,
    name: str,
    part: Part,
    outside: Zone,
    hosts: dict[int, tuple[str, HostOptions]],
) -> Zone:
    assert part.bandwidth is not None
    assert part.topology is not None
    fields: dict[str, object] = {}
    if part.topology == "fat-tree":
        cables = part.cables or (1,) * len(part.children)
        fields = {"children": part.children, "parents": part.parents, "ports": cables}
    elif part.topology == "torus":
        fields = {"sizes": part.sizes}
    elif part.topology == "dragonfly":
        fields = {"sizes": part.sizes, "factors": part.cables or (1, 1, 1)}
    if part.topology != "star":
        fields["to_router"] = True
    kinds = {"star": "FLAT", "fat-tree": "FAT_TREE", "torus": "TORUS", "dragonfly": "DRAGONFLY"}
    return builder.add_cluster(
        name,
        outside,
        hosts,
        (part.bandwidth, part.latency),
        kind=kinds[part.topology],
        fields=fields,
        backbone=(part.backbone, part.backbone_latency) if part.backbone else None,
        loopback=(part.loopback, part.loopback_latency) if part.loopback else None,
        switch_watts=(0.0, 0.0) if part.switch_power is None else part.switch_power.watts,
    )


def _add_shared_storage(
    builder: Builder,
    storage: Storage,
    outside: Zone,
    zones: dict[str, Zone],
    routers: dict[str, int],
) -> None:
    zone = builder.add_zone(Star, storage.name, outside)
    point = builder.add_host(zone, storage.name, HostOptions((0.0,), role="storage"))
    out, into = storage.links(builder, f"{storage.name}_link")
    for name, part in zones.items():
        outside.gateways[zone.number, part.number] = Gateways(point, routers[name], (out,))
        outside.gateways[part.number, zone.number] = Gateways(routers[name], point, (into,))


def _add_node_storage(builder: Builder, storage: Storage, outside: Zone, nodes: int) -> None:
    zone = builder.add_zone(Attached, storage.name, outside)
    host = HostOptions((0.0,), role="storage")
    for node in range(nodes):
        builder.add_host(zone, f"{storage.name}-{node}", host, storage=storage.name)
        out, into = storage.links(builder, f"{storage.name}_link_{node}")
        zone.base.append(builder.point(f"n{node}"))
        zone.out.append(out)
        zone.into.append(into)
