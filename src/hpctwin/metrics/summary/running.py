"""A run summed up as it goes by: job by job as they end, and queue and machine from time to time."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.run_summary import SHARES
from hpctwin.metrics.jobs.jobs import ROWS
from hpctwin.metrics.jobs.quantiles import Exact, Quantiles, Sketch
from hpctwin.metrics.summary.sources import JobSource
from hpctwin.metrics.summary.sums import ExactSum, ExactSums, RowSums
from hpctwin.metrics.summary.totals import SPREAD_ROWS, SPREADS, Summary, Totals
from hpctwin.metrics.time.levels import floats
from hpctwin.metrics.time.over_time import Held, OverTime, Span, add_up, sum_of_products
from hpctwin.model import MS_PER_S

__all__ = ["RunningSummary", "in_vain"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class RunningSummary:
    """The figures of `hpctwin.metrics.summarize`, of a run that comes piece by piece.

    `passed` takes all that is known of a stretch of time, `ended` the jobs that nothing happens to any more.

    Args:
        nodes: size of the machine.
        exact: whether the jobs' figures are held for exact quantiles; else they are within
            `quantiles.ERROR`, and nothing is held.
    """

    def __init__(self, nodes: int, *, exact: bool) -> None:
        self._nodes = nodes
        make: type[Exact] | type[Sketch] = Exact if exact else Sketch
        self._quantiles: dict[str, Quantiles] = {name: make() for name in SPREADS}
        self._states: Counter[str] = Counter()
        self._served, self._lost = RowSums(len(ROWS)), ExactSum()
        self._users = ExactSums()
        self._first: float | None = None
        self._last: float | None = None
        self._reached = -math.inf
        self._held = Held()
        # Up to the last end of a job, and from there on, which counts if one more ends.
        self._over, self._beyond = OverTime(), OverTime()

    def ended(self, jobs: JobSource) -> None:
        """Some jobs that are done with, each told once; at the end all that are left."""
        self._states.update(jobs.counts())
        ran = jobs.served()
        self._served.add(ran.table, ran.ends)
        for name, quantiles in self._quantiles.items():
            quantiles.add(ran.row(name))
        jobs.add_by_user(ran, self._users)

    def resized(self, eligible_ms: IntArray, by: IntArray) -> None:
        """Jobs that have been in the queue count as more nodes than `passed` was told, or as fewer.

        Args:
            eligible_ms: since when each was, not after the time reached.
            by: how many more.
        """
        eligible, more = eligible_ms.astype(object), by.astype(object)
        settled, reached = (round(one * MS_PER_S) for one in (self._settled, self._reached))
        before = sum_of_products(more, np.maximum(settled - eligible, 0))
        self._over.sums["queued_nodes"] += before
        since = reached - np.maximum(eligible, settled)
        self._beyond.sums["queued_nodes"] += sum_of_products(more, since)
        more_nodes = self._held.queued_nodes + int(by.sum())
        self._held = self._held._replace(queued_nodes=more_nodes)

    @property
    def _settled(self) -> float:
        """The last end of a job that is known of; the first submission if there is none."""
        first = self._first or 0.0
        return first if self._last is None else max(first, self._last)

    def passed(
        self,
        jobs: JobSource,
        lost: pl.DataFrame,
        capacity: pl.DataFrame,
        until_s: float = math.inf,
    ) -> None:
        """Go on to a time.

        Args:
            jobs: all jobs to which anything has happened since the time reached before.
            lost: attempts that node failures cut off, since then.
            capacity: nodes that are up, as a step function.
            until_s: the time, seconds; its events have all happened.
        """
        if self._first is None:
            self._first = jobs.first_submit_s()
        after, self._reached = self._reached, until_s
        if len(lost):
            self._lost.add(in_vain(lost, after, until_s))
        last = jobs.last_end_s(after, until_s)
        if last is not None:
            self._last = last
            self._over.take(self._beyond)
        first, settled = self._first or 0.0, self._settled
        parts = [(self._over, Span(first, settled))] if last is not None else []
        if settled < until_s < math.inf:
            parts.append((self._beyond, Span(settled, until_s)))
        events = jobs.events(lost, floats(capacity, "time_s"), after_s=after, until_s=until_s)
        self._held = add_up(events, capacity, self._held, parts)

    def figures(self) -> Summary:
        """Values that JSON can hold, by metric."""
        counts = self._served.counts
        over = [
            max(count, 1) if name in self._quantiles else 1
            for name, count in zip(ROWS, counts, strict=True)
        ]
        return Totals(
            states=self._states,
            counts=counts,
            means=self._served.over(over),
            quantiles=[one.at(*SHARES) for one in self._quantiles.values()],
            largest=[self._served.largest[row] if counts[row] else None for row in SPREAD_ROWS],
            first_s=self._first,
            last_s=self._last,
            over_time=self._over.sums,
            longest=self._over.longest,
            lost_node_s=self._lost.total(),
            by_user=self._users.means(),
        ).figures(self._nodes)


def in_vain(
    lost: pl.DataFrame, after_s: float = -math.inf, until_s: float = math.inf
) -> FloatArray:
    """Node-seconds that ran in vain, of the attempts that were cut off within a span.

    Args:
        lost: attempts that were cut off.
        after_s: those that ended after it.
        until_s: and up to it.
    """
    begin, end = floats(lost, "start_s"), floats(lost, "end_s")
    new = (end > after_s) & (end <= until_s)
    vain = end - begin
    if "kept_s" in lost.columns:
        vain = vain - lost["kept_s"].to_numpy()
    found: FloatArray = lost["nodes"].to_numpy()[new] * vain[new]
    return found
