"""A cap on what all nodes draw together, as a resource of the engine.

A node that does not compute is counted with the most it draws then; a job is counted with what its nodes
draw above that. So the cap holds at every instant, whatever nodes are switched on or off, and a plan
with reservations knows when it falls.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hpctwin.energy.states import node_watts, slowest
from hpctwin.engine.layout import COMPUTING, IDLE
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, Cluster, PowerCap, Workload, to_ms
from hpctwin.model.cap import DAY_S

__all__ = ["RESOURCE", "raised_caps", "with_cap"]

RESOURCE = "power_w"
AFTER_S = 30 * DAY_S
"""Raised caps come back each day until so long after the last submission; then the lowest holds."""


def with_cap(workload: Workload, cluster: Cluster, *, switched: bool) -> tuple[Workload, Cluster]:
    """The jobs with what they draw as a resource, and the cluster with the lowest cap of it.

    Args:
        workload: the jobs.
        cluster: the machine; without a cap nothing is added.
        switched: whether nodes are ever switched off.

    Raises:
        ConfigError: the cap cannot be kept, or a job alone is above it; the message names it.
    """
    cap = cluster.cap
    if cap is None:
        return workload, cluster
    drawn = node_watts(slowest(cluster) if cap.lower_modes else cluster)
    # Without power management nodes are never anything but idle and computing.
    rest = np.delete(drawn, COMPUTING, axis=0) if switched else drawn[[IDLE]]
    floor = rest.max(axis=0)
    above = np.maximum(drawn[COMPUTING] - floor, 0.0)
    left = cap.lowest - float(floor.sum())
    if left < 0:
        raise ConfigError(
            f"the power cap of {cap.lowest:,.0f} W is below the {floor.sum():,.0f} W that the "
            f"{cluster.node_count} nodes of cluster {cluster.name!r} may draw when none computes"
        )
    each = math.ceil(float(above.max()))
    of_group = above[np.cumsum([0, *(group.count for group in cluster.nodes[:-1])])]
    needs, nodes = _asked_w(workload, cluster, of_group, each)
    over = np.flatnonzero((needs > left) & (nodes <= cluster.node_count))
    if len(over):
        job = int(over[0])
        raise ConfigError(
            f"job {workload.job_id[job]} on {nodes[job]:g} nodes draws {needs[job]:,} W above what "
            f"idle nodes may draw; the power cap leaves {left:,.0f} W, so it could never start. For all jobs "
            f"the cap must be {floor.sum() + needs[over].max():,.0f} W or more"
        )
    needs = np.minimum(needs, math.floor(left))  # too wide for the machine: rejected for that
    return (
        workload.replace(resources={**workload.resources, RESOURCE: needs}),
        cluster.model_copy(update={"resources": {**cluster.resources, RESOURCE: math.floor(left)}}),
    )


def _asked_w(
    workload: Workload, cluster: Cluster, above: npt.NDArray[np.float64], each: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """What jobs draw at most above what their nodes do anyway, W, and on as much as how many nodes [jobs].

    Args:
        workload: the jobs.
        cluster: the machine.
        above: by how much a node of each group draws more computing than else, W [groups].
        each: the same of any node, rounded up.
    """
    if not workload.shares_nodes:
        return workload.nodes * each, workload.nodes.astype(np.float64)
    asks = workload.chunks
    alone = np.minimum(asks["tasks"], cluster.node_count)
    nodes = np.where(asks["exclusive"] > 0, alone, 0.0)
    nodes = np.where(asks["tasks"] > 0, nodes, workload.nodes)
    watts = nodes * each
    for group, more in zip(cluster.nodes, above.tolist(), strict=True):
        share = np.zeros(len(workload))
        for name in ("cores", "gpus"):
            has = getattr(group, name)
            if has:
                share = np.maximum(share, asks[f"{name}_per_task"] / has)
        # On a node that has less than a task asks there is none.
        shared = np.where((share <= 1) & (asks["exclusive"] == 0), asks["tasks"] * share, 0.0)
        nodes = np.maximum(nodes, shared)
        watts = np.maximum(watts, shared * more)
    return np.ceil(watts - 1e-6).astype(np.int64), nodes


def raised_caps(cap: PowerCap, workload: Workload) -> list[tuple[int, int, int]]:
    """Start and end (ms) of the times at which a cap is above its lowest, and by how much, W."""
    last_s = float(workload.submit_ms.max(initial=0)) / MS_PER_S + AFTER_S
    return [
        (to_ms(start), to_ms(end), math.floor(more))
        for start, end, more in cap.raised(workload.start_epoch_s, last_s)
    ]
