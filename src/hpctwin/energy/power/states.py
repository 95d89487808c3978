"""Power states of a cluster's nodes: their names, and the power of nodes in each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpctwin.model import Cluster, NodeGroup

__all__ = ["group_of_node", "node_watts", "nodes_of_group", "slowest", "state_names"]


def state_names(cluster: Cluster) -> list[str]:
    """Return the row names of `node_watts`: sleeping and switching once per depth."""
    names = ["idle", "computing"]
    for depth in range(cluster.depths):
        own = {g.sleep[depth].name for g in cluster.nodes if len(g.sleep) > depth}
        label = own.pop() if len(own) == 1 else f"depth {depth + 1}"
        names += [f"switching_off:{label}", f"sleeping:{label}", f"switching_on:{label}"]
    return names


def node_watts(cluster: Cluster) -> npt.NDArray[np.float64]:
    """Return each node's power in each state, in its first mode, in W [states, nodes]."""
    columns = []
    for group in cluster.nodes:
        column = [group.initial.idle, group.initial.power_w]
        for depth in range(cluster.depths):
            if depth < len(group.sleep):
                state = group.sleep[depth]
                column += [state.switch_off.power_w, state.power_w, state.switch_on.power_w]
            else:
                column += [0.0, 0.0, 0.0]
        columns.append(np.repeat(np.array(column)[:, None], group.count, axis=1))
    return np.concatenate(columns, axis=1)


def slowest(cluster: Cluster) -> Cluster:
    """Return the cluster with each group in the mode with the lowest power."""
    groups = tuple(
        group.model_copy(update={"mode": group.by_power()[-1]}) for group in cluster.nodes
    )
    return cluster.model_copy(update={"nodes": groups})


def group_of_node(cluster: Cluster) -> Iterator[NodeGroup]:
    """Yield the group of each node."""
    for group in cluster.nodes:
        for _ in range(group.count):
            yield group


def nodes_of_group(cluster: Cluster, group: int) -> slice:
    """Return the numbers of a group's nodes."""
    first = sum(one.count for one in cluster.nodes[:group])
    return slice(first, first + cluster.nodes[group].count)
