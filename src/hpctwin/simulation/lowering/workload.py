"""The engine's arrays for a workload on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.layout import NEVER
from hpctwin.engine.state.sim import records
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model import PER_NODE, Cluster, Dependencies, NodeGroup, Workload, to_ms
from hpctwin.model.cluster.limits import MEASURES
from hpctwin.model.columns import UNKNOWN
from hpctwin.model.demand import consumables_asked, tasks_asked
from hpctwin.model.requests.features import has_features
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.simulation.lowering.cluster import Kinds, Machine, machine_of
from hpctwin.simulation.lowering.preemption import claims_of
from hpctwin.simulation.lowering.share_tree import labels_of, share_tree

if TYPE_CHECKING:
    from hpctwin.network.profiles import Profile
    from hpctwin.simulation.lowering.limits import Limits

__all__ = ["facts_of", "limits_in", "lower", "needs_of_whole_nodes"]

IntArray = npt.NDArray[np.int64]

MB_PER_GB = 1024

MOST_KEPT = 64
"""Number of sets of kinds of jobs kept per cluster, with the nodes each may use."""

_ALIKE = "alike"
"""Key of the set with a single kind, for workloads whose jobs are all alike."""

# The same arrays each time, so that the engine need not look up their addresses; see
# `engine.state.sim.Sim`.
_NOBODY = np.zeros(0, np.int64)
_NO_EDGES = {"tells": records("tells", 0), "waits": np.zeros(0, np.int64)}
_NO_LIMITS = {
    "bound": records("bound", 0),
    "bounds": np.zeros((0, 3), np.int64),
    "charge": np.zeros((0, len(MEASURES)), np.int64),
    "ceiling": records("ceiling", 0),
}
_NO_NODES = dict.fromkeys(("by_pool", "pool_of"), np.zeros(0, np.int64))


def lower(
    workload: Workload,
    cluster: Cluster,
    *,
    expected_ms: IntArray | None = None,
    tracked: bool = False,
) -> dict[str, npt.NDArray[Any]]:
    """Make the engine's arrays of a workload; see `engine.state.layout.Known`.

    Facts are left empty; see `facts_of`. The expected duration of a job includes the cleanup of its
    nodes.

    Args:
        workload: The jobs.
        cluster: The cluster.
        expected_ms: Runtimes that the scheduler expects, in ms [jobs]; by default the walltimes.
        tracked: Whether nodes have identity.

    Raises:
        ConfigError: The workload asks for a resource or a consumable that the cluster does not
            have.
        WorkloadError: A job names a partition that the cluster does not have.
    """
    check_consumables(workload, cluster)
    for name, amounts in workload.resources.items():
        if name not in cluster.resources and amounts.any():
            raise ConfigError(
                f"jobs request resource {name!r}, which cluster {cluster.name!r} does not "
                "have; add it under 'resources:' (defined: "
                f"{', '.join(cluster.resources) or 'none'})"
            )
    machine = machine_of(cluster)
    partition = _partition_of_jobs(workload, cluster)
    kinds, kind = _kinds(workload, machine, cluster, partition)
    limits = _limits(workload, cluster, partition, kind, kinds.eligible, machine.group_of_pool)
    resources = _resources(workload, cluster)
    labels, promised = labels_of(workload, cluster)
    cancel: Any = NEVER
    cancelled = (workload.cancel_ms >= 0).nonzero()[0]
    if len(cancelled):
        cancel = np.maximum(workload.cancel_ms, workload.submit_ms)
        cancel[workload.cancel_ms < 0] = NEVER
    expected = workload.walltime_ms if expected_ms is None else expected_ms
    edges = workload.dependencies
    by_on, by_job, of_edges = _edges_by_job(edges, len(workload))
    return {
        **machine.known,
        **(machine.by_node if tracked else _NO_NODES),
        "job": records(
            "job",
            len(workload),
            submit=workload.submit_ms,
            runtime=workload.runtime_ms,
            limit=workload.walltime_ms,
            expected=np.minimum(np.maximum(expected, 1), workload.walltime_ms)
            + to_ms(cluster.cleanup),
            nodes=workload.nodes,
            rank=_places(workload.job_id),
            kind=kind,
            user=workload.user.codes + 1,
            share=labels,
            counts=_counts(workload, cluster),
            cancel=cancel,
            fails=0 if workload.fails is None else workload.fails,
            rejected=(kinds.nodes[kind] < workload.nodes)
            | _breaks_limit(workload, machine, partition)
            | (bool(workload.resources) and (resources > machine.capacity).any(axis=1))
            | (False if limits is None else limits.rejected),
            **of_edges,
        ),
        "fact": records("fact", len(workload)),
        "asks": resources,
        "by_submit": workload.submit_ms.argsort(kind="stable"),
        "by_cancel": _by_cancel(cancelled, cancel),
        "tells": _told(edges, by_on) if len(edges) else _NO_EDGES["tells"],
        "waits": edges.on[by_job] if len(edges) else _NO_EDGES["waits"],
        "amount": machine.amount,
        "eligible": kinds.eligible,
        "partition": kinds.partition,
        "promised": promised,
        "tree": share_tree(workload, cluster),
        **(_NO_LIMITS if limits is None else limits.arrays),
        **claims_of(workload, cluster, partition),
    }


def _counts(workload: Workload, cluster: Cluster) -> Any:
    """Return how much each job's usage counts for fair share, in thousandths [jobs].

    It is one number if all jobs count alike.
    """
    share = cluster.fairshare
    if not share.factors:
        return 1000
    names = (*workload.qos.labels, None)
    return np.array([round(1000 * share.factor_of(name)) for name in names])[workload.qos.codes]


def check_consumables(workload: Workload, cluster: Cluster) -> None:
    """Check that nodes have all consumables that jobs ask for.

    Raises:
        ConfigError: No node group has one of them.
    """
    for name in consumables_asked(workload):
        if name not in cluster.consumables and name.startswith(GPU_TYPE):
            model = name.removeprefix(GPU_TYPE)
            raise ConfigError(
                f"jobs request GPUs of type {model!r}, which no node of cluster "
                f"{cluster.name!r} has; give the number per type in a node group, such as "
                f"gpus: {{{model}: 2}}, or add {model!r} to its features if all its GPUs "
                "have this type (known types: "
                f"{', '.join(t.removeprefix(GPU_TYPE) for t in cluster.gpu_types) or 'none'})"
            )
        if name not in cluster.consumables:
            raise ConfigError(
                f"jobs request consumable {name!r}, which no node of cluster "
                f"{cluster.name!r} has; add it to a node group, such as consumables: "
                f"{{{name}: 2}} (defined: {', '.join(cluster.consumables) or 'none'})"
            )


def _places(ids: npt.NDArray[Any]) -> IntArray:
    """Return the rank of each id among all."""
    if ids.dtype.kind == "i" and len(ids):
        # Same as `ids.min()` and `ids.max()`, in half the time for short arrays.
        least, most = ids[ids.argmin()], ids[ids.argmax()]
        if most - least == len(ids) - 1:
            # Ids are distinct, so they are all the numbers from the least to the largest.
            place: IntArray = (ids - least).astype(np.int64, copy=False)
            return place
        if (ids[1:] > ids[:-1]).all():
            return np.arange(len(ids))
    place = np.empty(len(ids), np.int64)
    place[ids.argsort(kind="stable")] = np.arange(len(ids))
    return place


def _by_cancel(cancelled: IntArray, cancel: Any) -> IntArray:
    """Return the jobs that are canceled, by cancel time."""
    return cancelled[cancel[cancelled].argsort(kind="stable")] if len(cancelled) else _NOBODY


def _told(edges: Dependencies, order: IntArray) -> npt.NDArray[Any]:
    """Return the edges in the given order, by the job waited for."""
    return records(
        "tells",
        len(edges),
        job=edges.job[order],
        kind=edges.kind[order],
        delay=edges.delay_ms[order],
    )


def _edges_by_job(
    edges: Dependencies, jobs: int
) -> tuple[IntArray, IntArray, dict[str, npt.NDArray[Any]]]:
    """Return the edges by job waited for and by waiting job, and job columns for them."""
    if not len(edges):
        return _NOBODY, _NOBODY, {}
    by_on = np.lexsort((edges.job, edges.on))
    by_job = np.lexsort((edges.on, edges.job))
    rows = np.arange(jobs + 1)
    tells = np.searchsorted(edges.on[by_on], rows)
    waits = np.searchsorted(edges.job[by_job], rows)
    of_jobs = {
        "level": edges.levels(jobs),
        "thinks": edges.thinks(jobs),
        "tells_from": tells[:-1],
        "tells_to": tells[1:],
        "waits_from": waits[:-1],
        "waits_to": waits[1:],
    }
    return by_on, by_job, of_jobs


def _partition_of_jobs(workload: Workload, cluster: Cluster) -> IntArray:
    size = len(workload)
    if not cluster.partitions:
        return np.zeros(size, np.int64)
    names = [partition.name for partition in cluster.partitions]
    default = next((i for i, p in enumerate(cluster.partitions) if p.default), -1)
    labels = workload.partition.labels
    number = np.array([names.index(x) if x in names else -1 for x in labels] + [default], np.int64)
    found = number[workload.partition.codes]
    if (found < 0).any():
        row = int(np.flatnonzero(found < 0)[0])
        code = workload.partition.codes[row]
        asks = f"names partition {labels[code]!r}" if code >= 0 else "names no partition"
        raise WorkloadError(
            f"job {workload.job_id[row]} {asks}; cluster {cluster.name!r} has "
            f"{', '.join(names)}{'' if code >= 0 else ', none of them marked as default'}"
        )
    return found


def _kinds(
    workload: Workload, machine: Machine, cluster: Cluster, partition: IntArray
) -> tuple[Kinds, IntArray]:
    """Return the kinds of jobs, and the kind of each job [jobs]."""
    alike = _are_alike(workload, cluster)
    if alike and _ALIKE in machine.kinds:
        return machine.kinds[_ALIKE], partition
    table, kind = _distinct(workload, cluster, partition)
    features = workload.features.labels
    about = table.tobytes(), tuple(features)
    found = machine.kinds.get(about)
    if found is None:
        # Cached because a twin asks for the same kinds at each decision.
        if len(machine.kinds) >= MOST_KEPT:
            machine.kinds.clear()
        eligible = _eligible(table, features, machine, cluster)
        nodes = eligible.astype(np.int64) @ machine.pool_nodes
        found = machine.kinds[about] = Kinds(eligible, table[:, 0].astype(np.int64), nodes)
    if alike:
        machine.kinds[_ALIKE] = found
    return found, kind


def _are_alike(workload: Workload, cluster: Cluster) -> bool:
    """Return whether all jobs are of one kind: one partition, no special nodes."""
    one = len(workload) == 0 or len(cluster.partitions) <= 1
    return one and not workload.features.labels and not needs_of_whole_nodes(workload)


def _distinct(
    workload: Workload, cluster: Cluster, partition: IntArray
) -> tuple[npt.NDArray[np.float64], IntArray]:
    """Return the distinct (partition, node needs, features), and each job's row."""
    size = len(workload)
    names = (*PER_NODE, *cluster.consumables)
    asked = needs_of_whole_nodes(workload)
    if not asked and not workload.features.labels:
        alike = _are_alike(workload, cluster)
        used = np.zeros(1, np.int64) if alike else np.bincount(partition).nonzero()[0]
        rows = np.zeros((len(used), 2 + len(names)))
        rows[:, 0], rows[:, -1] = used, UNKNOWN
        return rows, partition if alike else used.searchsorted(partition)
    needs = [np.asarray(asked.get(name, np.zeros(size))) for name in names]
    table = np.stack([partition.astype(np.float64), *needs, workload.features.codes], axis=1)
    if size == 0:
        return np.zeros((1, table.shape[1])), np.zeros(0, np.int64)
    kinds, kind = np.unique(table, axis=0, return_inverse=True)
    return kinds, kind.ravel()


