"""Nodes of jobs with several kinds of tasks, or with nodes in one of several sets.

A job's kinds of tasks are placed one after the other, in their order. A job whose nodes must be in
one of several sets gets the first set that it fits, whatever kinds of tasks it has.

Each kind is placed like a separate job, on what the kinds before it have left. If one does not fit,
all are placed again by node number. Whether a job fits is therefore known only when its nodes are
chosen.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit import (
    first_among,
    is_there,
    keeps_off,
    mark_pools,
    reckon_least,
    room_beside,
    runs_apart,
    seat,
)
from hpctwin.engine.shared.gpus import lay_chosen
from hpctwin.engine.shared.node_resources import copy_all
from hpctwin.engine.shared.placement import choose_for, give
from hpctwin.engine.state.layout import ZERO, Arrays
from hpctwin.engine.state.records import Grid

__all__ = ["fits_beside", "fits_by_kind"]


@jit
def fits_by_kind(j: int, begin: int, base: Grid[int], sim: Arrays) -> bool:
    """Return whether a job that `goes_by_kind` fits over a span; choose its nodes.

    It is like `fit.fits_over`.
    """
    end = begin + sim.job[j].expected
    for node in range(len(sim.share)):
        reckon_least(node, begin, end, base, sim)
    return _place(j, begin, end, True, sim)


@jit
def fits_beside(j: int, begin: int, end: int, free: Grid[int], sim: Arrays) -> bool:
    """Return the same as `fits_by_kind` for given free amounts, whatever is reserved."""
    copy_all(free, sim.min_free)
    return _place(j, begin, end, False, sim)


@jit
def _place(j: int, begin: int, end: int, promised: bool, sim: Arrays) -> bool:
    """Choose nodes, given the minimum free amounts (``sim.min_free``).

    Returns:
        Whether the job fits.
    """
    copy_all(sim.min_free, sim.stays)
    first = first_among(sim.job[j].kind, sim)
    while first >= 0:
        if _place_on(j, first, begin, end, promised, sim):
            return True
        first = sim.shape[first].among
    return False


@jit
def _place_on(j: int, first: int, begin: int, end: int, promised: bool, sim: Arrays) -> bool:
    """Choose nodes of one set, given the minimum free amounts (``sim.stays``).

    Returns:
        Whether the job fits.
    """
    for by_number in range(2):
        sim.sharing.chosen = 0
        copy_all(sim.stays, sim.remains)
        for node in range(len(sim.share)):
            sim.seated[node] = 0
        kind = first
        while kind >= 0 and _find_room(kind, begin, end, promised, sim):
            if by_number == 1:
                _choose_by_number(kind, sim)
            else:
                choose_for(j, kind, sim)
            for n in range(sim.sharing.before, sim.sharing.chosen):
                if sim.of_kind[n] == kind:
                    seat(kind, sim.chosen_nodes[n], sim.chosen_tasks[n], sim)
                    # The GPUs of the chosen tasks were taken from ``min_free``.
                    for c in range(sim.min_free.width - sim.sharing.gpus, sim.min_free.width):
                        sim.remains[sim.chosen_nodes[n], c] = sim.min_free[sim.chosen_nodes[n], c]
            kind = sim.shape[kind].more
        if kind == first:
            return False  # it would not fit by number either
        if kind < 0:
            if sim.shape[sim.job[j].kind].exclusive == 1:
                _one_part_a_node(sim)
            return True
    return False


@jit
def _find_room(kind: int, begin: int, end: int, promised: bool, sim: Arrays) -> bool:
    """Return whether the tasks of a kind fit next to those of others.

    It sets what placements read.
    """
    shape = sim.shape[kind]
    mark_pools(kind, begin, end, sim)
    total = ZERO
    nodes = ZERO
    sim.rooms.first = len(sim.share)
    copy_all(sim.remains, sim.min_free)
    for node in range(len(sim.share)):
        fits = ZERO
        if is_there(node, begin, sim):
            fits = max(ZERO, room_beside(kind, node, sim))
            if fits > 0:
                if promised:
                    apart = keeps_off(kind, node, begin, end, sim)
                else:
                    apart = runs_apart(kind, node, begin, sim)
                if apart:
                    fits = ZERO
        sim.fits[node] = fits
        if fits > 0:
            if nodes == 0:
                sim.rooms.first = node
            total += min(fits, shape.most)
            nodes += 1
    return total >= shape.tasks and nodes >= shape.nodes


@jit
def _choose_by_number(kind: int, sim: Arrays) -> None:
    sim.sharing.before = sim.sharing.chosen
    sim.sharing.kind = kind
    sim.sharing.laid = 0
    left = sim.shape[kind].tasks
    for node in range(len(sim.share)):
        tasks = min(sim.fits[node], sim.shape[kind].most, left)
        if tasks > 0:
            give(node, tasks, sim)
            left -= tasks
    lay_chosen(kind, sim)


@jit
def _one_part_a_node(sim: Arrays) -> None:
    """Merge an exclusive job's parts on each node into one, in place of the last.

    The job holds each of its nodes once, whatever tasks are there.
    """
    sharing = sim.sharing
    first = sharing.chosen
    for n in range(sharing.chosen - 1, -1, -1):
        node = sim.chosen_nodes[n]
        if sim.seated[node] > 0:
            first -= 1
            sim.chosen_nodes[first] = node
            sim.chosen_tasks[first] = sim.seated[node]
            sim.of_kind[first] = sim.of_kind[n]
            sim.seated[node] = 0
    for n in range(first, sharing.chosen):
        sim.chosen_nodes[n - first] = sim.chosen_nodes[n]
        sim.chosen_tasks[n - first] = sim.chosen_tasks[n]
        sim.of_kind[n - first] = sim.of_kind[n]
    sharing.chosen -= first
