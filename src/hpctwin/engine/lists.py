"""The lists of pushdown: each waiting job is in one of three, between two neighbours.

The lists are rings through ``Sim.push``; the end of list ``k`` is the column ``k`` after the jobs'.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BLOCKED,
    LIST,
    LISTS,
    LOOKED,
    NEXT,
    PREVIOUS,
    PUSHED,
    RISEN,
    Sim,
)


@jit()
def list_end(which: int, sim: Sim) -> int:
    """The column that stands for the end of a list."""
    return sim.push.shape[1] - LISTS + which


@jit()
def list_first(which: int, sim: Sim) -> int:
    """The first of a list; its end if it is empty."""
    return sim.push[NEXT, list_end(which, sim)]


@jit()
def list_insert(j: int, which: int, at: int, sim: Sim) -> None:
    """Put a job, which is in no list, before another of a list, or before its end."""
    before = sim.push[PREVIOUS, at]
    sim.push[NEXT, before] = j
    sim.push[PREVIOUS, j] = before
    sim.push[NEXT, j] = at
    sim.push[PREVIOUS, at] = j
    sim.push[LIST, j] = which


@jit()
def list_remove(j: int, sim: Sim) -> None:
    """Take a job out of its list."""
    before = sim.push[PREVIOUS, j]
    after = sim.push[NEXT, j]
    sim.push[NEXT, before] = after
    sim.push[PREVIOUS, after] = before
    sim.push[LIST, j] = -1


@jit()
def list_begin(j: int, which: int, sim: Sim) -> None:
    """Put a job that begins to wait at the end of a list, with nothing counted yet."""
    sim.push[PUSHED, j] = 0
    sim.push[RISEN, j] = 0
    sim.push[BLOCKED, j] = -1
    sim.push[LOOKED, j] = -1
    list_insert(j, which, list_end(which, sim), sim)
