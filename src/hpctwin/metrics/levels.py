"""Queue and cluster over all events of a run, in order of time.

Each event is one whole number: its time, its kind, and its nodes. Events are sorted and summed up
piece by piece. Only the events are held for all jobs at once: three numbers per job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.job_figures import (
    ELIGIBLE,
    END,
    EVENT_KEYS,
    LEFT,
    START,
    START_UNQUEUED,
)
from hpctwin.model import MS_PER_S

__all__ = [
    "CHANGES",
    "COUNTS",
    "KIND_BITS",
    "Events",
    "Levels",
    "Steps",
    "events_of",
    "events_of_ms",
    "floats",
    "floor_ms",
    "levels",
    "other_keys",
    "room_ms",
    "steps",
    "up_nodes",
]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_Event = tuple[int, FloatArray, IntArray]
"""The kind, times and nodes of events [events]."""

COUNTS = ("queue_length", "queued_nodes", "running_jobs", "used_nodes")

# Further kinds of events; the first returns an attempt to the queue, the last changes nothing.
_LOST, _MARK = START_UNQUEUED + 1, START_UNQUEUED + 2
KIND_BITS = 3
_QUEUED = np.array([1, -1, 0, -1, 0, 1, 0])
_RUNNING = np.array([0, 1, -1, 0, 1, -1, 0])
CHANGES = np.stack([_QUEUED, _RUNNING], axis=1)
"""Change of queued and of running jobs by each kind of event [kinds, 2]."""

_EXACT = 2.0**53  # whole numbers below it are exact in floating point
_LAST_MS = 1 << 62
_PIECE = 1 << 13  # so that all arrays of a piece fit a core's cache


class Levels(NamedTuple):
    """Levels after each event of a piece.

    Args:
        time_s: Times of the events, not strictly ascending, and of the next piece's first event
            (infinity if there is none). A level lasts for the difference to the next time [events +
            1].
        counts: `COUNTS`, in rows, whole numbers [4, events].
    """

    time_s: FloatArray
    counts: FloatArray


class Steps(NamedTuple):
    """Events of a piece, and their changes as whole numbers.

    Whole numbers are added up in a fifth of the time.

    Args:
        time: Times as in `Levels`, but in ``unit``.
        unit: Units per second: 1,000 and whole numbers if all times are whole ms; else 1.
        queued: Change of jobs in the queue, -1, 0 or 1 [events].
        running: Change of running jobs, -1, 0 or 1 [events].
        nodes: Nodes of the job [events].
    """

    time: FloatArray
    unit: int
    queued: IntArray
    running: IntArray
    nodes: IntArray

    @property
    def time_s(self) -> FloatArray:
        """Times in seconds, as in `Levels`."""
        return self.time / self.unit


class Events(NamedTuple):
    """All events, in order of time.

    Args:
        key: Instant, kind and nodes of each event in one number [events].
        instants: Meaning of the instants.
        node_bits: Number of bits of the nodes; the kind has the `KIND_BITS` above them.
        until_s: End of the last level.
    """

    key: IntArray
    instants: _Instants
    node_bits: int
    until_s: float

    @property
    def in_ms(self) -> bool:
        """Whether instants are times in whole ms."""
        return self.instants.themselves

    def pieces(self) -> Iterator[Steps]:
        """Yield the changes of each piece."""
        key, node_bits, instants = self.key, self.node_bits, self.instants
        for first in range(0, len(key), _PIECE):
            piece = key[first : first + _PIECE + 1]
            time = instants.times(piece >> KIND_BITS + node_bits)
            if first + _PIECE >= len(key):
                time = np.append(time, instants.of(self.until_s))
            piece = piece[:_PIECE]
            kinds = (piece >> node_bits) & (1 << KIND_BITS) - 1
            width = piece & (1 << node_bits) - 1
            yield Steps(time, instants.unit, _QUEUED.take(kinds), _RUNNING.take(kinds), width)


def levels(jobs: pl.DataFrame, lost: pl.DataFrame, marks_s: npt.ArrayLike = ()) -> Iterator[Levels]:
    """Yield the levels that `series` describes, event by event, in pieces.

    Args:
        jobs: Table of jobs of a result.
        lost: Attempts that node failures cut off.
        marks_s: Further times with a row, in seconds.
    """
    before = np.zeros((len(COUNTS), 1))
    for piece in steps(jobs, lost, marks_s):
        queued, running, nodes = piece.queued, piece.running, piece.nodes
        counts = np.empty((len(COUNTS), len(nodes)))
        changes = queued, queued * nodes, running, running * nodes
        for row, change in zip(counts, changes, strict=True):
            row[:] = np.cumsum(change)
        counts += before
        before = counts[:, -1:]
        yield Levels(piece.time_s, counts)


def steps(jobs: pl.DataFrame, lost: pl.DataFrame, marks_s: npt.ArrayLike = ()) -> Iterator[Steps]:
    """Yield all events, in order of time, in pieces; arguments as in `events_of`."""
    return events_of(jobs, lost, marks_s).pieces()


def events_of(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    marks_s: npt.ArrayLike = (),
    *,
    after_s: float = -math.inf,
    until_s: float = math.inf,
) -> Events:
    """Return all events, in order of time.

    Args:
        jobs: Table of jobs of a result.
        lost: Attempts that node failures cut off.
        marks_s: Times of events that change nothing, in seconds.
        after_s: Only events after this time, in seconds; if it is finite, it has an event that
            changes nothing.
        until_s: Only events up to this time, in seconds.
    """
    eligible, start, end = (floats(jobs, name) for name in ("eligible_s", "start_s", "end_s"))
    nodes = jobs["nodes"].cast(pl.Int64).to_numpy()
    rejected = (jobs["state"] == "rejected").to_numpy()
    events = list(_events_of_jobs(eligible, start, end, nodes, rejected))
    return _in_order([*events, *_other_events(lost, marks_s)], after_s, until_s)


def events_of_ms(
    jobs: tuple[IntArray, IntArray, IntArray, IntArray, npt.NDArray[np.bool_]],
    lost: pl.DataFrame,
    marks_s: npt.ArrayLike,
    *,
    after_s: float,
    until_s: float,
) -> Events:
    """Return `events_of` for jobs in whole milliseconds.

    Args:
        jobs: Eligible time, start and end of each job, ms, -1 if it did not happen; nodes; and
            whether it was rejected [jobs].
        lost: As in `events_of`.
        marks_s: As in `events_of`.
        after_s: As in `events_of`.
        until_s: As in `events_of`.
    """
    eligible, start, end, nodes, rejected = jobs
    others = _chosen([*_other_events(lost, marks_s)], after_s, until_s)
    node_bits = _node_bits(nodes, *(of for _, _, of in others))
    most = max(int(time.max(initial=0)) for time in (eligible, start, end))
    key = np.empty(3 * len(nodes) + sum(len(time_s) for _, time_s, _ in others), np.int64)
    if most < _room(node_bits):
        within = np.array([floor_ms(after_s), floor_ms(until_s)])
        count = EVENT_KEYS(eligible, start, end, nodes, rejected, within, node_bits, KIND_BITS, key)
        if _in_ms(others, node_bits, key[count:]):
            key = key[: count + sum(len(time_s) for _, time_s, _ in others)]
            key.sort()
            return Events(key, _Instants(None), node_bits, until_s)
    told = [np.where(time < 0, np.nan, time / MS_PER_S) for time in (eligible, start, end)]
    events = _events_of_jobs(told[0], told[1], told[2], nodes, rejected)
    return _in_order([*events, *_other_events(lost, marks_s)], after_s, until_s)


def other_keys(
    nodes: IntArray, lost: pl.DataFrame, marks_s: npt.ArrayLike
) -> tuple[IntArray, int] | None:
    """Return cut-off attempts and marks as keys of `Events`, and the node bits.

    The keys are in no order.

    Returns:
        None if their times are not whole ms.
    """
    others = list(_other_events(lost, marks_s))
    node_bits = _node_bits(nodes, *(of for _, _, of in others))
    key = np.empty(sum(len(time_s) for _, time_s, _ in others), np.int64)
    return (key, node_bits) if _in_ms(others, node_bits, key) else None


def room_ms(node_bits: int) -> int:
    """Return the bound in ms of times that fit a key with this number of node bits."""
    return int(_room(node_bits))


def floor_ms(time_s: float) -> int:
    """Return the last whole millisecond not after a time in s, which may be infinite."""
    if math.isinf(time_s):
        return _LAST_MS if time_s > 0 else -_LAST_MS
    ms = round(time_s * MS_PER_S)
    return ms - 1 if ms / MS_PER_S > time_s else ms


def _in_order(events: list[_Event], after_s: float, until_s: float) -> Events:
    events = _chosen(events, after_s, until_s)
    node_bits = _node_bits(*(nodes for _, _, nodes in events))
    key, instants = _keys(events, node_bits)
    del events
    key.sort()
    return Events(key, instants, node_bits, until_s)


def _chosen(events: list[_Event], after_s: float, until_s: float) -> list[_Event]:
    """Return the events within a span, and a mark at its begin."""
    if after_s == -math.inf and until_s == math.inf:
        return events
    chosen = [_within(*event, after_s, until_s) for event in events]
    if after_s > -math.inf:
        chosen.append((_MARK, np.array([after_s]), np.zeros(1, np.int64)))
    return chosen


def _node_bits(*nodes: IntArray) -> int:
    return max(int(of.max(initial=0)) for of in nodes).bit_length()


def up_nodes(capacity: pl.DataFrame) -> Callable[[FloatArray], FloatArray]:
    """Return nodes that are up, as a function of times in seconds.

    Args:
        capacity: Nodes that are up, as a step function; its first row also holds before.
    """
    times, nodes = floats(capacity, "time_s"), floats(capacity, "nodes")
    order = np.argsort(times, kind="stable")
    begins, nodes = times[order][1:], nodes[order]
    return lambda time_s: nodes[np.searchsorted(begins, time_s, side="right")]


def _events_of_jobs(
    eligible: FloatArray,
    start: FloatArray,
    end: FloatArray,
    nodes: IntArray,
    rejected: npt.NDArray[np.bool_],
) -> Iterator[_Event]:
    """Yield the events of jobs; times in seconds, NaN if it did not happen [jobs]."""
    started, ended = ~np.isnan(start), ~np.isnan(end)
    left = np.where(started, start, end)
    # Recorded starts may precede the submission, and cancellations eligibility.
    queued = ~rejected & ~np.isnan(eligible) & ~(left < eligible)
    for kind, time_s, which in (
        (ELIGIBLE, eligible, queued),
        (START, start, queued & started),
        (START_UNQUEUED, start, started & ~queued),
        (END, end, started & ended),
        (LEFT, end, queued & ended & ~started),
    ):
        if which.all():
            yield kind, time_s, nodes
        elif which.any():
            yield kind, time_s[which], nodes[which]


def _other_events(lost: pl.DataFrame, marks_s: npt.ArrayLike) -> Iterator[_Event]:
    if len(lost):
        nodes = lost["nodes"].cast(pl.Int64).to_numpy()
        yield START, floats(lost, "start_s"), nodes
        yield _LOST, floats(lost, "end_s"), nodes
    marks = np.asarray(marks_s, np.float64)
    yield _MARK, marks, np.zeros(len(marks), np.int64)


def _within(
    kind: int, time_s: FloatArray, nodes: IntArray, after_s: float, until_s: float
) -> _Event:
    which = (time_s > after_s) & (time_s <= until_s)
    return kind, time_s[which], nodes[which]


def floats(frame: pl.DataFrame, name: str) -> FloatArray:
    """Return a column of numbers in floating point, NaN for null."""
    # A cast by Polars takes ten times as long for a short column.
    return np.asarray(frame[name].to_numpy(), np.float64)


class _Instants:
    """Meaning of instants in keys: ms, or the index among all distinct times."""

    def __init__(self, distinct_s: FloatArray | None) -> None:
        self.unit, self._distinct = MS_PER_S, None
        if distinct_s is not None:
            ms = np.rint(distinct_s * MS_PER_S)
            whole = (ms / MS_PER_S == distinct_s).all() and (np.abs(ms) < _EXACT).all()
            self.unit = MS_PER_S if whole else 1
            self._distinct = ms if whole else distinct_s

    @property
    def themselves(self) -> bool:
        """Whether instants are times in ms."""
        return self._distinct is None

    def times(self, found: IntArray) -> FloatArray:
        """Return times as in `Steps`."""
        return found.astype(np.float64) if self._distinct is None else self._distinct[found]

    def of(self, time_s: float) -> float:
        """Return a time as in `Steps`."""
        return time_s if math.isinf(time_s) or self.unit == 1 else round(time_s * MS_PER_S)


def _keys(events: list[_Event], node_bits: int) -> tuple[IntArray, _Instants]:
    """Return each event as one whole number, and the meaning of its instant.

    The number has the instant, the kind and the nodes of the event.
    """
    key = np.empty(sum(len(time_s) for _, time_s, _ in events), np.int64)
    if _in_ms(events, node_bits, key):
        return key, _Instants(None)
    distinct = np.unique(np.concatenate([time_s for _, time_s, _ in events]))
    at = 0
    for kind, time_s, nodes in events:
        own = key[at : at + len(time_s)]
        at += len(time_s)
        own[:] = np.searchsorted(distinct, time_s)
        own <<= KIND_BITS + node_bits
        own += (kind << node_bits) + nodes
    return key, _Instants(distinct)


def _room(node_bits: int) -> float:
    """Return the bound of times in ms that fit a key and are exact in floating point."""
    return min(_EXACT, 2.0 ** (62 - KIND_BITS - node_bits))


def _in_ms(events: list[_Event], node_bits: int, key: IntArray) -> bool:
    """Write keys with ms as instants; False if these are not exact or do not fit."""
    most, at = _room(node_bits), 0
    for kind, time_s, nodes in events:
        for first in range(0, len(time_s), _PIECE):
            some = time_s[first : first + _PIECE]
            ms = np.rint(some * 1000.0)
            if not ((ms / 1000.0 == some) & (np.abs(ms) < most)).all():
                return False
            own = key[at : at + len(some)]
            at += len(some)
            own[:] = ms
            own <<= KIND_BITS + node_bits
            own += nodes[first : first + _PIECE]
            own += kind << node_bits
    return True
