"""Cluster and policy as a site's settings describe them.

A finding also names the settings that have no counterpart in hpctwin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from hpctwin.model import Cluster, NodeGroup
from hpctwin.model.cluster.node_group import LYING, Mode, Sleep
from hpctwin.rms.records.records import NodeRecord

IMPORTED, NOT_MODELED, NO_EFFECT = "imported", "not modeled", "no effect"


@dataclass(frozen=True)
class Setting:
    """One setting, and how hpctwin treats it.

    Args:
        name: Name as the site writes it.
        value: Value as the site writes it, cut if it is long.
        where: File and line, or the command whose output has it.
        became: `IMPORTED`, `NOT_MODELED` or `NO_EFFECT` (on when and where jobs start).
        why: Reason; for an imported setting, its counterpart.
    """

    name: str
    value: str
    where: str
    became: str
    why: str = ""


@dataclass
class Site:
    """A cluster and a policy, derived from a site's settings.

    Args:
        manager: ``slurm`` or ``pbs``.
        cluster: The cluster.
        policy: Nearest policy that hpctwin has, as text.
        settings: All settings seen.
        notes: Further notes, one sentence each.
        members: Names of the nodes of each group.
        sized: Whether the number of nodes is known; if not, the cluster has one node in their
            place.
        shared_placement: Placement of the policy if jobs share nodes; empty if none is near.
    """

    manager: str
    cluster: Cluster
    policy: str
    settings: list[Setting] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sized: bool = True
    shared_placement: str = ""

    @property
    def nodes(self) -> tuple[NodeGroup, ...]:
        """Node groups that are known."""
        return self.cluster.nodes if self.sized else ()


def named_cluster(
    fields: Mapping[str, Any], members: Sequence[list[str]], manager: str
) -> tuple[Cluster, dict[str, list[str]]]:
    """Return a cluster with groups named after their nodes, and each group's nodes.

    Args:
        fields: Fields of the cluster, with ``nodes`` and ``partitions`` as plain values.
        members: Names of each group's nodes, in the order of the groups.
    """
    new: dict[str, str] = {}
    for group, names in zip(fields["nodes"], members, strict=True):
        stem = names[0].rstrip("0123456789[]-_.") or "node"
        name, number = stem, 1
        while name in new.values():
            number += 1
            name = f"{stem}-{number}"
        new[group["name"]] = name
    nodes = [{**group, "name": new[group["name"]]} for group in fields["nodes"]]
    partitions = [
        {**one, "groups": [new[name] for name in one["groups"]]} for one in fields["partitions"]
    ]
    cluster = Cluster.checked({**fields, "nodes": nodes, "partitions": partitions}, manager)
    return cluster, dict(zip((group.name for group in cluster.nodes), members, strict=True))


class Sleeping(NamedTuple):
    """Power draw of nodes that are switched off and on.

    Args:
        power_w: Power while a job runs, in W.
        idle_w: Power while no job runs, in W.
        sleep: How they switch off and on.
    """

    power_w: float
    idle_w: float
    sleep: Sleep


class ListedNode(NamedTuple):
    """A node as listed.

    Args:
        record: Name and state.
        cores, gpus, memory_gb: Sizes of the node; None if not reported.
        partitions: Partitions of the node, sorted.
        sleeping: How it is switched off and on; None if it never is.
        consumables: Other amounts of the node, by name.
        weight: Order of shared nodes; jobs take those with the smallest weight first.
        features: Names of its features.
        lying: Its sockets, cores per socket and threads per core; see `NodeGroup`.
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
    """Nodes grouped by what they have and by their partitions.

    Args:
        groups: Node groups.
        nodes: All nodes in the order of their numbers, group after group.
        members: Names of the groups of each partition.
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
    """Return nodes, in all of the partitions, if only their number is known."""
    of = tuple(sorted(partitions))
    return [
        ListedNode(NodeRecord(name=f"node{number}"), None, None, None, of)
        for number in range(count)
    ]


def group_nodes(listed: Sequence[ListedNode]) -> Groups:
    """Return equal nodes as groups."""
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
    """Return the size of a node if it is possible; None, for unknown, if it is not."""
    return said if said is not None and math.isfinite(said) and said >= 0 else None
