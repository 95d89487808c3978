"""Follow a cluster: record its events, and keep a core equal to it by snapshots.

The live twin (`hpctwin.twin.service.runner`) and the placer of a facility
(`hpctwin.twin.facility`) use it. Two invariants hold after a crash:

- An event is acknowledged only when the journal has it.
- The core has seen nothing that the journal does not have.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from hpctwin.errors import FormatError
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.following.bus import Bus, Delivery
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.history import Recorder
from hpctwin.twin.journal.journal import Input, Journal
from hpctwin.twin.journal.restore import apply_input, restored
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.what_if.pool import WhatIfs

__all__ = ["RETRY_S", "FaultsInForce", "Follower"]

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause after an error of the journal or the resource manager, in seconds."""
NEWER_S = 0.05
"""Pause after a snapshot that was older than the mirror, in seconds."""
DAY_S = 86_400.0


class FaultsInForce(dict[str, str]):
    """The present errors of a live twin, by name.

    An error is in force until it is cleared.

    Args:
        changed: Function called after each change: True if an error was set, False if cleared.
        where: Prefix of each log message.
    """

    def __init__(self, changed: Callable[[bool], None], where: str = "") -> None:
        super().__init__()
        self._changed = changed
        self._where = f"{where}: " if where else ""

    @property
    def text(self) -> str | None:
        """All present errors as text; None if there are none."""
        return "; ".join(f"{what}: {says}" for what, says in self.items()) or None

    def set(self, what: str, says: str) -> None:
        """Add an error, or change its text."""
        if what not in self:
            logger.error("%s%s: %s; observing until this is fixed", self._where, what, says)
        self[what] = says
        self._changed(True)

    def fixed(self, what: str) -> None:
        """Clear an error if it is in force."""
        if what in self:
            logger.info("%sfixed: %s: %s", self._where, what, self.pop(what))
            self._changed(False)


