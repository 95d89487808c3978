"""A look-ahead tree that places jobs with the least sum of turnarounds."""

from __future__ import annotations

import numpy as np

from hpctwin.facility.state import FacilityState

__all__ = ["Tree"]

MOST_FORECASTS = 512
"""Number of forecasts after which the best combination found so far is taken."""


class Tree:
    """Depth-first search with a bound over all combinations of clusters for some jobs.

    A forecast of one cluster depends only on the set of jobs that go there, so each set is forecast
    once. The first descent takes for each job the cluster that adds the least. The result is
    therefore never worse than placing one job after the other. A branch is cut when its sum so far
    is no better than the best complete combination.

    Args:
        state: The facility.
    """

    def __init__(self, state: FacilityState) -> None:
        self.state = state
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._best_ms: int | None = None
        self._best: tuple[int, ...] = ()

    def place(self, rows: list[int]) -> None:
        """Place or hold jobs, in the given order."""
        free = [row for row in rows if self.state.options(row)]
        self.search(free)
        for row, cluster in zip(free, self._best, strict=True):
            # Jobs placed before this one may have filled the queue.
            if cluster in self.state.options(row):
                self.state.place(row, cluster)
            else:
                self.state.hold(row)
        for row in rows:
            if row not in free:
                self.state.hold(row)

    def search(self, rows: list[int]) -> tuple[tuple[int, ...], int]:
        """Return the best cluster for each job, and the sum of the jobs' ends, in ms."""
        self._descend(rows, (), {})
        return self._best, self._best_ms or 0

    def _descend(
        self, rows: list[int], chosen: tuple[int, ...], there: dict[int, tuple[int, ...]]
    ) -> None:
        so_far = sum(self._ends_ms(c, jobs) for c, jobs in there.items())
        if self._best_ms is not None and so_far >= self._best_ms:
            return
        if len(chosen) == len(rows):
            self._best, self._best_ms = chosen, so_far
            return
        row = rows[len(chosen)]
        branches = []
        for cluster in self.state.options(row):
            jobs = (*there.get(cluster, ()), row)
            added = self._ends_ms(cluster, jobs) - self._ends_ms(cluster, jobs[:-1])
            branches.append((added, cluster, jobs))
        for _, cluster, jobs in sorted(branches):
            if self._best_ms is not None and len(self._known) > MOST_FORECASTS:
                return
            self._descend(rows, (*chosen, cluster), {**there, cluster: jobs})

    def _ends_ms(self, cluster: int, jobs: tuple[int, ...]) -> int:
        """Return the sum of the ends of jobs sent to a cluster together, in ms."""
        if not jobs:
            return 0
        if (cluster, jobs) not in self._known:
            rows = np.array(jobs)
            arrival = np.array([self.state.arrival_ms(row, cluster) for row in jobs])
            found = self.state.clusters[cluster].forecast(
                self.state.now_ms, rows, rows, arrival_ms=arrival
            )
            self._known[cluster, jobs] = int(found[1].sum())
        return self._known[cluster, jobs]
