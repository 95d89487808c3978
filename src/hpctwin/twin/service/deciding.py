"""When the live twin decides, and how a decision gets into the journal before anything is done by it."""

from __future__ import annotations

import json
import time
from typing import Any

from hpctwin.twin.acting.control import Command
from hpctwin.twin.acting.guard import Guard
from hpctwin.twin.acting.placement import places
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.follower import Follower

__all__ = ["Decider"]


class Decider:
    """Decides when something has changed, and now and then.

    Args:
        follower: whose core decides.
        guard: says what may be done.
        command: does it.
    """

    def __init__(self, follower: Follower, guard: Guard, command: Command) -> None:
        self.follower = follower
        self.guard = guard
        self.command = command
        self.decision: Decision | None = None
        self.decision_id = 0
        self.count = 0
        self.took_ms = 0.0
        self.due = 0.0

    def turn(self) -> bool:
        """Decide if that is due, note it, and send what follows from it.

        Returns:
            Whether there was anything to decide.

        Raises:
            JournalError: the journal cannot take it; then nothing is sent.
            HpctwinError: a policy or the objective fails.
        """
        follower, command = self.follower, self.command
        core, config = follower.core, follower.config
        now = time.monotonic()
        if not (core.opportunity or command.actor.can_go_on() or now >= self.due):
            return False
        self.due = now + config.cycle_every
        if core.mirror.needs_snapshot is not None:
            return False
        if follower.checkpoint_due or follower.journal.checkpoint_due:
            with follower.journal.writing():
                follower.save_if_due()
        call: dict[str, Any] = {
            "now_s": follower.now_s(),
            "dwell_s": config.act.dwell,
            "in_charge": command.in_charge or (self.guard.reorders() and command.charge.held()),
        }
        begin = time.perf_counter()
        decision = core.decide(**call)
        command.faults.mended("cannot decide")
        if decision is None:
            return True
        self.took_ms = 1e3 * (time.perf_counter() - begin)
        self._carry_out(decision, {**call, "unanswered": decision.unanswered})
        return True

    def _carry_out(self, decision: Decision, call: dict[str, Any]) -> None:
        follower, command = self.follower, self.command
        mode = self.guard.mode
        asks = mode == "approve" and not command.actor.asked_already(decision.starts)
        at_s = time.time()
        acts = mode == "act" and command.in_charge and not command.faults
        where = {}
        if acts and command.actor.places:
            where = places(follower.core, decision.starts, call["now_s"], decision.policy)
        with follower.journal.writing():
            row = follower.journal.decision(
                decision,
                input_id=follower.journal.input("decide", json.dumps(call), at_s),
                at_s=at_s,
                took_ms=self.took_ms,
                approval="pending" if asks else None,
            )
            planned = command.actor.plan(row, decision.starts, where) if acts else []
            changes = command.actor.plan_order(row, decision) if command.orders() else []
        self.decision, self.decision_id = decision, row
        self.count += 1
        follower.decisions += 1
        every = follower.config.journal.checkpoint_every
        follower.checkpoint_due |= follower.decisions >= every
        command.actor.send(planned)
        command.actor.send_order(changes)
        command.leaser.soon()
        self.guard.watch(follower.core.forecaster.median_error)
