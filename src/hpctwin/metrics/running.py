"""A run summed up as it goes by: job by job as they end, and queue and machine from time to time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.fairness import jain
from hpctwin.metrics.over_time import Held, OverTime, Span, add_up, sum_of_products
from hpctwin.metrics.quantiles import Exact, Quantiles, Sketch
from hpctwin.metrics.sources import JobSource
from hpctwin.metrics.sums import ExactSum, ExactSums
from hpctwin.model import MS_PER_S

__all__ = ["RunningSummary", "Summary"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DISTRIBUTIONS = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown")


class _Distribution:
    """Numbers of which mean, quantiles and the largest are asked."""

    def __init__(self, quantiles: Quantiles) -> None:
        self._quantiles = quantiles
        self._count = 0
        self._sum = ExactSum()
        self._largest = -math.inf

    def add(self, values: FloatArray) -> None:
        if len(values):
            self._count += len(values)
            self._sum.add(values)
            self._largest = max(self._largest, float(values.max()))
            self._quantiles.add(values)

    def figures(self, name: str) -> Summary:
        median, p95, p99 = self._quantiles.at(0.5, 0.95, 0.99)
        return {
            f"mean_{name}": self._sum.over(self._count) if self._count else None,
            f"median_{name}": median,
            f"p95_{name}": p95,
            f"p99_{name}": p99,
            f"max_{name}": self._largest if self._count else None,
        }


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
        self._of = {name: _Distribution(make()) for name in _DISTRIBUTIONS}
        self._states: Counter[str] = Counter()
        self._ran = 0
        self._response, self._area, self._lost = ExactSum(), ExactSum(), ExactSum()
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
        self._ran += len(ran.area)
        for name, distribution in self._of.items():
            distribution.add(getattr(ran, name))
        self._response.add(ran.turnaround_s * ran.area)
        self._area.add(ran.area)
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
        begin, end = (lost[name].cast(pl.Float64).to_numpy() for name in ("start_s", "end_s"))
        new = (end > after) & (end <= until_s)
        vain = end - begin
        if "kept_s" in lost.columns:
            vain = vain - lost["kept_s"].to_numpy()
        self._lost.add(lost["nodes"].to_numpy()[new] * vain[new])
        last = jobs.last_end_s(after, until_s)
        if last is not None:
            self._last = last
            self._over.take(self._beyond)
        first, settled = self._first or 0.0, self._settled
        parts = [(self._over, Span(first, settled))] if last is not None else []
        if settled < until_s < math.inf:
            parts.append((self._beyond, Span(settled, until_s)))
        events = jobs.events(lost, capacity["time_s"], after_s=after, until_s=until_s)
        self._held = add_up(events, capacity, self._held, parts)

    def figures(self) -> Summary:
        """Values that JSON can hold, by metric."""
        summary: Summary = {"jobs": self._states.total()}
        summary |= {f"jobs_{state}": count for state, count in sorted(self._states.items())}
        for name, distribution in self._of.items():
            summary |= distribution.figures(name)
        summary |= self._over_time()
        summary["area_weighted_response_time_s"] = _ratio(
            self._response.total(), self._area.total()
        )
        summary["lost_node_s"] = self._lost.total()
        means = self._users.means()
        summary["jain_fairness_user"] = jain(means) if len(means) > 1 else None
        return summary

    def _over_time(self) -> dict[str, Any]:
        makespan = 0.0 if self._last is None else self._last - (self._first or 0.0)
        sums, nodes, makespan_ms = self._over.sums, self._nodes, makespan * MS_PER_S
        return {
            "makespan_s": makespan if self._ran else None,
            "throughput_jobs_per_h": _ratio(self._ran, makespan / 3600),
            "nodes": nodes,
            "availability": _ratio(sums["up"], nodes * makespan_ms),
            "utilization": _ratio(sums["used"], sums["present"]),
            "utilization_loaded": _ratio(sums["used_loaded"], sums["present_loaded"]),
            "loaded_share": _ratio(sums["loaded"], makespan_ms),
            "fragmentation_loss": _ratio(
                sums["present_loaded"] - sums["used_loaded"], sums["present"]
            ),
            "mean_queue_length": _ratio(sums["queue"], makespan_ms),
            "max_queue_length": self._over.longest,
            "mean_queued_nodes": _ratio(sums["queued_nodes"], makespan_ms),
        }


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
