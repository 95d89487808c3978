"""A run summed up as it goes by: job by job as they end, and queue and machine from time to time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.fairness import jain
from hpctwin.metrics.jobs import served_metrics
from hpctwin.metrics.levels import steps, up_nodes
from hpctwin.metrics.quantiles import Exact, Quantiles, Sketch

__all__ = ["RunningSummary", "Summary"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

FloatArray = npt.NDArray[np.float64]

_DISTRIBUTIONS = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown")

_SUMS = (
    "up", "used", "present", "used_loaded", "present_loaded", "queue", "queued_nodes", "loaded",
)  # fmt: skip


class _Distribution:
    """Numbers of which mean, quantiles and the largest are asked."""

    def __init__(self, quantiles: Quantiles) -> None:
        self._quantiles = quantiles
        self._count = 0
        self._sums: list[float] = []
        self._largest = -math.inf

    def add(self, values: FloatArray) -> None:
        if len(values):
            self._count += len(values)
            self._sums.append(float(values.sum()))
            self._largest = max(self._largest, float(values.max()))
            self._quantiles.add(values)

    def figures(self, name: str) -> Summary:
        median, p95, p99 = self._quantiles.at(0.5, 0.95, 0.99)
        return {
            f"mean_{name}": _ratio(math.fsum(self._sums), self._count),
            f"median_{name}": median,
            f"p95_{name}": p95,
            f"p99_{name}": p99,
            f"max_{name}": self._largest if self._count else None,
        }


class _Levels(NamedTuple):
    """What holds from event to event."""

    queue: FloatArray
    used: FloatArray
    queued_nodes: FloatArray  # by how much each event changes them, …
    queued_before: float  # … and what they were before


def _sum_of_products(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Of two vectors, the same however many cores there are.

    NumPy's own product hands long ones to threads, which then keep a core busy while they wait for more.
    """
    return float((a * b).sum())


