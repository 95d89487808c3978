"""What orderings see of a job, and placements of a node besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["CHANGING", "JobView", "NodeView", "Order", "Place"]

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
        dominant: the largest share it asks for of anything the cluster has: nodes or a cluster-wide
            resource, 0 to 1.
        load: the sum of those shares.
        cpu: cores per node × nodes, and what it asks of a cluster-wide resource named ``cpu``.
        memory_mb: memory per node × nodes, and a cluster-wide resource named ``memory_mb``; MB.
        chain: expected time of the longest chain of jobs, among those submitted, that wait for it.
            It may grow; the queue is put in order again when it does.
        risk: predicted probability that it fails; 0 without prediction.
        predicted_runtime: predicted runtime, whether or not the scheduler plans by it; the walltime without
            prediction.
        predicted_power: predicted power of one of its nodes, W; 0 without prediction.
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
    dominant: float
    load: float
    cpu: float
    memory_mb: float
    chain: float
    risk: float
    predicted_runtime: float
    predicted_power: float


class NodeView(NamedTuple):
    """A free node as a placement sees it; all fields are floats.

    Args:
        number: of the node, from 0.
        group: number of its node group, from 0.
        cores, gpus, memory_gb: what it has, or what is left of it where nodes are shared; 0 where that is not
            known.
        speed: at which jobs run on it; 1 is where runtimes were measured.
        idle_w, active_w: what it draws when idle, and when it computes, in its group's first mode; 0 where
            that is not known.
        wakes: seconds until it can be on; 0 if it is on.
        free: how many free nodes there are of its pool: of the same group, under the same maintenance.
    """

    number: float
    group: float
    cores: float
    gpus: float
    memory_gb: float
    speed: float
    idle_w: float
    active_w: float
    wakes: float
    free: float


Order = Callable[[float, JobView], float]
"""An ordering: ``(now in seconds, job) -> score``, smallest first."""

Place = Callable[[float, JobView, NodeView], float]
"""A placement: ``(now in seconds, job, node) -> score``; a job gets the free nodes with the smallest."""
