"""Free capacity below the switches of a cluster, and which block is used next.

A block is a switch with nodes. ``sim.below`` holds the tasks and nodes that fit below each switch.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ONE, Arrays

__all__ = ["add_room", "forget_room", "gap", "lowest", "next_block", "roomiest", "take_off"]


@jit
def forget_room(sim: Arrays) -> None:
    """Set the free capacity below all switches (``sim.below``) to zero."""
    for s in range(len(sim.switch)):
        sim.below[s, 0] = 0
        sim.below[s, 1] = 0


@jit
def add_room(node: int, tasks: int, sim: Arrays) -> None:
    """Add a node's capacity for tasks to all switches above it."""
    s = sim.switch_of[node]
    while s >= 0:
        sim.below[s, 0] += tasks
        sim.below[s, 1] += 1
        s = sim.switch[s].above


@jit
def take_off(block: int, sim: Arrays) -> None:
    """Remove a block's free capacity from it and all switches above it."""
    tasks = sim.below[block, 0]
    nodes = sim.below[block, 1]
    s = block
    while s >= 0:
        sim.below[s, 0] -= tasks
        sim.below[s, 1] -= nodes
        s = sim.switch[s].above


@jit
def is_below(s: int, top: int, sim: Arrays) -> bool:
    """Return whether a switch is another or below it; -1 is above all switches."""
    if top < 0:
        return True
    while s >= 0 and s != top:
        s = sim.switch[s].above
    return s == top


@jit
def lowest(tasks: int, nodes: int, top: int, sim: Arrays) -> int:
    """Return the lowest switch with enough capacity; -1 if there is none.

    Among equally low switches, the one with the least capacity comes first.

    Args:
        tasks: Number of tasks that must fit.
        nodes: Number of nodes that must have capacity.
        top: Switch that it must equal or be below; -1 for any.
        sim: Simulation.
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
    """Return the block with the most capacity below a switch (-1: of all); -1 if none."""
    best = -1
    for s in range(len(sim.switch)):
        if sim.switch[s].height > 0 or sim.below[s, 0] <= 0 or not is_below(s, top, sim):
            continue
        if best < 0 or sim.below[s, 0] > sim.below[best, 0]:
            best = s
    return best


@jit
def gap(tasks: int, nodes: int, sim: Arrays) -> int:
    """Return the fullest block that fits; else the last one with some capacity.

    Args:
        tasks: Number of tasks still to place.
        nodes: Number of nodes still missing to the job's minimum.
        sim: Simulation.
    """
    found = lowest(tasks, nodes, -ONE, sim)
    if found >= 0 and sim.switch[found].height == 0:
        return found
    for s in range(len(sim.switch)):
        if sim.switch[s].height == 0 and sim.below[s, 0] > 0:
            found = s
    return found


@jit
def next_block(tasks: int, nodes: int, top: int, sim: Arrays) -> tuple[int, int]:
    """Choose the block for a job's next tasks: the tightest fit, else the freest.

    Args:
        tasks: Number of tasks still to place.
        nodes: Number of nodes still missing to the job's minimum.
        top: Switch below which the job must stay; -1 for any.
        sim: Simulation.

    Returns:
        The block, and the lowest switch below which all remaining tasks fit (``top`` if there is
        none).
    """
    found = lowest(tasks, nodes, top, sim)
    if found < 0:
        found = top
    return roomiest(found, sim), found
