"""Nodes in turn, from the one after the last on which a job started."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import Arrays


def place_round_robin(j: int, sim: Arrays) -> None:
    """Place as many tasks as possible on each node, after the last job's nodes."""
    left = sim.shape[sim.sharing.kind].tasks
    node = sim.sharing.turn - 1
    while left > 0:
        node = (node + 1) % len(sim.share)
        left = give_most(node, left, sim)


PLACE = Kernel(place_round_robin, "void(int64, Sim)")
