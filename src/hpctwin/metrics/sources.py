"""Input of summaries: jobs in a table or in arrays of whole ms, and exact sums of them.

Sums are equal to the last bit, whatever the order and grouping of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.job_figures import (
    ADD_LABELLED,
    ADD_NUMBERS,
    INFINITE,
    LIMB_BITS,
    LIMBS,
    NOT_NUMBERS,
)
from hpctwin.metrics.levels import Events, events_of, events_of_ms, floor_ms
from hpctwin.metrics.registry import ServedJobs
from hpctwin.model import MS_PER_S, Category, State

__all__ = ["LABELS", "ExactSum", "ExactSums", "JobSource", "JobTable", "JobsInMs"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


_FIRST = np.zeros(1, np.int64)
_LEAST = 1074
"""Exponent of the least double: 2 to minus this."""


class ExactSum:
    """A sum without rounding, which is rounded once, when it is read."""

    def __init__(self) -> None:
        self._limbs = np.zeros(LIMBS, np.int64)

    def add(self, values: FloatArray) -> None:
        """Add numbers [n]."""
        ADD_NUMBERS(_bits(values), _FIRST, np.array([len(values)]), self._limbs)

    def total(self) -> float:
        """Return the double nearest to the sum."""
        return self.over(1)

    def over(self, count: int) -> float:
        """Return the double nearest to the sum divided by a number, 1 or more."""
        return _each_over(self._limbs[None], [count])[0]


class ExactSums:
    """Sums and counts of values by label."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        self._limbs = np.zeros((0, LIMBS), np.int64)
        self._counts = np.zeros(0, np.int64)

    def add(self, labels: pl.Series, values: FloatArray) -> None:
        """Add values, each with its label; values with a null label are ignored [n]."""
        told = pl.DataFrame({"label": labels, "value": pl.Series(values)}).drop_nulls("label")
        found = told.group_by("label").agg("value")
        counts = found["value"].list.len().to_numpy().astype(np.int64)
        part = np.zeros(len(found) * LIMBS, np.int64)
        each = found["value"].explode().to_numpy()
        ends = np.cumsum(counts)
        ADD_NUMBERS(_bits(each), ends - counts, ends, part)
        self._add_parts(found["label"].to_list(), part.reshape(-1, LIMBS), counts)

    def add_codes(self, labels: Category, values: FloatArray) -> None:
        """Like `add`, for a column of labels."""
        limbs = np.zeros(len(labels.labels) * LIMBS, np.int64)
        counts = np.zeros(len(labels.labels), np.int64)
        ADD_LABELLED(_bits(values), labels.codes, limbs, counts)
        there = np.flatnonzero(counts)
        part = limbs.reshape(-1, LIMBS)[there]
        self._add_parts([labels.labels[code] for code in there], part, counts[there])

    def _add_parts(self, labels: Sequence[str], part: IntArray, counts: IntArray) -> None:
        row = self._row
        if not row:
            self._row = {label: number for number, label in enumerate(labels)}
            self._limbs, self._counts = part, counts
            return
        rows = [row.setdefault(label, len(row)) for label in labels]
        more = len(row) - len(self._counts)
        self._limbs = np.concatenate([self._limbs, np.zeros((more, LIMBS), np.int64)])
        self._counts = np.concatenate([self._counts, np.zeros(more, np.int64)])
        # Added sums are carried, so limbs have space for two thousand million windows.
        self._limbs[rows] += part
        self._counts[rows] += counts

    def means(self) -> list[float]:
        """Return the mean of each label, in the order of first appearance."""
        return _each_over(self._limbs, self._counts.tolist())


def _bits(values: FloatArray) -> IntArray:
    return np.require(values, np.float64, ["C", "W"]).view(np.int64)


