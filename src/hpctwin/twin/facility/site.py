"""One cluster of a live facility: followed as a twin follows its own, and its gate."""

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
    """A job that was sent and that the mirror may not show yet."""

    spec: JobSpec
    since: float
    seen: bool = False


class Site:
    """Mirrors one cluster, and says when a job would start there.

    Args:
        name: the cluster's name in the facility.
        follower: of the cluster; what it has learnt of runtimes goes on from its journal.
        gate: where jobs are submitted.
        policy: what its own scheduler is taken to do.
        news_within_s: a job that was sent shows in the mirror within this time, or is over.

    Raises:
        JournalError: the journal cannot be written.
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
        """Why nothing is sent there; None if nothing is wrong."""
        return self.faults.text

    @property
    def mirror(self) -> Mirror:
        """The cluster, as far as is known."""
        return self.follower.core.mirror

    # --- keeping up ------------------------------------------------------------------------------

    def sync(self, timeout_s: float = 0.0) -> None:
        """Take in what has come; get a snapshot where one is needed. Faults are kept in ``faults``.

        Args:
            timeout_s: how long to wait for events at most.
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
            # What the core has done since is not in the journal: the next record is its whole state.
            follower.checkpoint_due = True
            self.faults.set("journal", str(error))
            follower.lost()
        except HpctwinError as error:
            self.lost(error)
        self._forget_seen()

    def lost(self, error: HpctwinError) -> None:
        """The cluster did not answer a request: nothing is sent there until a snapshot comes."""
        self.faults.set("resource manager", str(error))
        self.follower.lost()

    def now_s(self) -> float:
        """The present by the cluster's clock."""
        return self.follower.now_s()

    # --- jobs ------------------------------------------------------------------------------------

    def send(self, job_id: str, spec: JobSpec) -> None:
        """A job is being sent: it counts here from now on."""
        self._sent[job_id] = _Sent(spec.model_copy(update={"id": job_id}), time.monotonic())

    def unsend(self, job_id: str) -> None:
        """It was not taken."""
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
        """The jobs of the mirror, and those sent that it does not show yet; the latter not held."""
        found = []
        for job_id, job in self.mirror.jobs.items():
            if job_id in self._sent and job.spec.held:
                job = job.model_copy(update={"spec": job.spec.model_copy(update={"held": False})})
            found.append(job)
        hidden = [s.spec for i, s in self._sent.items() if i not in self.mirror.jobs]
        return [*found, *(JobRecord(spec=spec) for spec in hidden)]

    def waiting(self) -> list[JobRecord]:
        """Those of them that wait."""
        return [job for job in self.jobs() if job.start_s is None]

    def load_s(self) -> float:
        """Node-seconds of work ahead, by walltimes."""
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
        """Nodes that are up and held by no job."""
        return self.follower.core.free_nodes(self.jobs())

    def runtime_s(self, spec: JobSpec) -> float:
        """How long a job is expected to run here."""
        expected = self.follower.core.expectations.runtime_s([JobRecord(spec=spec)])
        return expected.get(spec.id, spec.walltime_s)

    def forecast(self, spec: JobSpec, delay_s: float = 0.0) -> tuple[float, float] | None:
        """In how many seconds a job would start and end if it was sent now and nobody came after.

        Args:
            spec: the job, as it asks here; its id must be new.
            delay_s: it comes so many seconds later.

        Returns:
            None if it would never start as things are.
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
