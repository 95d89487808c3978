"""Power that feeding the nodes takes: converters, rectifiers, switches, pumps.

All power is piecewise constant. It changes when a job begins, ends, or passes to its next usage
sample, and when a node changes its power state. Nothing changes in between, so integrals are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.job_power import Pieces, distinct, ramp
from hpctwin.model import MS_PER_S, NodeGroup
from hpctwin.model.cluster.power import node_w

__all__ = ["PARTS", "Draw", "Stretches", "feed", "together"]

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.float64]

PARTS = ("jobs", "idle", "conversion", "rectification", "switches", "pumps")
"""Parts of the power, in order:

- nodes that compute
- nodes that do not compute
- losses in the nodes' converters
- losses in the rectifiers of the chassis
- switches
- pumps of the coolant distribution units
"""

_SPAN = 1 << 44
"""Longer than any simulation, in ms: unit and time form one sortable number."""
_AT_ONCE = 1 << 15
"""Number of changes computed at a time; it bounds the memory besides the result."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """Ranges of consecutive nodes that are not idle for a time.

    Args:
        first: Number of the first node, within the group [n].
        count: Number of nodes [n].
        of: Activity of the nodes, such as a run of a job or a sleep [n].
    """

    first: IntArray
    count: IntArray
    of: IntArray


@dataclass(frozen=True, eq=False)
class Draw:
    """Power draw over time.

    Args:
        time_ms: Times of changes, ascending from the beginning, and the end, in ms [n + 1].
        parts: Power of each of `PARTS` from then on, in W [parts, n].
        cdu: Coolant distribution unit of each row of the next two arrays, ascending [m].
        cdu_time_ms: Start of each row, in ms; the first row of each unit starts at the beginning
            [m].
        cdu_w: Power of all that the unit cools, including its pumps, in W [m].
    """

    time_ms: IntArray
    parts: FloatArray
    cdu: IntArray
    cdu_time_ms: IntArray
    cdu_w: FloatArray

    @property
    def total_w(self) -> FloatArray:
        """Total power, in W [n]."""
        total: FloatArray = self.parts.sum(axis=0)
        return total

    @property
    def energy_j(self) -> dict[str, float]:
        """Energy by part, in J."""
        joules = self.parts @ np.diff(self.time_ms) / MS_PER_S
        return dict(zip(PARTS, joules.tolist(), strict=True))

    def means(self, edges_s: FloatArray) -> FloatArray:
        """Return the mean power of each part between times, in W [parts, steps].

        Args:
            edges_s: Times in seconds, ascending, within the covered time [steps + 1].
        """
        return np.array([_means(self.time_ms, row, edges_s) for row in self.parts])

    def cdu_means(self, edges_s: FloatArray) -> FloatArray:
        """Return `means` of each coolant distribution unit, in W [units, steps]."""
        units = int(self.cdu.max(initial=-1)) + 1
        found = np.zeros((units, len(edges_s) - 1))
        cuts = np.append(np.flatnonzero(self.cdu_time_ms == self.time_ms[0]), len(self.cdu))
        for low, high in pairwise(cuts):
            times = np.append(self.cdu_time_ms[low:high], self.time_ms[-1])
            found[self.cdu[low]] += _means(times, self.cdu_w[low:high], edges_s)
        return found


def _means(time_ms: IntArray, watts: FloatArray, edges_s: FloatArray) -> FloatArray:
    total = np.concatenate([[0.0], np.cumsum(watts * np.diff(time_ms))])
    found: FloatArray = np.diff(np.interp(edges_s * MS_PER_S, time_ms, total))
    return found / (np.diff(edges_s) * MS_PER_S)


def feed(
    group: NodeGroup, work: list[tuple[Stretches, Pieces, bool]], begin_ms: int, end_ms: int
) -> Draw:
    """Return the power draw of a node group from a beginning to an end.

    Args:
        group: Node group whose nodes have components.
        work: Where nodes are not idle; their power, by `Stretches.of`; and whether they compute. No
            node is in two stretches at a time.
        begin_ms: Beginning, in ms.
        end_ms: End, in ms.
    """
    end_ms -= begin_ms
    work = [(where, pieces.moved(-begin_ms), computes) for where, pieces, computes in work]
    starts, cdu_of, chassis = _units(group)
    size = np.diff(np.append(starts, group.count))
    begins = np.append(True, np.diff(cdu_of) > 0)
    doing = [
        _doing(stretches, pieces, starts, size, computes=computes)
        for stretches, pieces, computes in work
    ]
    moments = [np.append(one.start_ms, one.end_ms) for _, one, _ in work]
    time_ms = distinct(np.concatenate([np.zeros(1, np.int64), *moments]))
    time_ms = time_ms[(time_ms < end_ms) | (time_ms == 0)]
    del moments
    sums = np.zeros((len(PARTS), len(time_ms)))
    cdus = []
    # Blocks of units bound the memory. Each block adds its changes to the sums over all units.
    for units in _blocks(doing, len(starts)):
        unit, time, level = _levels(group, [one.within(units) for one in doing], size, units)
        inner = (time < end_ms) | (time == 0)
        unit, time, level = unit[inner], time[inner], level[:, inner]
        first = np.append(True, np.diff(unit) > 0)
        place = np.searchsorted(time_ms, time)
        total = np.zeros(len(time))
        for row, part in zip(sums, _parts(group, level, chassis[unit], begins[unit]), strict=True):
            np.add.at(row, place, _changes(part, first))
            total += part
        if group.racks is not None:
            cdus.append((cdu_of.astype(np.int32)[unit], time + begin_ms, total))
    np.cumsum(sums, axis=1, out=sums)
    none = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0))
    return Draw(
        np.append(time_ms, end_ms) + begin_ms,
        sums,
        *(np.concatenate(column) for column in zip(*(cdus or [none]), strict=True)),
    )


def together(draws: Sequence[Draw]) -> Draw:
    """Return the draw of several groups, with coolant distribution units renumbered."""
    if len(draws) == 1:
        return draws[0]
    group = np.repeat(np.arange(len(draws)), [len(draw.time_ms) - 1 for draw in draws])
    time = np.concatenate([draw.time_ms[:-1] for draw in draws])
    parts = np.concatenate([draw.parts for draw in draws], axis=1)
    units = np.cumsum([0, *(int(draw.cdu.max(initial=-1)) + 1 for draw in draws[:-1])])
    return Draw(
        *_summed(group, time, parts, int(draws[0].time_ms[-1])),
        np.concatenate([draw.cdu + first for draw, first in zip(draws, units, strict=True)]),
        np.concatenate([draw.cdu_time_ms for draw in draws]),
        np.concatenate([draw.cdu_w for draw in draws]),
    )


def _summed(
    unit: IntArray, time: IntArray, parts: FloatArray, end_ms: int
) -> tuple[IntArray, FloatArray]:
    """Return times and parts of the sum over units.

    Each unit is given by its power from each change on, in order.
    """
    first = np.append(True, np.diff(unit) > 0)
    order = np.argsort(time)
    time = time[order]
    begins = np.flatnonzero(np.append(True, time[1:] != time[:-1]))
    sums = np.array([_added(_changes(part, first)[order], begins) for part in parts])
    return np.append(time[begins], end_ms), sums


def _changes(level: FloatArray, first: npt.NDArray[np.bool_] | IntArray) -> FloatArray:
    """Return the change of each level from the one before, within each unit.

    The first level of a unit is its own change.
    """
    found = np.diff(level, prepend=0.0)
    found[first] = level[first]
    return found


def _added(changes: FloatArray, begins: IntArray) -> FloatArray:
    """Return the level after all changes of each time."""
    found: FloatArray = np.cumsum(np.add.reduceat(changes, begins))
    return found


@dataclass(frozen=True, eq=False)
class _Doing:
    """Activities of the nodes of units.

    Args:
        unit: Unit of each activity [n].
        nodes: Number of its nodes in the unit [n].
        first: First piece of each activity in `watts` [n].
        count: Number of its pieces, 1 or more [n].
        start_ms: Start of each piece, in ms [pieces].
        end_ms: End of each piece, in ms [pieces].
        watts: Power of one node, in W [pieces].
        computes: Whether the nodes compute.
    """

    unit: IntArray
    nodes: FloatArray
    first: IntArray
    count: IntArray
    start_ms: IntArray
    end_ms: IntArray
    watts: FloatArray
    computes: bool

    def within(self, units: slice) -> _Doing:
        """Return the activities of some units."""
        own = (self.unit >= units.start) & (self.unit < units.stop)
        return replace(
            self, unit=self.unit[own], nodes=self.nodes[own], first=self.first[own], count=self.count[own]
        )  # fmt: skip


def _doing(
    stretches: Stretches, pieces: Pieces, starts: IntArray, size: IntArray, *, computes: bool
) -> _Doing:
    unit, of, nodes = _by_unit(stretches, starts, size)
    count = np.bincount(pieces.run, minlength=int(of.max(initial=-1)) + 1)
    first = np.cumsum(count) - count
    return _Doing(
        unit, nodes, first[of], count[of], pieces.start_ms, pieces.end_ms, pieces.watts, computes
    )


def _blocks(doing: list[_Doing], units: int) -> Iterator[slice]:
    """Yield ranges of units computed together, to bound memory on long runs."""
    changes = np.ones(units)
    for one in doing:
        changes += np.bincount(one.unit, one.count + 1, minlength=units)
    cuts = np.flatnonzero(np.diff(np.cumsum(changes) // _AT_ONCE)) + 1
    for low, high in pairwise([0, *cuts.tolist(), units]):
        yield slice(low, high)


def _levels(
    group: NodeGroup, doing: list[_Doing], size: IntArray, units: slice
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return unit, time and levels of each change, in order.

    The levels [3, changes] are the power of computing nodes, of other nodes, and of all nodes with
    their converters.

    Args:
        group: The node group.
        doing: Activities of the nodes of these units.
        size: Number of nodes in each unit, for all units.
        units: Range of units.
    """
    idle_w = node_w(group.components, 0.0)
    rows: tuple[tuple[Callable[[FloatArray, bool], FloatArray], float], ...] = (
        (lambda watts, computes: watts * computes, 0.0),
        (lambda watts, computes: watts * (not computes), idle_w),
        (lambda watts, _: _taken(group, watts), float(_taken(group, np.array([idle_w]))[0])),
    )
    here = np.arange(units.start, units.stop)
    keys, told = [here * _SPAN], []
    for one in doing:
        place = np.repeat(one.first, one.count) + ramp(one.count)
        last = one.first + one.count - 1
        keys += [
            np.repeat(one.unit, one.count) * _SPAN + one.start_ms[place],
            one.unit * _SPAN + one.end_ms[last],
        ]
        begins = np.cumsum(one.count) - one.count
        told.append(
            (one, np.repeat(one.nodes, one.count), one.watts[place], one.watts[last], begins)
        )
    key = np.concatenate(keys)
    order = np.argsort(key)
    key = key[order]
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    key = key[begins]
    unit = key // _SPAN
    level = np.empty((len(rows), len(begins)))
    for row, (counted, idle) in enumerate(rows):
        rises = [np.zeros(len(here))]
        for one, nodes, drawn, ends, first in told:
            # Each piece adds its change to the one before. The first changes from idle, and the end
            # returns to it.
            rises += [
                nodes * _changes(counted(drawn, one.computes) - idle, first),
                -one.nodes * (counted(ends, one.computes) - idle),
            ]
        level[row] = _added(np.concatenate(rises)[order], begins) + size[unit] * idle
    return unit, key & (_SPAN - 1), level


