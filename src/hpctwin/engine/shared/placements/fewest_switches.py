"""Nodes below the lowest switch that the job fits, on the fewest switches."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.containers.switch_blocks import add_room, forget_room, lowest, roomiest
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import Arrays


def place_fewest_switches(j: int, sim: Arrays) -> None:
    """Use the nodes of one switch after the other, most capacity first."""
    shape = sim.shape[sim.sharing.kind]
    left = shape.tasks
    forget_room(sim)
    for node in range(len(sim.share)):
        if sim.fits[node] > 0:
            add_room(node, min(sim.fits[node], shape.most), sim)
    top = lowest(left, shape.nodes, -1, sim)
    while left > 0:
        s = roomiest(top, sim)
        sim.below[s, 0] = 0
        for node in range(len(sim.share)):
            if left > 0 and sim.switch_of[node] == s:
                left = give_most(node, left, sim)


PLACE = Kernel(place_fewest_switches, "void(int64, Sim)")
