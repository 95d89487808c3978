"""Summary of a run that comes in parts: ended jobs, and levels over time."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.jobs.fairness import jain
from hpctwin.metrics.jobs.quantiles import Exact, Quantiles, Sketch
from hpctwin.metrics.registry import (
    BOUNDED_SLOWDOWN,
    METRICS,
    Maximum,
    Mean,
    Quantile,
    ServedJobs,
    Statistic,
    computed_from,
)
from hpctwin.metrics.summary.sources import JobSource
from hpctwin.metrics.summary.sums import ExactSum, ExactSums
from hpctwin.metrics.time.levels import floats
from hpctwin.metrics.time.over_time import Held, OverTime, Span, add_up, sum_of_products
from hpctwin.model import MS_PER_S

__all__ = ["RunningSummary", "Summary", "in_vain"]

Summary = dict[str, float | int | None]
"""Metric by name; None if a metric is not defined, never NaN."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class _JobStatistics:
    """Statistics of all metrics, of jobs that come in parts.

    Args:
        exact: As in `RunningSummary`.
    """

    def __init__(self, *, exact: bool) -> None:
        asked = [metric.of for metric in METRICS.values() if isinstance(metric.of, Statistic)]
        self._sums = {of: ExactSum() for of in asked if isinstance(of, Mean)}
        self._weights = {of: ExactSum() for of in self._sums if of.weights is not None}
        self._counts = dict.fromkeys(self._sums, 0)
        self._largest = {of: -math.inf for of in asked if isinstance(of, Maximum)}
        self._shares = [of for of in asked if isinstance(of, Quantile)]
        make: type[Exact] | type[Sketch] = Exact if exact else Sketch
        self._quantiles: dict[str, Quantiles] = {of.values.name: make() for of in self._shares}

    def add(self, jobs: ServedJobs) -> None:
        """Add more jobs."""
        for mean, total in self._sums.items():
            values = jobs.defined(mean.values)
            self._counts[mean] += len(values)
            if mean.weights is not None:
                weights = jobs.weights(mean.values, mean.weights)
                self._weights[mean].add(weights)
                values = values * weights
            total.add(values)
        for maximum in self._largest:
            largest = jobs.defined(maximum.values).max(initial=-math.inf)
            self._largest[maximum] = max(self._largest[maximum], float(largest))
        for values_of in {of.values for of in self._shares}:
            self._quantiles[values_of.name].add(jobs.defined(values_of))

    def values(self) -> dict[Statistic, float | None]:
        """The value of each statistic; None without jobs."""
        found: dict[Statistic, float | None] = {}
        for mean, total in self._sums.items():
            if mean.weights is None:
                found[mean] = total.over(self._counts[mean]) if self._counts[mean] else None
            else:
                weights = self._weights[mean].total()
                found[mean] = total.total() / weights if weights > 0 else None
        for maximum, largest in self._largest.items():
            found[maximum] = largest if largest > -math.inf else None
        for name, quantiles in self._quantiles.items():
            own = [of for of in self._shares if of.values.name == name]
            found.update(zip(own, quantiles.at(*(of.share for of in own)), strict=True))
        return found


class RunningSummary:
    """Metrics of `hpctwin.metrics.summarize`, for a run that comes in parts.

    `passed` takes all that is known of an interval of time. `ended` takes the jobs that are
    finished.

    Args:
        nodes: Size of the cluster.
        exact: Whether all values of jobs are kept for exact quantiles; otherwise quantiles are
            within `quantiles.ERROR`, and no values are kept.
    """

    def __init__(self, nodes: int, *, exact: bool) -> None:
        self._nodes = nodes
        self._statistics = _JobStatistics(exact=exact)
        self._states: Counter[str] = Counter()
        self._served, self._lost = 0, ExactSum()
        self._users = ExactSums()
        self._first: float | None = None
        self._last: float | None = None
        self._reached = -math.inf
        self._held = Held()
        # Up to the last end of a job, and from there on; the second counts if one more job ends.
        self._over, self._beyond = OverTime(), OverTime()

    def ended(self, jobs: JobSource) -> None:
        """Add jobs that are finished, each once; at the end all that are left."""
        self._states.update(jobs.counts())
        which, ran = jobs.served()
        self._served += len(ran.submit_s)
        jobs.add_by_user(which, ran[BOUNDED_SLOWDOWN], self._users)
        self._statistics.add(ran)

    def resized(self, eligible_ms: IntArray, by: IntArray) -> None:
        """Change the nodes of jobs that have been in the queue since an earlier `passed`.

        Args:
            eligible_ms: Time since which each was in the queue, not after the time reached.
            by: Change of its nodes.
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
        """The last known end of a job; the first submission if there is none."""
        first = self._first or 0.0
        return first if self._last is None else max(first, self._last)

    def passed(
        self,
        jobs: JobSource,
        lost: pl.DataFrame,
        capacity: pl.DataFrame,
        until_s: float = math.inf,
    ) -> None:
        """Advance to a time.

        Args:
            jobs: All jobs with an event since the time reached before.
            lost: Attempts that node failures cut off since then.
            capacity: Nodes that are up, as a step function.
            until_s: The time, in seconds; its events have all happened.
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
        """Return values that JSON can hold, by metric."""
        totals, statistics = self._totals(), self._statistics.values()
        return {
            "jobs": sum(self._states.values()),
            **{f"jobs_{state}": self._states[state] for state in sorted(self._states)},
            **{
                name: statistics[metric.of]
                if isinstance(metric.of, Statistic)
                else metric.of.of(totals)
                for name, metric in computed_from(vars(totals)).items()
            },
        }

    def _totals(self) -> SimpleNamespace:
        """Return the totals that metrics need; integrals over time are in ms."""
        first, last, ran = self._first, self._last, self._served > 0
        span_s = 0.0 if last is None else last - (first or 0.0)
        over, users = self._over.sums, self._users.means()
        return SimpleNamespace(
            **over,
            idle_loaded=over["present_loaded"] - over["used_loaded"],
            longest_queue=self._over.longest,
            nodes=self._nodes,
            whole=self._nodes * (span_s * MS_PER_S),
            served=self._served,
            interval_begin_s=first if ran else None,
            interval_end_s=last if ran else None,
            makespan_s=span_s if ran else None,
            makespan_ms=span_s * MS_PER_S,
            makespan_h=span_s / 3600,
            lost_node_s=self._lost.total(),
            jain_fairness_user=jain(users) if len(users) > 1 else None,
        )


def in_vain(
    lost: pl.DataFrame, after_s: float = -math.inf, until_s: float = math.inf
) -> FloatArray:
    """Return node-seconds that ran in vain, of attempts cut off within a span.

    Args:
        lost: Attempts that were cut off.
        after_s: Begin of the span, excluded, in seconds.
        until_s: End of the span, included, in seconds.
    """
    begin, end = floats(lost, "start_s"), floats(lost, "end_s")
    new = (end > after_s) & (end <= until_s)
    vain = end - begin
    if "kept_s" in lost.columns:
        vain = vain - lost["kept_s"].to_numpy()
    found: FloatArray = lost["nodes"].to_numpy()[new] * vain[new]
    return found
