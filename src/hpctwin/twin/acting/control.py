"""Being in charge of a cluster: exactly while the twin may act, sees, and can."""

from __future__ import annotations

import logging
import time

from hpctwin.errors import UnreachableError
from hpctwin.rms.manager import LendsScheduling
from hpctwin.twin.acting.actuator import Actor
from hpctwin.twin.acting.authority import Charge
from hpctwin.twin.acting.guard import Guard
from hpctwin.twin.acting.lease_keeper import Leaser
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.faults import FaultsInForce
from hpctwin.twin.following.follower import RETRY_S, Follower

__all__ = ["Command"]

logger = logging.getLogger(__name__)


class Command:
    """Takes charge and lets go, keeps the leases, and shows life.

    Args:
        follower: of the cluster.
        guard: says what may be done.
        faults: while there is one, the twin is not in charge.
    """

    def __init__(self, follower: Follower, guard: Guard, faults: FaultsInForce) -> None:
        act = follower.config.act
        self.follower = follower
        self.guard = guard
        self.faults = faults
        self.actor = Actor(act, guard, follower)
        self.leaser = Leaser(act, follower)
        self.charge = Charge(follower.config, follower.manager)
        self.in_charge = False
        self.lends = act.by == "start" and isinstance(follower.manager, LendsScheduling)
        """Whether the cluster's whole scheduling rests meanwhile; else nothing has to be given back."""
        self.leases = act.by != "priority" and not self.lends
        self._beat_due = 0.0
        self._last_beat = 0.0

    def orders(self) -> bool:
        """Whether the twin puts the queue in order now."""
        return self.guard.reorders() and not self.faults and self.charge.held()

    def fault_came(self) -> None:
        """Be in charge no more where that gives nothing back: what was leased runs out by itself."""
        if not self.lends:
            self.in_charge = False

    def turn(self, decision: Decision | None) -> bool:
        """Send what was approved, and renew the leases.

        Args:
            decision: the last one.

        Returns:
            Whether the twin is in charge.
        """
        if not self.in_charge or self.faults:
            return False
        self.actor.send_approved()
        if not self.lends:
            self.leaser.renew(decision)
        return True

    def take(self, decision: Decision | None) -> bool:
        """Take charge, or let go.

        Args:
            decision: the last one.

        Returns:
            Whether the twin is in charge; if not, what was wrong may still be.
        """
        self._watch_sight(decision)
        follower = self.follower
        if self.lends and self.in_charge and follower.schedules_itself:
            self.in_charge = False
        acts = self.guard.in_charge() or self.guard.reorders()
        alone = self.charge.keep(follower.core.mirror.seq or 0) if acts else self.charge.drop()
        allowed = self.guard.in_charge()
        wanted = allowed and alone and not self.faults
        now = time.monotonic()
        # To let go waits for nothing.
        if wanted == self.in_charge or (wanted and now < follower.due["retry"]):
            return self.in_charge
        if not wanted:
            if allowed and not self.lends:
                self.in_charge = False
            else:
                self.let_go()
            return False
        if follower.core.mirror.needs_snapshot is not None:
            return False
        return self._take_scheduling(now) if self.lends else self._take_leases()

    def let_go(self) -> None:
        """Be in charge no more, and leave nothing behind that somebody would have to wait for."""
        if not self.in_charge:
            return
        try:
            if self.lends:
                assert isinstance(self.follower.manager, LendsScheduling)
                outcome = self.follower.manager.give_scheduling()
                if outcome.result != "done":
                    logger.warning("scheduling was not given back: %s", outcome.reason)
                    return
            elif self.leases:
                self.leaser.let_go()
        except UnreachableError as error:
            logger.warning("scheduling could not be given back: %s", error)
        self.in_charge = False

    def show_life(self, decision: Decision | None) -> None:
        """Renew the heartbeat while in charge.

        Raises:
            UnreachableError: a cluster whose scheduling rests does not answer.
        """
        now = time.monotonic()
        follower = self.follower
        due, every_s = now >= self._beat_due, follower.config.heartbeat_every
        if not self.lends:
            # It is tried as long as nothing else is wrong: that it cannot be renewed is a fault itself.
            may = self.guard.in_charge() and self.charge.held()
            if due and may and self.faults.keys() <= {"heartbeat"}:
                self._beat_due = now + every_s
                try:
                    at_once = self.guard.mode == "act" and self.guard.settings.idle_starts
                    follower.manager.heartbeat(
                        follower.core.mirror.seq or 0, starts_at_once=at_once
                    )
                except UnreachableError as error:
                    self.faults.set("heartbeat", str(error).removeprefix("heartbeat: "))
                else:
                    self.faults.mended("heartbeat")
            return
        stands = follower.manager.clock_speed == 0.0 and follower.progress
        if self.in_charge and (due or stands):
            if now - self._last_beat > 3 * every_s:
                # So late that the cluster may have taken scheduling back.
                self.in_charge = False
                self.take(decision)
            follower.manager.heartbeat(follower.core.mirror.seq or 0)
            follower.looked_at = now
            follower.progress = False
            self._last_beat = now
            self._beat_due = now + every_s

    def _take_leases(self) -> bool:
        manager = self.follower.manager
        self.in_charge = "lease" in manager.ways() and manager.clock_speed > 0
        if not self.in_charge:
            self.faults.set("act.by", "this cluster has no leases, or no clock of its own")
        self._beat_due = 0.0
        return self.in_charge

    def _take_scheduling(self, now: float) -> bool:
        assert isinstance(self.follower.manager, LendsScheduling)
        outcome = self.follower.manager.take_scheduling()
        self.in_charge = outcome.result == "done"
        self.follower.schedules_itself = not self.in_charge
        self._last_beat = now
        if not self.in_charge:
            logger.warning("scheduling was not handed over: %s", outcome.reason)
            self.follower.wait(RETRY_S)
        return self.in_charge

    def _watch_sight(self, decision: Decision | None) -> None:
        """Name it as a fault when the last look is too old, or the last leases could not be given."""
        config = self.follower.config
        report = self.follower.manager.report()
        looked_s = time.monotonic() - self.follower.looked_at
        age_s = looked_s if report.look_age_s is None else report.look_age_s
        bound_s = config.act.look_within
        if report.look_age_s is None:
            bound_s = max(bound_s, 2 * config.resync_every)
        if age_s > bound_s and self.guard.in_charge():
            why = f": {report.fault}" if report.fault else ""
            self.faults.set("blind", f"no look at the cluster for {age_s:.0f} s{why}")
        else:
            self.faults.mended("blind")
        if self.leaser.fault:
            self.faults.set("cannot act", self.leaser.fault)
            if self.guard.in_charge() and set(self.faults) == {"cannot act"}:
                # Only by trying can it be found out that it works again.
                self.leaser.renew(decision)
        else:
            self.faults.mended("cannot act")
