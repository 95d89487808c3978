"""Jobs that certainly fit, whatever nodes the manager chooses for the others.

The twin announces a start by a lease, and the manager places the job where it likes. Jobs that all
fit in one placement may not all fit in the manager's placement. For example, a job that accepts any
GPU takes the GPU of the one type that another job needs. Or a job that also fits elsewhere takes a
node's last cores. So a set of jobs is announced together only if each fits wherever the others are
placed.

Two bounds are computed for each job, and either one is enough:

1. The capacity that the other jobs take from it together. One of their tasks takes the capacity of
   as many of its tasks as the scarcest amount says, on nodes where both can be.
2. The rest of each node if all the other jobs are placed on that one.

Both leave less than is really free. A job that they delay is announced as soon as the nodes of the
other jobs are known.

A job of just some nodes may have unequal parts of them: Slurm divides ``-N2 -n4`` by free capacity,
as 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpctwin.model.requests.chunks import Tasks
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.rms.node_capacity import SLACK, Room
from hpctwin.rms.records.records import JobSpec

FloatArray = npt.NDArray[np.float64]


@dataclass
class _Alike:
    """Jobs with the same request.

    Args:
        spec: Request of one of them.
        room: Free capacity.
        count: Number of these jobs.
    """

    spec: JobSpec
    room: Room
    count: int = 0

    @cached_property
    def fits(self) -> FloatArray:
        """Number of tasks, or nodes, of one job that fit on each node now [nodes]."""
        spec, there = self.spec, self.room.open(self.spec)
        if len(spec.kinds) > 1:
            return np.where(there, float(self.parts), 0.0)
        return self.room.tasks_that_fit(spec, there, self.room.free_for(spec))

    @cached_property
    def parts(self) -> int:
        """Number of tasks, or whole nodes, of one job."""
        return sum(kind.tasks for kind in self.spec.kinds) or self.spec.nodes

    @cached_property
    def may_be_on(self) -> npt.NDArray[np.bool_]:
        """Whether some part of one job may be on each node [nodes]."""
        if not self.uneven:
            return self.fits > 0
        cores = self.room.names.index("cores")
        return self.room.open(self.spec) & (self.room.free[:, cores] + SLACK >= 1)

    @cached_property
    def uneven(self) -> bool:
        """Whether one job may have unequal parts of its nodes, down to a single core."""
        spec = self.spec
        return spec.shares and spec.tasks == spec.nodes > 1 and spec.cores_per_task > 1

    @cached_property
    def takes(self) -> FloatArray:
        """The most that a task of each kind may take of each amount [kinds, amounts]."""
        return np.array(
            [[_most(kind, name) for name in self.room.names] for kind in self.spec.kinds]
        )

    @cached_property
    def most_of_a_node(self) -> FloatArray:
        """The most that one job may have of one node, of each amount [amounts]."""
        if self.uneven:
            others = (self.parts - 1) / self.spec.cores_per_task
            return np.asarray(self.takes[0] * (self.parts - others))
        return np.asarray(self.tasks @ self.takes)

    @cached_property
    def tasks(self) -> FloatArray:
        """Number of tasks of each kind of one job [kinds]."""
        return np.array([kind.tasks for kind in self.spec.kinds], np.float64)

    @cached_property
    def asks(self) -> FloatArray:
        """Request of each of its tasks [amounts]."""
        return np.array([self.spec.kinds[0].asks(name) for name in self.room.names])

    @cached_property
    def rising(self) -> FloatArray:
        """Cumulative capacity of the nodes that have any, from the smallest.

        Its shape is [nodes with capacity + 1].
        """
        some = np.sort(self.fits[self.fits > 0])
        return np.concatenate([[0.0], np.cumsum(some)])

    def enough(self, fits: FloatArray) -> bool:
        """Return whether this capacity on each node is enough for one job."""
        return bool(fits.sum() >= self.parts and np.count_nonzero(fits > 0) >= self.spec.nodes)

    def enough_without(self, parts: float, nodes: int) -> bool:
        """Return whether one job still fits if some capacity and some nodes are missing.

        The missing capacity for ``parts`` and the missing ``nodes`` are taken where they hurt most.
        """
        rising, there = self.rising, len(self.rising) - 1
        if nodes >= there:
            return False
        lost = int(np.searchsorted(rising, parts, "right")) - 1
        return bool(
            rising[there - nodes] - parts >= self.parts and there - lost - nodes >= self.spec.nodes
        )


def fit_together(
    room: Room, under_way: Iterable[JobSpec], starts: Sequence[JobSpec]
) -> list[JobSpec]:
    """Return the jobs to start that fit wherever they all are placed.

    Earlier jobs take precedence.

    Args:
        room: Free capacity next to the jobs that are known to run.
        under_way: Jobs announced to start whose nodes are unknown.
        starts: Further jobs to start. A job that does not fit even alone takes no capacity: the
            manager knows better.
    """
    chosen = _Chosen(room)
    for spec in under_way:
        if room.fits(spec):
            chosen.add(spec)
    return [spec for spec in starts if not room.fits(spec) or chosen.take(spec)]


class _Chosen:
    """Jobs that start at the same time.

    Args:
        room: Free capacity.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self._alike: dict[tuple[str | float, ...], _Alike] = {}
        self._meet: dict[tuple[int, int], tuple[float, int]] = {}
        self._left: set[int] = set()

    def add(self, spec: JobSpec) -> _Alike:
        """Count a job."""
        found = self._alike.setdefault(self.room.asked(spec), _Alike(spec, self.room))
        found.count += 1
        return found

    def take(self, spec: JobSpec) -> bool:
        """Count a job if every job that fits without it still fits."""
        known = self._alike.get(self.room.asked(spec))
        if known is not None and id(known) in self._left:
            return False
        harmed = {id(one) for one in self._alike.values() if one.count and not self._has(one)}
        found = self.add(spec)
        fine = all(
            (one is not found and id(one) in harmed) or self._has(one)
            for one in self._alike.values()
            if one.count
        )
        if not fine:
            found.count -= 1
            self._left.add(id(found))
        return fine

    def _others(self, one: _Alike) -> list[tuple[_Alike, int]]:
        """Return the jobs besides one of these equal jobs, with their numbers."""
        there = ((other, other.count - (other is one)) for other in self._alike.values())
        return [(other, count) for other, count in there if count > 0]

    def _has(self, one: _Alike) -> bool:
        """Return whether one of these equal jobs fits wherever all others are placed."""
        others = [(o, n) for o, n in self._others(one) if any(self._taken(one, o))]
        if not others:
            return True
        if len(one.spec.kinds) > 1:
            return False
        parts = sum(n * self._taken(one, o)[0] for o, n in others)
        nodes = sum(n * self._taken(one, o)[1] for o, n in others)
        if one.enough_without(parts, nodes):
            return True
        if nodes:
            return False
        spec, room = one.spec, self.room
        held = sum((n * o.most_of_a_node for o, n in others), np.zeros(len(room.names)))
        return one.enough(room.tasks_that_fit(spec, room.open(spec), room.free - held))

    def _taken(self, one: _Alike, other: _Alike) -> tuple[float, int]:
        """Return the most that one other job takes from this one.

        The result is the capacity for parts of this one, and its whole nodes.
        """
        key = id(one), id(other)
        if key not in self._meet:
            self._meet[key] = self._most_taken(one, other)
        return self._meet[key]

    def _most_taken(self, one: _Alike, other: _Alike) -> tuple[float, int]:
        both = (one.fits > 0) & other.may_be_on
        if not both.any():
            return 0.0, 0
        if not (one.spec.shares and other.spec.shares and self.room.beside(one.spec, other.spec)):
            return 0.0, min(other.parts, int(both.sum()))
        asked = one.asks > 0
        room = one.fits[both].max()

        def lost(taken: FloatArray) -> FloatArray:
            each = np.ceil(taken / one.asks[asked] - SLACK).max(axis=-1)
            return np.asarray(np.minimum(each, room))

        each = lost(other.takes[:, asked])
        if other.uneven:
            return float(lost(other.most_of_a_node[asked]) + (other.parts - 1) * each[0]), 0
        return float(other.tasks @ each), 0


def _most(kind: Tasks, name: str) -> float:
    """Return the most that a task may take of an amount.

    GPUs of any type may all be of one type.
    """
    asked = kind.asks(name)
    if not name.startswith(GPU_TYPE):
        return asked
    typed = sum(amount for other, amount in kind.consumables if other.startswith(GPU_TYPE))
    return asked + kind.gpus - typed
