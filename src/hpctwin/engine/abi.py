"""What an ordering sees of a job. Version 1 of the contract between orderings and the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ABI_VERSION", "CHANGING", "JobView", "Order"]

ABI_VERSION = 1

CHANGING = frozenset({"wait", "fairshare", "usage"})
"""Fields that change while a job waits; an ordering that uses none of them keeps the queue sorted."""


class JobView(NamedTuple):
    """A waiting job as an ordering sees it; all fields are floats, times in seconds.

    Args:
        submit: submit time.
        eligible: since when it may start, as far as dependencies go.
        wait: now - submit.
        walltime: requested limit.
        expected: what the scheduler expects it to run: the walltime, or a prediction.
        nodes: nodes requested.
        cores, gpus, memory_gb: what it asks of each node; 0 where nothing.
        user, account, partition, qos: codes of the labels; -1 where unknown.
        partition_priority, qos_priority: weights from the cluster's configuration, relative to
            the largest.
        priority: the trace's own, larger is sooner.
        fairshare: 2^(-(use/all use)/(share/all shares)) of its user or account, in (0, 1].
        usage: decayed node-seconds of its user or account.
        machine_nodes: nodes of the cluster.
        requeues: how often a node failure threw it back.
    """

    submit: float
    eligible: float
    wait: float
    walltime: float
    expected: float
    nodes: float
    cores: float
    gpus: float
    memory_gb: float
    user: float
    account: float
    partition: float
    qos: float
    partition_priority: float
    qos_priority: float
    priority: float
    fairshare: float
    usage: float
    machine_nodes: float
    requeues: float


Order = Callable[[float, JobView], float]
"""An ordering: ``(now in seconds, job) -> score``, smallest first."""
