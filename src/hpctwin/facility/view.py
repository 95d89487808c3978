"""What strategies may look at when they choose a cluster for a job."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hpctwin.facility.config import Facility
from hpctwin.facility.jobs import FacilityJobs
from hpctwin.model import NEVER_MS, Workload

__all__ = ["View"]


class View(Protocol):
    """A facility at an instant, simulated or live.

    Args:
        facility: the clusters.
        workload: the jobs.
        jobs: what they are to each cluster.
        rng: for what is drawn.
        turn: the cluster whose turn it is, where they take turns.
    """

    facility: Facility
    workload: Workload
    jobs: FacilityJobs
    rng: np.random.Generator
    turn: int

    def load(self, cluster: int, row: int) -> float:
        """Seconds that a cluster would have work for on all its nodes, with a job added."""

    def queued(self, cluster: int) -> int:
        """How many jobs wait at a cluster, those on their way included."""

    def free_share(self, cluster: int) -> float:
        """The share of a cluster's nodes that is free, 0 to 1."""

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """When a job may end at a cluster, roughly: where it is early is looked first."""

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """When a job would start and end at a cluster if it was sent there now; -1 if not by then."""

    def expect_end(self, row: int, end_ms: int) -> None:
        """Note what was forecast of a job that is placed next; -1 for nothing."""

    def advance_all(self) -> None:
        """Let everything happen at all clusters that happens before the present."""
