"""Sums of levels over time; exact if times are whole ms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.job_figures import HIGH_BITS, SUM_LEVELS, SUMS
from hpctwin.metrics.levels import CHANGES, KIND_BITS, Events, Steps, floats, up_nodes
from hpctwin.model import MS_PER_S

__all__ = ["Held", "OverTime", "Span", "add_up", "sum_of_products", "whole_capacity"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Held(NamedTuple):
    """Levels at a time: jobs in the queue, their nodes, and used nodes."""

    queue: int = 0
    queued_nodes: int = 0
    used: int = 0


class Span(NamedTuple):
    """Span of a sum, in seconds."""

    begin_s: float
    end_s: float


class _Levels(NamedTuple):
    """Levels between events: whole numbers in floating point."""

    queue: npt.NDArray[Any]
    used: npt.NDArray[Any]
    queued_nodes: npt.NDArray[Any]  # change by each event
    queued_before: int  # level before the events
    queued_most: int  # bound of its size in between, also in any other order

    def as_numbers(self, kind: type) -> _Levels:
        """Return the same as numbers of a type."""
        return self._replace(
            queue=self.queue.astype(kind),
            used=self.used.astype(kind),
            queued_nodes=self.queued_nodes.astype(kind),
        )


def sum_of_products(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Any:
    """Return the sum of products of two vectors, as a Python number.

    It does not depend on the number of cores. NumPy's own product passes long vectors to threads,
    which then keep a core busy while they wait for more.
    """
    return _plain((a * b).sum())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _integrals(
    time: npt.NDArray[Any], levels: _Levels, up: npt.NDArray[Any]
) -> dict[str, int | float]:
    """Return integrals of levels over spans, by name, in the given type of numbers.

    Args:
        time: Begin of each span, and end of the last [spans + 1].
        levels: The levels.
        up: Nodes that are up [spans], or at all times [1].
    """
    width = np.diff(time)
    queue, used = levels.queue, levels.used
    loaded = width * (queue > 0)
    span, loaded_span = _plain(width.sum()), _plain(loaded.sum())
    changes = sum_of_products(levels.queued_nodes, time[-1] - time[:-1])
    found = {
        "queue": sum_of_products(queue, width),
        "queued_nodes": levels.queued_before * span + changes,
        "used": sum_of_products(used, width),
        "used_loaded": sum_of_products(used, loaded),
        "loaded": loaded_span,
    }
    if len(up) == 1 and used.max() <= up[0]:
        there = _plain(up[0])
        present = {"up": there * span, "present": there * span}
        return {**found, **present, "present_loaded": there * loaded_span}
    up = np.broadcast_to(up, width.shape)
    # A late job may keep its nodes into a maintenance: more are used than are up.
    most = np.maximum(up, used)
    return {
        **found,
        "up": sum_of_products(up, width),
        "present": sum_of_products(most, width),
        "present_loaded": sum_of_products(most, loaded),
    }


class OverTime:
    """Integrals over time in ms, exact if all times are whole ms."""

    def __init__(self) -> None:
        self.sums: dict[str, int | float] = dict.fromkeys(SUMS, 0)
        self.longest = 0

    def add(self, time: FloatArray, unit: int, levels: _Levels, up: FloatArray) -> None:
        """Add levels of some spans.

        Args:
            time: Begin of each span, and end of the last [spans + 1].
            unit: Unit as in `hpctwin.metrics.levels.Steps`.
            levels: The levels.
            up: Nodes that are up [spans], or at all times [1].
        """
        found = _integrals(time, levels, up)
        if unit == MS_PER_S:
            # Whole numbers are exact up to 2^53, and no sum but that of queued nodes is below its
            # parts.
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

    def add_events(
        self, events: Events, from_ms: IntArray, nodes: IntArray, span: Span, held: Held
    ) -> Held:
        """Add all events at once, at whole ms.

        Args:
            events: The events.
            from_ms: Begin of each step of capacity, ascending; the first holds before it too
                [steps].
            nodes: Nodes that are up in each step [steps].
            span: Span of the integrals.
            held: Levels before the events.

        Returns:
            Levels after the last event.
        """
        first, last = (round(time_s * MS_PER_S) for time_s in span)
        until = last if math.isinf(events.until_s) else round(events.until_s * MS_PER_S)
        now = np.array([*held, self.longest], np.int64)
        part, sums = np.zeros(len(SUMS), np.int64), np.zeros(2 * len(SUMS), np.int64)
        bits, within = (
            np.array(one) for one in ((events.node_bits, KIND_BITS), (first, last, until))
        )
        SUM_LEVELS(events.key, bits, CHANGES, from_ms, nodes, within, now, part, sums)
        high, low = sums.reshape(-1, 2).T.tolist()
        for name, above, below in zip(SUMS, high, low, strict=True):
            self.sums[name] += (above << HIGH_BITS) + below
        *after, self.longest = now.tolist()
        return Held(*after)

    def take(self, other: OverTime) -> None:
        """Add another's integrals, and reset them there."""
        for name in SUMS:
            self.sums[name] += other.sums[name]
        self.longest = max(self.longest, other.longest)
        other.sums, other.longest = dict.fromkeys(SUMS, 0), 0


