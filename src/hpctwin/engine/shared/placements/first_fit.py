"""Nodes by number."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.shared.placement import give_most, ready_at
from hpctwin.engine.state.layout import SOONEST, Arrays


@jit
def _soonest(sim: Arrays) -> int:
    """Return the node that is on first, of the nodes on which a task fits."""
    best = -1
    for node in range(len(sim.share)):
        if sim.fits[node] > 0 and (best < 0 or ready_at(node, sim) < ready_at(best, sim)):
            best = node
    return best


def place_first_fit(j: int, sim: Arrays) -> None:
    """Place as many tasks as possible on each node in turn."""
    left = sim.shape[sim.sharing.kind].tasks
    node = sim.rooms.first - 1
    while left > 0:
        node = _soonest(sim) if sim.rules.preferred == SOONEST else node + 1
        left = give_most(node, left, sim)


PLACE = Kernel(place_first_fit, "void(int64, Sim)")
