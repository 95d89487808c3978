"""Summary of a run as numbers, whole or from parts of it."""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.job_figures import COUNT_LEADING, LEADING_BITS, TAKE_LEADING
from hpctwin.errors import UnknownKeyError
from hpctwin.metrics.jobs import jain
from hpctwin.metrics.level_sums import Held, OverTime, Span, add_up, sum_of_products
from hpctwin.metrics.levels import floats
from hpctwin.metrics.registry import (
    BOUNDED_SLOWDOWN,
    METRICS,
    TAU_S,
    Maximum,
    Mean,
    Quantile,
    ServedJobs,
    Statistic,
    check_tau,
    computed_from,
)
from hpctwin.metrics.sources import ExactSum, ExactSums, JobSource, JobTable
from hpctwin.model import MS_PER_S
from hpctwin.model.arguments import check_arguments

__all__ = [
    "ERROR",
    "Exact",
    "NamedMetrics",
    "Quantiles",
    "RunningSummary",
    "Sketch",
    "Summary",
    "in_vain",
    "summarize",
    "summarize_jobs",
]

FloatArray = npt.NDArray[np.float64]


_NO_COUNTS = np.zeros(1 << LEADING_BITS, np.int64)
_BITS = 12  # of the mantissa
_LEAST, _MOST = 2.0**-24, 2.0**63
_SHIFT = 52 - _BITS
ERROR = 2.0 ** -(_BITS + 1)
"""Maximum relative error of a quantile of a `Sketch` (0.012 %)."""


class Quantiles(Protocol):
    """Numbers, 0 or more, with their quantiles."""

    def add(self, values: FloatArray) -> None:
        """Add numbers."""
        ...

    def at(self, *shares: float) -> list[float | None]:
        """Return quantiles, interpolated linearly between neighbors; None without numbers."""
        ...


class Exact:
    """Exact quantiles; all numbers stay in memory."""

    def __init__(self) -> None:
        self._parts: list[FloatArray] = []

    def add(self, values: FloatArray) -> None:
        """Add numbers."""
        self._parts.append(values)

    def at(self, *shares: float) -> list[float | None]:
        """Return the quantiles."""
        values = self._parts[0] if len(self._parts) == 1 else np.concatenate([*self._parts, []])
        values = np.ascontiguousarray(values)
        self._parts = [values]
        if not len(values):
            return [None for _ in shares]
        places = [_place(share, len(values)) for share in shares]
        at = _by_rank(values, sorted({rank for low, high, _ in places for rank in (low, high)}))
        # Neighbors may both be infinite.
        return [
            at[low] if at[low] == at[high] else at[low] + (at[high] - at[low]) * part
            for low, high, part in places
        ]


class Sketch:
    """Approximate quantiles from counts in bins; the counts take 3 MB.

    A bin is as narrow as 2^-12 of its numbers. The bins follow the bits of the numbers, as in
    HdrHistogram (G. Tene, hdrhistogram.org). Numbers below 2^-24 count as 0. The packages for such
    sketches (hdrhistogram, ddsketch) take one number at a time.
    """

    def __init__(self) -> None:
        self._first = _bin(np.array([_LEAST]))[0]
        bins = int(_bin(np.array([_MOST]))[0] - self._first) + 2
        self._counts = np.zeros(bins, np.int64)

    def add(self, values: FloatArray) -> None:
        """Add numbers."""
        found = _bin(np.clip(values, 0.0, _MOST)) - (self._first - 1)
        counts = np.bincount(np.maximum(found, 0))
        self._counts[: len(counts)] += counts

    def at(self, *shares: float) -> list[float | None]:
        """Return the quantiles, with a relative error up to `ERROR`."""
        reached = np.cumsum(self._counts)
        if not reached[-1]:
            return [None for _ in shares]
        found: list[float | None] = []
        for share in shares:
            low, high, part = _place(share, int(reached[-1]))
            first, last = (
                self._middle(int(np.searchsorted(reached, rank, side="right")))
                for rank in (low, high)
            )
            found.append(first + (last - first) * part)
        return found

    def _middle(self, found: int) -> float:
        if found == 0:
            return 0.0
        edges = np.array([found, found + 1], np.int64) + (self._first - 1)
        low, high = (edges << _SHIFT).view(np.float64)
        return float((low + high) / 2)


def _by_rank(values: FloatArray, ranks: list[int]) -> dict[int, float]:
    """Return the numbers of given ranks.

    If there are many numbers, only those with the same leading bits are sorted.
    """
    if len(values) < len(_NO_COUNTS):
        values.partition(ranks)
        return {rank: float(values[rank]) for rank in ranks}
    counts = _NO_COUNTS.copy()
    COUNT_LEADING(values.view(np.int64), counts)
    reached = np.cumsum(counts)
    leading = np.searchsorted(reached, ranks, side="right")
    wanted = np.zeros(len(counts), np.bool_)
    wanted[leading] = True
    taken = np.empty(int(counts[wanted].sum()))
    TAKE_LEADING(values.view(np.int64), wanted, taken.view(np.int64))
    # This many numbers with other bits come before each.
    omitted = np.cumsum(np.where(wanted, 0, counts))[leading]
    places = [rank - int(before) for rank, before in zip(ranks, omitted, strict=True)]
    taken.partition(sorted(set(places)))
    return {rank: float(taken[place]) for rank, place in zip(ranks, places, strict=True)}


