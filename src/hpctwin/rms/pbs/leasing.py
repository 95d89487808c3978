"""Leases on PBS: begin times of jobs that the hook has marked as the twin's.

The mark, a resource that only operators can set, holds the begin time that the job's user asked for.
Setting it again together with the begin time tells the hook that it is the twin that asks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hpctwin.rms.commands import Commands
from hpctwin.rms.manager import Outcome
from hpctwin.rms.pbs.batch import change_jobs
from hpctwin.rms.pbs.jobs import MARK, Mark, array_of
from hpctwin.rms.pbs.values import begin_time

__all__ = ["Leasing"]

LONGEST_S = 2.0
"""No command is sent in a call of `Leasing.lease` after so long; those leases come first that end first."""
OVERLAP_S = 1.0
"""A look may not have seen what happened so long before it began."""
ADMITTED_S = 10.0
"""So long is waited for an array's subjobs to start after it was admitted, before it is leased again."""


class Leasing:
    """Gives and ends leases. The jobs of an array have one begin time: they are leased and admitted together.

    Args:
        commands: PBS's, with TZ=UTC.
        clock: seconds since the epoch.
    """

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.time) -> None:
        self.commands = commands
        self.clock = clock
        self._lock = threading.Lock()
        self._marks: dict[str, Mark] = {}
        self._since: list[tuple[float, str, Mark]] = []
        self._admitted: dict[str, float] = {}

    def looked(self, marks: Mapping[str, Mark], began_s: float) -> None:
        """What a look found that began then; what was done or told since counts on.

        Args:
            marks: the waiting jobs that are the twin's.
            began_s: when the look began.
        """
        with self._lock:
            self._since = [one for one in self._since if one[0] >= began_s - OVERLAP_S]
            self._marks = dict(marks)
            self._marks |= {job_id: mark for _, job_id, mark in self._since}

    def told(self, job_id: str, mark: Mark) -> None:
        """A job of the twin's was submitted, or changed."""
        with self._lock:
            self._since.append((self.clock(), job_id, mark))
            self._marks[job_id] = mark

    def leases(self) -> dict[str, float]:
        """See `ResourceManager`."""
        now = self.clock()
        return {
            job_id: mark.lease_s if mark.lease_s > now else 0.0
            for job_id, mark in self.marks().items()
        }

    def marks(self) -> dict[str, Mark]:
        """The waiting jobs that are the twin's, as last known."""
        with self._lock:
            return dict(self._marks)

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """See `ResourceManager`."""
        marks, now = self.marks(), self.clock()
        self._admitted = {a: t for a, t in self._admitted.items() if t > now - ADMITTED_S}
        outcomes: dict[str, Outcome] = {}
        wanted: dict[str, float] = {}
        for job_id, wish_s in until_s.items():
            refusal = self._refusal(job_id, marks)
            if refusal is not None:
                outcomes[job_id] = refusal
            elif "[" in job_id and array_of(job_id) in self._admitted:
                outcomes[job_id] = Outcome("done", "others of its array are just being started")
            elif marks[job_id].own_s >= wish_s:
                outcomes[job_id] = Outcome("done", "its user asked for a later time")
            else:
                wanted[job_id] = math.ceil(wish_s)
        first = sorted(wanted, key=lambda job_id: marks[job_id].lease_s)
        until = time.monotonic() + LONGEST_S
        return outcomes | self._change({i: wanted[i] for i in first}, marks, until)

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """See `ResourceManager`."""
        marks, now = self.marks(), math.floor(self.clock())
        outcomes = {job_id: self._refusal(job_id, marks) for job_id in job_ids}
        refused = {job_id: said for job_id, said in outcomes.items() if said is not None}
        admitted = [job_id for job_id in job_ids if job_id not in refused]
        done = self._change({i: max(now, marks[i].own_s) for i in admitted}, marks)
        self._admitted |= {
            array_of(i): now for i in done if "[" in i and done[i].result != "refused"
        }
        return refused | done

    @staticmethod
    def _refusal(job_id: str, marks: Mapping[str, Mark]) -> Outcome | None:
        mark = marks.get(job_id)
        if mark is None:
            return Outcome("refused", "it does not wait, or is not marked as the twin's")
        return Outcome("refused", "it is held") if mark.held else None

    def _change(
        self, begin_s: Mapping[str, float], marks: Mapping[str, Mark], until: float = math.inf
    ) -> dict[str, Outcome]:
        """Set begin times, in a command or a few for each different one."""
        groups: dict[tuple[float, float], dict[str, list[str]]] = {}
        latest: dict[str, float] = {}
        for job_id, time_s in begin_s.items():
            whole = array_of(job_id)
            latest[whole] = max(time_s, latest.get(whole, 0.0))
        for job_id in begin_s:
            whole = array_of(job_id)
            group = groups.setdefault((latest[whole], marks[job_id].own_s), {})
            group.setdefault(whole, []).append(job_id)
        outcomes: dict[str, Outcome] = {}
        for (time_s, own_s), jobs in groups.items():
            options = ["-a", begin_time(time_s), "-l", f"{MARK}={own_s:.0f}"]
            told = change_jobs(self.commands, "qalter", options, list(jobs), until)
            for whole, outcome in told.items():
                outcomes |= dict.fromkeys(jobs[whole], outcome)
                if outcome.result == "done":
                    self._note(whole, jobs[whole], time_s, marks)
        return outcomes

    def _note(
        self, whole: str, job_ids: list[str], time_s: float, marks: Mapping[str, Mark]
    ) -> None:
        for job_id in marks if "[" in whole else job_ids:
            if array_of(job_id) == whole:
                self.told(job_id, replace(marks[job_id], until_s=time_s))