def _each_over(limbs: IntArray, counts: Sequence[int]) -> list[float]:
    """Return sums, each divided by a number and rounded once [sums, LIMBS].

    A quotient is infinite or NaN if its sum is.
    """
    there = np.flatnonzero(limbs.any(axis=0)).tolist()
    if not there:
        return [0.0] * len(limbs)
    if there[-1] >= INFINITE:
        return [_over(*pair) for pair in zip(limbs.tolist(), counts, strict=True)]
    # Lower limbs are all zero: in units of the first other limb, numbers are short.
    rows, below = limbs[:, there[0] : there[-1] + 1].tolist(), there[0]
    return [_finite_over(row, below, count) for row, count in zip(rows, counts, strict=True)]


def _over(limbs: list[int], count: int) -> float:
    if limbs[NOT_NUMBERS]:
        return math.nan
    if limbs[INFINITE]:
        return math.copysign(math.inf, limbs[INFINITE])
    return _finite_over(limbs, 0, count)


def _finite_over(limbs: list[int], below: int, count: int) -> float:
    """Return a sum divided by a number, rounded once.

    ``below`` is the number of zero limbs below the given ones.
    """
    whole = 0
    for limb in reversed(limbs):
        whole = (whole << LIMB_BITS) + limb
    shift = LIMB_BITS * below - _LEAST
    try:
        return (whole << shift) / count if shift > 0 else whole / (count << -shift)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


BoolArray = npt.NDArray[np.bool_]

LABELS = [state.label for state in State]
_REJECTED = int(State.REJECTED)


class JobSource(Protocol):
    """Jobs of a run."""

    def __len__(self) -> int:
        """Return the number of jobs."""
        ...

    def take(self, which: BoolArray) -> Self:
        """Return the jobs of some rows."""
        ...

    def counts(self) -> dict[str, int]:
        """Return the number of jobs by state."""
        ...

    def rejected(self) -> BoolArray:
        """Return which jobs can never run [jobs]."""
        ...

    def served(self, tau_s: float) -> tuple[BoolArray, ServedJobs]:
        """Return which jobs started and ended [jobs], and these jobs.

        Args:
            tau_s: Threshold of their bounded slowdowns, in seconds.
        """
        ...

    def add_by_user(self, which: BoolArray, values: FloatArray, sums: ExactSums) -> None:
        """Add values of some jobs to sums of their users."""
        ...

    def first_submit_s(self) -> float | None:
        """Return the first submission, in seconds."""
        ...

    def last_end_s(self, after_s: float, until_s: float) -> float | None:
        """Return the last end of a job that ran, within a span, in seconds."""
        ...

    def events(
        self, lost: pl.DataFrame, marks_s: npt.ArrayLike, *, after_s: float, until_s: float
    ) -> Events:
        """Return all events in order of time; see `hpctwin.metrics.levels.events_of`."""
        ...


