"""Clusters in this process whose gate does what a test says: answers lost, refused, late, twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpctwin.errors import UnreachableError
from hpctwin.facility import Facility, parse_strategy
from hpctwin.model import Cluster
from hpctwin.policies import parse_policy
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.gate import JobRequest, SubmittedJob
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.records import JobSpec, Snapshot
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.facility.placer import Placer
from hpctwin.twin.facility.queue import Queue
from hpctwin.twin.facility.service import SiteSettings
from hpctwin.twin.facility.site import Site
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.journal.journal import Journal


class LocalManager:
    """A resource manager as the site needs it: snapshots, and whether it can be reached."""

    clock_speed = 0.0

    def __init__(self, cluster: EmulatedCluster) -> None:
        self.emulated = cluster
        self.cluster = cluster.machine.name
        self.reachable = True

    def check(self) -> None:
        if not self.reachable:
            raise UnreachableError(f"{self.cluster} does not answer")

    def snapshot(self) -> Snapshot:
        self.check()
        return self.emulated.snapshot()

    def close(self) -> None:
        pass


class LocalGate:
    """A gate that numbers jobs by itself, as Slurm does; ``faults``: what befalls the next submissions."""

    def __init__(self, manager: LocalManager) -> None:
        self.manager = manager
        self.key_of: dict[str, str] = {}
        self.faults: list[str] = []
        self.late: list[Callable[[], str]] = []
        self.admit_faults: list[str] = []

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        self.manager.check()
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refused":
            return Outcome("refused", "not here"), ""
        if fault == "late":
            self.late.append(lambda: self._enter(job, delay_s))
            return Outcome("unknown", "no answer in time"), ""
        if fault == "not sent":
            raise UnreachableError("no connection")
        job_id = self._enter(job, delay_s)
        if fault == "lost":
            return Outcome("unknown", "the answer was lost"), ""
        return Outcome("done"), job_id

    def _enter(self, job: JobRequest, delay_s: float) -> str:
        cluster = self.manager.emulated
        job_id = str(len(self.key_of) + 1)
        self.key_of[job_id] = job.key
        fields = job.model_dump(exclude={"key", "name", "script"})
        after = cluster.now_s + delay_s if delay_s else None
        spec = JobSpec(id=job_id, submit_s=cluster.now_s, not_before_s=after, held=True, **fields)
        assert cluster.submit(spec, job.walltime_s).result == "done"
        cluster.schedule()
        return job_id

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        self.manager.check()
        found: dict[str, list[SubmittedJob]] = {}
        for job in self.manager.emulated.snapshot().jobs:
            if job.spec.id in self.key_of:
                one = SubmittedJob(job.spec.id, job.spec.held)
                found.setdefault(self.key_of[job.spec.id], []).append(one)
        return found

    def admit(self, job_id: str) -> Outcome:
        self.manager.check()
        fault = self.admit_faults.pop(0) if self.admit_faults else ""
        if fault == "unknown":
            return Outcome("unknown", "no answer")
        if fault == "busy":
            return Outcome("refused", "the server is busy")
        outcome = self.manager.emulated.release(job_id)
        self.manager.emulated.schedule()
        return Outcome("unknown", "the answer was lost") if fault == "lost" else outcome

    def cancel(self, job_id: str) -> Outcome:
        return self.manager.emulated.cancel(job_id)


class Hall:
    """A facility in this process.

    Args:
        folder: for the queue.
        strategy: where jobs go.
        clusters: fields of each cluster of the facility, by its name.
    """

    def __init__(
        self,
        folder: Path,
        strategy: str = "round-robin",
        options: Any = None,
        predictor: str = "walltime",
        **clusters: Any,
    ) -> None:
        clusters = clusters or {"a": {"nodes": 4}, "b": {"nodes": 4}}
        about = [{"name": name, **fields} for name, fields in clusters.items()]
        self.facility = Facility.model_validate({"clusters": about, **(options or {})})
        self.queue = Queue(folder / "queue.sqlite")
        self.clusters: dict[str, EmulatedCluster] = {}
        self.managers: dict[str, LocalManager] = {}
        self.gates: dict[str, LocalGate] = {}
        sites = []
        for name in clusters:
            bus = LocalBus()
            nodes = next(c for c in self.facility.clusters if c.name == name).nodes or 1
            emulated = emulated_cluster(
                Cluster.uniform(nodes, name=name), publish=bus.publish, record=True
            )
            manager = LocalManager(emulated)
            gate = LocalGate(manager)
            self.clusters[name], self.managers[name], self.gates[name] = emulated, manager, gate
            sites.append(self.site(name, folder, bus, predictor))
        self.sites = sites
        self.strategy = parse_strategy(strategy)
        self.begin()

    def site(self, name: str, folder: Path, bus: LocalBus, predictor: str = "walltime") -> Site:
        """A cluster of the facility, followed; what it had learnt goes on from its journal."""
        settings = SiteSettings.model_validate({"manager": {"kind": "emulated", "address": name}})
        config = settings.followed("fcfs+easy", predictor, folder / f"{name}.sqlite")  # type: ignore[arg-type]
        journal = Journal(config.journal.path)
        follower = Follower(config, self.managers[name], bus, journal)  # type: ignore[arg-type]
        return Site(name, follower, self.gates[name], parse_policy("fcfs+easy"))

    def begin(self) -> None:
        """A new placer, as after a restart."""
        self.placer = Placer(self.facility, self.sites, self.queue, self.strategy)

    def add(self, key: str, nodes: int = 1, walltime_s: float = 60.0, **fields: Any) -> None:
        self.queue.add(JobRequest(key=key, nodes=nodes, walltime_s=walltime_s, **fields))

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            # What waits for a second look has it at once.
            self.placer._later.clear()
            self.placer._tidy_at = 0.0
            for site in self.sites:
                site.follower.due["retry"] = 0.0
            self.placer.turn()

    def run_on(self, seconds: float) -> None:
        for cluster in self.clusters.values():
            cluster.advance(cluster.now_s + seconds)

    def events(self, what: str) -> list[tuple[str, str]]:
        """Cluster and key of the jobs that something happened to."""
        return [
            (name, self.gates[name].key_of[job])
            for name, cluster in self.clusters.items()
            for _, job, event in cluster.history or ()
            if event == what and job in self.gates[name].key_of
        ]

    def stages(self) -> dict[str, str]:
        return {entry.request.key: entry.stage for entry in self.queue.entries()}
