"""A cap on what all nodes draw together, as a resource of the engine.

A node that does not compute is counted with the most it draws then; a job is counted with what its nodes
draw above that. So the cap holds at every instant, whatever nodes are switched on or off, and a plan
with reservations knows when it falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power import PowerPolicy
from hpctwin.energy.states import node_watts, slowest
from hpctwin.engine.layout import COMPUTING, IDLE
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, PowerCap, Workload, to_ms
from hpctwin.model.cap import DAY_S
from hpctwin.simulation.lower import changes_of

__all__ = ["with_cap", "with_cap_windows"]

RESOURCE = "power_w"
AFTER_S = 30 * DAY_S
"""Raised caps come back each day until so long after the last submission; then the lowest holds."""


def with_cap(
    workload: Workload, cluster: Cluster, power: PowerPolicy, cap: PowerCap
) -> tuple[Workload, Cluster]:
    """The jobs with what they draw as a resource, and the cluster with the lowest cap of it.

    Raises:
        ConfigError: the cap cannot be kept, or a job alone is above it; the message names it.
    """
    if cap.windows and power.kind in ("psus", "psas-auto"):
        raise ConfigError(
            f"a cap by time of day does not go with power policy {power.kind!r}, whose plan does not know "
            "when jobs begin; take psas-ipm"
        )
    drawn = node_watts(slowest(cluster) if cap.lower_modes else cluster)
    # Without power management nodes are never anything but idle and computing.
    rest = drawn[[IDLE]] if power.kind == "none" else np.delete(drawn, COMPUTING, axis=0)
    floor = rest.max(axis=0)
    above = np.maximum(drawn[COMPUTING] - floor, 0.0)
    left = cap.lowest - float(floor.sum())
    if left < 0:
        raise ConfigError(
            f"the power cap of {cap.lowest:,.0f} W is below the {floor.sum():,.0f} W that the "
            f"{cluster.node_count} nodes of cluster {cluster.name!r} may draw when none computes"
        )
    each = math.ceil(float(above.max()))
    needs = workload.nodes * each
    over = np.flatnonzero((needs > left) & (workload.nodes <= cluster.node_count))
    if len(over):
        job = int(over[0])
        raise ConfigError(
            f"job {workload.job_id[job]} on {workload.nodes[job]} nodes draws {needs[job]:,} W above what "
            f"idle nodes may draw; the power cap leaves {left:,.0f} W, so it could never start. For all jobs "
            f"the cap must be {floor.sum() + needs[over].max():,.0f} W or more"
        )
    needs = np.minimum(needs, math.floor(left))  # too wide for the machine: rejected for that
    return (
        workload.replace(resources={**workload.resources, RESOURCE: needs}),
        cluster.model_copy(update={"resources": {**cluster.resources, RESOURCE: math.floor(left)}}),
    )


def with_cap_windows(
    known: Mapping[str, npt.NDArray[Any]], cluster: Cluster, workload: Workload, cap: PowerCap
) -> dict[str, npt.NDArray[Any]]:
    """What the engine knows, with the times at which the cap is higher than at its lowest."""
    last_s = float(workload.submit_ms.max(initial=0)) / 1000 + AFTER_S
    column = len(known["pool"]) + list(cluster.resources).index(RESOURCE)
    rows = [
        (to_ms(start), to_ms(end), column, -math.floor(more))
        for start, end, more in cap.raised(workload.start_epoch_s, last_s)
    ]
    windows = np.concatenate([known["window"], np.array(rows, known["window"].dtype)])
    return {**known, "window": windows, "change": changes_of(windows)}
