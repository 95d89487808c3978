"""The status of a live twin, written into its journal once a second."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from hpctwin.model.text import count_text, format_duration
from hpctwin.rms.manager import Report
from hpctwin.twin.acting.control import Control
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.journal.restore import OLDEST_S, Standing, starts_by
from hpctwin.twin.service.metering import Metering

__all__ = ["Inactivity", "StatusWriter"]

logger = logging.getLogger(__name__)

STATUS_INTERVAL_S = 1.0
MAX_NOTES = 50
MAX_DRIFT = 20
MAX_REASONS = 5


class StatusWriter:
    """Writes the status and the last forecasts into the journal."""

    def __init__(
        self,
        follower: Follower,
        control: Control,
        metering: Metering | None = None,
    ) -> None:
        self._follower = follower
        self._control = control
        self._metering = metering
        self._inactivity = Inactivity(follower.config.act.inactive_after)
        self._said = 0
        self._not_modeled: set[str] = set()
        self.due = 0.0

    def turn(self) -> bool:
        """Write if that is due; return whether it was.

        Raises:
            JournalError: The journal cannot be written.
        """
        now = time.monotonic()
        if now < self.due:
            return False
        self.due = now + STATUS_INTERVAL_S
        with self._follower.journal.writing():
            self.write()
        return True

    def status(self) -> dict[str, Any]:
        """Return the status in plain values."""
        follower, control, guard = self._follower, self._control, self._control.guard
        core, mirror = follower.core, follower.core.mirror
        report, decided = self._report(), control.decision
        starts = control.executor.done if control.is_active else None
        runs = {job_id for job_id, job in mirror.jobs.items() if job.start_s is not None}
        return {
            "cluster": mirror.cluster,
            "time_s": follower.now_s(),
            "unix_time": mirror.unix_time,
            "mode": guard.mode,
            "is_active": control.is_active,
            "stopped": guard.stopped,
            "killed": guard.killed(),
            "fault": control.faults.text,
            "kept_out": control.authority.why_not,
            "inactive": self._inactivity.turn(follower.now_s(), report, runs, starts),
            "policy": core.policy,
            "run": mirror.run,
            "seq": mirror.seq,
            "state": mirror.digest,
            "waits_for_snapshot": mirror.needs_snapshot,
            "missing_event": mirror.missing,
            "drift": follower.drift[:MAX_DRIFT],
            "lag": follower.bus.lag(),
            "nodes": len(mirror.nodes),
            "free_nodes": core.free_nodes(),
            "running": len(runs),
            "waiting": len(mirror.jobs) - len(runs),
            "decision": control.decision_id,
            "awaits_approval": {}
            if guard.mode != "approve"
            else {one.row: one.starts for one in control.executor.requests()},
            "cycle_s": control.decision_ms / 1000,
            "forecast_ms": control.forecast_ms,
            "what_ifs": {
                "unanswered": 0 if decided is None else len(decided.unanswered),
                "fault": core.what_ifs.fault,
            },
            "orders": control.reorders(),
            "leases": control.executor.lease_status(),
            "calls_per_minute": report.calls_per_minute,
            "not_read": list(report.notes[:MAX_NOTES]),
            "forecast_error": core.forecaster.median_error,
            "meter": None if self._metering is None else self._metering.status(follower.now_s()),
            "counts": self.counts(),
        }

    def standing(self) -> Standing:
        """Return what questions are answered from: the mirror, and the last forecasts."""
        core, control, now_s = self._follower.core, self._control, self._follower.now_s()
        acts = control.is_active or control.reorders()
        policy, assumed = starts_by(core, core.policy if acts else None)
        notes = self._report().notes[:MAX_NOTES]
        made = control.decision
        forecasts = {}
        if made is not None and made.forecast_by == policy:
            fresh = time.time() - control.decided_at <= OLDEST_S
            forecasts = {f.job_id: f for f in made.forecasts} if fresh else {}
        return Standing(core, now_s, policy, assumed, {"not_read": notes}, forecasts)

    def _report(self) -> Report:
        """Return the manager's report, with the jobs that request what it does not report.

        Each of these is logged once.
        """
        report, mirror = self._follower.manager.report(), self._follower.core.mirror
        pending = {
            i: why for i, why in mirror.not_modeled.items() if mirror.jobs[i].start_s is None
        }
        notes = {i: f"job {i} is left to the resource manager: {why}" for i, why in pending.items()}
        for job_id in notes.keys() - self._not_modeled:
            logger.warning("%s", notes[job_id])
        self._not_modeled = set(notes)
        return replace(
            report, notes=(*notes.values(), *report.notes), left={**report.left, **pending}
        )

    def counts(self) -> dict[str, int]:
        """Return counts of events, decisions and actions."""
        control, executor = self._control, self._control.executor
        done = {
            "decisions": control.decisions, "starts": executor.done, "refused": executor.refused,
        }  # fmt: skip
        return {**self._follower.counts, **done}

    def write(self, *, ended: bool = False) -> None:
        """Write status and forecasts; call it inside `Journal.writing`."""
        journal, at_s = self._follower.journal, time.time()
        status = self.status()
        journal.latest("status", {**status, "ended": ended}, at_s)
        history, core = self._follower.history, self._follower.core
        history.turn(journal, core, status["time_s"], status["waiting"], status["running"])
        if ended:
            history.write(journal, core)
        journal.latest("stopped", self._control.guard.stopped or "", at_s)
        decision, number = self._control.decision, self._control.decision_id
        if decision is not None and self._said != number:
            self._said = number
            body = {
                "time_s": decision.time_s,
                "decision": number,
                "policy": decision.forecast_by,
                "jobs": [list(one) for one in decision.forecasts],
            }
            journal.latest("forecasts", body, self._control.decided_at)


class Inactivity:
    """Detects that the manager starts all jobs although the twin is in control.

    Args:
        patience_s: Time without starts by the twin after which it warns, in seconds, if jobs left
            to the manager have started meanwhile.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.text = ""
        self._left: dict[str, str] = {}
        self._started: Counter[str] = Counter()
        self._count = 0
        self._since_s: float | None = None

    def turn(
        self, now_s: float, report: Report, running: Collection[str], starts: int | None
    ) -> str:
        """Return a sentence if the twin is in control without effect; else an empty text.

        Args:
            now_s: The present by the manager's clock, in seconds.
            report: Report of the manager at the last snapshot.
            running: Ids of the running jobs.
            starts: Number of jobs that the twin has started; None while it is not in control.
        """
        if starts is None or starts != self._count or self._since_s is None:
            self._since_s, self._count = now_s, starts or 0
            self._started.clear()
        self._started.update(why for job_id, why in self._left.items() if job_id in running)
        self._left = {i: why for i, why in report.left.items() if i not in running}
        text = "" if starts is None else self._sentence(now_s - self._since_s, report)
        if text and not self.text:
            logger.warning("%s", text)
        elif self.text and not text:
            logger.info("the twin acts on jobs again")
        self.text = text
        return text

    def _sentence(self, idle_s: float, report: Report) -> str:
        if report.partitions == ():
            left = Counter(report.left.values())
            why = _reasons(left) if left else "; ".join(report.notes[:MAX_REASONS])
            return f"the twin is active in no partition: {why or 'no partition has nodes'}"
        started = self._started.total()
        if started and idle_s >= self.patience_s:
            return (
                f"the twin has started no job for {format_duration(round(idle_s))}, while "
                f"{count_text(started, 'job')} that it leaves to the resource manager started: "
                f"{_reasons(self._started)}"
            )
        return ""


def _reasons(counted: Counter[str]) -> str:
    """Return the numbers of jobs by reason as text, the most frequent first."""
    found = [
        f"{count_text(count, 'job')} ({why})" for why, count in counted.most_common(MAX_REASONS)
    ]
    others = counted.total() - sum(count for _, count in counted.most_common(MAX_REASONS))
    return ", ".join([*found, *([f"{others} for other reasons"] if others else [])])
