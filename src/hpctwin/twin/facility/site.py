"""One cluster of a live facility: its mirror, and the gate for submissions."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from hpctwin.errors import HpctwinError, JournalError
from hpctwin.model import MS_PER_S
from hpctwin.policies import Policy
from hpctwin.rms.gate import Gate
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.following.follower import FaultsInForce, Follower

__all__ = ["Site"]

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

        Args:
            timeout_s: Maximum time to wait for events, in seconds.
        """
        follower = self.follower
        try:
            follower.receive(timeout_s)
            follower.watch_gap()
            if follower.look():
                self.faults.mended("resource manager")
                self.faults.mended("journal")
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
        simulation = found.fork()
        simulation.advance()
        row = found.ids.index(spec.id)
        start, end = (int(simulation.column(name)[row]) for name in ("start", "end"))
        if start < 0:
            return None
        return (start - found.now_ms) / MS_PER_S, (end - found.now_ms) / MS_PER_S
