"""Control of one cluster: decide, act, and be in control only while the twin may act, sees and can act."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from hpctwin.errors import UnreachableError
from hpctwin.rms.manager import LendsScheduling
from hpctwin.twin.acting.authority import Authority, Guard
from hpctwin.twin.acting.executor import Chosen, Executor
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.follower import RETRY_S, FaultsInForce, Follower

__all__ = ["Control"]

logger = logging.getLogger(__name__)


class Control:
    """Decides, acts on decisions, takes charge and lets go, and shows life.

    Args:
        follower: Follows the cluster; its core decides.
        guard: Says what may be done.
        faults: While there is one, the twin is not in control.
    """

    def __init__(self, follower: Follower, guard: Guard, faults: FaultsInForce) -> None:
        act = follower.config.act
        self.follower = follower
        self.guard = guard
        self.faults = faults
        self.authority = Authority(follower.config, follower.manager)
        self.lends = act.by == "start" and isinstance(follower.manager, LendsScheduling)
        """Whether the cluster's whole scheduling rests meanwhile; else nothing has to be given back."""
        leases = act.by != "priority" and not self.lends
        self.executor = Executor(act, guard, follower, leases=leases)
        self.is_active = False
        self.decision: Decision | None = None
        self.decided_at = 0.0
        """When it was made, in Unix time."""
        self.decision_id = 0
        self.decisions = 0
        self.decision_ms = self.forecast_ms = 0.0
        self.forecasts_ms = 0.0
        self.decision_due = 0.0
        self._acted_on = 0
        self._beat_due = 0.0
        self._last_beat = 0.0

    def reorders(self) -> bool:
        """Whether the twin puts the queue in order now."""
        return self.guard.reorders() and not self.faults and self.authority.held()

    # --- decide and act --------------------------------------------------------------------------

    def decide(self) -> bool:
        """Decide if something has changed or the time has come, and note the decision in the journal.

        Returns:
            Whether there was anything to decide.

        Raises:
            JournalError: The journal cannot be written; then the decision does not count.
            HpctwinError: A policy or the objective fails.
        """
        follower, core, config = self.follower, self.follower.core, self.follower.config
        now = time.monotonic()
        if not (core.opportunity or self.executor.can_continue() or now >= self.decision_due):
            return False
        self.decision_due = now + config.cycle_interval
        if core.mirror.needs_snapshot is not None:
            return False
        self._watch_requests()
        if follower.checkpoint_due or follower.journal.checkpoint_due:
            with follower.journal.writing():
                follower.save_if_due()
        call: dict[str, Any] = {
            "now_s": follower.now_s(),
            "dwell_s": config.act.dwell,
            "is_active": self.is_active or (self.guard.reorders() and self.authority.held()),
        }
        times = [time.perf_counter()]
        decision = core.decide(**call, chosen_now=lambda: times.append(time.perf_counter()))
        self.faults.fixed("cannot decide")
        if decision is None:
            return True
        begin, chosen = times
        self.decision_ms = 1e3 * (chosen - begin)
        self.forecast_ms = 1e3 * (time.perf_counter() - chosen)
        self.forecasts_ms += self.forecast_ms
        self._note(decision, {**call, "unanswered": decision.unanswered})
        return True

    def _watch_requests(self) -> None:
        """Stay out of control of a manager that rests while a job requests what it does not report.

        No other scheduler would start that job.
        """
        mirror = self.follower.core.mirror
        odd = [i for i in mirror.not_modeled if mirror.jobs[i].start_s is None and self.lends]
        if odd:
            job_id, why = odd[0], mirror.not_modeled[odd[0]]
            self.faults.set("requests", f"job {job_id} cannot be scheduled by the twin: {why}")
        else:
            self.faults.fixed("requests")

    def _note(self, decision: Decision, call: dict[str, Any]) -> None:
        follower, journal, at_s = self.follower, self.follower.journal, time.time()
        asks = self.guard.mode == "approve" and bool(decision.starts)
        with journal.writing():
            for row, pending, _ in self.executor.requests():
                if asks and set(decision.starts) <= set(pending):
                    asks = False
                else:
                    journal.approve(row, "superseded")
            self.decision_id = journal.decision(
                decision,
                input_id=journal.input("decide", json.dumps(call), at_s),
                at_s=at_s,
                took_ms=self.decision_ms,
                approval="pending" if asks else None,
            )
        follower.history.decided(decision, self.decision_ms)
        self.decision, self.decided_at = decision, at_s
        self.decisions += 1
        follower.decisions += 1
        follower.checkpoint_due |= follower.decisions >= follower.config.journal.checkpoint_interval

    def act(self) -> bool:
        """Act on the last decision if it is new; send what was approved, and renew leases.

        Returns:
            Whether the twin may act.
        """
        decision, row = self.decision, self.decision_id
        new = decision is not None and row != self._acted_on
        self._acted_on = row
        reorders = self.reorders()
        if self.guard.mode == "approve" and self.follower.core.mirror.needs_snapshot is None:
            self.executor.withdraw_requests()
        if reorders and new and decision is not None:
            self.executor.reorder(row, decision)
        is_active = self.is_active and not self.faults
        if is_active:
            chosen: list[Chosen] = []
            if self.guard.mode == "approve":
                chosen = self.executor.requests("approved")
            elif self.guard.mode == "act" and new and decision is not None:
                chosen = [self.executor.chosen_by(row, decision)]
            self.executor.act(decision, chosen, new=new)
        if new:
            self.guard.watch(self.follower.core.forecaster.median_error)
        return is_active or reorders

    # --- be in control ---------------------------------------------------------------------------

    def fault_came(self) -> None:
        """Stop being in control, and leave the leases to expire."""
        if not self.lends:
            self.is_active = False

    def take(self) -> bool:
        """Take charge, or let go.

        Returns:
            Whether the twin is in control; if not, what was wrong may still be.
        """
        self._watch_sight()
        follower = self.follower
        if self.lends and self.is_active and follower.schedules_itself:
            self.is_active = False
        acts = self.guard.is_active() or self.guard.reorders()
        seq = follower.core.mirror.seq or 0
        alone = self.authority.keep(seq) if acts else self.authority.drop()
        allowed = self.guard.is_active()
        wanted = allowed and alone and not self.faults
        now = time.monotonic()
        # To let go waits for nothing.
        if wanted == self.is_active or (wanted and now < follower.due["retry"]):
            return self.is_active
        if not wanted:
            if allowed and not self.lends:
                self.is_active = False
            else:
                self.let_go()
            return False
        if follower.core.mirror.needs_snapshot is not None:
            return False
        return self._take_scheduling(now) if self.lends else self._take_leases()

    def let_go(self) -> None:
        """Stop being in control, and end everything that would delay jobs."""
        if not self.is_active:
            return
        manager = self.follower.manager
        if isinstance(manager, LendsScheduling) and self.lends:
            try:
                outcome = manager.give_scheduling()
                if outcome.result != "done":
                    logger.warning(
                        "scheduling was not returned to the resource manager: %s", outcome.reason
                    )
                    return
            except UnreachableError as error:
                logger.warning(
                    "scheduling could not be returned to the resource manager: %s", error
                )
        else:
            self.executor.release_leases()
        self.is_active = False

    def show_life(self) -> None:
        """Renew the heartbeat while in control.

        Raises:
            UnreachableError: A cluster whose scheduling rests does not answer.
        """
        now = time.monotonic()
        follower = self.follower
        due, every_s = now >= self._beat_due, follower.config.heartbeat_interval
        seq = follower.core.mirror.seq or 0
        if not self.lends:
            # A heartbeat that cannot be renewed is a fault itself, so this fault does not stop it.
            may = self.guard.is_active() and self.authority.held()
            if due and may and self.faults.keys() <= {"heartbeat"}:
                self._beat_due = now + every_s
                try:
                    at_once = self.guard.mode == "act" and self.guard.settings.idle_starts
                    follower.manager.heartbeat(seq, starts_at_once=at_once)
                except UnreachableError as error:
                    self.faults.set("heartbeat", str(error).removeprefix("heartbeat: "))
                else:
                    self.faults.fixed("heartbeat")
            return
        stands = follower.manager.clock_speed == 0.0 and follower.progress
        if self.is_active and (due or stands):
            if now - self._last_beat > 3 * every_s:
                # So late that the cluster may have taken scheduling back.
                self.is_active = False
                self.take()
            follower.manager.heartbeat(seq)
            follower.looked_at = now
            follower.progress = False
            self._last_beat = now
            self._beat_due = now + every_s

    def _take_leases(self) -> bool:
        manager = self.follower.manager
        self.is_active = "lease" in manager.ways() and manager.clock_speed > 0
        if not self.is_active:
            self.faults.set("act.by", "this cluster has no leases, or no clock")
        self._beat_due = 0.0
        return self.is_active

    def _take_scheduling(self, now: float) -> bool:
        assert isinstance(self.follower.manager, LendsScheduling)
        outcome = self.follower.manager.take_scheduling()
        self.is_active = outcome.result == "done"
        self.follower.schedules_itself = not self.is_active
        self._last_beat = now
        if not self.is_active:
            logger.warning("scheduling was not handed to the twin: %s", outcome.reason)
            self.follower.wait(RETRY_S)
        return self.is_active

    def _watch_sight(self) -> None:
        """Set a fault if the last snapshot is too old, or the last leases could not be given."""
        config = self.follower.config
        report = self.follower.manager.report()
        looked_s = time.monotonic() - self.follower.looked_at
        age_s = looked_s if report.look_age_s is None else report.look_age_s
        bound_s = config.act.max_staleness
        if report.look_age_s is None:
            bound_s = max(bound_s, 2 * config.resync_interval)
        if age_s > bound_s and self.guard.is_active():
            why = f": {report.fault}" if report.fault else ""
            self.faults.set("blind", f"no contact with the cluster for {age_s:.0f} s{why}")
        else:
            self.faults.fixed("blind")
        if self.executor.fault:
            self.faults.set("cannot act", self.executor.fault)
            if self.guard.is_active() and set(self.faults) == {"cannot act"}:
                # Only by trying can it be found out that it works again.
                self.executor.act(self.decision)
        else:
            self.faults.fixed("cannot act")
