"""Room below switches, of which those with nodes are blocks: which of them comes next."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import Arrays

__all__ = ["add_room", "forget_room", "lowest", "next_block", "roomiest", "take_off"]


@jit
def forget_room(sim: Arrays) -> None:
    """Say that there is no room below any switch (``sim.below``)."""
    for s in range(len(sim.switch)):
        sim.below[s, 0] = 0
        sim.below[s, 1] = 0


@jit
def add_room(node: int, tasks: int, sim: Arrays) -> None:
    """Say that a node has room for so many tasks."""
    s = sim.switch_of[node]
    while s >= 0:
        sim.below[s, 0] += tasks
        sim.below[s, 1] += 1
        s = sim.switch[s].above


@jit
def take_off(block: int, sim: Arrays) -> None:
    """Say that there is no room any more in a block."""
    tasks = sim.below[block, 0]
    nodes = sim.below[block, 1]
    s = block
    while s >= 0:
        sim.below[s, 0] -= tasks
        sim.below[s, 1] -= nodes
        s = sim.switch[s].above


@jit
def is_below(s: int, top: int, sim: Arrays) -> bool:
    """Whether a switch is below another, or that one; below -1 is each."""
    if top < 0:
        return True
    while s >= 0 and s != top:
        s = sim.switch[s].above
    return s == top


@jit
def lowest(tasks: int, nodes: int, top: int, sim: Arrays) -> int:
    """The lowest switch with room for so much, of equal ones that with the least; -1 if there is none.

    Of those below another, or of all.
    """
    best = -1
    for s in range(len(sim.switch)):
        if sim.below[s, 0] < tasks or sim.below[s, 1] < nodes or not is_below(s, top, sim):
            continue
        as_low = best >= 0 and sim.switch[s].height == sim.switch[best].height
        if best < 0 or (as_low and sim.below[s, 0] < sim.below[best, 0]):
            best = s
    return best


@jit
def roomiest(top: int, sim: Arrays) -> int:
    """The block with the most room of those below a switch, or of all."""
    best = -1
    for s in range(len(sim.switch)):
        if sim.switch[s].height > 0 or sim.below[s, 0] <= 0 or not is_below(s, top, sim):
            continue
        if best < 0 or sim.below[s, 0] > sim.below[best, 0]:
            best = s
    return best


@jit
def next_block(tasks: int, nodes: int, top: int, sim: Arrays) -> tuple[int, int]:
    """The block on which a job's tasks go on: the tightest that suffices, else the roomiest.

    Args:
        tasks: so many are left.
        nodes: so many are missing to those that it must have.
        top: the switch below which it lies; -1 for any.
        sim: the simulation.

    Returns:
        The block, and the lowest switch below which all that is left fits.
    """
    found = lowest(tasks, nodes, top, sim)
    if found < 0:
        found = top
    return roomiest(found, sim), found