def _place(share: float, size: int) -> tuple[int, int, float]:
    """Return the two ranks next to a quantile of ``size`` numbers.

    The third number is the distance of the quantile to the first rank.
    """
    place = share * (size - 1)
    return math.floor(place), math.ceil(place), place - math.floor(place)


def _bin(values: FloatArray) -> npt.NDArray[np.int64]:
    """Return the leading bits of numbers, which increase with the numbers."""
    bits: npt.NDArray[np.int64] = np.ascontiguousarray(values).view(np.int64) >> _SHIFT
    return bits


Summary = dict[str, float | int | None]
"""Metric by name; None if a metric is not defined, never NaN."""

IntArray = npt.NDArray[np.int64]


class NamedMetrics(dict[str, Any]):
    """Metrics of a run by name; the error for an unknown name has the nearest one."""

    def __missing__(self, name: str) -> Any:
        raise UnknownKeyError("metric", name, self)


class _JobStatistics:
    """Statistics of all metrics, of jobs that come in parts."""

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
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    def __init__(self, nodes: int, *, exact: bool, tau_s: float = TAU_S) -> None:
        self._nodes, self._tau_s = nodes, check_tau(tau_s)
        self._statistics = _JobStatistics(exact=exact)
        self._states: Counter[str] = Counter()
        self._served, self._lost = 0, ExactSum()
        self._users = ExactSums()
        self._first = math.inf
        self._last: float | None = None
        self._reached = -math.inf
        self._held = Held()
        # Up to the last end of a job, and from there on; the second counts if one more job ends.
        self._over, self._beyond = OverTime(), OverTime()

    def ended(self, jobs: JobSource) -> None:
        """Add jobs that are finished, each once; at the end all that are left."""
        self._states.update(jobs.counts())
        which, ran = jobs.served(self._tau_s)
        self._served += len(ran.submit_s)
        jobs.add_by_user(which, ran[BOUNDED_SLOWDOWN], self._users)
        self._statistics.add(ran)

    def resized(self, eligible_ms: IntArray, by: IntArray) -> None:
        """Change the requested nodes of jobs that are already counted as queued.

        Args:
            eligible_ms: Time at which each job entered the queue, not after the time reached.
            by: Change of its nodes.
        """
        if not len(by):
            return
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
        """The last known end of a job; the first submission if there is none; else infinity."""
        return self._first if self._last is None else max(self._first, self._last)

    def passed(
        self,
        jobs: JobSource,
        lost: pl.DataFrame,
        capacity: pl.DataFrame,
        until_s: float = math.inf,
        first_submit_s: float | None = None,
    ) -> None:
        """Advance to a time.

        Args:
            jobs: All jobs with an event since the time reached before.
            lost: Attempts that node failures cut off since then.
            capacity: Nodes that are up, as a step function.
            until_s: The time, in seconds; its events have all happened.
            first_submit_s: First submission that has happened, infinite if none has; by default
                that of the jobs. Those with a think time have none as long as they wait for it.
        """
        if first_submit_s is None:
            first_submit_s = jobs.first_submit_s()
        if self._first == math.inf and first_submit_s is not None:
            self._first = first_submit_s
        after, self._reached = self._reached, until_s
        if len(lost):
            self._lost.add(in_vain(lost, after, until_s))
        last = jobs.last_end_s(after, until_s)
        if last is not None:
            self._last = last
            self._over.take(self._beyond)
        settled = self._settled
        parts = [(self._over, Span(self._first, settled))] if last is not None else []
        if settled < until_s < math.inf:
            parts.append((self._beyond, Span(settled, until_s)))
        events = jobs.events(lost, floats(capacity, "time_s"), after_s=after, until_s=until_s)
        self._held = add_up(events, capacity, self._held, parts)

    def figures(self) -> Summary:
        """Return values that JSON can hold, by metric; ``tau_s`` unless it is the default."""
        totals, statistics = self._totals(), self._statistics.values()
        return {
            **({} if self._tau_s == TAU_S else {"tau_s": self._tau_s}),
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
        span_s = 0.0 if last is None else last - first
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
            wasted_node_s=self._lost.total(),
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


_MANY = 1 << 20
"""Number of jobs from which jobs and time are summed up in parallel."""


@check_arguments()
def summarize(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
    tau_s: float = TAU_S,
) -> Summary:
    """Return the summary of a run.

    Statistics of waiting, turnaround and slowdown are over the jobs that started and ended. Those
    over time are over the window from the first submission to the last end of a job that ran.
    Quantiles are interpolated linearly between neighbors.

    Args:
        jobs: Table of jobs of a result.
        lost: Attempts that node failures cut off.
        capacity: Nodes that are up, as a step function.
        nodes: Size of the cluster.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Returns:
        Values that JSON can hold, by metric.
    """
    return summarize_jobs(JobTable(jobs), lost, capacity, nodes, tau_s)


def summarize_jobs(
    jobs: JobSource,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
    tau_s: float = TAU_S,
) -> Summary:
    """Return `summarize` for jobs in a table or in arrays."""
    running = RunningSummary(nodes, exact=True, tau_s=tau_s)
    if len(jobs) < _MANY:
        running.passed(jobs, lost, capacity)
        running.ended(jobs)
    else:
        # Neither needs the other's result, and both are mostly compiled code.
        with ThreadPoolExecutor(1) as beside:
            ended = beside.submit(running.ended, jobs)
            running.passed(jobs, lost, capacity)
            ended.result()
    return running.figures()
