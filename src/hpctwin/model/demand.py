"""Requests of jobs to a cluster: totals, and parts that are not used.

`as_features` turns requested GPU types into features, for clusters whose node groups have the types
as features only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from hpctwin.model.cluster.cluster import Cluster
from hpctwin.model.cluster.limits import idle_limits
from hpctwin.model.columns import Category
from hpctwin.model.requests.chunks import CHUNKS, PER_TASK, more_tasks_text, read_more_tasks
from hpctwin.model.requests.features import without_groups
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.model.text import ReadNotes, count_text
from hpctwin.model.workload.workload import Workload

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def consumables_asked(workload: Workload) -> tuple[str, ...]:
    """Return the consumables that any job requests."""
    if not workload.consumables and not workload.more_tasks.labels:
        return ()
    own = [name for name, amounts in workload.consumables.items() if amounts.any()]
    more = [
        name
        for code in np.unique(workload.more_tasks.codes).tolist()
        if code >= 0
        for kind in read_more_tasks(workload.more_tasks.labels[code])
        for name, amount in kind.consumables
        if amount
    ]
    return tuple(dict.fromkeys((*own, *more)))


def totals_asked(
    workload: Workload, per_node: Mapping[str, FloatArray] | None = None
) -> dict[str, FloatArray]:
    """Return the request of each job in total, over all its tasks or nodes.

    Args:
        per_node: Requirements on whole nodes; by default the workload's.

    Returns:
        ``cores``, ``memory_gb``, ``gpus``, and each consumable that any job requests [jobs].
    """
    chunks, nodes = workload.chunks, workload.nodes
    needs = workload.per_node if per_node is None else per_node
    found = {}
    for name in (*PER_TASK, *consumables_asked(workload)):
        each = workload.consumables.get(name, np.zeros(1))
        whole = (each if name not in PER_TASK else np.asarray(needs.get(name, 0.0))) * nodes
        if chunks:
            each = chunks[PER_TASK[name]] if name in PER_TASK else each
            whole = np.where(chunks["tasks"] > 0, chunks["tasks"] * each, whole)
        if workload.more_tasks.labels:
            more = [
                sum(kind.tasks * kind.asks(name) for kind in read_more_tasks(text))
                for text in workload.more_tasks.labels
            ]
            whole = whole + np.array([*more, 0.0])[workload.more_tasks.codes]
        found[name] = whole + np.zeros(len(nodes))
    return found


def cores_asked(workload: Workload, cluster: Cluster) -> FloatArray:
    """Return the cores that each job requests [jobs].

    Whole nodes that are not known count as the largest group's.
    """
    largest = max(group.cores or 0.0 for group in cluster.nodes)
    whole = {"cores": np.full(len(workload), largest)}
    return totals_asked(workload, whole)["cores"]


def at_load(workload: Workload, cluster: Cluster, load: float) -> Workload:
    """Return the same jobs with submit times that offer a cluster a load.

    Jobs that share nodes count with the cores that they request, exclusive jobs with whole nodes.

    Args:
        load: Work as a share of the cluster's capacity, as in `Workload.scale`.
    """
    nodes, sizes = cluster.node_count, None
    per_node = sum(group.count * (group.cores or 0.0) for group in cluster.nodes) / nodes
    if workload.shares_nodes and per_node:
        sizes = cores_asked(workload, cluster) / per_node
        alone = workload.chunks["exclusive"] > 0
        sizes = np.where(alone, np.maximum(sizes, workload.nodes), sizes)
    return workload.scale(load, nodes, sizes=sizes)


def tasks_asked(workload: Workload) -> IntArray:
    """Return the number of tasks of each job, of all kinds; of nodes if it asks for none [jobs]."""
    if not workload.chunks:
        return workload.nodes
    first = workload.chunks["tasks"].astype(np.int64)
    kinds = [read_more_tasks(text) for text in workload.more_tasks.labels]
    more = np.array([*(sum(kind.tasks for kind in some) for some in kinds), 0])
    found: IntArray = np.where(first > 0, first, workload.nodes) + more[workload.more_tasks.codes]
    return found


def with_tasks(workload: Workload) -> Workload:
    """Return jobs with the columns of tasks; jobs that ask for none keep whole nodes."""
    if workload.shares_nodes:
        return workload
    return workload.replace(chunks=dict.fromkeys(CHUNKS, np.zeros(len(workload))))


def in_whole_nodes(workload: Workload, cluster: Cluster) -> Workload:
    """Give jobs that request only nodes whole ones, if the nodes' cores are unknown.

    Args:
        workload: Jobs; if any of them requests more, such as cores, all stay as they are.
        cluster: Cluster; if any of its node groups gives its cores, jobs stay as they are.
    """
    asks = workload.chunks
    if not asks or any(group.cores is not None for group in cluster.nodes):
        return workload
    nodes = np.where(asks["tasks_per_node"] == 1, asks["tasks"], workload.nodes)
    nodes_alone = (
        not workload.more_tasks.labels
        and not workload.group_by.labels
        and not consumables_asked(workload)
        and not any(asks[name].any() for name in ("gpus_per_task", "memory_gb_per_task"))
        and not any(asks[name].any() for name in ("shared_with", "spread_job"))
        and ((asks["tasks"] == 0) | (asks["tasks"] == nodes)).all()
        and (asks["cores_per_task"] <= 1).all()
    )
    if not nodes_alone:
        return workload
    said = (
        f"jobs request nodes, and cluster {cluster.name!r} has no 'cores' per node: each job "
        "gets whole nodes"
    )
    notes = workload.notes.joined(ReadNotes(remarks=(said,)))
    return workload.replace(chunks={}, nodes=nodes.astype(np.int64), notes=notes)


def as_features(workload: Workload, cluster: Cluster) -> Workload:
    """Return jobs with GPU types as features, if nodes have their types as features.

    The jobs request the same number of GPUs, and nodes with the feature.

    Args:
        cluster: Cluster; a type that it counts, or does not know, stays as it is.
    """
    consumables = consumables_asked(workload)
    if not consumables:
        return workload
    known = {name for group in cluster.nodes for name in group.all_features}
    types = [
        name
        for name in consumables
        if name.startswith(GPU_TYPE)
        and name not in cluster.consumables
        and name.removeprefix(GPU_TYPE) in known
    ]
    if not types:
        return workload
    had = workload.features
    # One bit for each type that a job requests, and its own features above them.
    wants = (had.codes.astype(np.int64) + 1) << len(types)
    further = [read_more_tasks(text) for text in workload.more_tasks.labels]
    for bit, name in enumerate(types):
        asked = workload.consumables.get(name, np.zeros(len(workload))) > 0
        of_further = [any(kind.asks(name) > 0 for kind in kinds) for kinds in further]
        asked |= np.array([*of_further, False])[workload.more_tasks.codes]
        wants |= asked.astype(np.int64) << bit
    distinct, row = np.unique(wants, return_inverse=True)
    features = []
    for want in distinct.tolist():
        own = [had.labels[(want >> len(types)) - 1]] if want >> len(types) else []
        more = [name.removeprefix(GPU_TYPE) for bit, name in enumerate(types) if want >> bit & 1]
        features.append("&".join((*own, *more)))
    left = [
        more_tasks_text(
            replace(kind, consumables=tuple(p for p in kind.consumables if p[0] not in types))
            for kind in kinds
        )
        for kinds in further
    ]
    return workload.replace(
        features=Category.of([text or None for text in features]).take(row),
        consumables={n: c for n, c in workload.consumables.items() if n not in types},
        more_tasks=Category(workload.more_tasks.codes, tuple(left)),
    )


_SHOWN = 5
_COUNTED = ("partition", "qos", "account", "user", "group_by")


def assumptions(workload: Workload, cluster: Cluster) -> list[str]:
    """Return what a simulation assumes or does not use, a sentence each.

    Args:
        workload: Jobs; the sentences include what their reader changed or skipped.
    """
    return [*workload.notes.sentences(), *unused(workload, cluster)]


def unused(workload: Workload, cluster: Cluster) -> Iterator[str]:
    """Yield sentences on what a cluster does not know, and on assumed values."""
    return Mismatches(cluster).add(workload).sentences()


class Mismatches:
    """Values of jobs that a cluster does not know, and assumed numbers.

    Jobs are added part by part.

    Args:
        cluster: Cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._jobs: dict[str, Counter[str]] = {kind: Counter() for kind in _COUNTED}
        self._per_node: Counter[str] = Counter()
        self._remarks: dict[str, None] = {}

    def add(self, workload: Workload) -> Self:
        """Count the jobs of a workload, or of a part of one."""
        whole = in_whole_nodes(workload, self._cluster)
        if whole is not workload:
            self._remarks |= dict.fromkeys(whole.notes.remarks[len(workload.notes.remarks) :])
        for kind, jobs in self._jobs.items():
            column = getattr(workload, kind)
            counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.labels))
            for label, count in zip(column.labels, counts.tolist(), strict=True):
                if count:
                    jobs[label] += count
        for name, asked in workload.per_node.items():
            self._per_node[name] += int(np.count_nonzero(asked))
        return self

    def sentences(self) -> Iterator[str]:
        """Yield the remarks on all added jobs, a sentence each."""
        cluster = self._cluster
        jobs = {kind: Counter(dict(sorted(some.items()))) for kind, some in self._jobs.items()}
        yield from (f"cluster {cluster.name!r}: {one}" for one in cluster.notes.sentences())
        yield from self._remarks
        if jobs["partition"] and not cluster.partitions:
            yield (
                f"{count_text(jobs['partition'].total(), 'job')} requested partitions "
                f"({_list(jobs['partition'])}), but cluster {cluster.name!r} has none: all nodes "
                "can be used"
            )
        listed = {*cluster.qos, *(one.qos for one in cluster.partitions if one.qos is not None)}
        limited = {one.qos for one in cluster.limits if one.qos is not None}
        if jobs["qos"] and not {*listed, *limited, *cluster.fairshare.factors}:
            yield (
                f"{count_text(jobs['qos'].total(), 'job')} requested QOS ({_list(jobs['qos'])}), but cluster "
                f"{cluster.name!r} lists none: no weight or limit applies to them"
            )
        shares, tree = cluster.fairshare.shares, [one.name for one in cluster.accounts]
        by = "account" if tree else cluster.fairshare.by
        for kind, known, what in (
            (
                "qos",
                cluster.qos,
                "QOS that the cluster does not list ({}): weight 0 is used",
            ),
            (
                by,
                tree or shares,
                f"{by}s that the cluster does not list ({{}}): each gets a fair share of 1",
            ),
        ):
            strange = [name for name in jobs[kind] if name not in known] if known else []
            if strange:
                count = sum(jobs[kind][name] for name in strange)
                yield f"{count_text(count, 'job')} with {what.format(_list(strange))}"
        for name, count in self._per_node.items():
            unknown = [group.name for group in cluster.nodes if getattr(group, name) is None]
            if count and unknown:
                yield (
                    f"{count_text(count, 'job')} requested {name} per node, which node groups "
                    f"{_list(unknown)} do not define: all of their nodes can be used"
                )
        features = {feature for group in cluster.nodes for feature in group.all_features}
        yield from idle_limits(cluster.limits, cluster.fairshare.factors, jobs, listed)
        yield from without_groups(jobs["group_by"], features)
        for group in cluster.nodes:
            for mode, drawn in group.modes.items():
                if drawn.idle_w is None:
                    yield (
                        f"node group {group.name!r}: mode {mode!r} has no idle_w, so idle nodes "
                        f"draw {drawn.power_w:g} W, as busy nodes do"
                    )


def _list(names: Iterable[str]) -> str:
    known = [*map(str, names)]
    more = f", and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
    return ", ".join(known[:_SHOWN]) + more
