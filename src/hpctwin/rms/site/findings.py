"""Cluster and policy as a site's settings describe them.

A finding also names the settings that have no counterpart in hpctwin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.model import Cluster, NodeGroup

__all__ = ["NOT_MODELLED", "NO_BEARING", "TAKEN", "Setting", "Site", "named_cluster"]

TAKEN, NOT_MODELLED, NO_BEARING = "taken over", "not modelled", "no bearing"


@dataclass(frozen=True)
class Setting:
    """One setting, and how hpctwin treats it.

    Args:
        name: Name as the site writes it.
        value: Value as the site writes it, cut if it is long.
        where: File and line, or the command whose output has it.
        became: `TAKEN`, `NOT_MODELLED` or `NO_BEARING` (on when and where jobs start).
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
        manager: Resource manager, for messages.

    Raises:
        ConfigError: No such cluster is possible.
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
