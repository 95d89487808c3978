"""Sending what was decided: starts, leases and priorities, each noted in the journal before."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hpctwin.errors import UnreachableError
from hpctwin.rms.manager import Outcome, Places, Where
from hpctwin.twin.acting.authority import Guard
from hpctwin.twin.core.decision import Actions, Decision, LeaseRule, raised
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.settings.config import ActSettings

__all__ = ["DEFERRED", "Chosen", "Executor"]

logger = logging.getLogger(__name__)

DEFERRED = (
    "it may not fit, depending on where the cluster places other jobs; the twin decides "
    "again after the placement"
)
RENEWAL_INTERVAL_S = 1.0
"""How often the twin looks for leases that are due."""
MAX_TIME_SHARE = 0.1
"""Leases take at most this share of the twin's time."""
MAX_FAILED_CALLS = 2
"""After this many calls in a row in which no lease was given, the twin cannot act."""
RETRY_S = 5.0
"""How long after a fault the twin tries to give leases again."""


class Chosen(NamedTuple):
    """Jobs that a decision starts now.

    Args:
        row: The decision's row in the journal.
        starts: ids of the jobs, the most important first.
        where: The nodes of those jobs that are started on given nodes.
    """

    row: int
    starts: tuple[str, ...]
    where: Mapping[str, Where] = {}


class _Planned(NamedTuple):
    """An action that the journal has, and that is not sent yet."""

    row: int
    job_id: str
    where: Where | None = None
    priority: float | None = None


