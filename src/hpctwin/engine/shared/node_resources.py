"""Rows of amounts: of a node, of what is left of it, and of a task of a kind.

A row holds cores, memory, GPUs and being alone on the node, then each consumable of the cluster's
nodes. Most clusters have no consumables. Loops over the first four therefore have a length that is
known when they are compiled. The last columns are the GPUs of a node, if they are counted one by
one; see `gpus`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import AMOUNTS, ONE, RETURN, TAKE, ZERO, Arrays
from hpctwin.engine.state.records import Grid

_COLUMNS: Any = np.arange(AMOUNTS)
CORES, MEMORY, GPUS, ALONE = _COLUMNS

ALL: Any = np.int64(2**40)
"""Amount of `ALONE` that an exclusive job holds; any other job holds 1.

It is also enough of what is not modeled.
"""
ONE_GPU: Any = np.int64(1000)
"""Thousandths of a GPU."""
WHOLE: Any = np.int64(-1)
"""Used as the number of tasks in a reservation: the node is reserved as a whole."""


@jit
def held(kind: int, node: int, tasks: int, c: int, sim: Arrays) -> int:
    """Return how much of an amount tasks of a kind hold on a node.

    `WHOLE` tasks hold all of it, and so do tasks of an exclusive job.
    """
    if sim.shape[kind].exclusive == 1 or tasks == WHOLE:
        return sim.whole[node, c]
    return sim.needs[kind, c] if c == ALONE else tasks * sim.needs[kind, c]


@jit
def copy_row(source: Grid[int], row: int, to: Grid[int], place: int) -> None:
    """Copy a row of one table into a row of another."""
    for c in range(AMOUNTS):
        to[place, c] = source[row, c]
    if to.width > AMOUNTS:
        for c in range(AMOUNTS, to.width):
            to[place, c] = source[row, c]


@jit
def copy_all(source: Grid[int], to: Grid[int]) -> None:
    """Copy a table into another of the same size."""
    for row in range(len(to)):
        for c in range(AMOUNTS):
            to[row, c] = source[row, c]
    if to.width > AMOUNTS:
        for row in range(len(to)):
            for c in range(AMOUNTS, to.width):
                to[row, c] = source[row, c]


@jit
def take_held(kind: int, node: int, tasks: int, left: Grid[int], row: int, sim: Arrays) -> None:
    """Subtract what tasks of a kind hold on a node from a row."""
    for c in range(AMOUNTS):
        left[row, c] -= held(kind, node, tasks, c, sim)
    if left.width > AMOUNTS:
        change_consumables(kind, node, tasks, TAKE, left, row, sim)


@jit
def give_held(kind: int, node: int, tasks: int, left: Grid[int], row: int, sim: Arrays) -> None:
    """Add what tasks of a kind hold on a node to a row."""
    for c in range(AMOUNTS):
        left[row, c] += held(kind, node, tasks, c, sim)
    if left.width > AMOUNTS:
        change_consumables(kind, node, tasks, RETURN, left, row, sim)


@jit
def lend_held(
    kind: int, node: int, tasks: int, sign: int, left: Grid[int], row: int, sim: Arrays
) -> None:
    """Add what a suspended job lends to a row (`RETURN`), or subtract it (`TAKE`).

    The job keeps the memory, GPUs and consumables that its tasks request, and lends the rest.
    """
    for c in range(left.width):
        lent = held(kind, node, tasks, c, sim)
        if c != CORES and c != ALONE:
            lent -= tasks * sim.needs[kind, c]
        left[row, c] += sign * lent


@jit
def change_consumables(
    kind: int, node: int, tasks: int, sign: int, left: Grid[int], row: int, sim: Arrays
) -> None:
    """Add the consumables that tasks of a kind hold to a row, times ``sign``.

    This is separate so that what nearly all clusters need is inlined in loops over nodes.
    """
    for c in range(AMOUNTS, left.width):
        left[row, c] += sign * held(kind, node, tasks, c, sim)


@jit
def take_asked(kind: int, tasks: int, left: Grid[int], row: int, sim: Arrays) -> None:
    """Subtract what tasks request from a row, whether or not they are exclusive.

    Being alone on the node is not subtracted.
    """
    for c in range(ALONE):
        left[row, c] -= tasks * sim.needs[kind, c]
    for c in range(AMOUNTS, left.width):
        left[row, c] -= tasks * sim.needs[kind, c]


@jit
def tasks_on(kind: int, node: int, left: Grid[int], sim: Arrays) -> int:
    """Return how many tasks of a kind fit on a node, given what is left of it."""
    room = common_room(kind, node, left, sim)
    if room > 0 and left.width > AMOUNTS:
        room = min(room, consumables_on(kind, node, left, sim))
    return room


@jit
def has_common_room(kind: int, node: int, left: Grid[int], sim: Arrays) -> bool:
    """Return whether one task fits, by all amounts except consumables."""
    if sim.shape[kind].exclusive == 1:
        if left[node, ALONE] < ALL:
            return False
    elif left[node, ALONE] <= 0:
        return False
    for c in range(ALONE):
        if left[node, c] < sim.needs[kind, c]:
            return False
    return True


@jit
def has_room(kind: int, node: int, left: Grid[int], sim: Arrays) -> bool:
    """Return whether one task of a kind fits on a node, given what is left of it."""
    if not has_common_room(kind, node, left, sim):
        return False
    return left.width == AMOUNTS or consumables_on(kind, node, left, sim) > 0


@jit
def common_room(kind: int, node: int, left: Grid[int], sim: Arrays) -> int:
    """Return the same as `tasks_on`, by all amounts except consumables.

    It is small, so that it is inlined in loops over nodes.
    """
    if not has_common_room(kind, node, left, sim):
        return 0
    room = ALL
    for c in range(ALONE):
        if sim.needs[kind, c] > 0:
            room = min(room, left[node, c] // sim.needs[kind, c])
    return room


@jit
def consumables_on(kind: int, node: int, left: Grid[int], sim: Arrays) -> int:
    """Return the same as `tasks_on`, by consumables and single GPUs only."""
    room = ALL
    for c in range(AMOUNTS, left.width):
        if left[node, c] < sim.needs[kind, c]:
            return ZERO
        if sim.needs[kind, c] > 0:
            room = min(room, left[node, c] // sim.needs[kind, c])
    return room if sim.shape[kind].gpus == 0 else min(room, gpus_on(kind, node, left, sim))


@jit
def gpus_on(kind: int, node: int, left: Grid[int], sim: Arrays) -> int:
    """Return the same as `tasks_on`, by the single GPUs of a node.

    A fraction is on one GPU. A whole GPU must be entirely free.
    """
    room = ALL
    for r in range(ranges(kind, sim)):
        asked = asked_in(kind, r, sim)
        if asked > 0:
            begin = range_from(kind, r, left, sim)
            room = min(room, _room_among(asked, node, begin, range_upto(kind, r, left, sim), left))
    return room


@jit
def ranges(kind: int, sim: Arrays) -> int:
    """Return the number of column ranges in which GPUs are counted.

    If the kind requests types of GPUs, each type is a range; else all GPUs are one.
    """
    return sim.sharing.types if sim.shape[kind].typed == 1 else ONE


@jit
def asked_in(kind: int, r: int, sim: Arrays) -> int:
    """Return how much a task requests of the GPUs in a range, in thousandths."""
    if sim.shape[kind].typed == 0:
        return sim.needs[kind, GPUS]
    return sim.needs[kind, sim.needs.width - sim.sharing.gpus - sim.sharing.types + r]


@jit
def range_from(kind: int, r: int, left: Grid[int], sim: Arrays) -> int:
    """Return the first column of a range."""
    first = left.width - sim.sharing.gpus
    return first + sim.type_at[r] if sim.shape[kind].typed == 1 else first


@jit
def range_upto(kind: int, r: int, left: Grid[int], sim: Arrays) -> int:
    """Return the column after the last one of a range."""
    if sim.shape[kind].typed == 0:
        return left.width
    return left.width - sim.sharing.gpus + sim.type_at[r + 1]


@jit
def _room_among(asked: int, node: int, begin: int, upto: int, left: Grid[int]) -> int:
    """Return how many tasks fit on the GPUs in a range of columns."""
    part = asked % ONE_GPU
    whole = asked // ONE_GPU
    free = ZERO
    parts = ZERO
    for c in range(begin, upto):
        if left[node, c] == ONE_GPU:
            free += 1
        elif part > 0 and left[node, c] > 0:
            parts += left[node, c] // part
    if part == 0:
        return free // whole
    each = ONE_GPU // part
    if whole == 0:
        return parts + free * each
    room = ZERO
    for broken in range(free + 1):
        room = max(room, min((free - broken) // whole, parts + broken * each))
    return room
