"""The shortest sufficient run of nodes with consecutive numbers."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import ZERO, Arrays


@jit
def _shortest(tasks: int, nodes: int, most: int, sim: Arrays) -> int:
    """Return the first node of the shortest run that fits all tasks; -1 if none does."""
    best = -1
    length = len(sim.share) + 1
    first = 0
    room = ZERO
    for node in range(len(sim.share)):
        if sim.fits[node] <= 0:
            first = node + 1
            room = ZERO
            continue
        room += min(sim.fits[node], most)
        while room - min(sim.fits[first], most) >= tasks and node - first >= nodes:
            room -= min(sim.fits[first], most)
            first += 1
        if room >= tasks and node - first + 1 >= nodes and node - first + 1 < length:
            best = first
            length = node - first + 1
    return best


@jit
def _longest(most: int, sim: Arrays) -> int:
    """Return the first node of the run of nodes with the most capacity."""
    best = -1
    largest = ZERO
    room = ZERO
    for node in range(len(sim.share)):
        if sim.fits[node] <= 0:
            room = ZERO
            continue
        room += min(sim.fits[node], most)
        if node + 1 == len(sim.share) or sim.fits[node + 1] <= 0:
            if room > largest:
                largest = room
                best = node
    while best > 0 and sim.fits[best - 1] > 0:
        best -= 1
    return best


def place_contiguous(j: int, sim: Arrays) -> None:
    """Use one run if it fits all tasks; else the runs with most capacity first."""
    shape = sim.shape[sim.sharing.kind]
    left = shape.tasks
    node = _shortest(left, shape.nodes, shape.most, sim)
    while left > 0:
        if node < 0 or node >= len(sim.share) or sim.fits[node] <= 0:
            node = _longest(shape.most, sim)
        left = give_most(node, left, sim)
        node += 1


PLACE = Kernel(place_contiguous, "void(int64, Sim)")