def add_up(
    events: Events, capacity: pl.DataFrame, held: Held, parts: Sequence[tuple[OverTime, Span]]
) -> Held:
    """Sum up the levels between events.

    Returns:
        Levels after the last event.
    """
    whole = whole_capacity(capacity) if events.in_ms else None
    if whole is None:
        return _add_pieces(events, capacity, held, parts)
    after = held
    for over, span in parts or [(OverTime(), Span(0.0, 0.0))]:
        after = over.add_events(events, *whole, span, held)
    return after


def whole_capacity(capacity: pl.DataFrame) -> tuple[IntArray, IntArray] | None:
    """Return times in ms and nodes that are up; None if these are not whole numbers."""
    time_s, nodes = floats(capacity, "time_s"), floats(capacity, "nodes")
    order = np.argsort(time_s, kind="stable")
    from_ms = np.rint(time_s * MS_PER_S)
    if not ((from_ms / MS_PER_S == time_s).all() and (nodes == np.rint(nodes)).all()):
        return None
    return from_ms[order].astype(np.int64), nodes[order].astype(np.int64)


def _add_pieces(
    events: Events, capacity: pl.DataFrame, held: Held, parts: Sequence[tuple[OverTime, Span]]
) -> Held:
    """Do `add_up` for any times and nodes."""
    up_at = up_nodes(capacity)
    fixed = up_at(np.zeros(1)) if len(capacity) == 1 else None
    for piece in events.pieces():
        changes, running = piece.queued * piece.nodes, piece.running * piece.nodes
        levels = _Levels(
            np.add(np.cumsum(piece.queued), held.queue, dtype=np.float64),
            np.add(np.cumsum(running), held.used, dtype=np.float64),
            changes.astype(np.float64),
            held.queued_nodes,
            abs(held.queued_nodes) + int(piece.nodes.sum()),
        )
        up = up_at(piece.time_s[:-1]) if fixed is None else fixed
        for over, span in parts:
            over.add(_clipped(piece, *span), piece.unit, levels, up)
        held = Held(
            int(levels.queue[-1]), held.queued_nodes + int(changes.sum()), int(levels.used[-1])
        )
    return held


def _clipped(piece: Steps, first_s: float, last_s: float) -> FloatArray:
    """Return the times of a piece, in its unit, clipped to a span."""
    first, last = first_s * piece.unit, last_s * piece.unit
    if piece.unit == MS_PER_S:
        first, last = round(first), round(last)
    inside = first <= piece.time[0] and piece.time[-1] <= last
    return piece.time if inside else np.clip(piece.time, first, last)
