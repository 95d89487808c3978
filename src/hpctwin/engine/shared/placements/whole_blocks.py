"""Block by block: the tightest one that suffices, else the one with most capacity."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.containers.switch_blocks import (
    add_room,
    forget_room,
    gap,
    next_block,
    take_off,
)
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import Arrays


@jit
def use_blocks(gaps: bool, sim: Arrays) -> None:
    """Place as many tasks as possible on each node, block by block.

    Args:
        gaps: Whether to fill gaps; else to use few blocks, below the lowest switch that fits.
        sim: Simulation.
    """
    sharing = sim.sharing
    shape = sim.shape[sharing.kind]
    left = shape.tasks
    forget_room(sim)
    for node in range(len(sim.share)):
        if sim.fits[node] > 0:
            add_room(node, min(sim.fits[node], shape.most), sim)
    top = -1
    while left > 0:
        missing = shape.nodes - (sharing.chosen - sharing.before)
        if gaps:
            block = gap(left, missing, sim)
        else:
            block, top = next_block(left, missing, top, sim)
        take_off(block, sim)
        for node in range(len(sim.share)):
            if left > 0 and sim.switch_of[node] == block:
                left = give_most(node, left, sim)


def place_whole_blocks(j: int, sim: Arrays) -> None:
    """Use as few blocks as possible, below the lowest switch that all tasks fit."""
    use_blocks(False, sim)


PLACE = Kernel(place_whole_blocks, "void(int64, Sim)")
