"""Which GPUs of a node a job's tasks use, if GPUs are counted one by one.

GPUs are counted one by one if jobs request fractions of them, or nodes have several types. The
fraction that a task requests is on one GPU. A whole GPU is used by no other job.

A job holds each GPU as another part of the node, next to the parts with its cores and memory. Such
a part is a task of a kind that requests only this GPU (`Shape.part_on`, `Shape.whole_on`). An
exclusive job holds the whole node anyway.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.node_resources import (
    GPUS,
    ONE_GPU,
    asked_in,
    range_from,
    range_upto,
    ranges,
)
from hpctwin.engine.state.layout import ONE, Arrays
from hpctwin.engine.state.records import Grid

__all__ = ["first_gpu", "hold", "lay", "lay_chosen", "lay_part", "lay_whole", "tightest"]


@jit
def first_gpu(left: Grid[int], sim: Arrays) -> int:
    """Return the column of the first GPU."""
    return left.width - sim.sharing.gpus


@jit
def hold(kind: int, node: int, tasks: int, sim: Arrays) -> None:
    """Add a part of a node to the parts that are chosen for a job."""
    n = sim.sharing.chosen
    sim.chosen_nodes[n] = node
    sim.chosen_tasks[n] = tasks
    sim.of_kind[n] = kind
    sim.sharing.chosen = n + 1


@jit
def tightest(kind: int, node: int, left: Grid[int], sim: Arrays) -> int:
    """Return the GPU with the least left that suffices for the fraction of a task.

    Returns:
        Its column; -1 if none suffices.
    """
    best = -1
    for r in range(ranges(kind, sim)):
        part = asked_in(kind, r, sim) % ONE_GPU
        if part > 0:
            for c in range(range_from(kind, r, left, sim), range_upto(kind, r, left, sim)):
                if left[node, c] >= part and (best < 0 or left[node, c] < left[node, best]):
                    best = c
    return best


@jit
def lay_part(kind: int, node: int, gpu: int, tasks: int, left: Grid[int], sim: Arrays) -> None:
    """Place the fractions of ``tasks`` tasks on a GPU, given by its column."""
    if sim.shape[kind].exclusive == 0:
        hold(sim.shape[kind].part_on + gpu - first_gpu(left, sim), node, tasks, sim)
    left[node, gpu] -= tasks * (sim.needs[kind, GPUS] % ONE_GPU)


@jit
def lay_whole(kind: int, node: int, tasks: int, left: Grid[int], sim: Arrays) -> None:
    """Place the whole GPUs of ``tasks`` tasks on the first free ones, for each type."""
    first = first_gpu(left, sim)
    for r in range(ranges(kind, sim)):
        missing = tasks * (asked_in(kind, r, sim) // ONE_GPU)
        for c in range(range_from(kind, r, left, sim), range_upto(kind, r, left, sim)):
            if missing > 0 and left[node, c] == ONE_GPU:
                if sim.shape[kind].exclusive == 0:
                    hold(sim.shape[kind].whole_on + c - first, node, ONE, sim)
                left[node, c] = 0
                missing -= 1
        assert missing == 0


@jit
def lay(kind: int, node: int, tasks: int, left: Grid[int], sim: Arrays) -> None:
    """Place tasks on GPUs of a node: fractions on the tightest, whole ones by number.

    Fractions are placed first.

    Args:
        kind: Kind of the tasks; if its GPUs are not counted one by one, nothing is done.
        node: Node of the tasks.
        tasks: Number of tasks, at most as many as fit there.
        left: Free amounts of each node, which are reduced.
        sim: Simulation, to which the chosen parts are added.
    """
    if sim.shape[kind].gpus == 0:
        return
    part = sim.needs[kind, GPUS] % ONE_GPU
    missing = tasks if part > 0 else 0
    while missing > 0:
        gpu = tightest(kind, node, left, sim)
        assert gpu >= 0
        several = min(missing, left[node, gpu] // part)
        lay_part(kind, node, gpu, several, left, sim)
        missing -= several
    lay_whole(kind, node, tasks, left, sim)


@jit
def lay_chosen(kind: int, sim: Arrays) -> None:
    """Place a kind's tasks on GPUs of the chosen nodes, if the placement has not."""
    sharing = sim.sharing
    upto = sharing.chosen
    if sim.shape[kind].gpus == 0 or sharing.laid == 1:
        return
    for n in range(sharing.before, upto):
        lay(kind, sim.chosen_nodes[n], sim.chosen_tasks[n], sim.min_free, sim)