@dataclass(frozen=True, eq=False)
class JobTable:
    """Jobs in a table.

    Args:
        table: Table with the columns of `hpctwin.Result.jobs`; times need not be whole ms.
    """

    table: pl.DataFrame

    def __len__(self) -> int:
        return len(self.table)

    @property
    def source(self) -> Self:
        """The object itself."""
        return self

    def take(self, which: BoolArray) -> Self:
        """See `JobSource`."""
        return type(self)(self.table.filter(which))

    def counts(self) -> dict[str, int]:
        """See `JobSource`."""
        # Comparing with the few existing states is faster than grouping.
        found: dict[str, int] = {}
        left = self.table["state"]
        while len(left):
            here = left == (state := left[0])
            found[state] = int(here.sum())
            left = left.filter(~here) if found[state] < len(left) else left.clear()
        return found

    def rejected(self) -> BoolArray:
        """See `JobSource`."""
        return (self.table["state"] == State.REJECTED.label).to_numpy()

    def served(self, tau_s: float) -> tuple[BoolArray, ServedJobs]:
        """See `JobSource`."""
        names = "submit_s", "start_s", "end_s"
        submit, start, end = (self.table[name].cast(pl.Float64).to_numpy() for name in names)
        which = ~(np.isnan(start) | np.isnan(end))
        nodes = self.table["nodes"].to_numpy()
        return which, ServedJobs(submit[which], start[which], end[which], nodes[which], tau_s=tau_s)

    def add_by_user(self, which: BoolArray, values: FloatArray, sums: ExactSums) -> None:
        """See `JobSource`."""
        users = self.table["user"]
        if users.null_count() < len(users):
            sums.add(users.filter(pl.Series(which)), values)

    def first_submit_s(self) -> float | None:
        """See `JobSource`."""
        first = self.table["submit_s"].cast(pl.Float64).min()
        return None if first is None else float(first)  # type: ignore[arg-type]

    def last_end_s(self, after_s: float, until_s: float) -> float | None:
        """See `JobSource`."""
        end = self.table["end_s"].cast(pl.Float64).to_numpy()
        start = self.table["start_s"].cast(pl.Float64).to_numpy()
        ran = ~np.isnan(start) & (end > after_s) & (end <= until_s)
        return float(end[ran].max()) if ran.any() else None

    def events(
        self, lost: pl.DataFrame, marks_s: npt.ArrayLike, *, after_s: float, until_s: float
    ) -> Events:
        """See `JobSource`."""
        return events_of(self.table, lost, marks_s, after_s=after_s, until_s=until_s)


@dataclass(frozen=True, eq=False)
class JobsInMs:
    """Jobs in arrays, by row; times in ms, -1 for events that have not happened.

    Args:
        submit, eligible, start, end: Times [jobs].
        nodes: Nodes of each job [jobs].
        state: State of each job, of `hpctwin.model.State` [jobs].
        user: User of each job [jobs].
    """

    submit: IntArray
    eligible: IntArray
    start: IntArray
    end: IntArray
    nodes: IntArray
    state: npt.NDArray[np.int8]
    user: Category

    def __len__(self) -> int:
        return len(self.submit)

    def take(self, which: BoolArray) -> Self:
        """See `JobSource`."""
        return type(self)(
            self.submit[which],
            self.eligible[which],
            self.start[which],
            self.end[which],
            self.nodes[which],
            self.state[which],
            self.user.take(which),
        )

    def counts(self) -> dict[str, int]:
        """See `JobSource`."""
        found = np.bincount(self.state, minlength=len(LABELS)).tolist()
        return {label: count for label, count in zip(LABELS, found, strict=True) if count}

    def rejected(self) -> BoolArray:
        """See `JobSource`."""
        rejected: BoolArray = self.state == _REJECTED
        return rejected

    def served(self, tau_s: float) -> tuple[BoolArray, ServedJobs]:
        """See `JobSource`."""
        which = (self.start >= 0) & (self.end >= 0)
        submit, start, end = (t[which] / MS_PER_S for t in (self.submit, self.start, self.end))
        return which, ServedJobs(submit, start, end, self.nodes[which], tau_s=tau_s)

    def add_by_user(self, which: BoolArray, values: FloatArray, sums: ExactSums) -> None:
        """See `JobSource`."""
        if len(self.user.labels):
            sums.add_codes(self.user if which.all() else self.user.take(which), values)

    def first_submit_s(self) -> float | None:
        """See `JobSource`."""
        return int(self.submit.min()) / MS_PER_S if len(self.submit) else None

    def last_end_s(self, after_s: float, until_s: float) -> float | None:
        """See `JobSource`."""
        ran = (self.start >= 0) & (self.end <= floor_ms(until_s))
        last = int(self.end.max(where=ran, initial=-1))
        return last / MS_PER_S if last > max(-1, floor_ms(after_s)) else None

    def events(
        self, lost: pl.DataFrame, marks_s: npt.ArrayLike, *, after_s: float, until_s: float
    ) -> Events:
        """See `JobSource`."""
        told = self.eligible, self.start, self.end, self.nodes, self.rejected()
        return events_of_ms(told, lost, marks_s, after_s=after_s, until_s=until_s)
