"""What feeding the nodes takes over time: converters, rectifiers, switches, pumps of coolant.

Everything is piecewise constant: it changes where a job begins, ends, or goes from one sample of its usage to
the next, and where a node changes its power state. Between is nothing to compute, so integrals are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.job_power import Pieces, ramp
from hpctwin.model import MS_PER_S, NodeGroup
from hpctwin.model.racks import node_w

__all__ = ["PARTS", "Draw", "Stretches", "feed", "together"]

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.float64]

PARTS = ("jobs", "idle", "conversion", "rectification", "switches", "pumps")
"""Where the power goes: nodes that compute; nodes that do not; lost in the nodes' converters; lost in the
rectifiers of the chassis; switches; pumps of the coolant distribution units."""

_SPAN = 1 << 44
"""Longer than any simulation, ms: unit and time make one number that sorts by both."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """Nodes that follow each other and are not idle for a time.

    Args:
        first: number of the first node, from the first of the group [n].
        count: nodes [n].
        of: which of the things that nodes do at a time it is (a run of a job, a sleep) [n].
    """

    first: IntArray
    count: IntArray
    of: IntArray


@dataclass(frozen=True, eq=False)
class Draw:
    """What is taken over time.

    Args:
        time_ms: when something changes, ascending from 0, and the end [n + 1].
        parts: by each of `PARTS` from then on, W [parts, n].
        cdu: unit of each row of the next two, in order [m].
        cdu_time_ms: from when on; the first of each unit is 0 [m].
        cdu_w: what all that the unit cools takes, its pumps with it, W [m].
    """

    time_ms: IntArray
    parts: FloatArray
    cdu: IntArray
    cdu_time_ms: IntArray
    cdu_w: FloatArray

    @property
    def total_w(self) -> FloatArray:
        """All that is taken [n]."""
        total: FloatArray = self.parts.sum(axis=0)
        return total

    @property
    def energy_j(self) -> dict[str, float]:
        """Energy by part."""
        joules = self.parts @ np.diff(self.time_ms) / MS_PER_S
        return dict(zip(PARTS, joules.tolist(), strict=True))

    def means(self, edges_s: FloatArray) -> FloatArray:
        """The mean power of each part between times, W [parts, steps].

        Args:
            edges_s: ascending, within what is covered [steps + 1].
        """
        return np.array([_means(self.time_ms, row, edges_s) for row in self.parts])

    def cdu_means(self, edges_s: FloatArray) -> FloatArray:
        """As `means`, of each coolant distribution unit [units, steps]."""
        units = int(self.cdu.max(initial=-1)) + 1
        found = np.zeros((units, len(edges_s) - 1))
        cuts = np.append(np.flatnonzero(self.cdu_time_ms == 0), len(self.cdu))
        for low, high in pairwise(cuts):
            times = np.append(self.cdu_time_ms[low:high], self.time_ms[-1])
            found[self.cdu[low]] += _means(times, self.cdu_w[low:high], edges_s)
        return found


def _means(time_ms: IntArray, watts: FloatArray, edges_s: FloatArray) -> FloatArray:
    total = np.concatenate([[0.0], np.cumsum(watts * np.diff(time_ms))])
    found: FloatArray = np.diff(np.interp(edges_s * MS_PER_S, time_ms, total))
    return found / (np.diff(edges_s) * MS_PER_S)


def feed(group: NodeGroup, work: list[tuple[Stretches, Pieces, bool]], end_ms: int) -> Draw:
    """What a node group takes from time zero to the end.

    Args:
        group: its nodes have components.
        work: where nodes are not idle; what they draw then, by `Stretches.of`; and whether they compute. No
            node is in two stretches at a time.
        end_ms: the end.
    """
    starts, cdu_of, chassis = _units(group)
    size = np.diff(np.append(starts, group.count))
    of_unit, time, level = _levels(group, work, starts, size)
    inner = (time < end_ms) | (time == 0)
    if not inner.all():
        of_unit, time, level = of_unit[inner], time[inner], level[:, inner]
    begins = np.append(True, np.diff(cdu_of) > 0)
    total = np.zeros(len(time))

    def parts() -> Iterator[FloatArray]:
        for part in _parts(group, level, chassis.astype(np.int32)[of_unit], begins[of_unit]):
            total[:] += part
            yield part

    summed = _summed(of_unit, time, parts(), end_ms)
    if group.racks is None:
        none = np.zeros(0, np.int64)
        return Draw(*summed, none, none, np.zeros(0))
    return Draw(*summed, cdu_of.astype(np.int32)[of_unit], time, total)


def together(draws: Sequence[Draw]) -> Draw:
    """What several node groups take, with their coolant distribution units numbered one after the other."""
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
    unit: IntArray, time: IntArray, parts: Iterable[FloatArray], end_ms: int
) -> tuple[IntArray, FloatArray]:
    """Times and parts of the sum of units, each given by what it takes from each change on, in order."""
    first = np.append(True, np.diff(unit) > 0)
    order = np.argsort(time)
    time = time[order]
    begins = np.flatnonzero(np.append(True, time[1:] != time[:-1]))
    time = np.append(time[begins], end_ms)
    sums = np.empty((len(PARTS), len(begins)))
    # Row by row, as in `_levels`: all at once they are most of what a run of hours needs of memory.
    for part, row in zip(sums, parts, strict=True):
        part[:] = _added(_changes(row, first)[order], begins)
    return time, sums


def _changes(level: FloatArray, first: npt.NDArray[np.bool_] | IntArray) -> FloatArray:
    """What each adds to the one before it; the first of each unit adds to nothing."""
    found = np.diff(level, prepend=0.0)
    found[first] = level[first]
    return found


def _added(changes: FloatArray, begins: IntArray) -> FloatArray:
    """The level after all changes of a time."""
    found: FloatArray = np.cumsum(np.add.reduceat(changes, begins))
    return found


def _levels(
    group: NodeGroup,
    work: list[tuple[Stretches, Pieces, bool]],
    starts: IntArray,
    size: IntArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Unit and time of each change, in order, and what is taken from then on [3, changes].

    That is by nodes that compute, by nodes that do not, and by all of them with their converters.
    """
    idle_w = node_w(group.components, 0.0)
    idle_taken = float(_taken(group, np.array([idle_w]))[0])
    keys = [np.arange(len(starts)) * _SPAN]
    told = []
    for stretches, pieces, computes in work:
        unit, of, nodes = _by_unit(stretches, starts, size)
        count = np.bincount(pieces.run, minlength=int(of.max(initial=-1)) + 1)
        before = np.cumsum(count) - count
        place = np.repeat(before[of], count[of]) + ramp(count[of])
        each, units = np.repeat(nodes, count[of]), np.repeat(unit, count[of]) * _SPAN
        last = (before + count - 1)[of]
        keys += [units + pieces.start_ms[place], unit * _SPAN + pieces.end_ms[last]]
        told.append((pieces.watts, computes, before[count > 0], each, place, nodes, last))
        del units
    key = np.concatenate(keys)
    del keys
    order = np.argsort(key)
    key = key[order]
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    key = key[begins]
    of_unit = (key // _SPAN).astype(np.int32)
    level = np.empty((3, len(begins)))
    for row in range(3):
        rises = [np.zeros(len(starts))]
        for drawn, computes, first, each, place, nodes, last in told:
            if row == 0:
                own = drawn * computes
            elif row == 1:
                own = drawn * (not computes) - idle_w
            else:
                own = _taken(group, drawn) - idle_taken
            # A piece adds to the one before it; the first to idle nodes, and the last is taken back.
            rises += [each * _changes(own, first)[place], -nodes * own[last]]
        level[row] = _added(np.concatenate(rises)[order], begins)
    level[1] += size[of_unit] * idle_w
    level[2] += size[of_unit] * idle_taken
    return of_unit, key & (_SPAN - 1), level


def _by_unit(
    stretches: Stretches, starts: IntArray, size: IntArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Unit, what is done, and how many nodes of the unit do it: each pair once."""
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
    """First node, coolant distribution unit and number of chassis of what is computed as one.

    That is all that a coolant distribution unit cools, since only its sum counts where what is taken is
    linear in what the nodes take; else each chassis.
    """
    racks = group.racks
    if racks is None:
        return np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    cdu = racks.chassis_of_cdu
    if racks.linear:
        chassis: IntArray = np.bincount(cdu, minlength=racks.cdus).astype(np.int64)
        cdu = np.arange(racks.cdus)
    else:
        # A unit without chassis has its pumps all the same.
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
    """Power of each unit by part from what `_levels` found, as `PARTS` [changes] each.

    Args:
        group: the nodes.
        level: of each change [3, changes].
        chassis: in the unit of each change [changes].
        pumps: whether the unit's are those of a coolant distribution unit [changes].
    """
    jobs, idle, taken = level
    yield jobs
    yield idle
    yield taken - jobs - idle
    racks = group.racks
    if racks is None:
        yield from np.zeros((3, len(jobs)))
        return
    lost: FloatArray = racks.chassis_taken(taken / np.maximum(chassis, 1))
    lost *= chassis
    lost -= taken
    lost -= chassis * (racks.switches * racks.switch_w)
    yield lost
    del lost
    yield np.multiply(chassis, racks.switches * racks.switch_w, dtype=np.float64)
    yield np.where(pumps, racks.cdu_w, 0.0)
