"""Contents of a workload that a format cannot hold."""

from __future__ import annotations

from collections.abc import Set

from hpctwin.model import Workload

__all__ = ["SWF_ONLY", "lost_by", "swf_fields_lost"]

SWF_ONLY = (
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested memory",
    "status",
    "executable",
    "queue",
    "partition",
)
"""Fields of SWF that a workload keeps but does not use."""


def lost_by(format_name: str, workload: Workload, carried: Set[str]) -> tuple[str, ...]:
    """Return one sentence for each column that is in use and cannot be written.

    Args:
        format_name: Name of the format, for the sentences.
        workload: Workload to write.
        carried: Columns that the format can hold.
    """
    in_use = {
        "user": bool(workload.user.labels),
        "account": bool(workload.account.labels),
        "partition": bool(workload.partition.labels),
        "qos": bool(workload.qos.labels),
        "features": bool(workload.features.labels),
        "priority": bool(workload.priority.any()),
        "per_node": any(values.any() for values in workload.per_node.values()),
        "tasks": workload.shares_nodes,
        "more_tasks": bool(workload.more_tasks.labels),
        "group_by": bool(workload.group_by.labels),
        "consumables": any(values.any() for values in workload.consumables.values()),
        "resources": any(values.any() for values in workload.resources.values()),
        "dependencies": len(workload.dependencies) > 0,
        "recorded_start": bool((workload.recorded_start_ms >= 0).any()),
        "recorded_nodes": workload.recorded_nodes is not None,
        "cancel": bool((workload.cancel_ms >= 0).any()),
        "fails": workload.fails is not None,
        "checkpoint": workload.checkpoint_ms is not None,
        "malleable": workload.malleable is not None,
        "header": bool(workload.header),
        "start_epoch_s": workload.start_epoch_s is not None,
        "nodes_hint": workload.nodes_hint is not None,
        "used_memory_gb": workload.used_memory_gb is not None,
        "usage": bool(workload.usage),
        "predicted": bool(workload.predicted),
    }
    return (
        *(
            f"{format_name} has no place for {column.replace('_', ' ')}"
            for column, used in in_use.items()
            if used and column not in carried
        ),
        *swf_fields_lost(format_name, workload),
    )


def swf_fields_lost(format_name: str, workload: Workload) -> tuple[str, ...]:
    """Return a sentence on known fields of a log that only SWF can hold, if any."""
    fields = [
        name
        for name in SWF_ONLY
        if name in workload.carried and (workload.carried[name] >= 0).any()
    ]
    if format_name == "SWF" or not fields:
        return ()
    return (f"{format_name} has no place for SWF's {', '.join(fields)}",)
