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

from hpctwin.errors import FormatError, HpctwinError, JournalError, UnreachableError
from hpctwin.rms import events as ev
from hpctwin.rms.manager import LendsScheduling, Outcome, ResourceManager
from hpctwin.rms.records import Snapshot
from hpctwin.twin.acting import Actor
from hpctwin.twin.bus import Bus, Delivery
from hpctwin.twin.charge import Charge
from hpctwin.twin.choice import Decision
from hpctwin.twin.config import TwinConfig
from hpctwin.twin.core import Core
from hpctwin.twin.guard import Guard
from hpctwin.twin.journal import Input, Journal
from hpctwin.twin.leasing import Leaser
from hpctwin.twin.restore import apply_input, restored

__all__ = ["Twin"]

_TRIED_AGAIN = ("bus", "events", "taking charge", "acting", "keeping")
"""Steps whose faults of our own are over when the pause after them is: they are tried again."""

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""How long after a fault of the journal or the resource manager the next attempt is made."""

LONGEST_PAUSE_S = 8.0
"""How long after a fault of our own the next attempt is made at most."""
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
        self.leaser = Leaser(config.act, self.core, manager, journal, self.now_s)
        self.lends = config.act.by == "start" and isinstance(manager, LendsScheduling)
        self.leases = config.act.by != "priority" and not self.lends
        self.faults: dict[str, str] = {}
        self._strikes: dict[str, int] = {}
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
            ("retry", "pause", "resync", "cycle", "heartbeat", "status", "delete"), 0.0
        )
        self._last_heartbeat = 0.0
        self._seen = float("-inf")
        self._progress = True

    # --- the loop --------------------------------------------------------------------------------

    @property
    def fault(self) -> str | None:
        """Why the twin is not in charge, of all reasons; None if there is none."""
        return "; ".join(f"{what}: {says}" for what, says in self.faults.items()) or None

    def run(self, stop: threading.Event) -> None:
        """Restore, then turn until told to stop; then end the leases and save.

        No exception ends the loop: what cannot be done is named in the status.
        """
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
            self.core = restored(self.journal, self.config.core, self._threads)
            self.actor.core = self.leaser.core = self.core
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
        """Let go, and save the whole state."""
        self._let_go()
        try:
            with self.journal.writing():
                if self.core.mirror.snapshots:
                    self.journal.checkpoint(self.core.state(), time.time())
                self._write_status(ended=True)
        except HpctwinError as error:
            logger.warning("at the end: %s", error)
        self.charge.drop()
        if self._threads is not None:
            self._threads.shutdown()

    def turn(self, timeout_s: float) -> None:
        """One turn: take in what came, decide if that may change something, act, show life.

        What fails is named as a fault, and tried again; while there is one, the twin is not in charge.

        Args:
            timeout_s: how long to wait for events at most.
        """
        began = time.monotonic()
        if began < self._next["pause"]:
            time.sleep(min(timeout_s, self._next["pause"] - began))
            return
        for name in _TRIED_AGAIN:
            self._recovered(name)
        steps = (
            ("bus", lambda: self._receive(timeout_s)),
            ("events", self._watch_gap),
            ("resource manager", self._resync),
            ("taking charge", self._take_charge),
            ("deciding", self._decide),
            ("acting", self._act),
            ("keeping", self._housekeeping),
        )
        for name, step in steps:
            if not self._try(name, step):
                # What comes after it needs it, but for letting go and saying how things stand.
                for other in ("taking charge", "keeping"):
                    if other != name:
                        self._try(other, dict(steps)[other])
                break

    def _try(self, name: str, step: Callable[[], bool | None]) -> bool:
        """Do a step of the turn; False if it failed. One that did nothing (False) mends nothing."""
        try:
            if step() is not False:
                self._recovered(name)
                self._strikes.pop(name, None)
            return True
        except JournalError as error:
            # What the core has done since is not in the journal: the next record is its whole state.
            self._checkpoint_due = True
            self._set_fault("journal", str(error))
            self._next["retry"] = time.monotonic() + RETRY_S
        except UnreachableError as error:
            self._set_fault("resource manager", str(error))
            self._next["retry"] = time.monotonic() + RETRY_S
            self._next["resync"] = 0.0
        except HpctwinError as error:
            # A policy or an objective that fails, or a snapshot in a form that is not known.
            self._set_fault("cannot decide" if name == "deciding" else name, str(error))
            self._again(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Also what a user's function raises, such as SystemExit: the twin goes on.
            if name not in self.faults:
                logger.exception("%s failed", name)
            self._set_fault(name, f"{type(error).__name__}: {error}")
            self._again(name)
        return False

    def _again(self, name: str) -> None:
        """Try what failed again soon, from a sound picture."""
        strikes = self._strikes[name] = self._strikes.get(name, 0) + 1
        self._next["pause"] = time.monotonic() + min(LONGEST_PAUSE_S, RETRY_S * 2 ** (strikes - 1))
        if name == "deciding":
            self.core.opportunity = True
        elif self.core.mirror.needs_snapshot is None and name in ("bus", "events"):
            self.core.mirror.needs_snapshot = f"a fault: {self.faults[name]}"

    # --- events and snapshots --------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> bool:
        """Take in what came; what the journal did not take is tried again after a while."""
        now = time.monotonic()
        if self._held and now < self._next["retry"]:
            time.sleep(min(timeout_s, self._next["retry"] - now))
            return False
        deliveries = self._held or self.bus.receive(timeout_s)
        if deliveries:
            self._take(deliveries)
        return True

    def _take(self, deliveries: list[Delivery]) -> None:
        self._held = deliveries
        events: list[ev.Event] = []
        bad: list[tuple[Delivery, str]] = []
        for delivery in deliveries:
            try:
                events.append(ev.parse_event(delivery.data))
            except FormatError as error:
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
        self._recovered("journal")
        self._progress = True
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

    def _resync(self) -> bool:
        """Get a snapshot where the mirror needs one, and compare with one now and then.

        Returns:
            Whether the manager was asked.
        """
        now = time.monotonic()
        mirror = self.core.mirror
        overdue = self.core.overdue(self.now_s())
        needed = mirror.needs_snapshot is not None or bool(overdue)
        if (not needed and now < self._next["resync"]) or now < self._next["retry"]:
            return False
        snapshot = self.manager.snapshot()
        self._seen = now
        self.counts["snapshots"] += 1
        self._next["resync"] = now + self.config.resync_every
        self._see_time(snapshot.time_s, exact=True)
        if self.lends and self.in_charge and snapshot.own_scheduling:
            self.in_charge = False
        if needed:
            self._reference = None
            self._adopt(snapshot)
        elif self._reference is None:
            self._reference = snapshot
            self._reference_until = now + self.config.gap_patience
            self._compare_with_reference()
        return True

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

    def _decide(self) -> bool:
        now = time.monotonic()
        if not (self.core.opportunity or now >= self._next["cycle"]):
            return False
        self._next["cycle"] = now + self.config.cycle_every
        if self.core.mirror.needs_snapshot is not None:
            return False
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
            return True
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
            acts = mode == "act" and self.in_charge and not self.faults
            planned = self.actor.plan(row, decision.starts) if acts else []
            reorders = self.guard.reorders() and self.fault is None and self.charge.held()
            changes = self.actor.plan_order(row, decision) if reorders else []
        self.decision, self.decision_id = decision, row
        self.counts["decisions"] += 1
        self._since_checkpoint += 1
        self._checkpoint_due |= self._since_checkpoint >= self.config.journal.checkpoint_every
        self.actor.send(planned)
        self.actor.send_order(changes)
        self.leaser.soon()
        self.guard.watch(self.core.forecaster.median_error)
        self.watch(decision)
        return True

    def _act(self) -> bool:
        """Send what was approved, and renew the leases."""
        if not self.in_charge or self.faults:
            return False
        self.actor.send_approved()
        if not self.lends:
            self.leaser.renew(self.decision)
        return True

    def _take_charge(self) -> bool:
        """Be in charge exactly while the twin may act, sees, and can.

        Returns:
            False: what was wrong may still be.
        """
        self._watch_sight()
        acts = self.guard.in_charge() or self.guard.reorders()
        alone = self.charge.keep(self.core.mirror.seq or 0) if acts else self.charge.drop()
        allowed = self.guard.in_charge()
        wanted = allowed and alone and not self.faults
        now = time.monotonic()
        # To let go waits for nothing.
        if wanted == self.in_charge or (wanted and now < self._next["retry"]):
            return self.in_charge
        if not wanted:
            if allowed and not self.lends:
                # What was leased runs out by itself.
                self.in_charge = False
            else:
                self._let_go()
            return False
        if self.core.mirror.needs_snapshot is not None:
            return False
        if not self.lends:
            self.in_charge = "lease" in self.manager.ways() and self.manager.clock_speed > 0
            if not self.in_charge:
                self._set_fault("act.by", "this cluster has no leases, or no clock of its own")
            self._next["heartbeat"] = 0.0
            return self.in_charge
        assert isinstance(self.manager, LendsScheduling)
        outcome = self.manager.take_scheduling()
        self.in_charge = outcome.result == "done"
        self._last_heartbeat = now
        if not self.in_charge:
            logger.warning("scheduling was not handed over: %s", outcome.reason)
            self._next["retry"] = now + RETRY_S
        return self.in_charge

    def _watch_sight(self) -> None:
        """Name it as a fault when the last look is too old, or the last leases could not be given."""
        report = self.manager.report()
        now = time.monotonic()
        age_s = now - self._seen if report.look_age_s is None else report.look_age_s
        bound_s = self.config.act.look_within
        if report.look_age_s is None:
            bound_s = max(bound_s, 2 * self.config.resync_every)
        if age_s > bound_s and self.guard.in_charge():
            why = f": {report.fault}" if report.fault else ""
            self._set_fault("blind", f"no look at the cluster for {age_s:.0f} s{why}")
        else:
            self._recovered("blind")
        if self.leaser.fault:
            self._set_fault("cannot act", self.leaser.fault)
            if self.guard.in_charge() and set(self.faults) == {"cannot act"}:
                # Only by trying can it be found out that it works again.
                self.leaser.renew(self.decision)
        else:
            self._recovered("cannot act")

    def _let_go(self) -> None:
        """Be in charge no more, and leave nothing behind that somebody would have to wait for."""
        if not self.in_charge:
            return
        try:
            if self.lends:
                assert isinstance(self.manager, LendsScheduling)
                outcome = self.manager.give_scheduling()
                if outcome.result != "done":
                    logger.warning("scheduling was not given back: %s", outcome.reason)
                    return
            elif self.guard.settings.by != "priority":
                self.leaser.let_go()
        except UnreachableError as error:
            logger.warning("scheduling could not be given back: %s", error)
        self.in_charge = False

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
        self._show_life(now)
        if now >= self._next["status"]:
            self._next["status"] = now + STATUS_EVERY_S
            with self.journal.writing():
                self._write_status()
            self._recovered("journal")
            self.watch(None)
        keep = self.config.journal.keep
        if keep is not None and now >= self._next["delete"]:
            self._next["delete"] = now + min(DAY_S, keep) / 24
            with self.journal.writing():
                self.journal.delete_before(time.time() - keep)

    def _show_life(self, now: float) -> None:
        """Renew the heartbeat while in charge."""
        due = now >= self._next["heartbeat"]
        if not self.lends:
            # It is tried as long as nothing else is wrong: that it cannot be renewed is a fault itself.
            may = self.guard.in_charge() and self.charge.held()
            if due and may and self.faults.keys() <= {"heartbeat"}:
                self._next["heartbeat"] = now + self.config.heartbeat_every
                try:
                    self.manager.heartbeat(self.core.mirror.seq or 0)
                except UnreachableError as error:
                    self._set_fault("heartbeat", str(error).removeprefix("heartbeat: "))
                else:
                    self._recovered("heartbeat")
            return
        if self.in_charge and (due or (self.manager.clock_speed == 0.0 and self._progress)):
            if now - self._last_heartbeat > 3 * self.config.heartbeat_every:
                # So late that the cluster may have taken scheduling back.
                self.in_charge = False
                self._take_charge()
            self.manager.heartbeat(self.core.mirror.seq or 0)
            self._seen = now
            self._progress = False
            self._last_heartbeat = now
            self._next["heartbeat"] = now + self.config.heartbeat_every

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

    def _set_fault(self, what: str, says: str) -> None:
        if what not in self.faults:
            logger.error("%s: %s; observing until it is mended", what, says)
        self.faults[what] = says
        if not self.lends:
            # Nothing has to be given back: what was leased runs out by itself.
            self.in_charge = False
        self.watch(None)

    def _recovered(self, what: str) -> None:
        if what in self.faults:
            logger.info("mended: %s: %s", what, self.faults.pop(what))
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
            "leases": self.leaser.status() if self.leases else None,
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