class _OverTime:
    """Integrals over time."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(_SUMS, 0.0)
        self.longest = 0.0

    def add(self, time_s: FloatArray, levels: _Levels, up: FloatArray) -> None:
        """What holds for some spans.

        Args:
            time_s: where they begin, and the last ends [spans + 1].
            levels: what holds.
            up: nodes that are up [spans], or at all times [1].
        """
        width = np.diff(time_s)
        queue, used = levels.queue, levels.used
        loaded = width * (queue > 0)
        span, loaded_span = float(width.sum()), float(loaded.sum())
        changes = _sum_of_products(levels.queued_nodes, time_s[-1] - time_s[:-1])
        found = {
            "queue": _sum_of_products(queue, width),
            "queued_nodes": levels.queued_before * (time_s[-1] - time_s[0]) + changes,
            "used": _sum_of_products(used, width),
            "used_loaded": _sum_of_products(used, loaded),
            "loaded": loaded_span,
        }
        if len(up) == 1 and used.max() <= up[0]:
            present = {"up": up[0] * span, "present": up[0] * span}
            present["present_loaded"] = up[0] * loaded_span
        else:
            up = np.broadcast_to(up, width.shape)
            # A job that is late may keep its nodes into a maintenance: more are used than are up.
            most = np.maximum(up, used)
            present = {
                "up": _sum_of_products(up, width),
                "present": _sum_of_products(most, width),
                "present_loaded": _sum_of_products(most, loaded),
            }
        for name, value in {**found, **present}.items():
            self.sums[name] += float(value)
        if queue.max(initial=0.0) > self.longest:
            self.longest = max(self.longest, float((queue * (width > 0)).max()))

    def take(self, other: _OverTime) -> None:
        """Add what another has, which begins anew."""
        for name in _SUMS:
            self.sums[name] += other.sums[name]
        self.longest = max(self.longest, other.longest)
        other.sums, other.longest = dict.fromkeys(_SUMS, 0.0), 0.0


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
        self._response: list[float] = []
        self._area: list[float] = []
        self._lost: list[float] = []
        self._users: dict[str, tuple[float, int]] = {}
        self._first: float | None = None
        self._last: float | None = None
        self._reached = -math.inf
        self._queue = self._used = self._queued_nodes = 0.0
        # Up to the last end of a job, and from there on, which counts if one more ends.
        self._over, self._beyond = _OverTime(), _OverTime()

    def ended(self, jobs: pl.DataFrame) -> None:
        """Some jobs that are done with, each told once; at the end all that are left."""
        self._states.update(_count(jobs["state"]))
        ran = served_metrics(jobs)
        self._ran += len(ran.area)
        for name, distribution in self._of.items():
            distribution.add(getattr(ran, name))
        self._response.append(_sum_of_products(ran.turnaround_s, ran.area))
        self._area.append(float(ran.area.sum()))
        users = jobs["user"]
        if users.null_count() < len(users):
            self._add_users(users.filter(pl.Series(ran.which)), ran.bounded_slowdown)

    def _add_users(self, users: pl.Series, slowdowns: FloatArray) -> None:
        told = pl.DataFrame({"user": users, "bounded_slowdown": pl.Series(slowdowns)})
        by_user = told.drop_nulls("user").group_by("user")
        for user, total, count in by_user.agg(
            pl.col("bounded_slowdown").sum(), pl.len().alias("count")
        ).iter_rows():
            before = self._users.get(user, (0.0, 0))
            self._users[user] = before[0] + total, before[1] + count

    def resized(self, eligible_s: FloatArray, by: FloatArray) -> None:
        """Jobs that have been in the queue count as more nodes than `passed` was told, or as fewer.

        Args:
            eligible_s: since when each was, not after the time reached.
            by: how many more.
        """
        settled = self._settled
        self._over.sums["queued_nodes"] += _sum_of_products(
            by, np.maximum(settled - eligible_s, 0.0)
        )
        beyond = self._reached - np.maximum(eligible_s, settled)
        self._beyond.sums["queued_nodes"] += _sum_of_products(by, beyond)
        self._queued_nodes += float(by.sum())

    @property
    def _settled(self) -> float:
        """The last end of a job that is known of; the first submission if there is none."""
        first = self._first or 0.0
        return first if self._last is None else max(first, self._last)

    def passed(
        self,
        jobs: pl.DataFrame,
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
        if self._first is None and len(jobs):
            self._first = float(jobs["submit_s"].cast(pl.Float64).min())  # type: ignore[arg-type]
        after, self._reached = self._reached, until_s
        begin, end = (lost[name].cast(pl.Float64).to_numpy() for name in ("start_s", "end_s"))
        new = (end > after) & (end <= until_s)
        vain = end - begin
        if "kept_s" in lost.columns:
            vain = vain - lost["kept_s"].to_numpy()
        self._lost.append(_sum_of_products(lost["nodes"].to_numpy()[new], vain[new]))
        last = self._last_end(jobs, after, until_s)
        if last is not None:
            self._last = last
            self._over.take(self._beyond)
        first, settled = self._first or 0.0, self._settled
        up_at = up_nodes(capacity)
        fixed = up_at(np.zeros(1)) if len(capacity) == 1 else None
        for time_s, levels in self._levels(jobs, lost, capacity["time_s"], after, until_s):
            up = up_at(time_s[:-1]) if fixed is None else fixed
            if last is not None:
                self._over.add(_clipped(time_s, first, settled), levels, up)
            if until_s < math.inf and time_s[-1] > settled:
                self._beyond.add(_clipped(time_s, settled, until_s), levels, up)

    def _levels(
        self,
        jobs: pl.DataFrame,
        lost: pl.DataFrame,
        marks_s: pl.Series,
        after_s: float,
        until_s: float,
    ) -> Iterator[tuple[FloatArray, _Levels]]:
        """Times, and what holds, in pieces; goes on from what held before."""
        for time_s, queued, running, nodes in steps(
            jobs, lost, marks_s, after_s=after_s, until_s=until_s
        ):
            changes = (queued * nodes).astype(np.float64)
            found = _Levels(
                np.add(np.cumsum(queued), self._queue, dtype=np.float64),
                np.add(np.cumsum(running * nodes), self._used, dtype=np.float64),
                changes,
                self._queued_nodes,
            )
            self._queue, self._used = float(found.queue[-1]), float(found.used[-1])
            self._queued_nodes += float(changes.sum())
            yield time_s, found

    @staticmethod
    def _last_end(jobs: pl.DataFrame, after_s: float, until_s: float) -> float | None:
        """The last end of a job that ran, within a span."""
        end = jobs["end_s"].cast(pl.Float64).to_numpy()
        start = jobs["start_s"].cast(pl.Float64).to_numpy()
        ran = ~np.isnan(start) & (end > after_s) & (end <= until_s)
        return float(end[ran].max()) if ran.any() else None

    def figures(self) -> Summary:
        """Values that JSON can hold, by metric."""
        summary: Summary = {"jobs": self._states.total()}
        summary |= {f"jobs_{state}": count for state, count in sorted(self._states.items())}
        for name, distribution in self._of.items():
            summary |= distribution.figures(name)
        summary |= self._over_time()
        summary["area_weighted_response_time_s"] = _ratio(
            math.fsum(self._response), math.fsum(self._area)
        )
        summary["lost_node_s"] = math.fsum(self._lost)
        means = [total / count for total, count in self._users.values()]
        summary["jain_fairness_user"] = jain(means) if len(means) > 1 else None
        return summary

    def _over_time(self) -> dict[str, Any]:
        makespan = 0.0 if self._last is None else self._last - (self._first or 0.0)
        sums, nodes = self._over.sums, self._nodes
        return {
            "makespan_s": makespan if self._ran else None,
            "throughput_jobs_per_h": _ratio(self._ran, makespan / 3600),
            "nodes": nodes,
            "availability": _ratio(sums["up"], nodes * makespan),
            "utilization": _ratio(sums["used"], sums["present"]),
            "utilization_loaded": _ratio(sums["used_loaded"], sums["present_loaded"]),
            "loaded_share": _ratio(sums["loaded"], makespan),
            "fragmentation_loss": _ratio(
                sums["present_loaded"] - sums["used_loaded"], sums["present"]
            ),
            "mean_queue_length": _ratio(sums["queue"], makespan),
            "max_queue_length": int(self._over.longest),
            "mean_queued_nodes": _ratio(sums["queued_nodes"], makespan),
        }


def _count(states: pl.Series) -> dict[str, int]:
    """How often each is there; to compare with the few that there are is quicker than to tell all apart."""
    found: dict[str, int] = {}
    left = states
    while len(left):
        here = left == (state := left[0])
        found[state] = int(here.sum())
        left = left.filter(~here) if found[state] < len(left) else left.clear()
    return found


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _clipped(time_s: FloatArray, first: float, last: float) -> FloatArray:
    return time_s if first <= time_s[0] and time_s[-1] <= last else np.clip(time_s, first, last)
