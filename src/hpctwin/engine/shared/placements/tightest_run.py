"""Of the runs of nodes that follow each other by number, the one with the fewest cores free that suffices.

As Slurm's selection of parts of nodes without a topology (22.05: ``_eval_nodes`` of cons_tres).
"""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import ZERO, Arrays
from hpctwin.engine.rows import SIM
from hpctwin.engine.shared.amounts import CORES
from hpctwin.engine.shared.placing import give_most


@jit
def _best_run(tasks: int, nodes: int, most: int, sim: Arrays) -> int:
    """The first node of the best run of nodes with room; one that is as good as the best so far is not it."""
    best = -1
    best_suffices = False
    best_cores = ZERO
    first = -1
    room = ZERO
    cores = ZERO
    for node in range(len(sim.share) + 1):
        if node < len(sim.share) and sim.fits[node] > 0:
            if first < 0:
                first = node
                room = ZERO
                cores = ZERO
            room += min(sim.fits[node], most)
            cores += sim.least[node, CORES]
        elif first >= 0:
            suffices = room >= tasks and node - first >= nodes
            if suffices:
                better = not best_suffices or cores < best_cores
            else:
                better = cores > best_cores
            if best < 0 or better:
                best = first
                best_suffices = suffices
                best_cores = cores
            first = -1
    return best


@jit
def _tightest(first: int, tasks: int, most: int, sim: Arrays) -> int:
    """Of the nodes of a run that can have all tasks, the one with the fewest cores free; -1 for none."""
    best = -1
    node = first
    while tasks <= most and node < len(sim.share) and sim.fits[node] > 0:
        if sim.fits[node] >= tasks:
            if best < 0 or sim.least[node, CORES] < sim.least[best, CORES]:
                best = node
        node += 1
    return best


def place_tightest_run(j: int, sim: Arrays) -> None:
    """One node of the best run, if it can have all; else those of that run by number, and so on."""
    sharing = sim.sharing
    shape = sim.shape[sharing.kind]
    left = shape.tasks
    while left > 0:
        nodes = shape.nodes - (sharing.chosen - sharing.before)
        node = _best_run(left, nodes, shape.most, sim)
        if nodes <= 1:
            alone = _tightest(node, left, shape.most, sim)
            if alone >= 0:
                give_most(alone, left, sim)
                return
        while left > 0 and node < len(sim.share) and sim.fits[node] > 0:
            left = give_most(node, left, sim)
            node += 1


PLACE = Kernel(place_tightest_run, types.void(int64, SIM))