def needs_of_whole_nodes(workload: Workload) -> dict[str, npt.NDArray[np.float64]]:
    """Return what each node of a job must have [jobs].

    A job with tasks has no consumables here; its tasks ask for them.
    """
    whole = workload.chunks["tasks"] == 0 if workload.chunks else np.True_
    consumables = {name: amounts * whole for name, amounts in workload.consumables.items()}
    return {**workload.per_node, **{n: a for n, a in consumables.items() if a.any()}}


def _eligible(
    kinds: npt.NDArray[np.float64],
    features: Sequence[str],
    machine: Machine,
    cluster: Cluster,
) -> npt.NDArray[np.int8]:
    """Return 1 for the pools that jobs of each kind may use, else 0 [kinds, pools]."""
    group_of_pool = machine.group_of_pool
    eligible = np.zeros((len(kinds), len(group_of_pool)), np.int8)
    for row, kind in enumerate(kinds):
        groups = machine.partitions[int(kind[0])].groups
        wanted = None if kind[-1] == UNKNOWN else features[int(kind[-1])]
        for pool, index in enumerate(group_of_pool):
            group = cluster.nodes[index]
            has = [getattr(group, name) for name in PER_NODE]
            has += [group.consumables.get(name, 0.0) for name in cluster.consumables]
            enough = all(
                amount is None or amount >= need
                for amount, need in zip(has, kind[1:-1], strict=True)
            )
            enough = enough and (wanted is None or has_features(wanted, group.all_features))
            eligible[row, pool] = enough and (groups is None or group.name in groups)
    return eligible


