"""Input of summaries: jobs in a table or in arrays of whole ms; results are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.registry import ServedJobs
from hpctwin.metrics.summary.sums import ExactSums
from hpctwin.metrics.time.levels import Events, events_of, events_of_ms, floor_ms
from hpctwin.model import MS_PER_S, Category, State

__all__ = ["LABELS", "JobSource", "JobTable", "JobsInMs"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
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

    def served(self) -> tuple[BoolArray, ServedJobs]:
        """Return which jobs started and ended [jobs], and these jobs."""
        ...

    def add_by_user(self, which: BoolArray, values: FloatArray, sums: ExactSums) -> None:
        """Add values of some jobs to sums of their users.

        Args:
            which: The jobs [jobs].
            values: One value for each of them.
            sums: Sums by user.
        """
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
        """Return all events in order of time; see `hpctwin.metrics.time.levels.events_of`."""
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

    def served(self) -> tuple[BoolArray, ServedJobs]:
        """See `JobSource`."""
        names = "submit_s", "start_s", "end_s"
        submit, start, end = (self.table[name].cast(pl.Float64).to_numpy() for name in names)
        which = ~(np.isnan(start) | np.isnan(end))
        nodes = self.table["nodes"].to_numpy()
        return which, ServedJobs(submit[which], start[which], end[which], nodes[which])

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

    def served(self) -> tuple[BoolArray, ServedJobs]:
        """See `JobSource`."""
        which = (self.start >= 0) & (self.end >= 0)
        submit, start, end = (t[which] / MS_PER_S for t in (self.submit, self.start, self.end))
        return which, ServedJobs(submit, start, end, self.nodes[which])

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
