"""Task by task to where the GPUs that jobs of this workload cannot use grow least.

Weng et al., *Beware of Fragmentation* (USENIX ATC 2023), call it fragmentation gradient descent. GPUs of a
node are counted together here, so that parts of GPUs lie on as few of them as can be.
"""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import AMOUNTS, ONE, ZERO, Arrays
from hpctwin.engine.rows import SIM
from hpctwin.engine.shared.amounts import ALONE, GPUS, take_asked
from hpctwin.engine.shared.placing import give

ONE_GPU = 1000


@jit
def _left(node: int, kind: int, tasks: int, c: int, sim: Arrays) -> int:
    """What is left of an amount of a node with so many more tasks of a kind of job."""
    return sim.least[node, c] - tasks * sim.needs[kind, c]


@jit
def _uses(other: int, node: int, kind: int, tasks: int, sim: Arrays) -> bool:
    """Whether there is room for another kind of job beside these tasks."""
    for c in range(ALONE):
        if _left(node, kind, tasks, c, sim) < sim.needs[other, c]:
            return False
    for c in range(AMOUNTS, sim.needs.width):
        if _left(node, kind, tasks, c, sim) < sim.needs[other, c]:
            return False
    return True


@jit
def _useless(node: int, kind: int, tasks: int, sim: Arrays) -> int:
    """Thousandths of GPUs that typical jobs cannot use of what is left of a node, times jobs."""
    total = ZERO
    pool = sim.pool_of[node]
    gpus = _left(node, kind, tasks, GPUS, sim)
    part = gpus % ONE_GPU
    for t in range(len(sim.typical)):
        other = sim.typical[t]
        asked = sim.needs[other, GPUS]
        lost = gpus
        if asked > 0 and sim.eligible[other, pool] != 0 and _uses(other, node, kind, tasks, sim):
            lost = part if asked >= ONE_GPU or part < asked else ZERO
        total += sim.shape[other].popularity * lost
    return total


@jit
def _rise(kind: int, node: int, sim: Arrays) -> int:
    """By how much that grows with one more task of a kind of job."""
    return _useless(node, kind, ONE, sim) - _useless(node, kind, ZERO, sim)


def place_fragmentation(j: int, sim: Arrays) -> None:
    """Each task where it strands the fewest GPUs; ``sim.least`` counts the job's own."""
    kind = sim.sharing.kind
    shape = sim.shape[kind]
    for node in range(len(sim.share)):
        sim.seats[node, 0] = 0  # tasks of the job
        if sim.fits[node] > 0:
            sim.seats[node, 1] = _rise(kind, node, sim)
    nodes = 0
    for left in range(shape.tasks, 0, -1):
        must_be_new = left <= shape.nodes - nodes
        best = -1
        for node in range(len(sim.share)):
            has = sim.seats[node, 0]
            if has >= min(sim.fits[node], shape.most) or (must_be_new and has > 0):
                continue
            if best < 0 or sim.seats[node, 1] < sim.seats[best, 1]:
                best = node
        if sim.seats[best, 0] == 0:
            nodes += 1
        sim.seats[best, 0] += 1
        take_asked(kind, ONE, sim.least, best, sim)
        sim.seats[best, 1] = _rise(kind, best, sim)
    for node in range(len(sim.share)):
        if sim.seats[node, 0] > 0:
            give(node, sim.seats[node, 0], sim)


PLACE = Kernel(place_fragmentation, types.void(int64, SIM))
