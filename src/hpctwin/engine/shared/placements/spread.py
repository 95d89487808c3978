"""Task by task, to the node with the most left."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.shared.node_resources import take_asked
from hpctwin.engine.shared.placement import give, has_less
from hpctwin.engine.state.layout import ONE, Arrays


def place_spread(j: int, sim: Arrays) -> None:
    """Place each task on the least loaded node.

    ``sim.min_free`` is reduced by the job's own tasks.
    """
    kind = sim.sharing.kind
    shape = sim.shape[kind]
    for node in range(len(sim.share)):
        sim.seats[node, 0] = 0  # tasks of the job
    nodes = 0
    for left in range(shape.tasks, 0, -1):
        must_be_new = left <= shape.nodes - nodes
        best = -1
        for node in range(len(sim.share)):
            has = sim.seats[node, 0]
            if has >= min(sim.fits[node], shape.most) or (must_be_new and has > 0):
                continue
            if best < 0 or has_less(best, node, sim):
                best = node
        if sim.seats[best, 0] == 0:
            nodes += 1
        sim.seats[best, 0] += 1
        take_asked(kind, ONE, sim.min_free, best, sim)
    for node in range(len(sim.share)):
        if sim.seats[node, 0] > 0:
            give(node, sim.seats[node, 0], sim)


PLACE = Kernel(place_spread, "void(int64, Sim)")
