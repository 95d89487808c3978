"""A cluster's node groups and partitions, from nodes that a resource manager lists one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from hpctwin.model import NodeGroup
from hpctwin.model.cluster.node_group import LYING, Mode, Sleep
from hpctwin.rms.records.records import NodeRecord

__all__ = ["Groups", "ListedNode", "Sleeping", "equal_nodes", "group_nodes"]


class Sleeping(NamedTuple):
    """What nodes draw that are switched off and on.

    Args:
        power_w: while a job runs, W.
        idle_w: while none does, W.
        sleep: how they go off, and come back.
    """

    power_w: float
    idle_w: float
    sleep: Sleep


class ListedNode(NamedTuple):
    """A node as listed.

    Args:
        record: name and state.
        cores, gpus, memory_gb: what it has; None where not told.
        partitions: the partitions that it is in, sorted.
        sleeping: how it is switched off and on, if it is.
        consumables: what it has besides, by name.
        weight: where jobs share nodes, those with the smallest come first.
        features: names of what else it has.
        lying: its sockets, the cores of each, and the threads of these; see `NodeGroup`.
    """

    record: NodeRecord
    cores: float | None
    gpus: float | None
    memory_gb: float | None
    partitions: tuple[str, ...]
    sleeping: Sleeping | None = None
    consumables: tuple[tuple[str, float], ...] = ()
    weight: float = 0.0
    features: tuple[str, ...] = ()
    lying: tuple[int | None, ...] = (None,) * len(LYING)


class Groups(NamedTuple):
    """Nodes grouped by what they have and the partitions they are in.

    Args:
        groups: the node groups.
        nodes: all nodes in the order of their numbers through the groups.
        members: names of the groups of each partition.
    """

    groups: tuple[NodeGroup, ...]
    nodes: tuple[NodeRecord, ...]
    members: dict[str, tuple[str, ...]]

    @property
    def names(self) -> list[list[str]]:
        """Names of the nodes of each group."""
        nodes = iter(self.nodes)
        return [[node.name for node in islice(nodes, group.count)] for group in self.groups]


def equal_nodes(count: int, partitions: Iterable[str]) -> list[ListedNode]:
    """Nodes of which nothing is known but how many they are, in all of the partitions."""
    of = tuple(sorted(partitions))
    return [
        ListedNode(NodeRecord(name=f"node{number}"), None, None, None, of)
        for number in range(count)
    ]


def group_nodes(listed: Sequence[ListedNode]) -> Groups:
    """Put nodes that are alike into groups."""
    kinds: dict[tuple[object, ...], list[ListedNode]] = {}
    for node in listed:
        kinds.setdefault(tuple(node[1:]), []).append(node)
    groups = []
    members: dict[str, tuple[str, ...]] = {}
    for i, alike in enumerate(kinds.values()):
        one = alike[0]
        name = f"g{i}"
        groups.append(
            NodeGroup(
                name=name,
                count=len(alike),
                cores=_size(one.cores),
                gpus=_size(one.gpus),
                memory_gb=_size(one.memory_gb),
                consumables=dict(one.consumables),
                weight=one.weight,
                features=one.features,
                **dict(zip(LYING, one.lying, strict=True)),
                **_power(one.sleeping),
            )
        )
        for partition in one.partitions:
            members[partition] = (*members.get(partition, ()), name)
    order = tuple(node.record for alike in kinds.values() for node in alike)
    return Groups(tuple(groups), order, members)


def _power(sleeping: Sleeping | None) -> dict[str, Any]:
    if sleeping is None:
        return {}
    mode = Mode(power_w=sleeping.power_w, idle_w=sleeping.idle_w)
    return {"modes": {"base": mode}, "sleep": (sleeping.sleep,)}


def _size(said: float | None) -> float | None:
    """What a node has, where that can be; what cannot is not known."""
    return said if said is not None and math.isfinite(said) and said >= 0 else None
