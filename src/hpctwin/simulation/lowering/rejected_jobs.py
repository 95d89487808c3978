"""Reasons why jobs can never run on a cluster."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hpctwin.model import PER_NODE, Cluster, Workload, format_duration
from hpctwin.model.requests.chunks import PER_TASK, read_more_tasks
from hpctwin.model.requests.features import has_features
from hpctwin.simulation.lowering.capacity import known_of
from hpctwin.simulation.lowering.workload import limits_in, needs_of_whole_nodes

__all__ = ["why_rejected"]

BoolArray = npt.NDArray[np.bool_]


def why_rejected(workload: Workload, cluster: Cluster, rejected: BoolArray) -> dict[str, int]:
    """Count rejected jobs by reason; a job with several reasons counts for the first.

    Args:
        workload: The jobs.
        cluster: The cluster.
        rejected: Jobs that were rejected [jobs].

    Returns:
        Number of jobs by a clause such as ``ask for more nodes than the cluster has (128)``.
    """
    counts: dict[str, int] = {}
    if not rejected.any():
        return counts
    left = rejected.copy()

    def count(why: str, which: BoolArray) -> None:
        nonlocal left
        found = int((which & left).sum())
        if found:
            counts[why] = found
            left = left & ~which

    has = f"than the cluster has ({cluster.node_count:,})"
    count(f"need more nodes {has}", workload.nodes > cluster.node_count)
    _count_limits(workload, cluster, count)
    for name, amount in workload.resources.items():
        most = cluster.resources.get(name, 0)
        count(f"need more {name} than the cluster has ({most:,})", amount > most)
    for name, values in needs_of_whole_nodes(workload).items():
        unsaid = np.inf if name in PER_NODE else 0.0
        most_of_any = max(g.amount(name) or unsaid for g in cluster.nodes)
        count(
            f"need more {name} per node than any node has ({most_of_any:g})",
            values > most_of_any,
        )
    for code, text in enumerate(workload.features.labels):
        if not any(has_features(text, group.all_features) for group in cluster.nodes):
            count(f"need features that no node has ({text})", workload.features.codes == code)
    for name in (*PER_TASK, *cluster.consumables):
        if workload.shares_nodes:
            stated = [own for g in cluster.nodes if (own := g.amount(name)) is not None]
            most_of_any = max(stated, default=np.inf)
            first = (
                workload.chunks[PER_TASK[name]]
                if name in PER_TASK
                else workload.consumables.get(name, np.zeros(len(workload)))
            )
            asked = np.maximum(first, _most_of_further(workload, name))
            count(
                f"need more {name} per task than any node has ({most_of_any:g})",
                asked > most_of_any,
            )
    if cluster.limits and left.any():
        _count_refused(workload, cluster, left, count)
    if workload.shares_nodes:
        count(
            "have more tasks than fit on the nodes they may use",
            workload.chunks["tasks"] > 0,
        )
    count("need more nodes than they may use", np.ones(len(left), bool))
    return counts


def _most_of_further(workload: Workload, name: str) -> npt.NDArray[np.float64]:
    """Return the largest request for an amount by a task of each job's further kinds."""
    texts = workload.more_tasks.labels
    most = [max(one.asks(name) for one in read_more_tasks(text)) for text in texts]
    found: npt.NDArray[np.float64] = np.array([*most, 0.0])[workload.more_tasks.codes]
    return found


def _count_refused(
    workload: Workload, cluster: Cluster, left: BoolArray, count: Callable[[str, BoolArray], None]
) -> None:
    """Count the jobs that limits of users, accounts and QOS reject."""
    limits = limits_in(workload, cluster)
    assert limits is not None
    for name in sorted(set(limits.why[limits.rejected & left])):
        count(f"are denied by a limit ({name})", limits.rejected & (limits.why == name))
    known = known_of(workload, cluster)
    late = left & (known["job"]["rejected"] == 0)
    names = np.array([limits.submitted(row) if late[row] else "" for row in range(len(late))])
    for name in sorted(set(names[late])):
        count(
            f"were submitted when the limit of pending and running jobs was reached ({name})",
            names == name,
        )


def _count_limits(
    workload: Workload, cluster: Cluster, count: Callable[[str, BoolArray], None]
) -> None:
    default = next((p.name for p in cluster.partitions if p.default), None)
    labels = np.array([*workload.partition.labels, default], object)[workload.partition.codes]
    for partition in cluster.partitions:
        here = labels == partition.name
        name = f"partition {partition.name}"
        count(
            f"need fewer nodes than {name} allows (min_nodes {partition.min_nodes:,})",
            here & (workload.nodes < partition.min_nodes),
        )
        if partition.max_nodes is not None:
            count(
                f"need more nodes than {name} allows (max_nodes {partition.max_nodes:,})",
                here & (workload.nodes > partition.max_nodes),
            )
        if partition.max_walltime is not None:
            count(
                f"have a longer walltime than {name} allows (max_walltime "
                f"{format_duration(partition.max_walltime)})",
                here & (workload.walltime_ms > partition.max_walltime * 1000),
            )
