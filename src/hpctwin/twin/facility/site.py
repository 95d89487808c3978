"""One cluster of a live facility, and the view by which a strategy places jobs."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import numpy as np

from hpctwin.errors import HpctwinError, JournalError
from hpctwin.facility import Facility
from hpctwin.facility.jobs import FacilityJobs, facility_jobs
from hpctwin.model import MS_PER_S, NEVER_MS, Category, Workload
from hpctwin.policies import Policy
from hpctwin.rms.gate import Gate, JobRequest
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.simulation import Simulation
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.facility.queue import QueuedJob
from hpctwin.twin.following.follower import FaultsInForce, Follower

__all__ = ["LiveView", "Site"]

logger = logging.getLogger(__name__)


@dataclass
class _Sent:
    """A submitted job that the mirror may not show yet."""

    spec: JobSpec
    since: float
    seen: bool = False


class Site:
    """Mirrors one cluster, and forecasts when a job would start there.

    Args:
        name: Name of the cluster in the facility.
        follower: Follower of the cluster. It restores from its journal what it has learned of
            runtimes.
        gate: Gate that jobs are submitted to.
        policy: Assumed policy of the cluster's scheduler.
        news_within_s: Time within which a submitted job shows in the mirror, in seconds. A job
            that does not show by then has ended.

    Raises:
        JournalError: The journal cannot be written.
    """

    def __init__(
        self,
        name: str,
        follower: Follower,
        gate: Gate,
        policy: Policy,
        *,
        news_within_s: float = 30.0,
    ) -> None:
        self.name = name
        self.follower = follower
        self.gate = gate
        self.policy = policy
        self.news_within_s = news_within_s
        self.faults = FaultsInForce(lambda worse: None, name)
        self.faults["resource manager"] = "not reached yet"
        self._sent: dict[str, _Sent] = {}
        follower.begin()

    @property
    def fault(self) -> str | None:
        """The reason why no jobs are submitted there; None if there is none."""
        return self.faults.text

    @property
    def mirror(self) -> Mirror:
        """The mirror of the cluster."""
        return self.follower.core.mirror

    # --- keeping up ------------------------------------------------------------------------------

    def sync(self, timeout_s: float = 0.0) -> None:
        """Process new events, and get a snapshot if one is needed.

        Errors are recorded in ``faults``.
        """
        follower = self.follower
        try:
            follower.receive(timeout_s)
            follower.watch_gap()
            if follower.look():
                self.faults.fixed("resource manager")
                self.faults.fixed("journal")
            follower.forget_old()
        except JournalError as error:
            # The journal lacks what the core did since: its next record is the whole state.
            follower.checkpoint_due = True
            self.faults.set("journal", str(error))
            follower.lost()
        except HpctwinError as error:
            self.lost(error)
        self._forget_seen()

    def lost(self, error: HpctwinError) -> None:
        """Record that the cluster did not answer: no jobs go there until a snapshot comes."""
        self.faults.set("resource manager", str(error))
        self.follower.lost()

    def now_s(self) -> float:
        """Return the present by the cluster's clock, in seconds."""
        return self.follower.now_s()

    # --- jobs ------------------------------------------------------------------------------------

    def send(self, job_id: str, spec: JobSpec) -> None:
        """Count a job as present here from now on, because it is being submitted."""
        self._sent[job_id] = _Sent(spec.model_copy(update={"id": job_id}), time.monotonic())

    def unsend(self, job_id: str) -> None:
        """Remove a job that the cluster did not accept."""
        self._sent.pop(job_id, None)

    def _forget_seen(self) -> None:
        now = time.monotonic()
        for job_id, sent in list(self._sent.items()):
            sent.seen |= job_id in self.mirror.jobs
            gone = sent.seen and job_id not in self.mirror.jobs
            waits = sent.seen and not gone and self.mirror.jobs[job_id].spec.held
            if gone or (not waits and (sent.seen or now - sent.since > self.news_within_s)):
                del self._sent[job_id]

    def jobs(self) -> list[JobRecord]:
        """Return the mirror's jobs, and the submitted jobs that it does not show yet.

        Submitted jobs count as not held, because they are admitted soon.
        """
        found = []
        for job_id, job in self.mirror.jobs.items():
            if job_id in self._sent and job.spec.held:
                job = job.model_copy(update={"spec": job.spec.model_copy(update={"held": False})})
            found.append(job)
        hidden = [s.spec for i, s in self._sent.items() if i not in self.mirror.jobs]
        return [*found, *(JobRecord(spec=spec) for spec in hidden)]

    def waiting(self) -> list[JobRecord]:
        """Return the pending ones of `jobs`."""
        return [job for job in self.jobs() if job.start_s is None]

    def load_s(self) -> float:
        """Return the work ahead by walltimes, in node-seconds."""
        now_s = self.now_s()
        return sum(
            job.spec.nodes
            * (
                job.spec.walltime_s
                if job.start_s is None
                else max(0.0, job.start_s + job.spec.walltime_s - now_s)
            )
            for job in self.jobs()
        )

    def free_nodes(self) -> int:
        """Return the number of nodes that are up and allocated to no job."""
        return self.follower.core.free_nodes(self.jobs())

    def runtime_s(self, spec: JobSpec) -> float:
        """Return the expected runtime of a job on this cluster, in seconds."""
        expected = self.follower.core.expectations.runtime_s([JobRecord(spec=spec)])
        return expected.get(spec.id, spec.walltime_s)

    def forecast(self, spec: JobSpec, delay_s: float = 0.0) -> tuple[float, float] | None:
        """Forecast the start and end of a job that is submitted now, with no later jobs.

        Args:
            spec: The job's request on this cluster; its id must be new.
            delay_s: Time until the job arrives, in seconds.

        Returns:
            Seconds from now to its start and to its end; None if it would never start.
        """
        core, now_s = self.follower.core, self.now_s()
        candidate = spec.model_copy(update={"submit_s": now_s + delay_s})
        found = core.simulated(self.jobs(), now_s, self.policy, [candidate])
        if spec.id not in found.ids:
            return None
        simulation = found.fork()
        simulation.advance()
        row = found.ids.index(spec.id)
        start, end = (int(simulation.column(name)[row]) for name in ("start", "end"))
        if start < 0:
            return None
        return (start - found.now_ms) / MS_PER_S, (end - found.now_ms) / MS_PER_S


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
                found[cluster.name] = (
                    f"accepts no jobs of kind {kind!r}, or lacks requested resources"
                )
                continue
            simulation = Simulation(self.jobs.on[c], cluster.cluster, policy=self.sites[c].policy)
            if simulation.rejected_mask()[ROW]:
                found[cluster.name] = f"does not have {self.request.nodes} nodes for such a job"
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