class Follower:
    """Keeps a core equal to one cluster.

    It is not thread-safe: a single thread calls all methods.

    Args:
        config: Configuration; see `TwinConfig`.
        manager: The cluster's resource manager, which gives snapshots.
        bus: Source of the cluster's events.
        journal: Record of every input.
        what_ifs: Executor of the core's what-ifs.
    """

    def __init__(
        self,
        config: TwinConfig,
        manager: ResourceManager,
        bus: Bus,
        journal: Journal,
        what_ifs: WhatIfs | None = None,
    ) -> None:
        self.config = config
        self.manager = manager
        self.bus = bus
        self.journal = journal
        self.core = Core(config.core, what_ifs)
        self.history = Recorder()
        self.drift: list[str] = []
        self.counts = dict.fromkeys(("events", "bad_events", "snapshots", "drifts"), 0)
        self.looked_at = float("-inf")
        """Monotonic time at which the last snapshot was requested."""
        self.schedules_itself = False
        """Whether the cluster starts jobs by itself, according to the last snapshot."""
        self.progress = True
        """Whether input has come in since the last heartbeat; its sender clears this."""
        self.checkpoint_due = True
        self.decisions = 0
        """Number of decisions since the last checkpoint."""
        self.due = dict.fromkeys(("retry", "resync", "delete"), 0.0)
        self._what_ifs = what_ifs
        self._held: list[Delivery] = []
        self._starting: set[str] = set()
        self._reference: Snapshot | None = None
        self._reference_until = 0.0
        self._clock: tuple[float, float] | None = None
        self._gap_since: float | None = None

    def begin(self) -> None:
        """Continue from the end of the journal under the present settings.

        The mirror then needs a snapshot, since the journal does not have what happened meanwhile.
        """
        try:
            self.core = restored(self.journal, self.config.core, self._what_ifs)
        except Exception as error:
            # An unusable journal is no reason to stop: a snapshot of the cluster replaces it.
            logger.exception("state in the journal is unusable, starting from scratch: %s", error)
        with self.journal.writing():
            self.journal.settings(self.config.model_dump(mode="json"), time.time())
            # Later decisions are made under these settings. Without a checkpoint here, a replay of
            # one of them would repeat earlier decisions under these settings, too.
            self.save_if_due()
        self.core.mirror.needs_snapshot = "the twin has just started"

    # --- events ----------------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> int | None:
        """Process new deliveries; a batch that the journal rejected is retried later.

        Returns:
            Number of deliveries processed; None while some wait for the journal.

        Raises:
            JournalError: The journal cannot be written.
        """
        now = time.monotonic()
        if self._held and now < self.due["retry"]:
            time.sleep(min(timeout_s, self.due["retry"] - now))
            return None
        deliveries = self._held or self.bus.receive(timeout_s)
        if deliveries:
            self._take(deliveries)
        return len(deliveries)

    def _take(self, deliveries: list[Delivery]) -> None:
        self._held = deliveries
        events: list[ev.Event] = []
        bad: list[tuple[Delivery, str]] = []
        for delivery in deliveries:
            try:
                events.append(ev.parse_event(delivery.data))
            except FormatError as error:
                bad.append((delivery, str(error)))
            except Exception as error:
                # Whatever one delivery does, it must not come again before all others.
                bad.append((delivery, f"{type(error).__name__}: {error}"))
        now = time.time()
        came_true: list[tuple[Forecast, float]] = []
        # First the journal, then the core, then the acknowledgment; see the module's invariants.
        with self.journal.writing():
            self.save_if_due()
            for event in events:
                self.journal.input("event", ev.event_json(event), now)
                if isinstance(event, ev.JobStarted):
                    made = self.journal.came_true(event.job_id, event.time_s)
                    if made is not None:
                        came_true.append((made, event.time_s))
                elif isinstance(event, ev.JobDeleted):
                    self.journal.forget(event.job_id)
        self._held = []
        self.progress = True
        for pair in came_true:
            self.history.came_true(*pair)
        for event in events:
            self._take_event(event)
            self._see_time(event.time_s)
            self._compare_with_reference()
        for job_id in tuple(self._starting):
            self._count_start(job_id)
        for delivery, reason in bad:
            logger.warning("unreadable event: %s", reason)
            self.bus.dead_letter(delivery, reason)
        unreadable = {delivery.id for delivery, _ in bad}
        self.bus.acknowledge([d.id for d in deliveries if d.id not in unreadable])
        self.counts["events"] += len(events)
        self.counts["bad_events"] += len(bad)

    def _take_event(self, event: ev.Event) -> None:
        """Give an event to the core, and count starts in the history."""
        if not isinstance(event, ev.JobStarted):
            self.core.take_event(event)
            return
        before = self.core.mirror.jobs.get(event.job_id)
        self.core.take_event(event)
        # The event may be repeated for a job that runs already.
        if before is None or before.start_s is None:
            self._count_start(event.job_id)

    def _count_start(self, job_id: str) -> None:
        """Count a job in the history once the mirror shows its start.

        The mirror applies an event later if an earlier one is missing.
        """
        job = self.core.mirror.jobs.get(job_id)
        if job is not None and job.start_s is None:
            self._starting.add(job_id)
            return
        self._starting.discard(job_id)
        if job is not None:
            self.history.started(job)

    def watch_gap(self) -> None:
        """Stop waiting for events that do not come within ``gap_timeout``.

        These are a missing event that later ones wait for, and the last events before a snapshot.
        """
        self._watch_reference()
        if self.core.mirror.missing is None:
            self._gap_since = None
            return
        now = time.monotonic()
        if self._gap_since is None:
            self._gap_since = now
        elif now - self._gap_since > self.config.gap_timeout:
            self.input("gap", {})
            self._gap_since = None

    def _watch_reference(self) -> None:
        snapshot = self._reference
        if snapshot is None or time.monotonic() < self._reference_until or self.bus.lag() > 0:
            return
        logger.warning("events up to %d of run %s did not arrive", snapshot.seq, snapshot.run)
        self._reference = None
        self.counts["drifts"] += 1
        self._adopt(snapshot)

    # --- snapshots -------------------------------------------------------------------------------

    def look(self) -> bool:
        """Get a snapshot if the mirror needs one, or if a comparison is due.

        Returns:
            Whether the resource manager was asked.

        Raises:
            UnreachableError: The resource manager does not answer.
            HpctwinError: Its answer is not usable, or the journal cannot be written.
        """
        now = time.monotonic()
        needed = self.core.mirror.needs_snapshot is not None or self.core.overdue(self.now_s())
        if (not needed and now < self.due["resync"]) or now < self.due["retry"]:
            return False
        snapshot = self.manager.snapshot()
        self.looked_at = now
        self.counts["snapshots"] += 1
        self.due["resync"] = now + self.config.resync_interval
        self._see_time(snapshot.time_s, exact=True)
        self.schedules_itself = snapshot.own_scheduling
        if needed:
            self._reference = None
            self._adopt(snapshot)
        elif self._reference is None:
            self._reference = snapshot
            self._reference_until = now + self.config.gap_timeout
            self._compare_with_reference()
        return True

    def lost(self) -> None:
        """Request a snapshot again after a pause, because the manager did not answer."""
        self.wait(RETRY_S)
        self.due["resync"] = 0.0

    def wait(self, seconds: float) -> None:
        """Use neither the resource manager nor the journal for some seconds."""
        self.due["retry"] = time.monotonic() + seconds

    def _compare_with_reference(self) -> None:
        """Compare the mirror with the reference snapshot if both have the same events.

        They are comparable only if the mirror stands exactly at the snapshot's event number. If
        the mirror is past it, the snapshot is dropped.
        """
        snapshot, mirror = self._reference, self.core.mirror
        if snapshot is None or mirror.run != snapshot.run or (mirror.seq or 0) < snapshot.seq:
            return
        self._reference = None
        if mirror.seq != snapshot.seq:
            return
        self.drift = mirror.difference(snapshot)
        if self.drift:
            logger.warning("the mirror differs from the snapshot: %s", "; ".join(self.drift[:5]))
            self.counts["drifts"] += 1
            self._adopt(snapshot)

    def _adopt(self, snapshot: Snapshot) -> None:
        reason = self.core.mirror.needs_snapshot
        if reason:
            logger.info("resync: %s", reason)
        with self.journal.writing():
            self.journal.input("snapshot", snapshot.model_dump_json(), time.time())
        if self.core.take_snapshot(snapshot):
            self._gap_since = None
            self.progress = True
        else:
            self.wait(NEWER_S)

    # --- time ------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the present by the cluster's clock, in seconds."""
        if self._clock is None:
            return self.core.mirror.time_s
        time_s, seen_at = self._clock
        elapsed = (time.monotonic() - seen_at) * self.manager.clock_speed
        return round(max(self.core.mirror.time_s, time_s + elapsed), 3)

    def _see_time(self, time_s: float, *, exact: bool = False) -> None:
        """Set the cluster's clock by a time that has just been received.

        An event arrives with an unknown delay, so its time is only a lower bound of the present.
        A snapshot's time is exact.
        """
        now = time.monotonic()
        if not exact and self._clock is not None:
            known, seen_at = self._clock
            if time_s < known + (now - seen_at) * self.manager.clock_speed:
                return
        self._clock = (time_s, now)

    # --- the journal -----------------------------------------------------------------------------

    def input(self, kind: str, body: dict[str, Any]) -> None:
        """Write an input to the journal, then give it to the core.

        Raises:
            JournalError: The journal cannot be written.
        """
        text = json.dumps(body)
        with self.journal.writing():
            number = self.journal.input(kind, text, time.time())
        apply_input(self.core, Input(number, time.time(), kind, text))

    def save_if_due(self) -> bool:
        """Store the whole state if that is due; return whether it was stored.

        Call it between two inputs and inside `Journal.writing`.
        """
        due = self.checkpoint_due or self.journal.checkpoint_due
        if not due or not self.core.mirror.snapshots:
            return False
        self.save()
        return True

    def save(self) -> None:
        """Store the whole state of the core.

        Call it inside `Journal.writing`, after the mirror's first snapshot.
        """
        self.journal.checkpoint(self.core.state(), time.time())
        self.checkpoint_due = False
        self.decisions = 0

    def forget_old(self) -> None:
        """Delete records that are older than the journal's retention."""
        keep, now = self.config.journal.retention, time.monotonic()
        if keep is not None and now >= self.due["delete"]:
            self.due["delete"] = now + min(DAY_S, keep) / 24
            with self.journal.writing():
                self.journal.delete_before(time.time() - keep)
