"""Jobs whose tasks are of several kinds, or on one of some sets of nodes, in the engine's form.

See docs/engine.md, "Shared nodes".
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
"""Which pools of nodes a kind of job may use [pools]."""

Further = Sequence[tuple[int, list[int]]]
"""Of each further kind of a job's tasks how many there are, and what each asks in the engine's units."""


def tasks_in(text: str, units: Mapping[str, int]) -> Further:
    """The further kinds of tasks that text tells of; amounts are rounded up.

    Args:
        text: see `read_more_tasks`.
        units: see `shared_nodes.units_of`.
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
    """A machine, empty.

    Args:
        whole: what each node has [nodes, amounts].
        pool_of: the pool of each node [nodes].
        gpus: how they stand in the last columns if they are counted one by one; None: they are together.
    """

    whole: IntArray
    pool_of: IntArray
    gpus: SingleGpus | None = None


class _Kinds:
    """Kinds of jobs, and after them those that they are made of, a list of each column.

    Args:
        shape: of kinds of jobs [kinds].
        needs: what a task of each asks [kinds, amounts].
        eligible: which pools of nodes each may use [kinds, pools].
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
        """One more, for a kind of job; its row."""
        self.of.append(of)
        self.tasks.append(tasks)
        self.needs.append(needs)
        self.pools.append(pools)
        self.more.append(-1)
        self.among.append(-1)
        return len(self.of) - 1

    def add_further(self, first: int, further: Further) -> None:
        """The other kinds of tasks behind the first."""
        before = first
        for count, amounts in further:
            last = self.add(self.of[first], count, np.array(amounts), self.pools[first])
            self.more[before] = before = last

    def fits(self, kind: int, machine: Nodes) -> bool:
        """Whether a job's tasks fit a machine, empty: one kind after the other, nodes by number.

        Args:
            kind: of the first of them.
            machine: all of its nodes.
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
    """Kinds of jobs, and after them those of their further tasks, and on each of the sets they may lie on.

    Each names the next of a job's tasks (``more``), and the first on each set that of the next (``among``).
    Of the sets those are named that hold the job when they are empty.

    Args:
        shape: of kinds of jobs, with what the first of their tasks are [kinds].
        needs: what each of these asks [kinds, amounts].
        eligible: which pools of nodes it may use [kinds, pools].
        several: row of ``further``; -1 where all tasks are of one kind [kinds].
        further: the other kinds of tasks.
        grouped: row of ``sets``; -1 where a job may have any nodes [kinds].
        sets: pools of nodes, of which a job has those of one only.
        machine: its nodes.

    Returns:
        The first three, of all kinds, and the kinds of jobs with several kinds of tasks that fit nowhere.
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
    """Those of all kinds; that of a job tells on how many parts of nodes all of its tasks may lie."""
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
    """Sets of pools by the cores of the nodes that a job may use, then by memory, then by number."""

    def size(pools: npt.NDArray[np.bool_]) -> tuple[int, int, int]:
        nodes = np.flatnonzero((pools & (may != 0))[machine.pool_of])
        cores, memory = machine.whole[nodes, :2].sum(axis=0).tolist()
        return cores, memory, int(nodes[0])

    return sorted((pools for pools in sets if (pools & (may != 0)).any()), key=size)


def sets_of(name: str, features: Sequence[Sequence[str]]) -> list[npt.NDArray[np.bool_]]:
    """Which pools have one value of something, and which have none of it.

    Args:
        name: of it; features are such as ``rack=r1``.
        features: of the nodes of each pool.
    """
    values = [next((one for one in has if one.startswith(f"{name}=")), "") for has in features]
    return [np.array([value == other for other in values]) for value in dict.fromkeys(values)]
