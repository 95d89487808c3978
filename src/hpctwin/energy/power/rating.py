"""Idle and full power of a cluster, from components and feeding losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpctwin.model import Cluster, NodeGroup
from hpctwin.model.cluster.power import node_w

__all__ = ["constants", "fed_w", "machine_w", "machine_w_sd"]


def fed_w(group: NodeGroup, each_w: float) -> float:
    """Return a group's power, with losses, if each node draws ``each_w``, in W.

    It includes switches and pumps.
    """
    racks = group.racks
    if racks is None:
        return group.count * each_w
    full, rest = divmod(group.count, racks.nodes_per_chassis)
    nodes = np.zeros(racks.chassis)
    nodes[:full] = racks.nodes_per_chassis
    nodes[full : full + 1] = rest
    fed = racks.chassis_taken(nodes * racks.converter.taken(each_w))
    return float(fed.sum()) + racks.cdus * racks.cdu_w


def machine_w(cluster: Cluster, use: float) -> float | None:
    """Return a cluster's power if all components have one use, in W; None if unknown."""
    if not all(group.components for group in cluster.nodes):
        return None
    return sum(fed_w(group, node_w(group.components, use)) for group in cluster.nodes)


def machine_w_sd(cluster: Cluster, use: float) -> float:
    """Return the standard deviation of `machine_w` due to uncertain components, in W.

    The uncertainties of idle and full power of each kind of component are independent, and equal on
    all nodes of the group. Converters, switches and pumps count as certain. Each contribution is of
    first order.
    """
    square = 0.0
    for group in cluster.nodes:
        each = node_w(group.components, use)
        for part in group.components.values():
            if part.max_w is None:
                shares = [part.idle_w]
            else:
                shares = [part.idle_w * (1 - use), part.max_w * use]
            for watts in shares:
                shift = part.count * part.uncertainty * watts
                square += (fed_w(group, each + shift) - fed_w(group, each)) ** 2
    return math.sqrt(square)


def constants(cluster: Cluster) -> list[dict[str, Any]]:
    """Return every number of node groups, cooling, network and storage, with path and source.

    Keys are ``path``, ``value`` and ``source`` (None if not stated).
    """
    fields: dict[str, Any] = {
        f"nodes.{group.name}": group.model_dump(
            exclude={"modes", "mode", "sleep"}, exclude_defaults=True
        )
        for group in cluster.nodes
    }
    if cluster.cooling is not None:
        fields["cooling"] = cluster.cooling.model_dump(exclude_defaults=True)
    if cluster.network is not None:
        fields["network"] = cluster.network.model_dump(exclude_defaults=True)
    fields |= {
        f"storage.{one.name}": one.model_dump(exclude_defaults=True) for one in cluster.storage
    }
    return [
        {"path": path, "value": value, "source": _source(cluster.sources, path)}
        for name, values in fields.items()
        for path, value in _numbers(name, values)
    ]


def _numbers(path: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(f"{path}.{name}", inner)
    elif isinstance(value, tuple | list):
        for place, inner in enumerate(value):
            yield from _numbers(f"{path}.{place}", inner)
    elif isinstance(value, int | float):
        yield path, value


def _source(sources: dict[str, str], path: str) -> str | None:
    """Return the source of a field, or of the nearest field above it."""
    while path:
        if path in sources:
            return sources[path]
        path = path.rpartition(".")[0]
    return None
