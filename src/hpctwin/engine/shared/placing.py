"""Which nodes a job gets of those that have room for it, and how many of its tasks each."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import BEST_FIT, SPREAD, Arrays
from hpctwin.engine.shared.room import CORES, GPUS, MEMORY


@jit
def choose(j: int, sim: Arrays) -> None:
    """Choose nodes of those in ``sim.fits``, where the job fits, into ``sim.chosen`` and ``sim.given``.

    First fit costs a step for each node, the others one for each node and node chosen (spread: task).
    """
    sim.sharing.chosen = 0
    if sim.rules.placement == SPREAD:
        _spread(j, sim)
        return
    shape = sim.shape[sim.job[j].kind]
    left = shape.tasks
    best_fit = sim.rules.placement == BEST_FIT
    if best_fit and shape.nodes <= 1:
        node = _tightest(left, shape.most, sim)
        if node >= 0:
            _give(node, left, sim)
            return
    node = -1
    while left > 0:
        node = _fullest(sim) if best_fit else node + 1
        fits = min(sim.fits[node], shape.most)
        if fits > 0:
            tasks = min(fits, left - max(0, shape.nodes - sim.sharing.chosen - 1))
            _give(node, tasks, sim)
            left -= tasks
        sim.fits[node] = 0


@jit
def _give(node: int, tasks: int, sim: Arrays) -> None:
    n = sim.sharing.chosen
    sim.chosen[n] = node
    sim.given[n] = tasks
    sim.sharing.chosen = n + 1


@jit
def has_less(a: int, b: int, sim: Arrays) -> bool:
    """Whether one node has less left than another: GPUs, then cores, then memory."""
    if sim.least[a, GPUS] != sim.least[b, GPUS]:
        return sim.least[a, GPUS] < sim.least[b, GPUS]
    if sim.least[a, CORES] != sim.least[b, CORES]:
        return sim.least[a, CORES] < sim.least[b, CORES]
    return sim.least[a, MEMORY] < sim.least[b, MEMORY]


@jit
def _tightest(tasks: int, most: int, sim: Arrays) -> int:
    """Of the nodes that alone can have all tasks, the one with the least left; -1 if there is none."""
    best = -1
    if tasks <= most:
        for node in range(len(sim.share)):
            if sim.fits[node] >= tasks and (best < 0 or has_less(node, best, sim)):
                best = node
    return best


@jit
def _fullest(sim: Arrays) -> int:
    """The node with room for most tasks; of equal ones that with the least left."""
    best = 0
    for node in range(1, len(sim.share)):
        if sim.fits[node] > sim.fits[best] or (
            sim.fits[node] == sim.fits[best] and has_less(node, best, sim)
        ):
            best = node
    return best


@jit
def _spread(j: int, sim: Arrays) -> None:
    """Task by task to the node with the most left; ``sim.least`` counts the job's own."""
    kind = sim.job[j].kind
    shape = sim.shape[kind]
    for node in range(len(sim.share)):
        sim.base[node, 0] = 0  # tasks of the job
    nodes = 0
    for left in range(shape.tasks, 0, -1):
        must_be_new = left <= shape.nodes - nodes
        best = -1
        for node in range(len(sim.share)):
            has = sim.base[node, 0]
            if has >= min(sim.fits[node], shape.most) or (must_be_new and has > 0):
                continue
            if best < 0 or has_less(best, node, sim):
                best = node
        if sim.base[best, 0] == 0:
            nodes += 1
        sim.base[best, 0] += 1
        for c in range(3):
            sim.least[best, c] -= sim.needs[kind, c]
    for node in range(len(sim.share)):
        if sim.base[node, 0] > 0:
            _give(node, sim.base[node, 0], sim)
