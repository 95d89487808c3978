"""What strategies see of a live facility when one job is to be placed."""

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
"""There is one job in the view."""


class LiveView:
    """A job that is to be placed, and the clusters as they are now; see `hpctwin.facility.view.View`.

    Args:
        facility: the clusters, with the machines that their resource managers tell of.
        sites: the same clusters live, in the same order.
        entry: the job.
        now_s: the present, Unix time.
        rng: for what is drawn.
        turn: whose turn it is.
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
        """Clusters that can never run the job, and why."""
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
        """Whether the queue limits let one more job in."""
        limits = self.facility.clusters[cluster]
        waiting = self.sites[cluster].waiting()
        if limits.max_queued is not None and len(waiting) >= limits.max_queued:
            return False
        if limits.max_queued_per_user is None or not self.request.user:
            return True
        own = sum(job.spec.user == self.request.user for job in waiting)
        return own < limits.max_queued_per_user

    def asked(self, cluster: int) -> JobRequest:
        """What the job asks for at a cluster."""
        return self.request.model_copy(
            update={
                "walltime_s": int(self.jobs.on[cluster].walltime_ms[ROW]) / MS_PER_S,
                "partition": self.facility.clusters[cluster].partition or self.request.partition,
            }
        )

    def spec(self, cluster: int) -> JobSpec:
        """The same as a resource manager would write it; the id is nobody else's."""
        site = self.sites[cluster]
        asked = self.asked(cluster).model_dump(exclude={"key", "name", "script"})
        return JobSpec(id=f"{self.request.key}@facility"[-128:], submit_s=site.now_s(), **asked)

    def delay_s(self, cluster: int) -> float:
        """How long its data is on the way."""
        origin = int(self.jobs.origin[ROW])
        return 0.0 if origin < 0 else float(self.jobs.staging_ms[origin, cluster]) / MS_PER_S

    # --- what strategies ask for ---------------------------------------------------------------

    def load(self, cluster: int, row: int) -> float:
        """Seconds that a cluster would have work for on all its nodes, with the job added."""
        site, asked = self.sites[cluster], self.asked(cluster)
        return (site.load_s() + asked.nodes * asked.walltime_s) / len(site.mirror.nodes)

    def queued(self, cluster: int) -> int:
        """How many jobs wait at a cluster, those on their way included."""
        return len(self.sites[cluster].waiting())

    def free_share(self, cluster: int) -> float:
        """The share of a cluster's nodes that is free, 0 to 1."""
        site = self.sites[cluster]
        return site.free_nodes() / len(site.mirror.nodes)

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """When the job would end at a cluster if it started there now."""
        return self.now_ms + round(self.sites[cluster].runtime_s(self.spec(cluster)) * MS_PER_S)

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """When it would start and end at a cluster, ms of Unix time; -1 if not by then."""
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
        """What was forecast of a cluster: start and end, Unix time; None if nothing was."""
        start, end = self._forecasts.get(cluster, (-1, -1))
        return None if start < 0 else (start / MS_PER_S, end / MS_PER_S)

    def expect_end(self, row: int, end_ms: int) -> None:
        """`forecast_s` knows it."""

    def advance_all(self) -> None:
        """The mirrors are at the present."""


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
