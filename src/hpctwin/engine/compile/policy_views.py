"""Views: the fields of a job and of a node that orderings and placements see."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["CHANGING", "JobView", "NodeView", "Order", "Place"]

CHANGING = frozenset({"wait", "fairshare", "usage"})
"""Fields that change while a job waits.

The queue stays sorted under an ordering that uses none of them.
"""


class JobView(NamedTuple):
    """A pending job as an ordering sees it; all fields are floats, times in seconds.

    Args:
        submit: Submit time.
        eligible: Time from which dependencies allow the job to start.
        wait: now - submit.
        walltime: Requested limit.
        expected: Runtime that the scheduler expects: the walltime, or a prediction.
        nodes: Nodes requested.
        cores, gpus, memory_gb: Request per node; 0 if none.
        user, account, partition, qos: Codes of the labels; -1 if unknown.
        partition_priority, qos_priority: Weights from the cluster's configuration, relative to the
            largest.
        priority: Priority in the trace; larger is sooner.
        fairshare: 2^(-(use/all use)/(share/all shares)) of its user or account, in (0, 1].
        usage: Decayed node-seconds of its user or account.
        machine_nodes: Nodes of the cluster.
        requeues: Number of times a node failure requeued the job.
        dominant: Largest share it requests of any cluster resource: nodes or a cluster-wide
            resource, 0 to 1.
        load: Sum of those shares.
        cpu: Cores per node × nodes, plus its request of a cluster-wide resource named ``cpu``.
        memory_mb: Memory per node × nodes, plus its request of a cluster-wide resource named
            ``memory_mb``; MB.
        chain: Expected time of the longest chain of submitted jobs that wait for it. It may grow;
            the queue is then sorted again.
        risk: Predicted probability that it fails; 0 without a prediction.
        predicted_runtime: Predicted runtime, even if the scheduler does not plan by it; the
            walltime without a prediction.
        predicted_power: Predicted power of one of its nodes, W; 0 without a prediction.
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
        number: Node number, from 0.
        group: Number of its node group, from 0.
        cores, gpus, memory_gb: Amounts that the node has, or has left if nodes are shared; 0 if
            unknown.
        speed: Speed at which jobs run on it; 1 is the speed at which runtimes were measured.
        idle_w, active_w: Power draw when idle and when computing, in its group's first mode, W; 0
            if unknown.
        wakes: Seconds until it can be on; 0 if it is on.
        free: Number of free nodes in its pool: nodes of the same group, under the same maintenance.
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
"""A placement: ``(now in seconds, job, node) -> score``.

A job is placed on the free nodes with the smallest scores.
"""
