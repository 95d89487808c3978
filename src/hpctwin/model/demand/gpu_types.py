"""Types of GPUs that jobs ask for, on a machine whose node groups tell of them as features alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpctwin.model.cluster.cluster import Cluster
from hpctwin.model.columns import Category
from hpctwin.model.demand.requested_totals import consumables_asked
from hpctwin.model.requests.chunks import more_tasks_text, read_more_tasks
from hpctwin.model.requests.consumables import GPU_TYPE
from hpctwin.model.workload.workload import Workload

__all__ = ["as_features"]


def as_features(workload: Workload, cluster: Cluster) -> Workload:
    """Jobs that ask for GPUs of a type, on nodes of which a feature says what type theirs are.

    They ask for as many GPUs, and for nodes with the feature.

    Args:
        workload: the jobs.
        cluster: the machine; a type that it counts, or knows nothing of, stays what it is.
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
    # Which of the types each job asks for, a bit for each, and its own features above them.
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
