"""A facility at an instant: its clusters' simulations, and who was sent where."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from hpctwin.errors import SimulationError
from hpctwin.facility.config import Facility
from hpctwin.facility.expect import LikeJobs
from hpctwin.facility.jobs import facility_jobs
from hpctwin.model import NEVER_MS, Workload
from hpctwin.policies import parse_policy
from hpctwin.simulation.running.incremental import OpenSimulation
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["FacilityState", "Knowledge"]

IntArray = npt.NDArray[np.int64]

Knowledge = Literal["oracle", "walltime", "like-jobs"]
"""What forecasts take for runtimes: the true ones; the walltimes; what like jobs ran of theirs lately."""


class FacilityState:
    """Clusters, jobs and the present of a facility. Strategies read it, and place and move jobs in it.

    Args:
        facility: the clusters.
        workload: all jobs that will come.
        knowledge: what forecasts know of runtimes.
        spare: jobs that are not in the workload that a forecast can be told of.
        seed: of everything drawn.
        overrun: whether walltimes end jobs (``terminate``) or not (``continue``).

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
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
        self.allowed = self.jobs.allowed & ~np.array([c.rejects() for c in self.clusters])
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
        """Reckon how long jobs that have just come will run, where that is not simply known."""
        if self._like_jobs is None:
            return
        self._least_of = (-1, -1)
        for row in rows:
            ratio = self._like_jobs.ratio(row, self.has_run_of)
            for cluster, seen in zip(self.clusters, self.jobs.on, strict=True):
                cluster.expect_runtime(row, max(1, round(ratio * seen.walltime_ms[row])))
            self._like_jobs.open(row)

    def has_run_of(self, row: int) -> float | None:
        """The share of its walltime that a job ran; None while it has not ended."""
        where = int(self.where[row])
        if where < 0:
            return None
        return self.clusters[where].ran_share(row)

    def options(self, row: int) -> list[int]:
        """The clusters that a job may go to now, in the facility's order; full queues left out."""
        found = np.flatnonzero(self.allowed[:, row]).tolist()
        if any(self.limited):
            found = [c for c in found if not self.limited[c] or self._has_room(c, row)]
        return found

    def with_options(self, rows: list[int]) -> list[int]:
        """Those of some jobs that may go anywhere now, in their order.

        Of those that compete for a place in a queue, no more than there are places.
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
        """How many more jobs may wait at a cluster: in all, and by user; the last for jobs without one."""
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
        """When a job would be there if it was sent to a cluster now: its data must come along."""
        source = int(self.where[row])
        if source < 0:
            source = int(self.jobs.origin[row])
        return (
            self.now_ms if source < 0 else self.now_ms + int(self.jobs.staging_ms[source, cluster])
        )

    def expect_end(self, row: int, end_ms: int) -> None:
        """Note what was forecast of a job that is placed next."""
        self.forecast_end_ms[row] = end_ms
        self.forecasts += 1

    def place(self, row: int, cluster: int) -> None:
        """Send a job to a cluster.

        Args:
            row: the job.
            cluster: the cluster's number.

        Raises:
            SimulationError: the job cannot run there.
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
        cancel = int(self.workload.cancel_ms[row])
        if cancel < 0 or cancel >= at or at == self.workload.submit_ms[row]:
            self.clusters[cluster].arrive(row, at)

    def hold(self, row: int) -> None:
        """Keep a job: it may go nowhere yet."""
        self.held.append(row)

    def move(self, row: int, cluster: int, forecast_end_ms: int = -1) -> None:
        """Take a waiting job away from where it waits, and send it to another cluster."""
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
        """Let everything happen at all clusters that happens before the present."""
        for cluster in self.clusters:
            cluster.advance_before(self.now_ms)

    def load(self, cluster: int, row: int) -> float:
        """Seconds that a cluster would have work for on all its nodes, with a job added."""
        walltime_ms = int(self.jobs.on[cluster].walltime_ms[row])
        own = float(self.jobs.counted[cluster, row]) * walltime_ms / 1000
        return (self.clusters[cluster].load_s(self.now_ms) + own) / float(self.nodes[cluster])

    def queued(self, cluster: int) -> int:
        """How many jobs wait at a cluster, those on their way included."""
        return self.clusters[cluster].queued

    def free_share(self, cluster: int) -> float:
        """The share of a cluster's nodes that is free, 0 to 1."""
        return self.clusters[cluster].simulation.free_nodes() / float(self.nodes[cluster])

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """When a job may end at a cluster if it waits as long as was forecast last there."""
        least_ms = self._least(row)[cluster]
        return self.arrival_ms(row, cluster) + least_ms + self._waited_ms[cluster]

    def _least(self, row: int) -> list[int]:
        """How long a job runs at least in forecasts [clusters]; known for the instant."""
        if self._least_of != (row, self.now_ms):
            self._least_of = (row, self.now_ms)
            self._least_ms = [cluster.least_runtime_ms(row) for cluster in self.clusters]
        return self._least_ms

    def starts_at_once(self, row: int, cluster: int) -> bool:
        """Whether a job would start now if it was sent to a cluster now."""
        rows = np.array([row])
        found = self.clusters[cluster].forecast(
            self.now_ms, rows, rows, arrival_ms=self.arrival_ms(row, cluster), latest_ms=self.now_ms
        )
        return int(found[0, 0]) == self.now_ms

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """When a job would start and end at a cluster if it was sent there now, and nobody came after.

        Args:
            row: the job.
            cluster: the cluster.
            latest_end_ms: ends after this are of no interest; giving it makes forecasts cheaper.

        Returns:
            Start and end, ms; -1 if it does not end by then.
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
    """How many before each are of its group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.searchsorted(ordered, ordered)
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - first
    return rank
