"""How nodes are called on the axes of figures: by their group, with their number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpctwin.model import Cluster

__all__ = ["NodeTicks", "node_ticks"]

MOST = 16
"""So many nodes are named at most; of more, some that lie evenly apart on the axis."""


class NodeTicks(NamedTuple):
    """Where on an axis some nodes lie, and their names."""

    at: list[float]
    names: list[str]


def node_ticks(cluster: Cluster, *, by_core: bool = False) -> NodeTicks:
    """Ticks at the middles of nodes, such as ``gpu 96`` of the node with that number, in group ``gpu``.

    Args:
        cluster: the machine.
        by_core: whether a node is as high as it has cores, as where nodes are shared; else 1.
    """
    counts = [group.count for group in cluster.nodes]
    heights = [max(1, round(group.cores or 0)) if by_core else 1 for group in cluster.nodes]
    edges = np.concatenate([[0], np.cumsum(np.repeat(heights, counts))])
    group = np.repeat(np.arange(len(counts)), counts)
    along = np.arange(0, edges[-1], -(-edges[-1] // MOST))
    chosen = np.unique(np.searchsorted(edges, along, side="right") - 1)
    names = [f"{cluster.nodes[group[number]].name} {number}" for number in chosen.tolist()]
    return NodeTicks(((edges[chosen] + edges[chosen + 1]) / 2).tolist(), names)
