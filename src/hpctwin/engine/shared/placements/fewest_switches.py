"""Below the lowest switch that has room for the job, on as few switches as possible."""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import Arrays
from hpctwin.engine.rows import SIM
from hpctwin.engine.shared.placing import give_most


@jit
def _sum_up(most: int, sim: Arrays) -> None:
    """Room below each switch, in ``sim.below``."""
    for s in range(len(sim.switch)):
        sim.below[s, 0] = 0
        sim.below[s, 1] = 0
    for node in range(len(sim.share)):
        if sim.fits[node] > 0:
            s = sim.switch_of[node]
            sim.below[s, 0] += min(sim.fits[node], most)
            sim.below[s, 1] += 1
    for s in range(len(sim.switch)):
        above = sim.switch[s].above
        if above >= 0:
            sim.below[above, 0] += sim.below[s, 0]
            sim.below[above, 1] += sim.below[s, 1]


@jit
def _lowest(tasks: int, nodes: int, sim: Arrays) -> int:
    """The lowest switch with room for all, of equal ones that with the least; -1 if there is none."""
    best = -1
    for s in range(len(sim.switch)):
        if sim.below[s, 0] < tasks or sim.below[s, 1] < nodes:
            continue
        as_low = best >= 0 and sim.switch[s].height == sim.switch[best].height
        if best < 0 or (as_low and sim.below[s, 0] < sim.below[best, 0]):
            best = s
    return best


@jit
def _is_below(s: int, top: int, sim: Arrays) -> bool:
    while s >= 0 and s != top:
        s = sim.switch[s].above
    return s == top


@jit
def _roomiest(top: int, sim: Arrays) -> int:
    """The switch with nodes that has the most room of those below another, or of all."""
    best = -1
    for s in range(len(sim.switch)):
        if sim.switch[s].height > 0 or sim.below[s, 0] <= 0:
            continue
        if top >= 0 and not _is_below(s, top, sim):
            continue
        if best < 0 or sim.below[s, 0] > sim.below[best, 0]:
            best = s
    return best


def place_fewest_switches(j: int, sim: Arrays) -> None:
    """The nodes of one switch after the other, the one with most room first."""
    shape = sim.shape[sim.sharing.kind]
    left = shape.tasks
    _sum_up(shape.most, sim)
    top = _lowest(left, shape.nodes, sim)
    while left > 0:
        s = _roomiest(top, sim)
        sim.below[s, 0] = 0
        for node in range(len(sim.share)):
            if left > 0 and sim.switch_of[node] == s:
                left = give_most(node, left, sim)


PLACE = Kernel(place_fewest_switches, types.void(int64, SIM))
