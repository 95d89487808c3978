"""Forecasts of a job on a cluster, with later arrivals sampled from the past."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.facility.objective import PlacementForecast
from hpctwin.facility.state import FacilityState

__all__ = ["Futures"]

IntArray = npt.NDArray[np.int64]
NOBODY = np.zeros(0, np.int64)


class Futures:
    """Forecasts of a job on a cluster, over samples of the jobs that arrive later.

    A sample is a block of the cluster's past (moving-block bootstrap). It begins at a job placed
    there, drawn with equal probability. It has all jobs placed within the horizon after that one,
    at the same distances in time. This keeps bursts and the mix of jobs.

    Args:
        state: The facility.
        cluster: Index of the cluster.
        row: Row of the job, which arrives now.
        samples: Number of samples; 0 for one future without later jobs.
        horizon_s: Time within which arrivals are sampled, in seconds.
    """

    MOST = 256
    """Maximum number of arrivals in a sample."""

    def __init__(
        self, state: FacilityState, cluster: int, row: int, samples: int, horizon_s: float
    ) -> None:
        self.state = state
        self.site = state.clusters[cluster]
        self.row = row
        self.arrival_ms = state.arrival_ms(row, cluster)
        self.past = state.placed[cluster]
        self.samples = samples if self.past else 0
        self.horizon_ms = round(1000 * horizon_s)

    def forecasts(self, *, others: bool) -> list[PlacementForecast]:
        """Return the job's start and end in each sample.

        Args:
            others: Whether to also compute the time that the job adds to the turnarounds of all
                other jobs. This takes a second forecast per sample, without the job.
        """
        if self.samples == 0:
            return [self._with(NOBODY, others)]
        return [self._with(self._sample(), others) for _ in range(self.samples)]

    def _sample(self) -> IntArray:
        """Draw arrivals, and return their rows in the cluster's forecasts."""
        first = int(self.state.rng.integers(len(self.past)))
        block = np.array(self.past[first : first + self.MOST])
        when = self.state.placed_ms[block]
        block = block[when <= when[0] + self.horizon_ms]
        gaps = self.state.placed_ms[block] - when[0]
        return self.site.tell(block, self.state.now_ms + 1 + gaps)

    def _with(self, later: IntArray, others: bool) -> PlacementForecast:
        own = np.array([self.row])
        present = NOBODY
        if others:
            self.site.advance_before(self.state.now_ms)
            present = np.concatenate([self.site.waiting(), self.site.on_their_way(), later])
        found = self._forecast(np.concatenate([own, later]), np.concatenate([own, present]))
        added = 0.0
        if len(present):
            without = self._forecast(later, present)
            added = float((found[1, 1:] - without[1]).sum()) / 1000
        return PlacementForecast(self.row, int(found[0, 0]), int(found[1, 0]), added)

    def _forecast(self, coming: IntArray, watched: IntArray) -> IntArray:
        return self.site.forecast(self.state.now_ms, coming, watched, arrival_ms=self.arrival_ms)
