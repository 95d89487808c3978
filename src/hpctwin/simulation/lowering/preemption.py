"""Which jobs may preempt which, in the engine's form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.layout import PREEMPTED, SENT_BACK, SUSPENDED
from hpctwin.engine.state.sim import records
from hpctwin.model import Cluster, Workload, to_ms
from hpctwin.model.cluster.preemption import PreemptedPartition, PreemptedQos, Preemption

__all__ = ["claims_of", "is_interrupted", "suspends", "writes_checkpoints"]

IntArray = npt.NDArray[np.int64]

_MODES = {
    "off": 0,
    "requeue": int(SENT_BACK),
    "cancel": int(PREEMPTED),
    "suspend": int(SUSPENDED),
}


@dataclass(frozen=True)
class _Classes:
    """Preemption classes of jobs (K of them).

    Args:
        of: Class of each job [jobs].
        said: Settings of each class [K].
        rank: Rank of each class; lower ranks are preempted first [K].
        preempts: Whether jobs of the row's class may preempt jobs of the column's [K, K].
    """

    of: IntArray
    said: list[PreemptedPartition | PreemptedQos]
    rank: list[float]
    preempts: npt.NDArray[np.bool_]


def is_interrupted(workload: Workload, cluster: Cluster) -> bool:
    """Return whether jobs may be preempted or resume from a checkpoint."""
    failures = cluster.failures
    fail = bool(failures.outages) or failures.mtbf is not None
    again = fail and failures.on_failure == "requeue"
    return cluster.preemption is not None or (workload.checkpoint_ms is not None and again)


def writes_checkpoints(workload: Workload, cluster: Cluster) -> bool:
    """Return whether jobs may resume from a checkpoint."""
    if not is_interrupted(workload, cluster):
        return False
    own, preemption = workload.checkpoint_ms, cluster.preemption
    if own is not None and (own > 0).any():
        return True
    every = None if preemption is None else preemption.checkpoint
    return bool(every) and (own is None or bool((own < 0).any()))


def suspends(cluster: Cluster) -> bool:
    """Return whether jobs of any class of the cluster may be suspended for others."""
    of = cluster.preemption
    if of is None:
        return False
    classes: list[PreemptedPartition | PreemptedQos | None] = [
        of.partitions.get(partition.name) for partition in cluster.partitions
    ]
    if not of.partitions:
        classes = [of.qos.get(name) for name in {*of.qos, *cluster.qos}]
    return any(((one and one.mode) or of.mode) == "suspend" for one in classes)


def claims_of(
    workload: Workload, cluster: Cluster, partition: IntArray
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of preemption; see `engine.state.layout.Known`.

    Args:
        workload: The jobs.
        cluster: The cluster.
        partition: Partition of each job [jobs].
    """
    if not is_interrupted(workload, cluster):
        return _no_claims()
    of_all = cluster.preemption or Preemption.model_construct(mode="off")
    classes = _classes(workload, cluster, partition)
    levels = _levels(classes.preempts)
    order = np.unique(classes.rank, return_inverse=True)[1]
    default = 0 if of_all.checkpoint is None else to_ms(of_all.checkpoint)
    told = workload.checkpoint_ms
    modes = [one.mode or of_all.mode for one in classes.said]
    grace = [_ms(one.grace, of_all.grace) + to_ms(cluster.cleanup) for one in classes.said]
    return {
        "claim": records(
            "claim",
            len(workload),
            standing=classes.of,
            checkpoint=default if told is None else np.where(told < 0, default, told),
        ),
        "yields": records(
            "yields",
            len(classes.said),
            level=levels,
            rank=order,
            mode=[_MODES[mode] for mode in modes],
            grace=[0 if mode == "suspend" else ms for mode, ms in zip(modes, grace, strict=True)],
            exempt=[_ms(one.exempt, of_all.exempt) for one in classes.said],
        ),
        "preempts": classes.preempts.astype(np.int8),
    }


@cache
def _no_claims() -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a cluster where no job is interrupted."""
    return {
        "claim": records("claim", 0),
        "yields": records("yields", 0),
        "preempts": np.zeros((0, 0), np.int8),
    }


def _ms(own: float | None, of_all: float) -> int:
    return to_ms(of_all if own is None else own)


def _classes(workload: Workload, cluster: Cluster, partition: IntArray) -> _Classes:
    preemption = cluster.preemption
    if preemption is None:
        of = np.zeros(len(workload), np.int64)
        return _Classes(of, [PreemptedPartition()], [0.0], np.zeros((1, 1), bool))
    if preemption.partitions:
        found = [
            preemption.partitions.get(p.name, PreemptedPartition()) for p in cluster.partitions
        ]
        tier = np.array([one.tier for one in found])
        return _Classes(partition, list(found), tier.tolist(), tier[:, None] > tier[None, :])
    names = sorted({*preemption.qos, *cluster.qos})
    said = [preemption.qos.get(name, PreemptedQos()) for name in names]
    preempts = np.zeros((len(names) + 1, len(names) + 1), bool)
    for row, one in enumerate(said):
        preempts[row, [names.index(other) for other in one.preempts]] = True
    # The last class holds the jobs without any of these QOS.
    code = [names.index(x) if x in names else len(names) for x in workload.qos.labels]
    of = np.array([*code, len(names)], np.int64)[workload.qos.codes]
    rank = [cluster.qos.get(name, 0.0) for name in names]
    return _Classes(of, [*said, PreemptedQos(mode="off")], [*rank, 0.0], preempts)


def _levels(preempts: npt.NDArray[np.bool_]) -> IntArray:
    """Return the length of the longest preemption chain below each class [K]."""
    levels = np.zeros(len(preempts), np.int64)
    # K rounds suffice: no chain is longer than the number of classes.
    for _ in range(len(preempts)):
        below = np.where(preempts, levels[None, :] + 1, 0)
        levels = below.max(axis=1, initial=0)
    return levels
