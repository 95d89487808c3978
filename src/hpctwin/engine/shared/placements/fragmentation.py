"""Task by task, where the GPUs that jobs of the workload cannot use grow least.

Weng et al., *Beware of Fragmentation* (USENIX ATC 2023), call it fragmentation gradient descent.
If jobs request fractions of GPUs, it also chooses the GPU of each fraction.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.shared.gpus import first_gpu, lay_part, lay_whole, tightest
from hpctwin.engine.shared.node_resources import (
    ALONE,
    GPUS,
    ONE_GPU,
    asked_in,
    gpus_on,
    range_from,
    range_upto,
    ranges,
    take_asked,
)
from hpctwin.engine.shared.placement import give, has_less
from hpctwin.engine.state.layout import AMOUNTS, NEVER, ONE, ZERO, Arrays

ENOUGH = 2**39
"""More than any modeled amount."""


@jit
def _uses(other: int, node: int, sim: Arrays) -> bool:
    """Return whether a task of another kind fits what is left of a node."""
    for c in range(ALONE):
        if sim.min_free[node, c] < sim.needs[other, c]:
            return False
    for c in range(AMOUNTS, first_gpu(sim.min_free, sim)):
        if sim.min_free[node, c] < sim.needs[other, c]:
            return False
    return sim.shape[other].gpus == 0 or gpus_on(other, node, sim.min_free, sim) > 0


@jit
def _lost(node: int, too_little: int, sim: Arrays) -> int:
    """Return what is left on a node's GPUs that have too little left, in thousandths.

    Less than ``too_little`` is too little. If GPUs are counted together, they are whole.
    """
    if sim.sharing.gpus == 0:
        return sim.min_free[node, GPUS] % too_little
    lost = ZERO
    for c in range(first_gpu(sim.min_free, sim), sim.min_free.width):
        if sim.min_free[node, c] < too_little:
            lost += max(ZERO, sim.min_free[node, c])
    return lost


@jit
def _of_other_types(kind: int, node: int, too_little: int, sim: Arrays) -> int:
    """Return what is left of a node's GPUs of types that a kind does not request.

    It is in thousandths. GPUs with less than ``too_little`` left do not count.
    """
    lost = ZERO
    for r in range(sim.sharing.types + 1):
        if r == sim.sharing.types or asked_in(kind, r, sim) == 0:
            first = first_gpu(sim.min_free, sim)
            for c in range(first + sim.type_at[r], first + sim.type_at[r + 1]):
                if sim.min_free[node, c] >= too_little:
                    lost += sim.min_free[node, c]
    return lost


@jit
def _useless(node: int, sim: Arrays) -> int:
    """Return the GPUs left on a node that typical jobs cannot use.

    It is a sum over kinds of jobs: thousandths of GPUs times the number of jobs of the kind.
    """
    if sim.whole[node, GPUS] > ENOUGH:
        return ZERO
    total = ZERO
    pool = sim.pool_of[node]
    for t in range(len(sim.typical)):
        other = sim.typical[t]
        asked = sim.needs[other, GPUS]
        too_little = ONE_GPU + sim.min_free[node, GPUS]  # all count
        if asked > 0 and sim.eligible[other, pool] != 0 and _uses(other, node, sim):
            too_little = min(asked, ONE_GPU)
            if sim.shape[other].typed == 1:
                lost = _of_other_types(other, node, too_little, sim)
                total += sim.shape[other].popularity * lost
        total += sim.shape[other].popularity * _lost(node, too_little, sim)
    return total


@jit
def _after(kind: int, node: int, gpu: int, sim: Arrays) -> int:
    """Return `_useless` with one more task on a node; NEVER if whole GPUs are missing.

    Args:
        kind: Kind of the task.
        node: Node.
        gpu: Column of the GPU for its fraction; below 0: none. Whole GPUs are the first free ones.
        sim: Simulation.
    """
    part = sim.needs[kind, GPUS] % ONE_GPU
    short = ZERO
    take_asked(kind, ONE, sim.min_free, node, sim)
    if gpu >= 0:
        sim.min_free[node, gpu] -= part
    if sim.shape[kind].gpus > 0:
        for r in range(ranges(kind, sim)):
            missing = asked_in(kind, r, sim) // ONE_GPU
            upto = range_upto(kind, r, sim.min_free, sim)
            for c in range(range_from(kind, r, sim.min_free, sim), upto):
                if missing > 0 and sim.min_free[node, c] == ONE_GPU:
                    sim.min_free[node, c] = -ONE_GPU
                    missing -= 1
            short += missing
    found = _useless(node, sim) if short == 0 else NEVER
    for c in range(first_gpu(sim.min_free, sim), sim.min_free.width):
        if sim.min_free[node, c] == -ONE_GPU:
            sim.min_free[node, c] = ONE_GPU
    if gpu >= 0:
        sim.min_free[node, gpu] += part
    take_asked(kind, -ONE, sim.min_free, node, sim)
    return found


@jit
def _best_gpu(kind: int, node: int, sim: Arrays) -> tuple[int, int]:
    """Return how much `_useless` grows with one more task, and its fraction's GPU.

    The GPU is given by its column; it is -1 if there is none.
    """
    before = _useless(node, sim)
    part = sim.needs[kind, GPUS] % ONE_GPU
    if sim.shape[kind].gpus == 0 or part == 0:
        return _after(kind, node, -ONE, sim) - before, -ONE
    if part < sim.needs[kind, GPUS]:
        gpu = tightest(kind, node, sim.min_free, sim)
        return _after(kind, node, gpu, sim) - before, gpu
    least = NEVER
    best = -ONE
    for r in range(ranges(kind, sim)):
        if asked_in(kind, r, sim) > 0:
            upto = range_upto(kind, r, sim.min_free, sim)
            for c in range(range_from(kind, r, sim.min_free, sim), upto):
                if sim.min_free[node, c] >= part:
                    after = _after(kind, node, c, sim)
                    if after < least:
                        least = after
                        best = c
    return least - before, best


@jit
def _is_better(node: int, best: int, sim: Arrays) -> bool:
    """Return whether `_useless` grows less on one node than on another.

    If it grows equally, the node with less left is better.
    """
    if sim.seats[node, 1] != sim.seats[best, 1]:
        return sim.seats[node, 1] < sim.seats[best, 1]
    return has_less(node, best, sim)


def place_fragmentation(j: int, sim: Arrays) -> None:
    """Place each task where it makes the fewest GPUs useless.

    ``sim.min_free`` is reduced by the job's own tasks.
    """
    kind = sim.sharing.kind
    shape = sim.shape[kind]
    sim.sharing.laid = 1
    for node in range(len(sim.share)):
        sim.seats[node, 0] = 0  # tasks of the job
        if sim.fits[node] > 0:
            sim.seats[node, 1], _ = _best_gpu(kind, node, sim)
    nodes = 0
    for left in range(shape.tasks, 0, -1):
        must_be_new = left <= shape.nodes - nodes
        best = -1
        for node in range(len(sim.share)):
            has = sim.seats[node, 0]
            if has >= min(sim.fits[node], shape.most) or (must_be_new and has > 0):
                continue
            if best < 0 or _is_better(node, best, sim):
                best = node
        if sim.seats[best, 0] == 0:
            nodes += 1
        sim.seats[best, 0] += 1
        if shape.gpus > 0:
            _, gpu = _best_gpu(kind, best, sim)
            if gpu >= 0:
                lay_part(kind, best, gpu, ONE, sim.min_free, sim)
            lay_whole(kind, best, ONE, sim.min_free, sim)
        take_asked(kind, ONE, sim.min_free, best, sim)
        if sim.seats[best, 0] < sim.fits[best]:
            sim.seats[best, 1], _ = _best_gpu(kind, best, sim)
    for node in range(len(sim.share)):
        if sim.seats[node, 0] > 0:
            give(node, sim.seats[node, 0], sim)


PLACE = Kernel(place_fragmentation, "void(int64, Sim)")
