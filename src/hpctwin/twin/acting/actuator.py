"""Acting: what is to be done is noted, checked by the guard, sent, and its outcome noted."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hpctwin.errors import UnreachableError
from hpctwin.rms.manager import Outcome, Places, Where
from hpctwin.twin.acting.guard import Guard
from hpctwin.twin.acting.reorder import raised
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.settings.config import ActSettings

__all__ = ["Actor"]

logger = logging.getLogger(__name__)

KEPT = "it may find no room where the cluster lays the others; it is decided anew when that is seen"


class Actor:
    """Sends the starts of decisions to the cluster, or the order that they give the queue.

    Args:
        settings: what the twin may do.
        guard: asked before each action.
        follower: whose core is told what was asked and refused, and whose journal has each action before
            it is sent.
    """

    def __init__(self, settings: ActSettings, guard: Guard, follower: Follower) -> None:
        self.settings = settings
        self.guard = guard
        self.follower = follower
        self.done = 0
        self._where: dict[str, Where] = {}
        self._kept: set[str] = set()
        self._kept_for: frozenset[str] = frozenset()
        self.refused = 0
        self._set: dict[str, tuple[float, float]] = {}
        # What became of actions while the journal could not be written.
        self._unwritten: dict[int, tuple[Outcome, float]] = {}

    @property
    def places(self) -> bool:
        """Whether jobs are started on nodes that the twin tells."""
        return self.settings.by == "start" and isinstance(self.follower.manager, Places)

    def asked_already(self, starts: tuple[str, ...]) -> bool:
        """Whether each of these starts waits for a person already; true where there is none."""
        asked: set[str] = set()
        for row, _ in self.follower.journal.approvals("pending"):
            found = self.follower.journal.read_decision(row)
            asked.update(found["starts"] if found else ())
        return asked.issuperset(starts)

    def plan(
        self,
        decision: int,
        starts: tuple[str, ...],
        where: Mapping[str, Where] = MappingProxyType({}),
    ) -> list[tuple[int, str]]:
        """Note the starts that may be sent, before they are; inside `Journal.writing`.

        By lease, jobs that are not the twin's are the manager's to start. Those that may find no room, as
        the manager lays the others, are kept until it is seen where these are.

        Args:
            decision: its row.
            starts: ids of the jobs.
            where: on which nodes, of those that are told.
        """
        planned = []
        self._where = dict(where)
        if self.settings.by == "lease":
            leases = self.follower.manager.leases()
            starts = tuple(job_id for job_id in starts if job_id in leases)
        told = self.follower.core.told_together(starts, where)
        kept = set(starts).difference(told)
        at_s = time.time()
        for job_id in told:
            why_not = self.guard.refuses("start", at_s)
            if why_not is not None:
                self._withhold(decision, "start", job_id, at_s, why_not)
                continue
            action = self.follower.journal.intend(decision, "start", job_id, at_s)
            now_s = self.follower.now_s()
            asked: dict[str, Any] = {"job_id": job_id, "time_s": now_s}
            if job_id in where:
                asked["where"] = where[job_id]
            self.follower.journal.input("asked", json.dumps(asked), at_s)
            self.follower.core.asked_to_start(**asked)
            planned.append((action, job_id))
        for job_id in sorted(kept - self._kept):
            self._withhold(decision, "start", job_id, at_s, KEPT)
        core = self.follower.core
        self._kept = {job_id for job_id in self._kept | kept if core.waits(job_id)}
        self._kept_for = core.under_way if kept else frozenset()
        return planned

    def _withhold(self, decision: int, kind: str, job_id: str, at_s: float, why: str) -> None:
        """Note an action that is not sent."""
        journal = self.follower.journal
        action = journal.intend(decision, kind, job_id, at_s)
        journal.outcome(action, Outcome("refused", f"withheld: {why}"), 0.0)

    def can_go_on(self) -> bool:
        """Whether starts were kept, and more is known since of where those are that were told; said once."""
        more = not self._kept_for <= self.follower.core.under_way
        if more:
            self._kept_for = frozenset()
        return more

    def send(self, planned: list[tuple[int, str]]) -> None:
        """Send what `plan` gave, and note what became of it."""
        outcomes = []
        if self.guard.killed():
            withheld = Outcome("refused", "withheld: kill switch")
            outcomes = [(action, job_id, withheld, 0.0) for action, job_id in planned]
        elif planned and self.settings.by == "lease":
            begin = time.perf_counter()
            said = self._admit([job_id for _, job_id in planned])
            took_ms = 1e3 * (time.perf_counter() - begin)
            lost = Outcome("unknown", "the manager did not say")
            outcomes = [(action, i, said.get(i, lost), took_ms) for action, i in planned]
        else:
            for action, job_id in planned:
                begin = time.perf_counter()
                outcome = self._start(job_id)
                outcomes.append((action, job_id, outcome, 1e3 * (time.perf_counter() - begin)))
        if not outcomes:
            return
        self._unwritten |= {action: (outcome, took) for action, _, outcome, took in outcomes}
        with self.follower.journal.writing():
            self._write_outcomes()
            for _, job_id, outcome, _ in outcomes:
                if outcome.result == "done":
                    self.done += 1
                elif outcome.result == "refused":
                    logger.warning("start of job %s refused: %s", job_id, outcome.reason)
                    self.refused += 1
                    now_s = self.follower.now_s()
                    body = json.dumps({"job_id": job_id, "time_s": now_s})
                    self.follower.journal.input("refused", body, time.time())
                    self.follower.core.refused(job_id, now_s)
        self._unwritten.clear()

    def _write_outcomes(self) -> None:
        """Of this time, and of times before at which the journal could not be written."""
        for action, (outcome, took_ms) in self._unwritten.items():
            self.follower.journal.outcome(action, outcome, took_ms)

    def _admit(self, job_ids: list[str]) -> dict[str, Outcome]:
        try:
            return self.follower.manager.admit(job_ids)
        except UnreachableError as error:
            return dict.fromkeys(job_ids, Outcome("unknown", str(error)))

    def _start(self, job_id: str) -> Outcome:
        if self.guard.killed():
            return Outcome("refused", "withheld: kill switch")
        try:
            manager, where = self.follower.manager, self._where.get(job_id)
            if where is not None and isinstance(manager, Places):
                return manager.start_on(job_id, where)
            return manager.start(job_id)
        except UnreachableError as error:
            return Outcome("unknown", str(error))

    def plan_order(self, decision: int, made: Decision) -> list[tuple[int, str, float]]:
        """Note the changes of priority that order the queue as a decision would start it.

        Before they are sent; inside `Journal.writing`.
        """
        at_s = time.time()
        waiting = [j.spec for j in self.follower.core.mirror.jobs.values() if j.start_s is None]
        priority = {spec.id: spec.priority for spec in waiting if not spec.held}
        # The mirror is late, and a change may not have been done in the end.
        late_s = at_s - self.follower.core.settings.start_patience
        self._set = {i: s for i, s in self._set.items() if i in priority and s[1] > late_s}
        priority |= {i: max(value, priority[i]) for i, (value, _) in self._set.items()}
        expected = sorted(
            (f.start_s, -priority[f.job_id], f.job_id)
            for f in made.forecasts
            if f.job_id in priority and f.start_s is not None
        )
        highest, step = self.follower.manager.priorities
        changes = raised([job_id for _, _, job_id in expected], priority, step)
        if changes and changes[-1][1] > highest:
            logger.warning("the queue is not put in order: no priority is left above those in use")
            return []
        planned = []
        for job_id, value in changes:
            why_not = self.guard.refuses("set_priority", at_s)
            if why_not is not None:
                self._withhold(decision, "set_priority", job_id, at_s, why_not)
                continue
            action = self.follower.journal.intend(decision, "set_priority", job_id, at_s)
            planned.append((action, job_id, value))
        return planned

    def send_order(self, planned: list[tuple[int, str, float]]) -> None:
        """Send what `plan_order` gave, and note what became of it."""
        if not planned:
            return
        for action, job_id, value in planned:
            begin = time.perf_counter()
            try:
                outcome = self.follower.manager.set_priority(job_id, value)
            except UnreachableError as error:
                outcome = Outcome("unknown", str(error))
            if outcome.result == "done":
                self.done += 1
                self._set[job_id] = (value, time.time())
            elif outcome.result == "refused":
                logger.warning("priority of job %s not changed: %s", job_id, outcome.reason)
                self.refused += 1
            self._unwritten[action] = outcome, 1e3 * (time.perf_counter() - begin)
        with self.follower.journal.writing():
            self._write_outcomes()
        self._unwritten.clear()

    def send_approved(self) -> None:
        """Send what a person has approved; what was not answered in time lapses."""
        if self.guard.mode != "approve":
            return
        at_s = time.time()
        planned = []
        approved = self.follower.journal.approvals("approved")
        late = [
            row
            for row, since_s in self.follower.journal.approvals("pending")
            if at_s - since_s > self.settings.approve_within or not self._still_wait(row)
        ]
        if not approved and not late:
            return
        with self.follower.journal.writing():
            for row in late:
                self.follower.journal.approve(row, "lapsed")
            for row, _ in approved:
                still = self._still_wait(row)
                if len(self.follower.core.told_together(still, {})) == len(still):
                    self.follower.journal.approve(row, "done")
                planned += self.plan(row, still)
        self.send(planned)

    def _still_wait(self, decision: int) -> tuple[str, ...]:
        """The jobs that a decision would start and that still wait."""
        found = self.follower.journal.read_decision(decision)
        return tuple(j for j in found["starts"] if self.follower.core.waits(j)) if found else ()