def limits_in(workload: Workload, cluster: Cluster) -> Limits | None:
    """Return the limits that apply to jobs; None if the cluster has none."""
    machine = machine_of(cluster)
    partition = _partition_of_jobs(workload, cluster)
    kinds, kind = _kinds(workload, machine, cluster, partition)
    return _limits(workload, cluster, partition, kind, kinds.eligible, machine.group_of_pool)


def _limits(
    workload: Workload,
    cluster: Cluster,
    partition: IntArray,
    kind: IntArray,
    eligible: npt.NDArray[np.int8],
    group_of_pool: IntArray,
) -> Limits | None:
    if not cluster.limits:
        return None
    from hpctwin.simulation.lowering.limits import limits_of

    smallest = _smallest(eligible, kind, [cluster.nodes[g] for g in group_of_pool])
    return limits_of(workload, cluster, partition, smallest)


def _smallest(
    eligible: npt.NDArray[np.int8], kind: IntArray, groups: Sequence[NodeGroup]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the amounts of the smallest node each job may use; infinite if unknown."""
    found = {}
    for name in PER_NODE:
        has = [getattr(group, name) for group in groups]
        known = np.array([np.inf if amount is None else amount for amount in has])
        found[name] = np.where(eligible != 0, known, np.inf).min(axis=1, initial=np.inf)[kind]
    return found


def _breaks_limit(
    workload: Workload, machine: Machine, partition: IntArray
) -> npt.NDArray[np.bool_]:
    if len(machine.nodes_from) == 1:
        # With one partition, two numbers suffice; no lookup for each job.
        partition = np.zeros((), np.int64)
    broken: npt.NDArray[np.bool_] = (
        (workload.nodes < machine.nodes_from[partition])
        | (workload.nodes > machine.nodes_to[partition])
        | (workload.walltime_ms > machine.walltime_to[partition])
    )
    return broken


def facts_of(
    workload: Workload,
    cluster: Cluster,
    risk: npt.NDArray[np.float64] | None = None,
    profiles: Sequence[Profile | None] = (),
) -> npt.NDArray[Any]:
    """Return job properties that few orderings read; see `engine.state.records.Fact`.

    Args:
        workload: The jobs.
        cluster: The cluster.
        risk: Predicted probability that each job fails [jobs]; 0 if omitted.
        profiles: What each job does on the network; nothing if they do not share it.
    """
    partitions = machine_of(cluster).partitions
    partition = _partition_of_jobs(workload, cluster)
    facts = records("fact", len(workload))
    for name in ("cores", "gpus", "memory_gb"):
        facts[name] = workload.per_node.get(name, 0.0)
    facts["user"] = workload.user.codes
    facts["account"] = workload.account.codes
    facts["partition"] = workload.partition.codes
    facts["qos"] = workload.qos.codes
    weights = _relative([p.priority for p in partitions])
    facts["partition_priority"] = weights[partition]
    names = (*workload.qos.labels, None)
    qos = [cluster.qos.get(name, 0.0) if name else 0.0 for name in names]
    facts["qos_priority"] = _relative(qos, max(cluster.qos.values(), default=0))[workload.qos.codes]
    facts["priority"] = workload.priority
    shared = workload.resources
    facts["cpu"] = facts["cores"] * workload.nodes + shared.get("cpu", 0)
    facts["memory_mb"] = facts["memory_gb"] * workload.nodes * MB_PER_GB + shared.get(
        "memory_mb", 0
    )
    facts["dominant"], facts["load"] = _shares_asked(
        workload.nodes,
        cluster.node_count,
        _resources(workload, cluster),
        machine_of(cluster).capacity,
    )
    facts["risk"] = 0 if risk is None else risk
    facts["predicted_runtime"] = workload.predicted_runtime_s
    if profiles and cluster.platform is not None:
        from hpctwin.simulation.lowering.profiles import communication_shares

        ranks = tasks_asked(workload)
        facts["communication"] = communication_shares(profiles, ranks, cluster.platform)
    facts["predicted_power"] = np.nan_to_num(workload.predicted.get("node_w", np.zeros(1)))
    return facts


def _resources(workload: Workload, cluster: Cluster) -> IntArray:
    """Return how much each job asks of each cluster-wide resource [jobs, resources]."""
    resources = np.zeros((len(workload), len(cluster.resources)), np.int64)
    for column, name in enumerate(cluster.resources):
        resources[:, column] = workload.resources.get(name, 0)
    return resources


def _shares_asked(
    nodes: IntArray, all_nodes: int, resources: IntArray, capacity: IntArray
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each job's largest share of any resource, and the sum of its shares."""
    shares = np.column_stack([nodes / all_nodes, resources / np.maximum(capacity, 1)])
    return shares.max(axis=1), shares.sum(axis=1)


def _relative(weights: list[float], largest: float | None = None) -> npt.NDArray[np.float64]:
    top = max(weights) if largest is None else largest
    return np.array(weights) / top if top > 0 else np.zeros(len(weights))
