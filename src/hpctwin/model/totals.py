"""What jobs ask in all, whether for whole nodes or for tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hpctwin.model.chunks import PER_TASK, read_more_tasks
from hpctwin.model.workload import Workload

__all__ = ["totals_asked"]

FloatArray = npt.NDArray[np.float64]


def totals_asked(
    workload: Workload, per_node: Mapping[str, FloatArray] | None = None
) -> dict[str, FloatArray]:
    """What all tasks, or all nodes, of each job ask together.

    Args:
        workload: the jobs.
        per_node: what whole nodes must have; as the workload says if left out.

    Returns:
        ``cores``, ``memory_gb``, ``gpus`` [jobs].
    """
    chunks, nodes = workload.chunks, workload.nodes
    needs = workload.per_node if per_node is None else per_node
    found = {}
    for name, column in PER_TASK.items():
        whole = np.asarray(needs.get(name, 0.0)) * nodes
        if chunks:
            whole = np.where(chunks["tasks"] > 0, chunks["tasks"] * chunks[column], whole)
        if workload.more_tasks.labels:
            more = [
                sum(kind.tasks * getattr(kind, name) for kind in read_more_tasks(text))
                for text in workload.more_tasks.labels
            ]
            whole = whole + np.array([*more, 0.0])[workload.more_tasks.codes]
        found[name] = whole + np.zeros(len(nodes))
    return found
