"""Limits, caps, maintenance and resources of the cluster, which also hold for changed sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.jobs.resizing import put_amounts
from hpctwin.engine.state.layout import NEVER
from hpctwin.model import Cluster, Workload
from hpctwin.simulation.lowering.limit_rules import JOBS
from hpctwin.simulation.lowering.workload import limits_in

__all__ = ["SiteRules", "site_rules_of"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SiteRules:
    """Rules of a cluster on jobs of any size.

    Args:
        nodes: Nodes that each job asks for [jobs].
        asks: Cluster-wide resources of each job on these nodes; under a power cap, the last one is
            its power [jobs, resources].
        charge: What each job counts under limits on these nodes [jobs, measures]; without limits
            there are no rows.
        capped: Whether there is a power cap.
        largest: Largest number of nodes that each job may have alone [jobs].
        stuck: Whether a limit holds each job back forever [jobs].
        refuse: Whether the cluster may refuse a job nodes that are free.
    """

    nodes: IntArray
    asks: IntArray
    charge: IntArray
    capped: bool
    largest: IntArray
    stuck: npt.NDArray[np.bool_]
    refuse: bool

    def put(self, sim: Any, row: int, size: int) -> None:
        """Set what a pending job asks for and counts on a number of nodes."""
        asks, charge = self.asks[row].copy(), None
        if self.capped:
            asks[-1] = -(-asks[-1] * size // self.nodes[row])
        if len(self.charge):
            charge = -(-self.charge[row] * size // self.nodes[row])
            charge[JOBS] = 1
        put_amounts(sim, row, asks, charge)


def site_rules_of(sim: Any, workload: Workload, cluster: Cluster) -> SiteRules:
    """Return the rules of a cluster on these jobs.

    Args:
        sim: The engine's state, in which no size has changed.
        workload: The jobs.
        cluster: The cluster.
    """
    nodes, asks = workload.nodes, sim["asks"].copy()
    most = [one.max_nodes or NEVER for one in cluster.partitions] or [NEVER]
    largest = np.array(most)[sim["partition"][sim["job"]["kind"]]]
    stuck = np.zeros(len(workload), bool)
    if cluster.cap is not None:
        watts = asks[:, -1]
        capped = int(sim["amount"][-1]) * nodes // np.maximum(watts, 1)
        largest = np.where(watts > 0, np.minimum(largest, capped), largest)
    limits = limits_in(workload, cluster)
    if limits is not None:
        largest, stuck = np.minimum(largest, limits.largest), limits.why != ""
    return SiteRules(
        nodes,
        asks,
        sim["charge"].copy(),
        cluster.cap is not None,
        largest,
        stuck,
        limits is not None
        or cluster.cap is not None
        or bool(cluster.reservations)
        or any(one.max_jobs_per_user for one in cluster.partitions)
        or any(amounts.any() for amounts in workload.resources.values()),
    )
