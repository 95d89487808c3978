"""Parts of a workload and a cluster that a simulation does not use or assumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np

from hpctwin.model.cluster.cluster import Cluster
from hpctwin.model.cluster.limits import idle_limits
from hpctwin.model.demand.requested_totals import in_whole_nodes
from hpctwin.model.requests.features import without_groups
from hpctwin.model.workload.workload import Workload

__all__ = ["Mismatches", "assumptions", "unused"]

_SHOWN = 5
_COUNTED = ("partition", "qos", "account", "user", "group_by")


def assumptions(workload: Workload, cluster: Cluster) -> list[str]:
    """Return what a simulation assumes or does not use, a sentence each.

    Args:
        workload: Jobs; the sentences include what their reader changed or skipped.
        cluster: Cluster.
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
                f"{jobs['partition'].total():,} jobs name partitions ({_list(jobs['partition'])}), and "
                f"cluster {cluster.name!r} has none: the jobs may have any nodes"
            )
        listed = {*cluster.qos, *(one.qos for one in cluster.partitions if one.qos is not None)}
        limited = {one.qos for one in cluster.limits if one.qos is not None}
        if jobs["qos"] and not {*listed, *limited, *cluster.fairshare.factors}:
            yield (
                f"{jobs['qos'].total():,} jobs have QOS ({_list(jobs['qos'])}), and cluster "
                f"{cluster.name!r} lists none: no weight or limit is theirs"
            )
        shares, tree = cluster.fairshare.shares, [one.name for one in cluster.accounts]
        by = "account" if tree else cluster.fairshare.by
        for kind, known, what in (
            (
                "qos",
                cluster.qos,
                "QOS that the cluster does not list ({}): its weight is taken as 0",
            ),
            (
                by,
                tree or shares,
                f"{by}s that the cluster does not list ({{}}): each has a fair share of 1",
            ),
        ):
            strange = [name for name in jobs[kind] if name not in known] if known else []
            if strange:
                count = sum(jobs[kind][name] for name in strange)
                yield f"{count:,} jobs have {what.format(_list(strange))}"
        for name, count in self._per_node.items():
            unknown = [group.name for group in cluster.nodes if getattr(group, name) is None]
            if count and unknown:
                yield (
                    f"{count:,} jobs ask for {name} of each node, which node groups {_list(unknown)} do not "
                    "say: any of their nodes will do"
                )
        features = {feature for group in cluster.nodes for feature in group.all_features}
        yield from idle_limits(cluster.limits, cluster.fairshare.factors, jobs, listed)
        yield from without_groups(jobs["group_by"], features)
        for group in cluster.nodes:
            for mode, drawn in group.modes.items():
                if drawn.idle_w is None:
                    yield (
                        f"node group {group.name!r}: mode {mode!r} has no idle_w, so idle nodes are assumed "
                        f"to draw {drawn.power_w:g} W, as busy ones do"
                    )


def _list(names: Iterable[str]) -> str:
    known = [*map(str, names)]
    more = f", and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
    return ", ".join(known[:_SHOWN]) + more
