"""Nodes in a random order, drawn with the seed again after each start of a job."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.placement.node_selection import STEP, draw_below, mixed
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import Arrays


def place_random(j: int, sim: Arrays) -> None:
    """Place as many tasks as possible on each node, in a random order.

    The order depends on nothing but the seed and the number of jobs started before. A reservation
    draws nothing, so the number of searches for it does not matter.
    """
    nodes = len(sim.share)
    for node in range(nodes):
        sim.seats[node, 0] = node  # the order; the first ``drawn`` places are final
    state = mixed(sim.clock.random + STEP * sim.clock.starts)
    left = sim.shape[sim.sharing.kind].tasks
    drawn = 0
    while left > 0:
        state += STEP
        place = drawn + draw_below(nodes - drawn, state)
        node = sim.seats[place, 0]
        sim.seats[place, 0] = sim.seats[drawn, 0]
        drawn += 1
        left = give_most(node, left, sim)


PLACE = Kernel(place_random, "void(int64, Sim)")
