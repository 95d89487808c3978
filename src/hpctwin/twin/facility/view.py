"""The view of a live facility by which a strategy places one job."""

from __future__ import annotations

import numpy as np

from hpctwin.facility import Facility
from hpctwin.facility.jobs import FacilityJobs, facility_jobs
from hpctwin.model import MS_PER_S, NEVER_MS, Category, Workload
from hpctwin.rms.gate import JobRequest
from hpctwin.rms.records.records import JobSpec
from hpctwin.simulation import Simulation
from hpctwin.twin.facility.queue import QueuedJob
from hpctwin.twin.facility.site import Site

__all__ = ["LiveView"]

ROW = 0
"""Row of the job; the view has one job only."""


class LiveView:
    """A job to place, and the present clusters; see `hpctwin.facility.strategy.View`.

    Args:
        facility: The clusters, with the nodes that their resource managers report.
        sites: The same clusters live, in the same order.
        entry: The job.
        now_s: The present, Unix time.
        rng: Generator of random choices.
        turn: Next cluster of round-robin.
    """

    def __init__(
        self,
        facility: Facility,
        sites: list[Site],
        entry: QueuedJob,
        now_s: float,
        rng: np.random.Generator,
        turn: int,
    ) -> None:
        self.facility = facility
        self.sites = sites
        self.request = entry.request
        self.now_ms = round(now_s * MS_PER_S)
        self.rng = rng
        self.turn = turn
        self.workload = _one_job(entry.request, min(entry.queued_s, now_s))
        self.jobs: FacilityJobs = facility_jobs(facility, self.workload)
        self.expected: tuple[int, int] | None = None
        self._forecasts: dict[int, tuple[int, int]] = {}

    def never(self) -> dict[str, str]:
        """Return the clusters that can never run the job, with the reason."""
        found = {}
        for c, cluster in enumerate(self.facility.clusters):
            if not self.jobs.allowed[c, ROW]:
                kind = self.jobs.kinds[self.jobs.kind[ROW]]
                found[cluster.name] = f"takes no jobs of kind {kind!r}, or lacks what it asks for"
                continue
            simulation = Simulation(self.jobs.on[c], cluster.cluster, policy=self.sites[c].policy)
            if simulation.rejects()[ROW]:
                found[cluster.name] = f"has no {self.request.nodes} nodes for such a job"
        return found

    def has_room(self, cluster: int) -> bool:
        """Return whether the queue limits of a cluster allow one more job."""
        limits = self.facility.clusters[cluster]
        waiting = self.sites[cluster].waiting()
        if limits.max_queued is not None and len(waiting) >= limits.max_queued:
            return False
        if limits.max_queued_per_user is None or not self.request.user:
            return True
        own = sum(job.spec.user == self.request.user for job in waiting)
        return own < limits.max_queued_per_user

    def asked(self, cluster: int) -> JobRequest:
        """Return the job's request on a cluster."""
        return self.request.model_copy(
            update={
                "walltime_s": int(self.jobs.on[cluster].walltime_ms[ROW]) / MS_PER_S,
                "partition": self.facility.clusters[cluster].partition or self.request.partition,
            }
        )

    def spec(self, cluster: int) -> JobSpec:
        """Return the request as a resource manager's record, with an id of no other job."""
        site = self.sites[cluster]
        asked = self.asked(cluster).model_dump(exclude={"key", "name", "script"})
        return JobSpec(id=f"{self.request.key}@facility"[-128:], submit_s=site.now_s(), **asked)

    def delay_s(self, cluster: int) -> float:
        """Return how long staging the job's data to a cluster takes, in seconds."""
        origin = int(self.jobs.origin[ROW])
        return 0.0 if origin < 0 else float(self.jobs.staging_ms[origin, cluster]) / MS_PER_S

    # --- the `View` of strategies --------------------------------------------------------------

    def load(self, cluster: int, row: int) -> float:
        """Return the work per node of a cluster with the job added, in seconds."""
        site, asked = self.sites[cluster], self.asked(cluster)
        return (site.load_s() + asked.nodes * asked.walltime_s) / len(site.mirror.nodes)

    def queued(self, cluster: int) -> int:
        """Return the number of jobs pending on a cluster or on their way to it."""
        return len(self.sites[cluster].waiting())

    def free_share(self, cluster: int) -> float:
        """Return the share of a cluster's nodes that is free, 0 to 1."""
        site = self.sites[cluster]
        return site.free_nodes() / len(site.mirror.nodes)

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """Return when the job would end on a cluster if it started now, ms of Unix time."""
        return self.now_ms + round(self.sites[cluster].runtime_s(self.spec(cluster)) * MS_PER_S)

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """Return when the job would start and end on a cluster, ms of Unix time.

        Both are -1 if it would not end by ``latest_end_ms``.
        """
        if cluster not in self._forecasts:
            found = self.sites[cluster].forecast(self.spec(cluster), self.delay_s(cluster))
            self._forecasts[cluster] = (
                (-1, -1)
                if found is None
                else (
                    self.now_ms + round(found[0] * MS_PER_S),
                    self.now_ms + round(found[1] * MS_PER_S),
                )
            )
        start, end = self._forecasts[cluster]
        return (-1, -1) if end > latest_end_ms else (start, end)

    def forecast_s(self, cluster: int) -> tuple[float, float] | None:
        """Return start and end forecast for a cluster, Unix time; None without a forecast."""
        start, end = self._forecasts.get(cluster, (-1, -1))
        return None if start < 0 else (start / MS_PER_S, end / MS_PER_S)

    def expect_end(self, row: int, end_ms: int) -> None:
        """Do nothing: `forecast_s` has the forecast."""

    def advance_all(self) -> None:
        """Do nothing: the mirrors are at the present."""


def _one_job(request: JobRequest, submit_s: float) -> Workload:
    def label(text: str) -> Category:
        return Category(np.zeros(1, np.int32), (text,)) if text else Category.of([None])

    per_node = {
        name: [getattr(request, name)]
        for name in ("cores", "gpus", "memory_gb")
        if getattr(request, name)
    }
    return Workload.build(
        submit_s=[submit_s],
        runtime_s=[request.walltime_s],
        walltime_s=[request.walltime_s],
        nodes=[request.nodes],
        user=label(request.user),
        account=label(request.account),
        partition=label(request.partition),
        qos=label(request.qos),
        per_node=per_node,
        name=f"job {request.key}",
    )
