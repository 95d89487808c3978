"""One cluster of a live facility: its mirror, kept by its bus, and its gate."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hpctwin.errors import FormatError, HpctwinError
from hpctwin.model import MS_PER_S
from hpctwin.policies import Policy
from hpctwin.rms import events as ev
from hpctwin.rms.gate import Gate
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.records import JobRecord, JobSpec
from hpctwin.twin.bus import Bus
from hpctwin.twin.expect import Expectations, Predictor
from hpctwin.twin.mirror import Mirror
from hpctwin.twin.present import present

__all__ = ["Site"]

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""How long after a fault the cluster is asked again."""


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
        manager: its resource manager.
        bus: its events.
        gate: where jobs are submitted.
        policy: what its own scheduler is taken to do.
        predictor: how long jobs are expected to run.
        gap_patience_s: a missing event is waited for so long before a snapshot is asked for.
        resync_every_s: the mirror is set right by a snapshot so often.
        news_within_s: a job that was sent shows in the mirror within this time, or is over.
    """

    def __init__(
        self,
        name: str,
        manager: ResourceManager,
        bus: Bus,
        gate: Gate,
        policy: Policy,
        *,
        predictor: Predictor = "walltime",
        gap_patience_s: float = 1.0,
        resync_every_s: float = 60.0,
        news_within_s: float = 30.0,
    ) -> None:
        self.name = name
        self.manager = manager
        self.bus = bus
        self.gate = gate
        self.policy = policy
        self.gap_patience_s = gap_patience_s
        self.resync_every_s = resync_every_s
        self.news_within_s = news_within_s
        self.mirror = Mirror()
        self.expectations = Expectations(predictor)
        self.fault: str | None = "not reached yet"
        self._sent: dict[str, _Sent] = {}
        self._clock = (0.0, 0.0)
        self._gap_since: float | None = None
        self._resync_at = 0.0
        self._retry_at = 0.0

    # --- keeping up ------------------------------------------------------------------------------

    def sync(self, timeout_s: float = 0.0) -> None:
        """Take in what has come; get a snapshot where one is needed. Faults are kept in ``fault``.

        Args:
            timeout_s: how long to wait for events at most.
        """
        for delivery in self.bus.receive(timeout_s):
            try:
                event = ev.parse_event(delivery.data)
            except FormatError as error:
                logger.warning("%s: an event that cannot be read: %s", self.name, error)
                self.bus.dead_letter(delivery, str(error))
                continue
            self._take(event)
            # What is lost with this process, the snapshot at the next beginning makes good.
            self.bus.acknowledge([delivery.id])
        self._watch_gap()
        now = time.monotonic()
        due = self.mirror.needs_snapshot is not None or now >= self._resync_at
        if due and now >= self._retry_at:
            self._resync()
        self._forget_seen()

    def _take(self, event: ev.Event) -> None:
        for one, before in self.mirror.take(event)[1]:
            ended = isinstance(one, ev.JobEnded) and one.reason in ("exit", "walltime")
            if ended and before is not None:
                self.expectations.saw_end(before, one.time_s)
        self._see_time(event.time_s)

    def _watch_gap(self) -> None:
        if self.mirror.missing is None:
            self._gap_since = None
        elif self._gap_since is None:
            self._gap_since = time.monotonic()
        elif time.monotonic() - self._gap_since > self.gap_patience_s:
            self.mirror.give_up_waiting()
            self._gap_since = None

    def _resync(self) -> None:
        try:
            snapshot = self.manager.snapshot()
        except HpctwinError as error:
            if self.fault is None:
                logger.warning("%s: %s", self.name, error)
            self.fault = str(error)
            self._retry_at = time.monotonic() + RETRY_S
            return
        if self.fault is not None and self.mirror.snapshots:
            logger.info("%s answers again", self.name)
        self.fault = None
        if self.mirror.adopt(snapshot)[0]:
            self._resync_at = time.monotonic() + self.resync_every_s
        else:
            # Older than the mirror already: another one soon.
            self._retry_at = time.monotonic() + 0.05
        self._clock = (snapshot.time_s, time.monotonic())

    def lost(self, error: HpctwinError) -> None:
        """The cluster did not answer a request: nothing is sent there until a snapshot comes."""
        self.fault = str(error)
        self._resync_at = 0.0
        self._retry_at = time.monotonic() + RETRY_S

    def _see_time(self, time_s: float) -> None:
        if time_s > self.now_s():
            self._clock = (time_s, time.monotonic())

    def now_s(self) -> float:
        """The present by the cluster's clock."""
        time_s, seen = self._clock
        return time_s + (time.monotonic() - seen) * self.manager.clock_speed

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

    def runtime_s(self, spec: JobSpec) -> float:
        """How long a job is expected to run here."""
        return self.expectations.runtime_s([JobRecord(spec=spec)]).get(spec.id, spec.walltime_s)

    def forecast(self, spec: JobSpec, delay_s: float = 0.0) -> tuple[float, float] | None:
        """In how many seconds a job would start and end if it was sent now and nobody came after.

        Args:
            spec: the job, as it asks here; its id must be new.
            delay_s: it comes so many seconds later.

        Returns:
            None if it would never start as things are.
        """
        now_s = self.now_s()
        jobs: Sequence[JobRecord] = self.jobs()
        candidate = spec.model_copy(update={"submit_s": now_s + delay_s})
        found = present(
            self.mirror.machine,
            jobs,
            list(self.mirror.nodes.values()),
            list(self.mirror.reservations.values()),
            now_s,
            self.policy,
            runtime_s=self.expectations.runtime_s([*jobs, JobRecord(spec=candidate)]),
            arrivals=[candidate],
        )
        simulation = found.fork()
        simulation.advance()
        row = found.ids.index(spec.id)
        start, end = (int(simulation.column(name)[row]) for name in ("start", "end"))
        if start < 0:
            return None
        return (start - found.now_ms) / MS_PER_S, (end - found.now_ms) / MS_PER_S
