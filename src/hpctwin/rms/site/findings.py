"""What a site's own settings say of its machine and its policy, and what of them has no counterpart here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.model import Cluster, NodeGroup

__all__ = ["NOT_MODELLED", "NO_BEARING", "TAKEN", "Setting", "Site", "named_cluster"]

TAKEN, NOT_MODELLED, NO_BEARING = "taken over", "not modelled", "no bearing"


@dataclass(frozen=True)
class Setting:
    """One setting, and what became of it.

    Args:
        name: as the site writes it.
        value: the same, cut where it is long.
        where: file and line, or the command whose output it is in.
        became: `TAKEN`, `NOT_MODELLED` or `NO_BEARING` (on when and where jobs start).
        why: the reason; of what was taken over, what it became.
    """

    name: str
    value: str
    where: str
    became: str
    why: str = ""


@dataclass
class Site:
    """A machine and a policy, read off a site's settings.

    Args:
        manager: ``slurm`` or ``pbs``.
        cluster: the machine.
        policy: the nearest policy there is, as text.
        settings: all settings seen.
        notes: what else is to be said, a sentence each.
        members: names of the nodes of each group.
        sized: whether it is known how many nodes there are; if not, the cluster has one in their place.
        shared_placement: the placement of the policy where jobs share nodes; empty if none is near.
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
        """The node groups that are known."""
        return self.cluster.nodes if self.sized else ()


def named_cluster(
    fields: Mapping[str, Any], members: Sequence[list[str]], manager: str
) -> tuple[Cluster, dict[str, list[str]]]:
    """A cluster with groups called after what their nodes' names begin with; and their nodes, by group.

    Args:
        fields: of the cluster, ``nodes`` and ``partitions`` as plain values.
        members: the names of each group's nodes, in the order of the groups.
        manager: whose it is, for messages.

    Raises:
        ConfigError: there is no such cluster.
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
