"""The tightest node that fits all tasks; else the nodes that fit most tasks first."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.shared.placement import give, give_most, has_less, ready_at
from hpctwin.engine.state.layout import Arrays


@jit
def _is_tighter(node: int, best: int, sim: Arrays) -> bool:
    ready = ready_at(node, sim) - ready_at(best, sim)
    return ready < 0 or (ready == 0 and has_less(node, best, sim))


@jit
def _tightest(tasks: int, most: int, sim: Arrays) -> int:
    """Return the node with the least left that fits all tasks; -1 if there is none."""
    best = -1
    if tasks <= most:
        for node in range(len(sim.share)):
            if sim.fits[node] >= tasks and (best < 0 or _is_tighter(node, best, sim)):
                best = node
    return best


@jit
def _is_fuller(node: int, best: int, sim: Arrays) -> bool:
    ready = ready_at(node, sim) - ready_at(best, sim)
    if ready != 0:
        return ready < 0
    if sim.fits[node] != sim.fits[best]:
        return sim.fits[node] > sim.fits[best]
    return has_less(node, best, sim)


@jit
def _fullest(sim: Arrays) -> int:
    """Return the node that fits most tasks; of equal ones, that with the least left."""
    best = -1
    for node in range(len(sim.share)):
        if sim.fits[node] > 0 and (best < 0 or _is_fuller(node, best, sim)):
            best = node
    return best


def place_best_fit(j: int, sim: Arrays) -> None:
    """Place all tasks on the tightest node that they fit, or on the fewest nodes."""
    shape = sim.shape[sim.sharing.kind]
    left = shape.tasks
    if shape.nodes <= 1:
        node = _tightest(left, shape.most, sim)
        if node >= 0:
            give(node, left, sim)
            return
    while left > 0:
        left = give_most(_fullest(sim), left, sim)


PLACE = Kernel(place_best_fit, "void(int64, Sim)")
