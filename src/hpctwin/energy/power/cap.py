"""A power cap on all nodes together, as a resource of the engine.

A node that does not compute counts with the largest power it can draw then. A job counts with the
power of its nodes above that. The cap therefore holds at every time, whatever nodes are switched,
and a plan with reservations knows when it falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import node_watts, slowest
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, Cluster, PowerCap, Workload, to_ms
from hpctwin.model.cluster.power import DAY_S
from hpctwin.model.requests.chunks import read_more_tasks

__all__ = ["RESOURCE", "raised_caps", "with_cap"]

RESOURCE = "power_w"
AFTER_S = 30 * DAY_S
"""Time after the last submission up to which raised caps recur daily, in s.

Afterwards the lowest cap holds.
"""


def with_cap(workload: Workload, cluster: Cluster, *, switched: bool) -> tuple[Workload, Cluster]:
    """Return jobs with their power as a resource, and the cluster with its lowest cap.

    Args:
        workload: The jobs.
        cluster: The cluster; without a cap nothing is added.
        switched: Whether nodes are ever switched off.

    Raises:
        ConfigError: The cap cannot be kept, or a job alone exceeds it; the message names the job.
    """
    cap = cluster.cap
    if cap is None:
        return workload, cluster
    drawn = node_watts(slowest(cluster) if cap.lower_modes else cluster)
    # Without power management, nodes are always idle or computing.
    rest = np.delete(drawn, COMPUTING, axis=0) if switched else drawn[[IDLE]]
    floor = rest.max(axis=0)
    above = np.maximum(drawn[COMPUTING] - floor, 0.0)
    left = cap.lowest - float(floor.sum())
    if left < 0:
        raise ConfigError(
            f"power cap of {cap.lowest:,.0f} W is below {floor.sum():,.0f} W, the draw of "
            f"the {cluster.node_count} nodes of cluster {cluster.name!r} without jobs; "
            "raise the cap"
        )
    each = math.ceil(float(above.max()))
    of_group = above[np.cumsum([0, *(group.count for group in cluster.nodes[:-1])])]
    needs, nodes = _asked_w(workload, cluster, of_group, each)
    over = np.flatnonzero((needs > left) & (nodes <= cluster.node_count))
    if len(over):
        job = int(over[0])
        raise ConfigError(
            f"job {workload.job_id[job]} on {nodes[job]:g} nodes draws {needs[job]:,.0f} W "
            f"above idle power, but the power cap leaves {left:,.0f} W, so the job could "
            f"never start; give a cap of {floor.sum() + needs[over].max():,.0f} W or more "
            "for all jobs"
        )
    # Of jobs that are rejected as too wide for the cluster, more would not fit in an integer.
    whole = np.minimum(needs, math.floor(left)).astype(np.int64)
    return (
        workload.replace(resources={**workload.resources, RESOURCE: whole}),
        cluster.model_copy(update={"resources": {**cluster.resources, RESOURCE: math.floor(left)}}),
    )


def _asked_w(
    workload: Workload, cluster: Cluster, above: npt.NDArray[np.float64], each: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the largest power of jobs above the floor (whole W), and their nodes [jobs].

    Args:
        workload: The jobs.
        cluster: The cluster.
        above: Power of a computing node of each group above its floor, in W [groups].
        each: The largest of these, rounded up, in W.
    """
    if not workload.shares_nodes:
        nodes = workload.nodes.astype(np.float64)
        return nodes * each, nodes
    asks = workload.chunks
    first = {name: asks[f"{name}_per_task"] for name in _DRAWING}
    watts, nodes = _used(asks["tasks"], first, cluster, above)
    tasks = asks["tasks"]
    if workload.more_tasks.labels:
        further = [_used_further(text, cluster, above) for text in workload.more_tasks.labels]
        more = np.array([*further, (0.0, 0.0, 0.0)])[workload.more_tasks.codes]
        watts, nodes, tasks = watts + more[:, 0], nodes + more[:, 1], tasks + more[:, 2]
    whole = (asks["tasks"] == 0) | (asks["exclusive"] > 0)
    alone = np.where(asks["tasks"] > 0, np.minimum(tasks, cluster.node_count), workload.nodes)
    watts, nodes = np.where(whole, alone * each, watts), np.where(whole, alone, nodes)
    return np.ceil(watts - 1e-6), nodes


_DRAWING = ("cores", "gpus")


def _used(
    tasks: npt.NDArray[np.float64],
    asked: Mapping[str, npt.NDArray[np.float64]],
    cluster: Cluster,
    above: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the largest power of tasks (W), and their nodes, over all groups.

    Each is the largest value of any group.
    """
    watts, nodes = np.zeros(len(tasks)), np.zeros(len(tasks))
    for group, more in zip(cluster.nodes, above.tolist(), strict=True):
        share = np.zeros(len(tasks))
        for name in _DRAWING:
            has = getattr(group, name)
            if has:
                share = np.maximum(share, asked[name] / has)
        # A task that asks for more than a node has does not run there.
        shared = np.where(share <= 1, tasks * share, 0.0)
        watts, nodes = np.maximum(watts, shared * more), np.maximum(nodes, shared)
    return watts, nodes


def _used_further(
    text: str, cluster: Cluster, above: npt.NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return power (W), nodes and number of all tasks of a job's further kinds."""
    kinds = read_more_tasks(text)
    tasks = np.array([float(kind.tasks) for kind in kinds])
    asked = {name: np.array([float(getattr(kind, name)) for kind in kinds]) for name in _DRAWING}
    watts, nodes = _used(tasks, asked, cluster, above)
    return float(watts.sum()), float(nodes.sum()), float(tasks.sum())


def raised_caps(cap: PowerCap, workload: Workload) -> list[tuple[int, int, int]]:
    """Return start and end (ms) of the times of a raised cap, and the surplus in W."""
    last_s = float(workload.submit_ms.max(initial=0)) / MS_PER_S + AFTER_S
    return [
        (to_ms(start), to_ms(end), math.floor(more))
        for start, end, more in cap.raised(workload.start_epoch_s, last_s)
    ]
