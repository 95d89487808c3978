"""Engine form of jobs with several kinds of tasks, or confined to one node set.

See docs/reference/rules/shared-nodes.md, "Shared nodes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.layout import AMOUNTS
from hpctwin.model.requests.chunks import read_more_tasks
from hpctwin.simulation.lowering.gpus import SingleGpus

__all__ = ["Further", "Nodes", "sets_of", "tasks_in", "with_more"]

IntArray = npt.NDArray[np.int64]

ALONE = AMOUNTS - 1
_GPUS = 2

Pools = npt.NDArray[np.int8]
"""Pools of nodes that a kind of job may use [pools]."""

Further = Sequence[tuple[int, list[int]]]
"""Number of tasks of each further kind, and one task's request in engine units."""


def tasks_in(text: str, units: Mapping[str, int]) -> Further:
    """Return the further kinds of tasks described by a text; amounts are rounded up.

    Args:
        text: Text as for `read_more_tasks`.
        units: Units as returned by `shared_nodes.units_of`.
    """
    found = []
    for kind in read_more_tasks(text):
        needs = [
            int(np.ceil((kind.asks(name) - 1e-6) * n)) if name else 1 for name, n in units.items()
        ]
        found.append((kind.tasks, needs))
    return found


@dataclass(frozen=True)
class Nodes:
    """All nodes of a cluster, empty.

    Args:
        whole: Capacity of each node [nodes, amounts].
        pool_of: Pool of each node [nodes].
        gpus: Last columns, where GPUs are counted one by one; None if only their total is counted.
    """

    whole: IntArray
    pool_of: IntArray
    gpus: SingleGpus | None = None


