"""What a workload holds that a format cannot carry."""

from __future__ import annotations

from collections.abc import Set

from hpctwin.model import Workload

__all__ = ["lost_by"]


def lost_by(format_name: str, workload: Workload, carried: Set[str]) -> tuple[str, ...]:
    """One sentence for each column that is in use and not carried.

    Args:
        format_name: for the sentences.
        workload: what is to be written.
        carried: the columns that the format has a place for.
    """
    in_use = {
        "user": bool(workload.user.labels),
        "account": bool(workload.account.labels),
        "partition": bool(workload.partition.labels),
        "qos": bool(workload.qos.labels),
        "priority": bool(workload.priority.any()),
        "per_node": any(values.any() for values in workload.per_node.values()),
        "resources": any(values.any() for values in workload.resources.values()),
        "dependencies": len(workload.dependencies) > 0,
        "recorded_start": bool((workload.recorded_start_ms >= 0).any()),
        "recorded_nodes": workload.recorded_nodes is not None,
        "cancel": bool((workload.cancel_ms >= 0).any()),
        "fails": workload.fails is not None,
        "header": bool(workload.header),
        "start_epoch_s": workload.start_epoch_s is not None,
        "nodes_hint": workload.nodes_hint is not None,
    }
    return tuple(
        f"{format_name} has no place for {column.replace('_', ' ')}"
        for column, used in in_use.items()
        if used and column not in carried
    )
