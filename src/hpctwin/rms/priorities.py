"""Priorities that drift with age, kept still while the queue's order stays the same.

Under a multifactor scheduler each waiting job's priority is another one at each look. What matters of it is
its place among the others, and roughly its distance from them. So jobs keep the priority that they had when
they were first seen, or last changed places: on a scale of their own, that runs along with the drift.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from hpctwin.rms.records.records import JobRecord, Snapshot

__all__ = ["StillPriorities"]

FAR = 0.05
"""A job whose priority has moved, against the drift of all, by more than this share of the span of all
priorities is told again, though its place in the order is the same."""
MOST = 0.5
"""If more than this share of the jobs must be told again, all of them are, with the priorities they have."""
APART = 0.001
"""Jobs of one priority, beyond all others, are told so far apart, as the queue takes them."""


class _Job(NamedTuple):
    """A waiting job: the fields that its place in the queue is by, told and true."""

    id: str
    submit_s: float
    told: float | None
    true: float

    @property
    def place(self) -> tuple[float, float, tuple[int, ...]]:
        """Sorts by what goes last to what goes first: the later submitted of two of one priority before.

        Of two submitted in the same second, that is the one with the larger number.
        """
        return self.true, -self.submit_s, tuple(-int(part) for part in re.findall(r"\d+", self.id))


class StillPriorities:
    """Gives the jobs of a snapshot the priorities told of them before, where those still tell the order."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        # Told and true of each waiting job. Replaced whole: another thread may be asking `true`.
        self._waiting: dict[str, tuple[float, float]] = {}

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """What the resource manager gave, with priorities that change only where they say more."""
        waiting = [
            _Job(i, job.spec.submit_s, self._told.get(i), job.spec.priority)
            for job in snapshot.jobs
            if job.start_s is None and not job.spec.held
            for i in (job.spec.id,)
        ]
        told = _told(sorted(waiting, key=lambda job: job.place))
        # A job that runs has its last one: nothing depends on it any more.
        for job in snapshot.jobs:
            if job.start_s is not None and job.spec.id in self._told:
                told[job.spec.id] = self._told[job.spec.id]
        self._told = told
        self._waiting = {job.id: (told[job.id], job.true) for job in waiting}
        return snapshot.model_copy(
            update={"jobs": tuple(_with(job, told.get(job.spec.id)) for job in snapshot.jobs)}
        )

    def true(self, priority: float) -> float:
        """A priority on the scale of those told, as the resource manager means it.

        Above the true priority of every job that was told a lower one, by as much.
        """
        drifts = [(told, true - told) for told, true in self._waiting.values()]
        below = [drift for told, drift in drifts if told < priority]
        if below:
            return priority + max(below)
        return priority + (median(drift for _, drift in drifts) if drifts else 0.0)


def _told(jobs: Sequence[_Job]) -> dict[str, float]:
    """What to tell of jobs in the order of their true priorities, changing as few as can be.

    No two are told the same, so that there is room between any two for a third.
    """
    known = [job for job in jobs if job.told is not None]
    drift = median(job.true - job.told for job in known if job.told is not None) if known else 0.0
    far = FAR * (jobs[-1].true - jobs[0].true) if jobs else 0.0
    near = {
        number: job.told
        for number, job in enumerate(jobs)
        if job.told is not None and abs(job.true - job.told - drift) <= far
    }
    kept = _in_order(near)
    if not kept or len(known) - len(kept) > MOST * len(known):
        return _anew(jobs)
    told: list[float] = []
    bounds = sorted(kept)
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        first, end = -1 if low is None else low, len(jobs) if high is None else high
        between = [job.true for job in jobs[first + 1 : end]]
        ends = [None if n is None else (jobs[n].true, kept[n]) for n in (low, high)]
        told += _between(between, *ends)
        if high is not None:
            told.append(kept[high])
    if any(a >= b for a, b in pairwise(told)):
        return _anew(jobs)  # the numbers are not fine enough any more
    return {job.id: value for job, value in zip(jobs, told, strict=True)}


def _anew(jobs: Sequence[_Job]) -> dict[str, float]:
    """The true priorities; equal ones a little apart, in the order in which the queue takes them."""
    told: dict[str, float] = {}
    number = 0
    while number < len(jobs):
        end = number
        while end < len(jobs) and jobs[end].true == jobs[number].true:
            end += 1
        gap = jobs[end].true - jobs[number].true if end < len(jobs) else 1.0
        for i in range(number, end):
            told[jobs[i].id] = jobs[i].true + 0.5 * gap * (i - number) / (end - number)
        number = end
    return told


def _between(
    true: Sequence[float], low: tuple[float, float] | None, high: tuple[float, float] | None
) -> list[float]:
    """Priorities to tell of a run of jobs between two others (true, told) that keep theirs."""
    if not true:
        return []
    if low is None or high is None:
        # Beyond all others: at the true distance from the last of them.
        end_true, end_told = low or high or (0.0, 0.0)
        values = [end_told + value - end_true for value in true]
        if low is not None:
            last = end_told
            for i in range(len(values)):
                last = values[i] = max(values[i], last + APART)
        else:
            last = end_told
            for i in reversed(range(len(values))):
                last = values[i] = min(values[i], last - APART)
        return values
    span_true, span_told = high[0] - low[0], high[1] - low[1]
    if span_true > 0:
        values = [low[1] + span_told * (value - low[0]) / span_true for value in true]
        if all(a < b for a, b in pairwise([low[1], *values, high[1]])):
            return values
    return [low[1] + span_told * (i + 1) / (len(true) + 1) for i in range(len(true))]


def _in_order(told: Mapping[int, float]) -> dict[int, float]:
    """The most of these, by place, that rise with their place."""
    # The longest increasing subsequence, by patience sorting.
    tops: list[float] = []
    last: list[int] = []
    before: dict[int, int] = {}
    for place, value in told.items():
        pile = bisect_left(tops, value)
        before[place] = last[pile - 1] if pile else -1
        if pile == len(tops):
            tops.append(value)
            last.append(place)
        else:
            tops[pile], last[pile] = value, place
    found = {}
    place = last[-1] if last else -1
    while place >= 0:
        found[place] = told[place]
        place = before[place]
    return found


def _with(job: JobRecord, priority: float | None) -> JobRecord:
    if priority is None or priority == job.spec.priority:
        return job
    spec = job.spec.model_copy(update={"priority": priority})
    return job.model_copy(update={"spec": spec})