def _by_unit(
    stretches: Stretches, starts: IntArray, size: IntArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return unit, activity, and number of the unit's nodes in it; each pair once."""
    first, last = stretches.first, stretches.first + stretches.count - 1
    low = np.searchsorted(starts, first, side="right") - 1
    touched = np.searchsorted(starts, last, side="right") - low
    row = np.repeat(np.arange(len(first)), touched)
    unit = low[row] + ramp(touched)
    nodes = np.minimum((starts + size)[unit], last[row] + 1) - np.maximum(starts[unit], first[row])
    pair, place = np.unique(stretches.of[row] * len(starts) + unit, return_inverse=True)
    sums: FloatArray = np.bincount(place, nodes, minlength=len(pair)).astype(np.float64)
    return pair % len(starts), pair // len(starts), sums


def _units(group: NodeGroup) -> tuple[IntArray, IntArray, IntArray]:
    """Return first node, coolant distribution unit and number of chassis of each unit.

    A unit is computed as a whole. If feeding is linear in the nodes' power, only sums count, so a
    unit is all that a coolant distribution unit cools. Otherwise it is one chassis.
    """
    racks = group.racks
    if racks is None:
        return np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    cdu = racks.chassis_of_cdu
    if racks.linear:
        chassis: IntArray = np.bincount(cdu, minlength=racks.cdus).astype(np.int64)
        cdu = np.arange(racks.cdus)
    else:
        # A coolant distribution unit without chassis still has pumps.
        none = np.setdiff1d(np.arange(racks.cdus), cdu)
        order = np.argsort(np.concatenate([cdu, none]), kind="stable")
        chassis = np.concatenate([np.ones(len(cdu), np.int64), np.zeros(len(none), np.int64)])[
            order
        ]
        cdu = np.concatenate([cdu, none])[order]
    before = np.cumsum(chassis) - chassis
    starts: IntArray = np.minimum(before * racks.nodes_per_chassis, group.count)
    return starts, cdu, chassis


def _taken(group: NodeGroup, watts: FloatArray) -> FloatArray:
    return watts if group.racks is None else group.racks.converter.taken(watts)


def _parts(
    group: NodeGroup, level: FloatArray, chassis: IntArray, pumps: npt.NDArray[np.bool_]
) -> Iterator[FloatArray]:
    """Yield the power of each unit for each of `PARTS` [changes].

    Args:
        group: The node group.
        level: Levels from `_levels` at each change [3, changes].
        chassis: Number of chassis in the unit of each change [changes].
        pumps: Whether the unit includes the pumps of a coolant distribution unit [changes].
    """
    jobs, idle, taken = level
    yield jobs
    yield idle
    # Losses are not negative, but rounding may make differences of sums so.
    yield np.maximum(taken - jobs - idle, 0.0)
    racks = group.racks
    if racks is None:
        yield from np.zeros((3, len(jobs)))
        return
    lost: FloatArray = racks.chassis_taken(taken / np.maximum(chassis, 1))
    lost *= chassis
    lost -= taken
    lost -= chassis * (racks.switches * racks.switch_w)
    yield np.maximum(lost, 0.0)
    del lost
    yield np.multiply(chassis, racks.switches * racks.switch_w, dtype=np.float64)
    yield np.where(pumps, racks.cdu_w, 0.0)
