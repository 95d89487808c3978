"""State of a simulated facility: its clusters' simulations, and each job's place.

Runtimes of jobs are expected to be those of similar jobs that have ended.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from hpctwin.errors import SimulationError
from hpctwin.facility.config import Facility
from hpctwin.facility.jobs import facility_jobs
from hpctwin.model import NEVER_MS, Workload
from hpctwin.policies import parse_policy
from hpctwin.simulation.running.incremental import OpenSimulation
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["FacilityState", "Knowledge", "LikeJobs"]

LAST = 2
"""Number of jobs in the mean: two, as in Tsafrir, Etsion, Feitelson 2007."""


class LikeJobs:
    """Share of their walltimes that the last similar jobs ran.

    Similar jobs have the same user and walltime; if none of these has ended, the same walltime.
    The rule of Tsafrir et al. uses the user alone. In traces without users, only the walltime
    distinguishes jobs.

    Args:
        workload: All jobs that will arrive.
    """

    def __init__(self, workload: Workload) -> None:
        users = workload.user.codes.tolist()
        walltimes = workload.walltime_ms.tolist()
        self._keys = [
            ((user, walltime), (None, walltime))
            for user, walltime in zip(users, walltimes, strict=True)
        ]
        self._open: dict[tuple[int | None, int], list[int]] = defaultdict(list)
        self._last: dict[tuple[int | None, int], deque[float]] = defaultdict(
            lambda: deque(maxlen=LAST)
        )

    def open(self, row: int) -> None:
        """Register a job that has arrived, to learn its runtime when it has ended."""
        for key in self._keys[row]:
            self._open[key].append(row)

    def ratio(self, row: int, ran: Callable[[int], float | None]) -> float:
        """Return the share of its walltime that a job is expected to run; 1 if unknown.

        Args:
            row: Row of the job.
            ran: Function that returns the share that a job ran; None if it has not ended.
        """
        for key in self._keys[row]:
            still = []
            for other in self._open[key]:
                share = ran(other)
                if share is None:
                    still.append(other)
                else:
                    self._last[key].append(share)
            self._open[key] = still
            if self._last[key]:
                return sum(self._last[key]) / len(self._last[key])
        return 1.0


IntArray = npt.NDArray[np.int64]

Knowledge = Literal["oracle", "walltime", "like-jobs"]
"""Runtimes in forecasts: the true ones, the walltimes, or by similar past jobs."""


class FacilityState:
    """Clusters, jobs and the present of a simulated facility.

    Strategies read it, and place and move jobs in it.

    Args:
        facility: The clusters.
        workload: All jobs that will arrive.
        knowledge: Runtimes that forecasts use.
        spare: Number of additional rows for jobs that only forecasts have.
        seed: Seed of random choices.
        overrun: Whether walltimes end jobs (``terminate``) or not (``continue``).

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: The parts are incompatible.
    """

    def __init__(
        self,
        facility: Facility,
        workload: Workload,
        *,
        knowledge: Knowledge = "walltime",
        spare: int = 0,
        seed: int = 0,
        overrun: Literal["terminate", "continue"] = "terminate",
    ) -> None:
        self.facility = facility
        self.jobs = facility_jobs(facility, workload)
        self.workload = workload
        self.knowledge = knowledge
        self.now_ms = 0
        self.rng = np.random.default_rng(seed)
        self.turn = 0
        size = len(workload)
        self.clusters = [
            OpenSimulation(
                Simulation(
                    seen, cluster.cluster, policy=parse_policy(cluster.policy), overrun=overrun
                ),
                None if knowledge == "oracle" else seen.walltime_ms,
                spare=spare,
            )
            for cluster, seen in zip(facility.clusters, self.jobs.on, strict=True)
        ]
        self.allowed = self.jobs.allowed & ~np.array([c.rejected_mask() for c in self.clusters])
        self.nodes = np.array([cluster.cluster.node_count for cluster in facility.clusters])
        self.where = np.full(size, -1, np.int64)
        self.placed_ms = np.full(size, -1, np.int64)
        self.forecast_end_ms = np.full(size, -1, np.int64)
        self.moves = np.zeros(size, np.int64)
        self.held: list[int] = []
        self.forecasts = 0
        self.placed: list[list[int]] = [[] for _ in self.clusters]
        self.limited = [
            c.max_queued is not None or c.max_queued_per_user is not None for c in facility.clusters
        ]
        self._sent = 0
        self._waited_ms = [0] * len(self.clusters)
        self._asked: IntArray = np.array([-1])
        self._least_of = (-1, -1)
        self._least_ms: list[int] = []
        self._known_places: dict[int, tuple[tuple[int, int], tuple[int, IntArray]]] = {}
        self._like_jobs = LikeJobs(workload) if knowledge == "like-jobs" else None

    def learn(self, rows: list[int]) -> None:
        """Estimate the runtimes of jobs that have just arrived, with ``like-jobs`` only."""
        if self._like_jobs is None:
            return
        self._least_of = (-1, -1)
        for row in rows:
            ratio = self._like_jobs.ratio(row, self.has_run_of)
            for cluster, seen in zip(self.clusters, self.jobs.on, strict=True):
                cluster.expect_runtime(row, max(1, round(ratio * seen.walltime_ms[row])))
            self._like_jobs.open(row)

    def has_run_of(self, row: int) -> float | None:
        """Return the share of its walltime that a job ran; None if it has not ended."""
        where = int(self.where[row])
        if where < 0:
            return None
        return self.clusters[where].ran_share(row)

    def options(self, row: int) -> list[int]:
        """Return the clusters that a job may go to now, in order, without full queues."""
        found = np.flatnonzero(self.allowed[:, row]).tolist()
        if any(self.limited):
            found = [c for c in found if not self.limited[c] or self._has_room(c, row)]
        return found

    def with_options(self, rows: list[int]) -> list[int]:
        """Return the jobs that may go to some cluster now, in the given order.

        If jobs compete for places in a queue, only as many are returned as there are places.
        """
        if not any(self.limited):
            return rows
        some = np.array(rows)
        chosen = np.zeros(len(rows), bool)
        for c, limited in enumerate(self.limited):
            here = np.flatnonzero(self.allowed[c, some] & ~chosen)
            if limited:
                total, by_user = self._places(c)
                users = self.workload.user.codes[some[here]]
                here = here[_rank(users) < by_user[users]][:total]
            chosen[here] = True
        return [row for row, may in zip(rows, chosen.tolist(), strict=True) if may]

    def _has_room(self, cluster: int, row: int) -> bool:
        total, by_user = self._places(cluster)
        return total > 0 and bool(by_user[self.workload.user.codes[row]] > 0)

    def _places(self, cluster: int) -> tuple[int, IntArray]:
        """Return how many more jobs may be pending on a cluster: in total, and by user.

        The last entry by user is for jobs without a user.
        """
        known = self._known_places.get(cluster)
        if known is not None and known[0] == (self.now_ms, self._sent):
            return known[1]
        limits = self.facility.clusters[cluster]
        site = self.clusters[cluster]
        site.advance_before(self.now_ms)
        users = len(self.workload.user.labels)
        most = len(self.workload)
        total = most if limits.max_queued is None else limits.max_queued - site.queued
        by_user = np.full(users + 1, most)
        if limits.max_queued_per_user is not None:
            waiting = np.concatenate([site.waiting(), site.on_their_way()])
            codes = self.workload.user.codes[waiting]
            counts = np.bincount(codes[codes >= 0], minlength=users)
            by_user[:users] = limits.max_queued_per_user - counts
        self._known_places[cluster] = (self.now_ms, self._sent), (max(0, total), by_user)
        return max(0, total), by_user

    def arrival_ms(self, row: int, cluster: int) -> int:
        """Return when a job arrives on a cluster if it is sent now, with its data, in ms."""
        source = int(self.where[row])
        if source < 0:
            source = int(self.jobs.origin[row])
        return (
            self.now_ms if source < 0 else self.now_ms + int(self.jobs.staging_ms[source, cluster])
        )

    def expect_end(self, row: int, end_ms: int) -> None:
        """Record the forecast end of a job that is placed next, in ms."""
        self.forecast_end_ms[row] = end_ms
        self.forecasts += 1

    def place(self, row: int, cluster: int) -> None:
        """Send a job to a cluster.

        Args:
            row: Row of the job.
            cluster: Index of the cluster.

        Raises:
            SimulationError: The job cannot run there.
        """
        if not self.allowed[cluster, row]:
            raise SimulationError(
                f"job {self.workload.job_id[row]} cannot run on {self.facility.names[cluster]!r}"
            )
        self._sent += 1
        at = self.arrival_ms(row, cluster)
        self.where[row] = cluster
        self.placed_ms[row] = self.now_ms
        self.placed[cluster].append(row)
        # A job that is canceled on its way never arrives.
        cancel = int(self.workload.cancel_ms[row])
        if cancel < 0 or cancel >= at or at == self.workload.submit_ms[row]:
            self.clusters[cluster].arrive(row, at)

    def hold(self, row: int) -> None:
        """Hold a job that may go to no cluster yet."""
        self.held.append(row)

    def move(self, row: int, cluster: int, forecast_end_ms: int = -1) -> None:
        """Withdraw a pending job from its cluster, and send it to another one."""
        self._sent += 1
        at = self.arrival_ms(row, cluster)
        self.clusters[self.where[row]].withdraw(row, self.now_ms)
        self.where[row] = cluster
        self.forecast_end_ms[row] = forecast_end_ms
        self.moves[row] += 1
        cancel = int(self.workload.cancel_ms[row])
        if cancel < 0 or cancel >= at:
            self.clusters[cluster].arrive(row, at)

    def advance_all(self) -> None:
        """Advance all clusters to just before the present."""
        for cluster in self.clusters:
            cluster.advance_before(self.now_ms)

    def load(self, cluster: int, row: int) -> float:
        """Return the work per node of a cluster with a job added, in seconds."""
        walltime_ms = int(self.jobs.on[cluster].walltime_ms[row])
        own = float(self.jobs.counted[cluster, row]) * walltime_ms / 1000
        return (self.clusters[cluster].load_s(self.now_ms) + own) / float(self.nodes[cluster])

    def queued(self, cluster: int) -> int:
        """Return the number of jobs pending on a cluster or on their way to it."""
        return self.clusters[cluster].queued

    def free_share(self, cluster: int) -> float:
        """Return the share of a cluster's nodes that is free, 0 to 1."""
        return self.clusters[cluster].simulation.free_nodes() / float(self.nodes[cluster])

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """Return a job's end on a cluster if it waits as long as in the last forecast, ms."""
        least_ms = self._least(row)[cluster]
        return self.arrival_ms(row, cluster) + least_ms + self._waited_ms[cluster]

    def _least(self, row: int) -> list[int]:
        """Return a job's minimum runtime in forecasts, cached for now, in ms [clusters]."""
        if self._least_of != (row, self.now_ms):
            self._least_of = (row, self.now_ms)
            self._least_ms = [cluster.least_runtime_ms(row) for cluster in self.clusters]
        return self._least_ms

    def starts_at_once(self, row: int, cluster: int) -> bool:
        """Return whether a job would start now if it were sent to a cluster now."""
        rows = np.array([row])
        found = self.clusters[cluster].forecast(
            self.now_ms, rows, rows, arrival_ms=self.arrival_ms(row, cluster), latest_ms=self.now_ms
        )
        return int(found[0, 0]) == self.now_ms

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """Return start and end of a job that is sent to a cluster now, without later jobs.

        Args:
            row: Row of the job.
            cluster: Index of the cluster.
            latest_end_ms: Latest end of interest, in ms; a bound makes forecasts cheaper.

        Returns:
            Start and end, in ms; -1 if it does not end by ``latest_end_ms``.
        """
        site, arrival_ms = self.clusters[cluster], self.arrival_ms(row, cluster)
        latest = NEVER_MS
        if latest_end_ms < NEVER_MS:
            latest = latest_end_ms - self._least(row)[cluster]
            if arrival_ms > latest:
                return -1, -1
        if self._asked[0] != row:
            self._asked = np.array([row])
        found = site.forecast(
            self.now_ms, self._asked, self._asked, arrival_ms=arrival_ms, latest_ms=latest
        )
        start, end = found.item(0), found.item(1)
        if start >= 0:
            self._waited_ms[cluster] = start - arrival_ms
        elif latest < NEVER_MS:
            self._waited_ms[cluster] = max(self._waited_ms[cluster], latest - arrival_ms)
        return (-1, -1) if end > latest_end_ms else (start, end)


def _rank(groups: npt.NDArray[np.int32]) -> IntArray:
    """Return how many earlier elements have the same group, for each element."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.searchsorted(ordered, ordered)
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - first
    return rank
