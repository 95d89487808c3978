"""The live loop: events from the bus into journal and core, decisions out to the cluster.

One thread does everything in turn, so a heartbeat proves that the whole loop lives. The order keeps
three promises whatever the moment of a crash: an event is acknowledged only when the journal has it;
an action is noted before it is sent; what the journal cannot take, the twin does not act on.
"""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hpctwin.errors import HpctwinError
from hpctwin.rms import events as ev
from hpctwin.rms.manager import LendsScheduling, Outcome, ResourceManager, UnreachableError
from hpctwin.rms.records import Snapshot
from hpctwin.twin.acting import Actor
from hpctwin.twin.bus import Bus, Delivery
from hpctwin.twin.charge import Charge
from hpctwin.twin.choice import Decision
from hpctwin.twin.config import TwinConfig
from hpctwin.twin.core import Core
from hpctwin.twin.guard import Guard
from hpctwin.twin.journal import Input, Journal, JournalError
from hpctwin.twin.restore import apply_input, restored

__all__ = ["Twin"]

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""How long after a fault of the journal or the resource manager the next attempt is made."""

STATUS_EVERY_S = 1.0
GARBAGE_AFTER = 200_000
MOST_NOTES = 50
DAY_S = 86_400.0


class Twin:
    """One live twin.

    Args:
        config: what it is to do.
        manager: the resource manager.
        bus: where its events come from.
        journal: where everything is recorded.
        watch: called after each decision, and with None when anything else has changed.
    """

    def __init__(
        self,
        config: TwinConfig,
        manager: ResourceManager,
        bus: Bus,
        journal: Journal,
        *,
        watch: Callable[[Decision | None], None] | None = None,
    ) -> None:
        self.config = config
        self.manager = manager
        self.bus = bus
        self.journal = journal
        self.guard = Guard(config.act)
        self._threads = ThreadPoolExecutor(config.threads) if config.threads > 1 else None
        self.core = Core(config.core, self._threads)
        self.core.warm_up()
        self.actor = Actor(config.act, self.guard, self.core, manager, journal, self.now_s)
        self.charge = Charge(config, manager)
        self.fault: str | None = None
        self.decision: Decision | None = None
        self.decision_id = 0
        self.in_charge = False
        self.drift: list[str] = []
        self.counts = dict.fromkeys(("events", "bad_events", "snapshots", "drifts", "decisions"), 0)
        self.cycle_ms = 0.0
        self.watch = watch or (lambda decision: None)
        self._held: list[Delivery] = []
        self._checkpoint_due = True
        self._since_checkpoint = 0
        self._said = 0
        self._reference: Snapshot | None = None
        self._reference_until = 0.0
        self._clock: tuple[float, float] | None = None
        self._gap_since: float | None = None
        self._next = dict.fromkeys(
            ("retry", "resync", "cycle", "heartbeat", "status", "delete"), 0.0
        )
        self._last_heartbeat = 0.0
        self._progress = True

    # --- the loop --------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Restore, then turn until told to stop; then give scheduling back and save."""
        # What a decision makes dies with it, and nothing in it is circular: looked for as often as by
        # default, it costs a walk through all jobs several times a decision.
        gc.set_threshold(GARBAGE_AFTER)
        self.begin()
        try:
            while not stop.is_set():
                self.turn(0.2)
        finally:
            self.end()

    def begin(self) -> None:
        """Restore the state from the journal, and see what became of actions under way."""
        try:
            self.core = self.actor.core = restored(self.journal, self.config.core, self._threads)
        except (
            Exception
        ) as error:  # whatever is wrong with what was saved, the cluster is still there
            logger.exception("the journal's state cannot be used, beginning anew: %s", error)
        stopped = self.journal.read_latest("stopped")
        if stopped is not None and stopped[1]:
            self.guard.stop(stopped[1])
        with self.journal.writing():
            self.journal.settings(self.config.model_dump(mode="json"), time.time())
            # What follows is decided by these settings, and must not be made again by them from before.
            self._save_if_due()
            for action in self.journal.unfinished_actions():
                lost = Outcome("unknown", "the twin stopped before the answer came")
                self.journal.outcome(action.id, lost, 0.0)
        self.core.mirror.needs_snapshot = "the twin has just begun"

    def end(self) -> None:
        """Give scheduling back, and save the whole state."""
        try:
            if self.in_charge and isinstance(self.manager, LendsScheduling):
                self.manager.give_scheduling()
                self.in_charge = False
            with self.journal.writing():
                if self.core.mirror.snapshots:
                    self.journal.checkpoint(self.core.state(), time.time())
                self._write_status(ended=True)
        except (JournalError, UnreachableError) as error:
            logger.warning("at the end: %s", error)
        self.charge.drop()
        if self._threads is not None:
            self._threads.shutdown()

    def turn(self, timeout_s: float) -> None:
        """One turn: take in what came, decide if that may change something, act, show life.

        Args:
            timeout_s: how long to wait for events at most.
        """
        monotonic = time.monotonic()
        if self._held:
            if monotonic < self._next["retry"]:
                time.sleep(min(timeout_s, self._next["retry"] - monotonic))
                return
            deliveries = self._held
        else:
            deliveries = self.bus.receive(timeout_s)
        try:
            if deliveries:
                self._take(deliveries)
            self._watch_gap()
            self._resync()
            self._take_charge()
            if self.in_charge:
                self.actor.send_approved()
            self._decide()
            self._housekeeping()
        except JournalError as error:
            self._journal_failed(str(error))
        except UnreachableError as error:
            self._set_fault(f"resource manager: {error}")
            self._next["retry"] = time.monotonic() + RETRY_S
            self._next["resync"] = 0.0
        except HpctwinError as error:
            # A policy or an objective that fails, or a snapshot in a form that is not known.
            self._set_fault(f"cannot decide: {error}")
            self._hand_back()

    # --- events and snapshots --------------------------------------------------------------------

    def _take(self, deliveries: list[Delivery]) -> None:
        self._held = deliveries
        events: list[ev.Event] = []
        bad: list[tuple[Delivery, str]] = []
        for delivery in deliveries:
            try:
                events.append(ev.parse_event(delivery.data))
            except ev.EventError as error:
                bad.append((delivery, str(error)))
        now = time.time()
        with self.journal.writing():
            self._save_if_due()
            for event in events:
                self.journal.input("event", ev.event_json(event), now)
                if isinstance(event, ev.JobStarted):
                    self.journal.came_true(event.job_id, event.time_s)
                elif isinstance(event, ev.JobDeleted):
                    self.journal.forget(event.job_id)
        self._held = []
        self._progress = True
        self._recovered("journal")
        for event in events:
            self.core.take_event(event)
            self._see_time(event.time_s)
            self._compare_with_reference()
        for delivery, reason in bad:
            logger.warning("an event that cannot be read: %s", reason)
            self.bus.dead_letter(delivery, reason)
        unreadable = {delivery.id for delivery, _ in bad}
        self.bus.acknowledge([d.id for d in deliveries if d.id not in unreadable])
        self.counts["events"] += len(events)
        self.counts["bad_events"] += len(bad)

    def _watch_gap(self) -> None:
        """Events that do not come: one that others wait for, or the last ones before a snapshot."""
        self._watch_reference()
        if self.core.mirror.missing is None:
            self._gap_since = None
            return
        now = time.monotonic()
        if self._gap_since is None:
            self._gap_since = now
        elif now - self._gap_since > self.config.gap_patience:
            self._input("gap", {})
            self._gap_since = None

    def _watch_reference(self) -> None:
        snapshot = self._reference
        if snapshot is None or time.monotonic() < self._reference_until or self.bus.lag() > 0:
            return
        logger.warning("the events up to %d of run %s did not come", snapshot.seq, snapshot.run)
        self._reference = None
        self.counts["drifts"] += 1
        self._adopt(snapshot)

    def _resync(self) -> None:
        """Get a snapshot where the mirror needs one, and compare with one now and then."""
        now = time.monotonic()
        mirror = self.core.mirror
        overdue = self.core.overdue(self.now_s())
        needed = mirror.needs_snapshot is not None or bool(overdue)
        if (not needed and now < self._next["resync"]) or now < self._next["retry"]:
            return
        snapshot = self.manager.snapshot()
        self._recovered("resource manager")
        self.counts["snapshots"] += 1
        self._next["resync"] = now + self.config.resync_every
        self._see_time(snapshot.time_s, exact=True)
        if self.in_charge and snapshot.own_scheduling:
            self.in_charge = False
        if needed:
            self._reference = None
            self._adopt(snapshot)
        elif self._reference is None:
            self._reference = snapshot
            self._reference_until = now + self.config.gap_patience
            self._compare_with_reference()

    def _compare_with_reference(self) -> None:
        """Compare the mirror with a snapshot at the very event up to which both know everything."""
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
            self._progress = True
        else:
            self._next["retry"] = time.monotonic() + 0.05

    # --- deciding and acting ---------------------------------------------------------------------

    def _decide(self) -> None:
        now = time.monotonic()
        if not (self.core.opportunity or now >= self._next["cycle"]):
            return
        self._next["cycle"] = now + self.config.cycle_every
        if self.core.mirror.needs_snapshot is not None:
            return
        if self._checkpoint_due or self.journal.checkpoint_due:
            with self.journal.writing():
                self._save_if_due()
        now_s = self.now_s()
        call: dict[str, Any] = {
            "now_s": now_s,
            "dwell_s": self.config.act.dwell,
            "in_charge": self.in_charge or (self.guard.reorders() and self.charge.held()),
        }
        begin = time.perf_counter()
        decision = self.core.decide(**call)
        self._recovered("cannot decide")
        if decision is None:
            return
        took_ms = 1e3 * (time.perf_counter() - begin)
        self.cycle_ms = took_ms
        mode = self.guard.mode
        asks = mode == "approve" and not self.actor.asked_already(decision.starts)
        at_s = time.time()
        with self.journal.writing():
            input_id = self.journal.input("decide", json.dumps(call), at_s)
            row = self.journal.decision(
                decision,
                input_id=input_id,
                at_s=at_s,
                took_ms=took_ms,
                approval="pending" if asks else None,
            )
            acts = mode == "act" and self.in_charge and self.fault is None
            planned = self.actor.plan(row, decision.starts) if acts else []
            reorders = self.guard.reorders() and self.fault is None and self.charge.held()
            changes = self.actor.plan_order(row, decision) if reorders else []
        self.decision, self.decision_id = decision, row
        self.counts["decisions"] += 1
        self._since_checkpoint += 1
        self._checkpoint_due |= self._since_checkpoint >= self.config.journal.checkpoint_every
        self.actor.send(planned)
        self.actor.send_order(changes)
        self.guard.watch(self.core.forecaster.median_error)
        self.watch(decision)

    def _take_charge(self) -> None:
        """Have the cluster's own scheduling rest exactly while the twin schedules."""
        acts = self.guard.in_charge() or self.guard.reorders()
        alone = self.charge.keep(self.core.mirror.seq or 0) if acts else self.charge.drop()
        wanted = self.guard.in_charge() and self.fault is None and alone
        now = time.monotonic()
        if wanted == self.in_charge or now < self._next["retry"]:
            return
        if not isinstance(self.manager, LendsScheduling):
            return
        if not wanted:
            self.manager.give_scheduling()
            self.in_charge = False
            return
        if self.core.mirror.needs_snapshot is not None:
            return
        outcome = self.manager.take_scheduling()
        self.in_charge = outcome.result == "done"
        self._last_heartbeat = now
        if not self.in_charge:
            logger.warning("scheduling was not handed over: %s", outcome.reason)
            self._next["retry"] = now + RETRY_S

    # --- the rest --------------------------------------------------------------------------------

    def now_s(self) -> float:
        """The present by the cluster's clock."""
        if self._clock is None:
            return self.core.mirror.time_s
        time_s, seen_at = self._clock
        elapsed = (time.monotonic() - seen_at) * self.manager.clock_speed
        return round(max(self.core.mirror.time_s, time_s + elapsed), 3)

    def _see_time(self, time_s: float, *, exact: bool = False) -> None:
        """Learn the cluster's time: events are late by an unknown delay, a snapshot is not."""
        now = time.monotonic()
        if not exact and self._clock is not None:
            known, seen_at = self._clock
            if time_s < known + (now - seen_at) * self.manager.clock_speed:
                return
        self._clock = (time_s, now)

    def _housekeeping(self) -> None:
        now = time.monotonic()
        lock_step = self.manager.clock_speed == 0.0
        if self.in_charge and ((lock_step and self._progress) or now >= self._next["heartbeat"]):
            if now - self._last_heartbeat > 3 * self.config.heartbeat_every:
                # So late that the cluster may have taken scheduling back.
                self.in_charge = False
                self._take_charge()
            self.manager.heartbeat(self.core.mirror.seq or 0)
            self._progress = False
            self._last_heartbeat = now
            self._next["heartbeat"] = now + self.config.heartbeat_every
        if now >= self._next["status"]:
            self._next["status"] = now + STATUS_EVERY_S
            with self.journal.writing():
                self._write_status()
            self.watch(None)
        keep = self.config.journal.keep
        if keep is not None and now >= self._next["delete"]:
            self._next["delete"] = now + min(DAY_S, keep) / 24
            with self.journal.writing():
                self.journal.delete_before(time.time() - keep)

    def _save_if_due(self) -> None:
        """Store the whole state, between two inputs."""
        due = self._checkpoint_due or self.journal.checkpoint_due
        if due and self.core.mirror.snapshots:
            self.journal.checkpoint(self.core.state(), time.time())
            self._checkpoint_due = False
            self._since_checkpoint = 0

    def _input(self, kind: str, body: dict[str, Any]) -> None:
        """Journal an input, then give it to the core."""
        text = json.dumps(body)
        with self.journal.writing():
            number = self.journal.input(kind, text, time.time())
        apply_input(self.core, Input(number, time.time(), kind, text))

    def _journal_failed(self, reason: str) -> None:
        # What the core has done since is not in the journal: the next record is its whole state.
        self._checkpoint_due = True
        self._set_fault(f"journal: {reason}")
        self._next["retry"] = time.monotonic() + RETRY_S
        self._hand_back()

    def _hand_back(self) -> None:
        """Let the cluster schedule by itself while there is a fault."""
        if self.in_charge and isinstance(self.manager, LendsScheduling):
            self.in_charge = False
            try:
                self.manager.give_scheduling()
            except UnreachableError as error:
                logger.warning("scheduling could not be given back: %s", error)

    def _set_fault(self, fault: str) -> None:
        if fault != self.fault:
            logger.error("%s; observing until it is mended", fault)
        self.fault = fault
        self.watch(None)

    def _recovered(self, what: str) -> None:
        if self.fault is not None and self.fault.startswith(what):
            logger.info("mended: %s", self.fault)
            self.fault = None
            # What was decided meanwhile was not done.
            self.core.opportunity = True

    def status(self) -> dict[str, Any]:
        """How things stand, in plain values."""
        mirror = self.core.mirror
        running = sum(job.start_s is not None for job in mirror.jobs.values())
        report = self.manager.report()
        return {
            "cluster": mirror.cluster,
            "time_s": self.now_s(),
            "mode": self.guard.mode,
            "in_charge": self.in_charge,
            "stopped": self.guard.stopped,
            "killed": self.guard.killed(),
            "fault": self.fault,
            "kept_out": self.charge.why_not,
            "policy": self.core.policy,
            "run": mirror.run,
            "seq": mirror.seq,
            "state": mirror.digest,
            "waits_for_snapshot": mirror.needs_snapshot,
            "missing_event": mirror.missing,
            "drift": self.drift[:20],
            "lag": self.bus.lag(),
            "nodes": len(mirror.nodes),
            "free_nodes": self.core.free_nodes(),
            "running": running,
            "waiting": len(mirror.jobs) - running,
            "decision": self.decision_id,
            "cycle_ms": self.cycle_ms,
            "orders": self.guard.reorders() and self.fault is None and self.charge.held(),
            "calls_per_minute": report.calls_per_minute,
            "not_read": list(report.notes[:MOST_NOTES]),
            "forecast_error": self.core.forecaster.median_error,
            "counts": {**self.counts, "starts": self.actor.done, "refused": self.actor.refused},
        }

    def _write_status(self, *, ended: bool = False) -> None:
        at_s = time.time()
        self.journal.latest("status", {**self.status(), "ended": ended}, at_s)
        self.journal.latest("stopped", self.guard.stopped or "", at_s)
        if self.decision is not None and self._said != self.decision_id:
            self._said = self.decision_id
            said = [
                [f.job_id, f.start_s, f.low_s, f.high_s, f.calibrated]
                for f in self.decision.forecasts
            ]
            body = {
                "time_s": self.decision.time_s,
                "decision": self.decision_id,
                "policy": self.decision.forecast_by,
                "jobs": said,
            }
            self.journal.latest("forecasts", body, at_s)
