"""The view of a facility by which strategies choose a cluster for a job."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hpctwin.facility.config import Facility
from hpctwin.facility.jobs import FacilityJobs
from hpctwin.model import NEVER_MS, Workload

__all__ = ["View"]


class View(Protocol):
    """Present state of a facility, simulated or live, that strategies may read.

    Args:
        facility: The clusters.
        workload: The jobs.
        jobs: The jobs as each cluster sees them.
        rng: Generator of random choices.
        turn: Index of the next cluster of round-robin.
    """

    facility: Facility
    workload: Workload
    jobs: FacilityJobs
    rng: np.random.Generator
    turn: int

    def load(self, cluster: int, row: int) -> float:
        """Return the work per node of a cluster with a job added, in seconds."""

    def queued(self, cluster: int) -> int:
        """Return the number of jobs pending on a cluster or on their way to it."""

    def free_share(self, cluster: int) -> float:
        """Return the share of a cluster's nodes that is free, 0 to 1."""

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """Return a rough estimate of a job's end on a cluster, in ms.

        Clusters with an early estimate are forecast first.
        """

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """Return start and end of a job on a cluster if it is sent there now, in ms.

        Both are -1 if it does not end by ``latest_end_ms``.
        """

    def expect_end(self, row: int, end_ms: int) -> None:
        """Record the forecast end of a job that is placed next; -1 for no forecast."""

    def advance_all(self) -> None:
        """Advance all clusters to just before the present."""
