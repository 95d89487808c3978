"""What a workload or a cluster says and a simulation of the two does not use, and what it assumes instead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpctwin.model.cluster import Cluster
from hpctwin.model.features import without_groups
from hpctwin.model.limits import idle_limits
from hpctwin.model.totals import in_whole_nodes
from hpctwin.model.workload import Workload

__all__ = ["assumptions", "unused"]

_SHOWN = 5


def assumptions(workload: Workload, cluster: Cluster) -> list[str]:
    """Return what a simulation assumes or does not use, a sentence each.

    Args:
        workload: The jobs; what their reader changed or left out is among the sentences.
        cluster: The cluster.
    """
    return [*workload.notes.sentences(), *unused(workload, cluster)]


def unused(workload: Workload, cluster: Cluster) -> Iterator[str]:
    """Yield sentences on what of a workload a cluster does not know, and on numbers that are assumed."""
    if in_whole_nodes(workload, cluster) is not workload:
        yield (
            f"jobs ask for a number of nodes, and cluster {cluster.name!r} does not say how many cores its "
            "nodes have: each job gets whole nodes"
        )
    jobs = _named(workload, "partition")
    if jobs and not cluster.partitions:
        yield (
            f"{jobs:,} jobs name partitions ({_list(workload.partition.labels)}), and cluster "
            f"{cluster.name!r} has none: the jobs may have any nodes"
        )
    if cluster.qos:
        strange = [name for name in workload.qos.labels if name not in cluster.qos]
        jobs = int(workload.qos.among(strange).sum())
        if jobs:
            yield (
                f"{jobs:,} jobs have QOS that the cluster does not list ({_list(strange)}): its weight is "
                "taken as 0"
            )
    for name, asked in workload.per_node.items():
        unknown = [group.name for group in cluster.nodes if getattr(group, name) is None]
        jobs = int(np.count_nonzero(asked))
        if jobs and unknown:
            yield (
                f"{jobs:,} jobs ask for {name} of each node, which node groups {_list(unknown)} do not say: "
                "any of their nodes will do"
            )
    labels = {kind: getattr(workload, kind).labels for kind in ("qos", "account", "user")}
    listed = {*cluster.qos, *(one.qos for one in cluster.partitions if one.qos is not None)}
    features = {feature for group in cluster.nodes for feature in group.all_features}
    yield from idle_limits(cluster.limits, cluster.fairshare.factors, labels, listed)
    yield from without_groups(workload.group_by, features)
    for group in cluster.nodes:
        for mode, drawn in group.modes.items():
            if drawn.idle_w is None:
                yield (
                    f"node group {group.name!r}: mode {mode!r} has no idle_w, so idle nodes are assumed to "
                    f"draw {drawn.power_w:g} W, as busy ones do"
                )


def _named(workload: Workload, kind: str) -> int:
    """How many jobs have a label."""
    return int((getattr(workload, kind).codes >= 0).sum())


def _list(names: list[str] | tuple[str, ...]) -> str:
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(str, names[:_SHOWN])) + more
