"""History of a cluster over weeks: queue, utilization, waits, decisions and forecasts.

The journal keeps one row for each of the last minutes and one for each of the last hours; see
`STEPS`. A row has sums, numbers and maxima, so rows can be added up. Times are those of the
cluster's clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hpctwin.rms.records.records import JobRecord
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.journal import Journal

__all__ = ["HOUR_S", "MINUTE_S", "MOST_PARTITIONS", "MOST_USERS", "OTHERS", "STEPS", "Recorder"]

MINUTE_S, HOUR_S = 60, 3600
STEPS = {MINUTE_S: 3 * 1440, HOUR_S: 26 * 168}
"""Length of a row's period in seconds, and number of rows that are kept: 3 days and 26 weeks."""
MOST_PARTITIONS, MOST_USERS = 16, 50
OTHERS = "(others)"
"""Name of all partitions or users beyond the maximum number."""

Sums = dict[str, Any]
_BOUNDS = {"partitions": MOST_PARTITIONS, "users": MOST_USERS}


class Recorder:
    """Collects what happens in a minute, and writes it into the journal at the minute's end."""

    def __init__(self) -> None:
        self._minute: int | None = None
        self._sums: Sums = {}

    def started(self, job: JobRecord) -> None:
        """Count the start of a job."""
        if job.start_s is None:
            return
        wait_s = max(0.0, job.start_s - job.spec.submit_s)
        one = {"starts": 1, "wait_s": wait_s, "wait_max_s": wait_s}
        names = {"partitions": {job.spec.partition: one}, "users": {job.spec.user: one}}
        add(self._sums, {**one, **names})

    def came_true(self, made: Forecast, start_s: float) -> None:
        """Count a job's first forecast, once the job has started."""
        if made.start_s is None:
            return
        one = {"forecasts": 1, "error_s": abs(start_s - made.start_s)}
        if made.calibrated and made.low_s is not None and made.high_s is not None:
            one |= {"intervals": 1, "covered": int(made.low_s <= start_s <= made.high_s)}
        add(self._sums, one)

    def decided(self, decision: Decision, took_ms: float) -> None:
        """Count a decision."""
        changed = int(decision.before != decision.policy)
        add(self._sums, {"decisions": 1, "took_ms": took_ms, "took_max_ms": took_ms,
                         "changes": changed, "policies": {decision.policy: {"decisions": 1}}})  # fmt: skip

    def turn(self, journal: Journal, core: Core, now_s: float, waiting: int, running: int) -> None:
        """Count the present queue, and write the last minute if it is over.

        Call it about once a second, inside `Journal.writing`.
        """
        minute = int(now_s // MINUTE_S) * MINUTE_S
        if self._minute is not None and minute != self._minute:
            self.write(journal, core)
        self._minute = minute
        add(self._sums, {"n": 1, "waiting": waiting, "running": running, "waiting_max": waiting})

    def write(self, journal: Journal, core: Core) -> None:
        """Write the present minute, even if it is not over; call it inside `Journal.writing`."""
        if self._minute is None:
            return
        add(self._sums, _look(core))
        for step_s, most in STEPS.items():
            at_s = self._minute // step_s * step_s
            found = journal.read_history(step_s, at_s, at_s, 1)
            row = add(found[0][1], self._sums) if found else self._sums
            for kind, bound in _BOUNDS.items():
                if kind in row:
                    row[kind] = _largest(row[kind], bound)
            journal.history(step_s, at_s, json.dumps(row), most)
        self._sums = {}


def add(sums: Sums, others: Mapping[str, Any]) -> Sums:
    """Add sums and numbers, and take the larger of two maxima; return the first."""
    for name, value in others.items():
        if isinstance(value, Mapping):
            add(sums.setdefault(name, {}), value)
        elif "_max" in name:
            sums[name] = max(sums.get(name, 0), value)
        else:
            sums[name] = sums.get(name, 0) + value
    return sums


def _look(core: Core) -> Sums:
    """Return the present nodes in use, and the jobs by partition and user."""
    mirror = core.mirror
    used: set[str] = set()
    partitions: dict[str, Sums] = {}
    users: dict[str, Sums] = {}
    for job in mirror.jobs.values():
        state = "waiting" if job.start_s is None else "running"
        used.update(job.node_names)
        for groups, name in ((partitions, job.spec.partition), (users, job.spec.user)):
            one = groups.setdefault(name, {"waiting": 0, "running": 0})
            one[state] += 1
    up = sum(node.state == "up" for node in mirror.nodes.values())
    return {"looks": 1, "used_nodes": len(used), "up_nodes": up, "nodes": len(mirror.nodes),
            "partitions": partitions, "users": users}  # fmt: skip


def _largest(groups: dict[str, Sums], most: int) -> dict[str, Sums]:
    """Return the groups with the most starts and jobs, and the sum of the others."""
    if len(groups) <= most + (OTHERS in groups):
        return groups
    named = sorted(
        (name for name in groups if name != OTHERS),
        key=lambda name: -sum(groups[name].get(key, 0) for key in ("starts", "waiting", "running")),
    )
    return {name: groups[name] for name in named[:most]} | {
        OTHERS: _sum(groups[name] for name in (OTHERS, *named[most:]) if name in groups)
    }


def _sum(parts: Iterable[Sums]) -> Sums:
    total: Sums = {}
    for one in parts:
        add(total, one)
    return total
