"""How a live twin stands, written where whoever asks finds it: into its journal, once a second."""

from __future__ import annotations

import time
from typing import Any

from hpctwin.twin.acting.control import Command
from hpctwin.twin.acting.inactivity import Inactivity
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.journal.status_reader import OLDEST_S, Standing, starts_by
from hpctwin.twin.service.deciding import Decider
from hpctwin.twin.service.metering import Metering

__all__ = ["Teller"]

EVERY_S = 1.0
MOST_NOTES = 50
MOST_DRIFT = 20


class Teller:
    """Writes down status and last forecasts.

    Args:
        follower, command, decider: the parts of a twin.
        metering: of its meter, if it has one.
    """

    def __init__(
        self,
        follower: Follower,
        command: Command,
        decider: Decider,
        metering: Metering | None = None,
    ) -> None:
        self._follower = follower
        self._command = command
        self._decider = decider
        self._metering = metering
        self._inactivity = Inactivity(follower.config.act.inactive_after)
        self._said = 0
        self.due = 0.0

    def turn(self) -> bool:
        """Write if that is due; whether it was.

        Raises:
            JournalError: the journal cannot take it.
        """
        now = time.monotonic()
        if now < self.due:
            return False
        self.due = now + EVERY_S
        with self._follower.journal.writing():
            self.write()
        return True

    def status(self) -> dict[str, Any]:
        """How things stand, in plain values."""
        follower, command, guard = self._follower, self._command, self._command.guard
        core, mirror = follower.core, follower.core.mirror
        report, decided = follower.manager.report(), self._decider.decision
        starts = command.actor.done if command.in_charge else None
        runs = {job_id for job_id, job in mirror.jobs.items() if job.start_s is not None}
        return {
            "cluster": mirror.cluster,
            "time_s": follower.now_s(),
            "mode": guard.mode,
            "in_charge": command.in_charge,
            "stopped": guard.stopped,
            "killed": guard.killed(),
            "fault": command.faults.text,
            "kept_out": command.charge.why_not,
            "inactive": self._inactivity.turn(follower.now_s(), report, runs, starts),
            "policy": core.policy,
            "run": mirror.run,
            "seq": mirror.seq,
            "state": mirror.digest,
            "waits_for_snapshot": mirror.needs_snapshot,
            "missing_event": mirror.missing,
            "drift": follower.drift[:MOST_DRIFT],
            "lag": follower.bus.lag(),
            "nodes": len(mirror.nodes),
            "free_nodes": core.free_nodes(),
            "running": len(runs),
            "waiting": len(mirror.jobs) - len(runs),
            "decision": self._decider.decision_id,
            "cycle_ms": self._decider.took_ms,
            "what_ifs": {
                "unanswered": 0 if decided is None else len(decided.unanswered),
                "fault": core.what_ifs.fault,
            },
            "orders": command.orders(),
            "leases": command.leaser.status() if command.leases else None,
            "calls_per_minute": report.calls_per_minute,
            "not_read": list(report.notes[:MOST_NOTES]),
            "forecast_error": core.forecaster.median_error,
            "meter": None if self._metering is None else self._metering.status(follower.now_s()),
            "counts": self.counts(),
        }

    def standing(self) -> Standing:
        """The same for questions: the mirror itself, and what was forecast last."""
        core, command, now_s = self._follower.core, self._command, self._follower.now_s()
        acts = command.in_charge or command.orders()
        policy, assumed = starts_by(core, core.policy if acts else None)
        notes = self._follower.manager.report().notes[:MOST_NOTES]
        made = self._decider.decision
        fresh = made is not None and made.forecast_by == policy and now_s - made.time_s <= OLDEST_S
        forecasts = {f.job_id: f for f in made.forecasts} if made is not None and fresh else {}
        return Standing(core, now_s, policy, assumed, {"not_read": notes}, forecasts)

    def counts(self) -> dict[str, int]:
        """What came in, was decided, and was done."""
        actor = self._command.actor
        done = {"decisions": self._decider.count, "starts": actor.done, "refused": actor.refused}
        return {**self._follower.counts, **done}

    def write(self, *, ended: bool = False) -> None:
        """Write status and forecasts, inside `Journal.writing`.

        Args:
            ended: this is the twin's last word.
        """
        journal, at_s = self._follower.journal, time.time()
        journal.latest("status", {**self.status(), "ended": ended}, at_s)
        journal.latest("stopped", self._command.guard.stopped or "", at_s)
        decision, number = self._decider.decision, self._decider.decision_id
        if decision is not None and self._said != number:
            self._said = number
            body = {
                "time_s": decision.time_s,
                "decision": self._decider.decision_id,
                "policy": decision.forecast_by,
                "jobs": [list(one) for one in decision.forecasts],
            }
            journal.latest("forecasts", body, at_s)