class Executor:
    """Sends starts, leases and priorities to the resource manager, and reports failures.

    Args:
        settings: What the twin may do.
        guard: Asked before each action.
        follower: Its core says which actions follow from a decision; its journal has each action before
            it is sent.
        leases: Whether pending jobs are leased.
    """

    def __init__(
        self, settings: ActSettings, guard: Guard, follower: Follower, *, leases: bool
    ) -> None:
        self.settings = settings
        self.guard = guard
        self.follower = follower
        self.done = 0
        self.refused = 0
        self.renewed = 0
        self.fault = ""
        """Why the last leases could not be given; empty if they could."""
        self._rule = LeaseRule(settings.lease, settings.max_lease) if leases else None
        self._renewal_due = 0.0
        self._failed_calls = 0
        self._refused_since: dict[str, float] = {}
        self._deferred: frozenset[str] = frozenset()
        self._deferred_for: frozenset[str] = frozenset()
        self._priorities_set: dict[str, tuple[float, float]] = {}
        # Outcomes of actions while the journal could not be written.
        self._unwritten: dict[int, tuple[Outcome, float]] = {}

    def chosen_by(self, row: int, decision: Decision) -> Chosen:
        """Return the starts of a new decision, with nodes if the manager starts jobs on given nodes."""
        where = {}
        if self.settings.by == "start" and isinstance(self.follower.manager, Places):
            core = self.follower.core
            where = core.places(decision.starts, decision.time_s, decision.policy)
        return Chosen(row, decision.starts, where)

    def can_continue(self) -> bool:
        """Return, once, whether starts were deferred and more running jobs are known since."""
        more = not self._deferred_for <= self.follower.core.under_way
        if more:
            self._deferred_for = frozenset()
        return more

    def requests(self, state: str = "pending") -> list[Chosen]:
        """Return the decisions with a given approval, with their jobs that are still pending."""
        journal = self.follower.journal
        return [Chosen(row, self._still_pending(row)) for row, _ in journal.approvals(state)]

    def withdraw_requests(self) -> None:
        """Withdraw requests for approval that are too late, or whose jobs are no longer pending."""
        journal, since_s = self.follower.journal, time.time() - self.settings.approval_timeout
        withdrawn = {row: "lapsed" for row, at_s in journal.approvals("pending") if at_s < since_s}
        withdrawn |= {row: "superseded" for row, pending, _ in self.requests() if not pending}
        if withdrawn:
            with journal.writing():
                for row, approval in withdrawn.items():
                    journal.approve(row, approval)

    def act(
        self, decision: Decision | None, chosen: Sequence[Chosen] = (), *, new: bool = False
    ) -> None:
        """Start the chosen jobs, and renew the leases that are due.

        Args:
            decision: The last one; its forecasts say which jobs cannot start soon.
            chosen: Jobs to start.
            new: Whether the decision has just been made, so that jobs may be pending without a lease.

        Raises:
            JournalError: The journal cannot be written; then nothing is sent.
            UnreachableError: The resource manager does not answer.
        """
        began, at_s = time.monotonic(), time.time()
        renews = self._rule is not None and (new or began >= self._renewal_due)
        if not chosen and not renews:
            return
        follower = self.follower
        leases = {} if self._rule is None else follower.manager.leases()
        rule, now_s = self._rule if renews else None, follower.now_s()
        ask = partial(follower.core.actions, now_s, leases=leases, rule=rule, decision=decision)
        if chosen:
            planned = []
            with follower.journal.writing():
                for row, starts, where in chosen:
                    if self.settings.by == "lease":
                        # The manager starts the other jobs by itself.
                        starts = tuple(job_id for job_id in starts if job_id in leases)
                    actions = ask(starts, where, self.guard.allowance("start", at_s))
                    planned += self._note_starts(row, actions, where, now_s, at_s)
            sending = time.monotonic()
            self._send(planned)
            began += time.monotonic() - sending
        else:
            actions = ask(())
        if renews:
            # Sending the starts took a while; leases are as long as they would be without it.
            late_s = follower.now_s() - now_s
            self._renew({job_id: until_s + late_s for job_id, until_s in actions.leases.items()})
            took_s = time.monotonic() - began
            pause_s = max(RENEWAL_INTERVAL_S, took_s / MAX_TIME_SHARE)
            self._renewal_due = began + (RETRY_S if self.fault else pause_s)

    def reorder(self, row: int, decision: Decision) -> None:
        """Change priorities so that the queue is in the order in which a decision would start it."""
        with self.follower.journal.writing():
            planned = self._note_priorities(row, decision)
        self._send(planned)

    def release_leases(self) -> None:
        """End all leases if that is possible; otherwise they expire by themselves."""
        try:
            leases = self.follower.manager.leases()
            now_s = self.follower.now_s()
            found = [job_id for job_id, until_s in leases.items() if until_s > now_s]
            if found:
                self.follower.manager.admit(found)
        except Exception as error:
            logger.warning("leases were not released and will expire: %s", error)

    def lease_status(self) -> dict[str, Any] | None:
        """Return counts of leases in plain values; None where the twin gives no leases."""
        if self._rule is None:
            return None
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

    # --- what is noted before it is sent ---------------------------------------------------------

    def _note_starts(
        self, row: int, actions: Actions, where: Mapping[str, Where], now_s: float, at_s: float
    ) -> list[_Planned]:
        """Note the starts that the guard allows, and why the others are withheld."""
        core, journal = self.follower.core, self.follower.journal
        planned = []
        for job_id in actions.starts:
            number = self._note(row, "start", job_id, at_s)
            if number is None:
                continue
            asked: dict[str, Any] = {"job_id": job_id, "time_s": now_s}
            if job_id in where:
                asked["where"] = where[job_id]
            journal.input("asked", json.dumps(asked), at_s)
            core.asked_to_start(**asked)
            planned.append(_Planned(number, job_id, where.get(job_id)))
        for job_id in sorted(actions.deferred - self._deferred):
            self._withhold(row, "start", job_id, at_s, DEFERRED)
        self._deferred = frozenset(filter(core.waits, self._deferred | actions.deferred))
        self._deferred_for = core.under_way if actions.deferred else frozenset()
        if self.guard.mode == "approve" and not actions.deferred:
            journal.approve(row, "done", before="approved")
        return planned

    def _note_priorities(self, row: int, decision: Decision) -> list[_Planned]:
        core, at_s = self.follower.core, time.time()
        pending = [j.spec for j in core.mirror.jobs.values() if j.start_s is None]
        priority = {spec.id: spec.priority for spec in pending if not spec.held}
        # The mirror is late, and a change may not have been done in the end.
        late_s = at_s - core.settings.start_timeout
        self._priorities_set = {
            i: s for i, s in self._priorities_set.items() if i in priority and s[1] > late_s
        }
        priority |= {i: max(value, priority[i]) for i, (value, _) in self._priorities_set.items()}
        expected = sorted(
            (f.start_s, -priority[f.job_id], f.job_id)
            for f in decision.forecasts
            if f.job_id in priority and f.start_s is not None
        )
        highest, step = self.follower.manager.priorities
        changes = raised([job_id for _, _, job_id in expected], priority, step)
        if changes and changes[-1][1] > highest:
            logger.warning(
                "queue order is not applied: no priority above those in use is available"
            )
            return []
        noted = ((self._note(row, "set_priority", i, at_s), i, value) for i, value in changes)
        return [
            _Planned(number, job_id, priority=value)
            for number, job_id, value in noted
            if number is not None
        ]

    def _note(self, row: int, kind: str, job_id: str, at_s: float) -> int | None:
        """Note an action, and return its row; None if the guard withholds it."""
        why_not = self.guard.refuses(kind, at_s)
        if why_not is None:
            return self.follower.journal.intend(row, kind, job_id, at_s)
        self._withhold(row, kind, job_id, at_s, why_not)
        return None

    def _withhold(self, row: int, kind: str, job_id: str, at_s: float, why: str) -> None:
        """Note an action that is not sent."""
        journal = self.follower.journal
        action = journal.intend(row, kind, job_id, at_s)
        journal.outcome(action, Outcome("refused", f"withheld: {why}"), 0.0)

    def _still_pending(self, row: int) -> tuple[str, ...]:
        """Return the jobs of a decision that it would start and that are still pending."""
        found = self.follower.journal.read_decision(row)
        return tuple(filter(self.follower.core.waits, found["starts"])) if found else ()

    # --- what is sent ----------------------------------------------------------------------------

    def _send(self, planned: Sequence[_Planned]) -> None:
        """Send actions that are noted, and note their outcomes."""
        if not planned:
            return
        manager, journal, core = self.follower.manager, self.follower.journal, self.follower.core
        outcomes: list[tuple[_Planned, Outcome]] = []
        if self.settings.by == "lease":
            job_ids = [one.job_id for one in planned]
            found, took_ms = self._call(job_ids, partial(manager.admit, job_ids))
            no_answer = Outcome("unknown", "the resource manager gave no reason")
            outcomes = [(one, found.get(one.job_id, no_answer)) for one in planned]
            self._unwritten |= {one.row: (outcome, took_ms) for one, outcome in outcomes}
        else:
            for one in planned:
                found, took_ms = self._call([one.job_id], partial(self._send_one, one))
                outcomes.append((one, found[one.job_id]))
                self._unwritten[one.row] = found[one.job_id], took_ms
        for one, outcome in outcomes:
            self.done += outcome.result == "done"
            self.refused += outcome.result == "refused"
            if outcome.result == "done" and one.priority is not None:
                self._priorities_set[one.job_id] = one.priority, time.time()
        with journal.writing():
            for row, (outcome, took_ms) in self._unwritten.items():
                journal.outcome(row, outcome, took_ms)
            for one, outcome in outcomes:
                if outcome.result != "refused":
                    continue
                what = "start" if one.priority is None else "change of priority"
                logger.warning("%s of job %s rejected: %s", what, one.job_id, outcome.reason)
                if one.priority is None:
                    now_s = self.follower.now_s()
                    body = {"job_id": one.job_id, "time_s": now_s}
                    journal.input("refused", json.dumps(body), time.time())
                    core.refused(one.job_id, now_s)
        self._unwritten.clear()

    def _send_one(self, one: _Planned) -> dict[str, Outcome]:
        manager = self.follower.manager
        if one.priority is not None:
            outcome = manager.set_priority(one.job_id, one.priority)
        elif one.where is not None and isinstance(manager, Places):
            outcome = manager.start_on(one.job_id, one.where)
        else:
            outcome = manager.start(one.job_id)
        return {one.job_id: outcome}

    def _renew(self, due: dict[str, float]) -> None:
        """Give leases, in as few commands as there are ends."""
        if due:
            ends = {f"{end:.0f}": count for end, count in Counter(due.values()).items()}
            body = {"jobs": len(due), "ends": ends, "of": sorted(due)}
            with self.follower.journal.writing():
                self.follower.journal.latest("leases", body, time.time())
            outcomes, _ = self._call(due, partial(self.follower.manager.lease, due))
            self._judge_leases(outcomes)
        elif self.fault:
            # No job is left to try it on; the next leases will show whether they can be given.
            self.fault, self._failed_calls = "", 0

    def _judge_leases(self, outcomes: Mapping[str, Outcome]) -> None:
        """Set the fault if leases cannot be given."""
        done = sum(outcome.result == "done" for outcome in outcomes.values())
        self.renewed += done
        refused = {i: o for i, o in outcomes.items() if o.result != "done"}
        now = time.monotonic()
        self._refused_since = {job_id: self._refused_since.get(job_id, now) for job_id in refused}
        if done or not refused:
            self._failed_calls = 0
            self.fault = ""
            return
        # A job that has begun or is gone is refused too, until a snapshot shows it. So a refusal counts as
        # a failure only if a later snapshot still has the job pending. No answer is a fault at once.
        looked_at = now - (self.follower.manager.report().look_age_s or 0.0)
        self._failed_calls += any(since < looked_at for since in self._refused_since.values())
        first = next(iter(refused.values()))
        if self._failed_calls >= MAX_FAILED_CALLS or first.result == "unknown":
            self.fault = f"no lease was granted: {first.reason.splitlines()[-1]}"

    def _call(
        self, job_ids: Collection[str], send: Callable[[], dict[str, Outcome]]
    ) -> tuple[dict[str, Outcome], float]:
        """Return the outcome of each job's action, and the milliseconds that the call took."""
        begin = time.perf_counter()
        if self.guard.killed():
            outcomes = dict.fromkeys(job_ids, Outcome("refused", "withheld: kill switch"))
        else:
            try:
                outcomes = send()
            except UnreachableError as error:
                outcomes = dict.fromkeys(job_ids, Outcome("unknown", str(error)))
        return outcomes, 1e3 * (time.perf_counter() - begin)
