"""Types of GPUs that jobs ask for, on a machine whose node groups tell of them as features alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpctwin.model.chunks import more_tasks_text, read_more_tasks
from hpctwin.model.cluster import Cluster
from hpctwin.model.columns import Category
from hpctwin.model.consumables import GPU_TYPE
from hpctwin.model.totals import consumables_asked
from hpctwin.model.workload import Workload

__all__ = ["as_features"]


def as_features(workload: Workload, cluster: Cluster) -> Workload:
    """Jobs that ask for GPUs of a type, on nodes of which a feature says what type theirs are.

    They ask for as many GPUs, and for nodes with the feature.

    Args:
        workload: the jobs.
        cluster: the machine; a type that it counts, or knows nothing of, stays what it is.
    """
    known = {name for group in cluster.nodes for name in group.all_features}
    types = [
        name
        for name in consumables_asked(workload)
        if name.startswith(GPU_TYPE)
        and name not in cluster.consumables
        and name.removeprefix(GPU_TYPE) in known
    ]
    if not types:
        return workload
    wanted: list[list[str]] = [[] for _ in range(len(workload))]
    further = [read_more_tasks(text) for text in workload.more_tasks.labels]
    for name in types:
        asked = workload.consumables.get(name, np.zeros(len(workload))) > 0
        of_further = [any(kind.asks(name) > 0 for kind in kinds) for kinds in further]
        asked |= np.array([*of_further, False])[workload.more_tasks.codes]
        for row in np.flatnonzero(asked).tolist():
            wanted[row].append(name.removeprefix(GPU_TYPE))
    labels = [*workload.features.labels, None]
    had = [labels[code] for code in workload.features.codes.tolist()]
    features = ["&".join(filter(None, (own, *more))) for own, more in zip(had, wanted, strict=True)]
    left = [
        more_tasks_text(
            replace(kind, consumables=tuple(p for p in kind.consumables if p[0] not in types))
            for kind in kinds
        )
        for kinds in further
    ]
    return workload.replace(
        features=Category.of([text or None for text in features]),
        consumables={n: c for n, c in workload.consumables.items() if n not in types},
        more_tasks=Category(workload.more_tasks.codes, tuple(left)),
    )
