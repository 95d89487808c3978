"""Drifting priorities, held constant while the queue's order stays the same.

Under a multifactor scheduler each pending job's priority differs at every poll. Only two things
matter: its place among the other jobs, and roughly its distance from them. So a job keeps the
priority it had when it was first seen or last changed places. These published priorities have their
own scale, which moves along with the drift.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from hpctwin.rms.records.records import JobRecord, Snapshot

FAR = 0.05
"""Move of a job's priority against the common drift that is published again.

It is a share of the span of all priorities. Beyond it, a job is published again even if its place
in the order is the same.
"""
MOST = 0.5
"""Share of jobs to publish again above which all are, with their true priorities."""
APART = 0.001
"""Distance between published priorities of equal jobs beyond all others."""


class _Job(NamedTuple):
    """A pending job: submit time, published and true priority decide its place."""

    id: str
    submit_s: float
    told: float | None
    true: float

    @property
    def place(self) -> tuple[float, float, tuple[int, ...]]:
        """Sort key from last to first in the queue.

        Of two jobs with equal priority, the later submitted one is lower. Of two jobs submitted in
        the same second, the one with the larger number is lower.
        """
        return self.true, -self.submit_s, tuple(-int(part) for part in re.findall(r"\d+", self.id))


class StillPriorities:
    """Gives jobs the priorities published before while those still show the order."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        # Published and true priority of each pending job. Replaced whole: another thread may call
        # `true`.
        self._waiting: dict[str, tuple[float, float]] = {}

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with priorities that change only if their order does.

        A large move of one priority against the common drift counts as a change, too.
        """
        waiting = [
            _Job(i, job.spec.submit_s, self._told.get(i), job.spec.priority)
            for job in snapshot.jobs
            if job.start_s is None and not job.spec.held
            for i in (job.spec.id,)
        ]
        told = _told(sorted(waiting, key=lambda job: job.place))
        # A running job keeps its last one: nothing depends on it any more.
        for job in snapshot.jobs:
            if job.start_s is not None and job.spec.id in self._told:
                told[job.spec.id] = self._told[job.spec.id]
        self._told = told
        self._waiting = {job.id: (told[job.id], job.true) for job in waiting}
        return snapshot.model_copy(
            update={"jobs": tuple(_with(job, told.get(job.spec.id)) for job in snapshot.jobs)}
        )

    def true(self, priority: float) -> float:
        """Convert a published priority to the resource manager's scale.

        The result is above the true priority of every job with a lower published one, by as much.
        """
        drifts = [(told, true - told) for told, true in self._waiting.values()]
        below = [drift for told, drift in drifts if told < priority]
        if below:
            return priority + max(below)
        return priority + (median(drift for _, drift in drifts) if drifts else 0.0)


def _told(jobs: Sequence[_Job]) -> dict[str, float]:
    """Return the priorities to publish for jobs in true order.

    As few as possible change. No two are equal, so that a third job always fits between any two.
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
    """Return the true priorities; equal ones a little apart, in queue order."""
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
    """Return priorities for jobs between two others (true, published) that stay."""
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
    """Return as many of these as possible so that values rise with their place."""
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
