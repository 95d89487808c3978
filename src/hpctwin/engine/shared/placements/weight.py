"""Nodes by the weight of their group, the smallest first."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import Arrays


@jit
def _lightest(sim: Arrays) -> int:
    best = -1
    lightest = 0.0
    for node in range(len(sim.share)):
        weight = sim.pool_fact[sim.pool_of[node]].weight
        if sim.fits[node] > 0 and (best < 0 or weight < lightest):
            best = node
            lightest = weight
    return best


def place_weight(j: int, sim: Arrays) -> None:
    """Place as many tasks as possible on each node, the lightest first."""
    left = sim.shape[sim.sharing.kind].tasks
    while left > 0:
        left = give_most(_lightest(sim), left, sim)


PLACE = Kernel(place_weight, "void(int64, Sim)")