class _Kinds:
    """Kinds of jobs, followed by the kinds they are made of; one list per column.

    Args:
        shape: Kinds of jobs [kinds].
        needs: Request of one task of each kind [kinds, amounts].
        eligible: Pools of nodes that each kind may use [kinds, pools].
    """

    def __init__(self, shape: npt.NDArray[Any], needs: IntArray, eligible: Pools) -> None:
        self.of = list(range(len(shape)))
        self.tasks: list[int] = shape["tasks"].tolist()
        self.most: list[int] = shape["most"].tolist()
        self.nodes: list[int] = shape["nodes"].tolist()
        self.needs = list(needs)
        self.pools = list(eligible)
        self.more = [-1] * len(shape)
        self.among = [-1] * len(shape)

    def add(self, of: int, tasks: int, needs: IntArray, pools: Pools) -> int:
        """Append a kind that belongs to the job kind ``of``, and return its row."""
        self.of.append(of)
        self.tasks.append(tasks)
        self.needs.append(needs)
        self.pools.append(pools)
        self.more.append(-1)
        self.among.append(-1)
        return len(self.of) - 1

    def add_further(self, first: int, further: Further) -> None:
        """Append the further kinds of tasks and link them behind the first."""
        before = first
        for count, amounts in further:
            last = self.add(self.of[first], count, np.array(amounts), self.pools[first])
            self.more[before] = before = last

    def fits(self, kind: int, machine: Nodes) -> bool:
        """Return whether a job fits an empty cluster: kind after kind, nodes by number.

        Args:
            kind: Row of the job's first kind of task.
            machine: All nodes of the cluster.
        """
        least, most = self.nodes[self.of[kind]], self.most[self.of[kind]]
        here = self.pools[kind][machine.pool_of] != 0
        left, gpus = machine.whole[here], machine.gpus
        single = left if gpus is None else gpus.single(left).copy()
        seated = np.zeros(len(left), np.int64)
        while kind >= 0:
            needs = self.needs[kind]
            room = most - seated
            for c in np.flatnonzero(needs > 0).tolist():
                if c != ALONE:
                    room = np.minimum(room, left[:, c] // needs[c])
            if gpus is not None and needs[_GPUS] > 0:
                room = np.minimum(room, gpus.room(needs, single))
            room = np.maximum(room, 0)
            # Fill nodes in order: a node gets the tasks that the nodes before it have no capacity
            # for.
            given = np.clip(self.tasks[kind] - (np.cumsum(room) - room), 0, room)
            if given.sum() < self.tasks[kind] or np.count_nonzero(room) < least:
                return False
            left = left - given[:, None] * needs
            if gpus is not None:
                for node in np.flatnonzero(given).tolist():
                    single[node] -= gpus.lay(needs, int(given[node]), single[node])
            seated += given
            kind = self.more[kind]
        return True


def with_more(
    shape: npt.NDArray[Any],
    needs: IntArray,
    eligible: Pools,
    several: IntArray,
    further: Sequence[Further],
    grouped: IntArray,
    sets: Sequence[Sequence[npt.NDArray[np.bool_]]],
    machine: Nodes,
) -> tuple[npt.NDArray[Any], IntArray, Pools, IntArray]:
    """Append to kinds of jobs their further kinds of tasks, and a copy per node set.

    ``more`` links each kind to the next kind of the same job. ``among`` links the first kind on
    each set to the first kind on the next set. Only sets that hold the job when they are empty are
    linked.

    Args:
        shape: Kinds of jobs with the values of their first kind of task [kinds].
        needs: Request of one such task [kinds, amounts].
        eligible: Pools of nodes that each kind may use [kinds, pools].
        several: Row of ``further``; -1 if all tasks are of one kind [kinds].
        further: Further kinds of tasks.
        grouped: Row of ``sets``; -1 if a job may use any nodes [kinds].
        sets: Sets of pools; a job uses nodes of one set only.
        machine: Nodes of the cluster.

    Returns:
        ``shape``, ``needs`` and ``eligible`` of all kinds, and the kinds of jobs with several kinds
        of tasks that fit nowhere.
    """
    kinds = _Kinds(shape, needs, eligible)
    ordered: dict[tuple[int, bytes], list[npt.NDArray[np.bool_]]] = {}
    too_much = []
    for row in np.flatnonzero((several >= 0) | (grouped >= 0)).tolist():
        others = further[several[row]] if several[row] >= 0 else ()
        kinds.add_further(row, others)
        if others and not kinds.fits(row, machine):
            too_much.append(row)
        if grouped[row] < 0:
            continue
        may, last = eligible[row], row
        key = int(grouped[row]), may.tobytes()
        if key not in ordered:
            ordered[key] = _by_size(sets[grouped[row]], may, machine)
        for pools in ordered[key]:
            first = kinds.add(row, kinds.tasks[row], kinds.needs[row], may * pools)
            kinds.add_further(first, others)
            if kinds.fits(first, machine):
                kinds.among[last] = last = first
    return (
        _shapes(kinds, shape, len(machine.whole)),
        np.array(kinds.needs, np.int64).reshape(-1, needs.shape[1]),
        np.array(kinds.pools, np.int8).reshape(-1, eligible.shape[1]),
        np.array(too_much, np.int64),
    )


def _shapes(kinds: _Kinds, shape: npt.NDArray[Any], nodes: int) -> npt.NDArray[Any]:
    """Return the shapes of all kinds; a job's ``parts`` bounds those of all its tasks."""
    found = shape[kinds.of]
    found["popularity"][len(shape) :] = 0
    for name in ("of", "tasks", "more", "among"):
        found[name] = getattr(kinds, name)
    for row in range(len(shape)):
        kind = kinds.more[row]
        while kind >= 0:
            found["parts"][row] += min(kinds.tasks[kind], nodes)
            kind = kinds.more[kind]
    return found


def _by_size(
    sets: Sequence[npt.NDArray[np.bool_]], may: Pools, machine: Nodes
) -> list[npt.NDArray[np.bool_]]:
    """Return sets of pools by cores of eligible nodes, then memory, then first node."""

    def size(pools: npt.NDArray[np.bool_]) -> tuple[int, int, int]:
        nodes = np.flatnonzero((pools & (may != 0))[machine.pool_of])
        cores, memory = machine.whole[nodes, :2].sum(axis=0).tolist()
        return cores, memory, int(nodes[0])

    return sorted((pools for pools in sets if (pools & (may != 0)).any()), key=size)


def sets_of(name: str, features: Sequence[Sequence[str]]) -> list[npt.NDArray[np.bool_]]:
    """Return the pools of each value of a feature, and those without the feature.

    Args:
        name: Name before the equals sign; features look like ``rack=r1``.
        features: Features of the nodes of each pool.
    """
    values = [next((one for one in has if one.startswith(f"{name}=")), "") for has in features]
    return [np.array([value == other for other in values]) for value in dict.fromkeys(values)]
