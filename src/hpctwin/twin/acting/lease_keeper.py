"""Keeping leases: which waiting jobs may not start yet is told to the manager, again and again."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

from hpctwin.errors import UnreachableError
from hpctwin.rms.manager import Outcome
from hpctwin.twin.acting.lease_plan import LeaseRule, Waiting, leases_due
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.settings.config import ActSettings

__all__ = ["Leaser"]

logger = logging.getLogger(__name__)

EVERY_S = 1.0
"""Leases are looked through so often."""
MOST_OF_THE_TIME = 0.1
"""No greater part of the time is spent on them."""
IN_VAIN = 2
"""After so many calls in a row of which nothing was done, the twin cannot act."""
AGAIN_S = 5.0
"""Then it tries again after so long."""


class Leaser:
    """Renews the leases of the jobs that are to wait.

    Args:
        settings: how long leases are.
        follower: whose core knows which jobs are not to be kept, and whose journal has the last call
            before it is sent: which jobs, until when.
    """

    def __init__(self, settings: ActSettings, follower: Follower) -> None:
        self.follower = follower
        self.fault = ""
        self.renewed = 0
        self._rule = LeaseRule(settings.lease, settings.longest_lease)
        self._in_vain = 0
        self._refused: dict[str, float] = {}
        self._next = 0.0

    def renew(self, decision: Decision | None) -> None:
        """Renew what is due, in as few commands as there are ends.

        Args:
            decision: the last one; its forecasts say which jobs cannot start soon.

        Raises:
            JournalError: the journal cannot take it; then nothing is sent.
        """
        began = time.monotonic()
        if began < self._next:
            return
        due = self._due(decision)
        if due:
            at_s = time.time()
            together = Counter(due.values())
            body = {"jobs": len(due), "ends": {f"{end:.0f}": n for end, n in together.items()}}
            with self.follower.journal.writing():
                self.follower.journal.latest("leases", {**body, "of": sorted(due)}, at_s)
            self._heard(self._lease(due))
        elif self.fault:
            # There is nothing to try it on: the next jobs will tell.
            self.fault, self._in_vain = "", 0
        took_s = time.monotonic() - began
        self._next = began + (AGAIN_S if self.fault else max(EVERY_S, took_s / MOST_OF_THE_TIME))

    def soon(self) -> None:
        """Look through them at the next turn: there may be jobs without a lease."""
        if not self.fault:
            self._next = 0.0

    def let_go(self) -> None:
        """End all leases, if that is possible; they run out by themselves if not."""
        try:
            leases = self.follower.manager.leases()
            now_s = self.follower.now_s()
            found = [job_id for job_id, until_s in leases.items() if until_s > now_s]
            if found:
                self.follower.manager.admit(found)
        except Exception as error:
            logger.warning("leases were not ended, they run out by themselves: %s", error)

    def status(self) -> dict[str, Any]:
        """How things stand, in plain values."""
        now_s = self.follower.now_s()
        try:
            ends = [until_s - now_s for until_s in self.follower.manager.leases().values()]
        except UnreachableError:
            ends = []
        return {
            "jobs": len(ends),
            "leased": sum(left_s > 0 for left_s in ends),
            "longest_s": round(max(ends, default=0.0), 1),
            "renewed": self.renewed,
        }

    def _due(self, decision: Decision | None) -> dict[str, float]:
        leases = self.follower.manager.leases()
        if not leases:
            return {}
        now_s = self.follower.now_s()
        forecasts = decision.forecasts if decision is not None else ()
        expected = {f.job_id: f.start_s for f in forecasts}
        never = {job_id for job_id, start_s in expected.items() if start_s is None}
        fits, jobs = self.follower.core.fits_now(), self.follower.core.mirror.jobs
        waiting = {
            job_id: Waiting(until_s, expected.get(job_id), fits(job.spec))
            for job_id, until_s in leases.items()
            if (job := jobs.get(job_id)) is not None and job.start_s is None
        }
        return leases_due(
            now_s, waiting, self.follower.core.left_to_manager(now_s, never), self._rule
        )

    def _lease(self, due: dict[str, float]) -> dict[str, Outcome]:
        try:
            return self.follower.manager.lease(due)
        except UnreachableError as error:
            return dict.fromkeys(due, Outcome("unknown", str(error)))

    def _heard(self, outcomes: dict[str, Outcome]) -> None:
        done = sum(outcome.result == "done" for outcome in outcomes.values())
        self.renewed += done
        refused = {i: o for i, o in outcomes.items() if o.result != "done"}
        now = time.monotonic()
        self._refused = {job_id: self._refused.get(job_id, now) for job_id in refused}
        if done or not refused:
            self._in_vain = 0
            self.fault = ""
            return
        # A job that has begun or is gone is refused too, until a look shows it so: only those that a
        # later look still shows waiting are refused in vain. No answer at all is a fault at once.
        looked_at = now - (self.follower.manager.report().look_age_s or 0.0)
        self._in_vain += any(since < looked_at for since in self._refused.values())
        first = next(iter(refused.values()))
        if self._in_vain >= IN_VAIN or first.result == "unknown":
            self.fault = f"no lease could be given: {first.reason.splitlines()[-1]}"
