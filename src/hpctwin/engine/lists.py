"""The lists of pushdown: each waiting job is in one of three, between two neighbours.

The lists are rings through ``Sim.push``; the end of list ``k`` is the column ``k`` after the jobs'. The
waiting queue, which may be long and is searched from its first to its last, is kept in slots too: who goes
through them need not follow a ring through the memory.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    ASIDE,
    BLOCKED,
    LIST,
    LISTS,
    LOOKED,
    NEXT,
    PREVIOUS,
    PUSHED,
    RISEN,
    SLOT,
    SLOTTED,
    I64x2,
)


@jit()
def list_end(which: int, push: I64x2) -> int:
    """The column that stands for the end of a list."""
    return push.shape[1] - LISTS + which


@jit()
def list_first(which: int, push: I64x2) -> int:
    """The first of a list; its end if it is empty."""
    return push[NEXT, list_end(which, push)]


@jit()
def list_empty(which: int, push: I64x2) -> bool:
    """Whether a list is empty."""
    return list_first(which, push) == list_end(which, push)


@jit()
def list_insert(j: int, which: int, at: int, push: I64x2) -> None:
    """Put a job, which is in no list, before another of a list, or before its end."""
    before = push[PREVIOUS, at]
    push[NEXT, before] = j
    push[PREVIOUS, j] = before
    push[NEXT, j] = at
    push[PREVIOUS, at] = j
    push[LIST, j] = which


@jit()
def tidy_slots(push: I64x2) -> None:
    """Close the gaps that those who left the waiting queue have left in the slots."""
    end = list_end(ASIDE, push)
    kept = 0
    for i in range(push[SLOT, end]):
        j = push[SLOTTED, i]
        if j >= 0:
            push[SLOTTED, kept] = j
            push[SLOT, j] = kept
            kept += 1
    push[SLOT, end] = kept


@jit()
def put_aside(j: int, push: I64x2) -> None:
    """Put a job, which is in no list, at the end of the waiting queue."""
    end = list_end(ASIDE, push)
    list_insert(j, ASIDE, end, push)
    if push[SLOT, end] > 2 * push[SLOTTED, end] or push[SLOT, end] == push.shape[1] - LISTS:
        tidy_slots(push)
    n = push[SLOT, end]
    push[SLOTTED, n] = j
    push[SLOT, j] = n
    push[SLOT, end] = n + 1
    push[SLOTTED, end] += 1


@jit()
def list_remove(j: int, push: I64x2) -> None:
    """Take a job out of its list."""
    if push[LIST, j] == ASIDE:
        push[SLOTTED, push[SLOT, j]] = -1
        push[SLOTTED, list_end(ASIDE, push)] -= 1
    before = push[PREVIOUS, j]
    after = push[NEXT, j]
    push[NEXT, before] = after
    push[PREVIOUS, after] = before
    push[LIST, j] = -1


@jit()
def list_begin(j: int, which: int, push: I64x2) -> None:
    """Put a job that begins to wait at the end of a list, with nothing counted yet."""
    push[PUSHED, j] = 0
    push[RISEN, j] = 0
    push[BLOCKED, j] = -1
    push[LOOKED, j] = -1
    list_insert(j, which, list_end(which, push), push)
