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
from hpctwin.metrics.levels import Steps, steps, up_nodes
from hpctwin.metrics.quantiles import Exact, Quantiles, Sketch
from hpctwin.metrics.sums import ExactSum, ExactSums
from hpctwin.model import MS_PER_S

__all__ = ["RunningSummary", "Summary"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DISTRIBUTIONS = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown")

_SUMS = (
    "up", "used", "present", "used_loaded", "present_loaded", "queue", "queued_nodes", "loaded",
)  # fmt: skip


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


class _Levels(NamedTuple):
    """What holds from event to event: whole numbers, as floating-point ones."""

    queue: npt.NDArray[Any]
    used: npt.NDArray[Any]
    queued_nodes: npt.NDArray[Any]  # by how much each event changes them, …
    queued_before: int  # … what they were before, …
    queued_most: int  # … and no less than they are in between, also in any other order

    def as_numbers(self, kind: type) -> _Levels:
        """The same as numbers of a kind."""
        return self._replace(
            queue=self.queue.astype(kind),
            used=self.used.astype(kind),
            queued_nodes=self.queued_nodes.astype(kind),
        )


def _sum_of_products(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Any:
    """Of two vectors, the same however many cores there are, as a number of Python's.

    NumPy's own product hands long ones to threads, which then keep a core busy while they wait for more.
    """
    return _plain((a * b).sum())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _integrals(
    time: npt.NDArray[Any], levels: _Levels, up: npt.NDArray[Any]
) -> dict[str, int | float]:
    """Of what holds for some spans, by name, in the kind of numbers that are given.

    Args:
        time: where they begin, and the last ends [spans + 1].
        levels: what holds.
        up: nodes that are up [spans], or at all times [1].
    """
    width = np.diff(time)
    queue, used = levels.queue, levels.used
    loaded = width * (queue > 0)
    span, loaded_span = _plain(width.sum()), _plain(loaded.sum())
    changes = _sum_of_products(levels.queued_nodes, time[-1] - time[:-1])
    found = {
        "queue": _sum_of_products(queue, width),
        "queued_nodes": levels.queued_before * span + changes,
        "used": _sum_of_products(used, width),
        "used_loaded": _sum_of_products(used, loaded),
        "loaded": loaded_span,
    }
    if len(up) == 1 and used.max() <= up[0]:
        there = _plain(up[0])
        present = {"up": there * span, "present": there * span}
        return {**found, **present, "present_loaded": there * loaded_span}
    up = np.broadcast_to(up, width.shape)
    # A job that is late may keep its nodes into a maintenance: more are used than are up.
    most = np.maximum(up, used)
    return {
        **found,
        "up": _sum_of_products(up, width),
        "present": _sum_of_products(most, width),
        "present_loaded": _sum_of_products(most, loaded),
    }


class _OverTime:
    """Integrals over time in ms, exact if all times are whole ms."""

    def __init__(self) -> None:
        self.sums: dict[str, int | float] = dict.fromkeys(_SUMS, 0)
        self.longest = 0

    def add(self, time: FloatArray, unit: int, levels: _Levels, up: FloatArray) -> None:
        """What holds for some spans.

        Args:
            time: where they begin, and the last ends [spans + 1].
            unit: as of `hpctwin.metrics.levels.Steps`.
            levels: what holds.
            up: nodes that are up [spans], or at all times [1].
        """
        found = _integrals(time, levels, up)
        if unit == MS_PER_S:
            # Whole numbers are exact up to 2^53, and no sum but that of queued nodes is below its parts.
            most = max(*found.values(), levels.queued_most * (time[-1] - time[0]))
            if most >= 2.0**53:
                kind = np.int64 if most < 2.0**62 else object
                found = _integrals(
                    time.astype(np.int64).astype(kind), levels.as_numbers(kind), up.astype(kind)
                )
        for name, value in found.items():
            self.sums[name] += int(value) if unit == MS_PER_S else value * MS_PER_S
        if levels.queue.max(initial=0.0) > self.longest:
            self.longest = max(self.longest, int((levels.queue * (np.diff(time) > 0)).max()))

    def take(self, other: _OverTime) -> None:
        """Add what another has, which begins anew."""
        for name in _SUMS:
            self.sums[name] += other.sums[name]
        self.longest = max(self.longest, other.longest)
        other.sums, other.longest = dict.fromkeys(_SUMS, 0), 0


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
        self._queue = self._used = self._queued_nodes = 0
        # Up to the last end of a job, and from there on, which counts if one more ends.
        self._over, self._beyond = _OverTime(), _OverTime()

    def ended(self, jobs: pl.DataFrame) -> None:
        """Some jobs that are done with, each told once; at the end all that are left."""
        self._states.update(_count(jobs["state"]))
        ran = served_metrics(jobs)
        self._ran += len(ran.area)
        for name, distribution in self._of.items():
            distribution.add(getattr(ran, name))
        self._response.add(ran.turnaround_s * ran.area)
        self._area.add(ran.area)
        users = jobs["user"]
        if users.null_count() < len(users):
            self._users.add(users.filter(pl.Series(ran.which)), ran.bounded_slowdown)

    def resized(self, eligible_ms: IntArray, by: IntArray) -> None:
        """Jobs that have been in the queue count as more nodes than `passed` was told, or as fewer.

        Args:
            eligible_ms: since when each was, not after the time reached.
            by: how many more.
        """
        eligible, more = eligible_ms.astype(object), by.astype(object)
        settled, reached = (round(one * MS_PER_S) for one in (self._settled, self._reached))
        before = _sum_of_products(more, np.maximum(settled - eligible, 0))
        self._over.sums["queued_nodes"] += before
        since = reached - np.maximum(eligible, settled)
        self._beyond.sums["queued_nodes"] += _sum_of_products(more, since)
        self._queued_nodes += int(by.sum())

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
        self._lost.add(lost["nodes"].to_numpy()[new] * vain[new])
        last = self._last_end(jobs, after, until_s)
        if last is not None:
            self._last = last
            self._over.take(self._beyond)
        first, settled = self._first or 0.0, self._settled
        up_at = up_nodes(capacity)
        fixed = up_at(np.zeros(1)) if len(capacity) == 1 else None
        for piece, levels in self._levels(jobs, lost, capacity["time_s"], after, until_s):
            up = up_at(piece.time_s[:-1]) if fixed is None else fixed
            if last is not None:
                self._over.add(_clipped(piece, first, settled), piece.unit, levels, up)
            if settled < until_s < math.inf:
                self._beyond.add(_clipped(piece, settled, until_s), piece.unit, levels, up)

    def _levels(
        self,
        jobs: pl.DataFrame,
        lost: pl.DataFrame,
        marks_s: pl.Series,
        after_s: float,
        until_s: float,
    ) -> Iterator[tuple[Steps, _Levels]]:
        """Events, and what holds after each, in pieces; goes on from what held before."""
        for piece in steps(jobs, lost, marks_s, after_s=after_s, until_s=until_s):
            changes = piece.queued * piece.nodes
            running = piece.running * piece.nodes
            found = _Levels(
                np.add(np.cumsum(piece.queued), self._queue, dtype=np.float64),
                np.add(np.cumsum(running), self._used, dtype=np.float64),
                changes.astype(np.float64),
                self._queued_nodes,
                abs(self._queued_nodes) + int(piece.nodes.sum()),
            )
            self._queue, self._used = int(found.queue[-1]), int(found.used[-1])
            self._queued_nodes += int(changes.sum())
            yield piece, found

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


def _clipped(piece: Steps, first_s: float, last_s: float) -> FloatArray:
    """The times of a piece, in its unit, within two others."""
    first, last = first_s * piece.unit, last_s * piece.unit
    if piece.unit == MS_PER_S:
        first, last = round(first), round(last)
    inside = first <= piece.time[0] and piece.time[-1] <= last
    return piece.time if inside else np.clip(piece.time, first, last)
