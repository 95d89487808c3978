"""A twin that is in charge but has nothing to act on says so."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

from hpctwin.model.text.units import format_duration
from hpctwin.rms.manager import Report

__all__ = ["Inactivity"]

logger = logging.getLogger(__name__)

MAX_REASONS = 5


class Inactivity:
    """Notices that the manager starts all jobs by itself although the twin is in charge.

    Args:
        patience_s: With no start by the twin for this long while jobs left to the manager started, the
            twin warns.
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
        """Return one sentence if the twin is in charge without effect; otherwise an empty text.

        Args:
            now_s: the present by the manager's clock.
            report: of the manager, as of the last snapshot.
            running: ids of the running jobs.
            starts: how many jobs the twin has started so far; None while it is not in charge.
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
                f"the twin has started no job for {format_duration(round(idle_s))}, while {started} jobs "
                f"that it leaves to the manager started: {_reasons(self._started)}"
            )
        return ""


def _reasons(counted: Counter[str]) -> str:
    """Counts of jobs by reason, the most frequent first."""
    found = [
        f"{count} {'job' if count == 1 else 'jobs'} ({why})"
        for why, count in counted.most_common(MAX_REASONS)
    ]
    others = counted.total() - sum(count for _, count in counted.most_common(MAX_REASONS))
    return ", ".join([*found, *([f"{others} for other reasons"] if others else [])])
