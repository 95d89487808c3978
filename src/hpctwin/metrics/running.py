"""A run summed up as it goes by: job by job as they end, and queue and machine from time to time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.fairness import jain
from hpctwin.metrics.jobs import ROWS
from hpctwin.metrics.levels import floats
from hpctwin.metrics.over_time import Held, OverTime, Span, add_up, sum_of_products
from hpctwin.metrics.quantiles import Exact, Quantiles, Sketch
from hpctwin.metrics.sources import JobSource
from hpctwin.metrics.sums import ExactSum, ExactSums, RowSums
from hpctwin.model import MS_PER_S

__all__ = ["RunningSummary", "Summary"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DISTRIBUTIONS = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown")


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
        self._quantiles: dict[str, Quantiles] = {name: make() for name in _DISTRIBUTIONS}
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
            self._add_lost(lost, after, until_s)
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

    def _add_lost(self, lost: pl.DataFrame, after_s: float, until_s: float) -> None:
        """What ran in vain, of the attempts that were cut off within a span."""
        begin, end = floats(lost, "start_s"), floats(lost, "end_s")
        new = (end > after_s) & (end <= until_s)
        vain = end - begin
        if "kept_s" in lost.columns:
            vain = vain - lost["kept_s"].to_numpy()
        self._lost.add(lost["nodes"].to_numpy()[new] * vain[new])

    def figures(self) -> Summary:
        """Values that JSON can hold, by metric."""
        summary: Summary = {"jobs": self._states.total()}
        summary |= {f"jobs_{state}": count for state, count in sorted(self._states.items())}
        counts = dict(zip(ROWS, self._served.counts, strict=True))
        largest = dict(zip(ROWS, self._served.largest, strict=True))
        over = [max(counts[name], 1) if name in self._quantiles else 1 for name in ROWS]
        sums = dict(zip(ROWS, self._served.over(over), strict=True))
        for name, quantiles in self._quantiles.items():
            median, p95, p99 = quantiles.at(0.5, 0.95, 0.99)
            summary |= {
                f"mean_{name}": sums[name] if counts[name] else None,
                f"median_{name}": median,
                f"p95_{name}": p95,
                f"p99_{name}": p99,
                f"max_{name}": largest[name] if counts[name] else None,
            }
        summary |= self._over_time(counts["area"])
        summary["area_weighted_response_time_s"] = _ratio(sums["response"], sums["area"])
        summary["lost_node_s"] = self._lost.total()
        by_user = self._users.means()
        summary["jain_fairness_user"] = jain(by_user) if len(by_user) > 1 else None
        return summary

    def _over_time(self, ran: int) -> dict[str, Any]:
        makespan = 0.0 if self._last is None else self._last - (self._first or 0.0)
        sums, nodes, makespan_ms = self._over.sums, self._nodes, makespan * MS_PER_S
        return {
            "makespan_s": makespan if ran else None,
            "throughput_jobs_per_h": _ratio(ran, makespan / 3600),
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
