"""The run of consecutive node numbers with the fewest free cores that suffices.

It follows Slurm's selection of parts of nodes without a topology (22.05: ``_eval_nodes`` of
cons_tres). If a job requests GPUs or consumables, only cores that it could have are counted
(``gres_select_filter_sock_core``). Nodes with more of its GPUs free then come first
(``can_job_run_on_node``: they weigh less).
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.shared.node_resources import (
    CORES,
    GPUS,
    asked_in,
    range_from,
    range_upto,
    ranges,
)
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import AMOUNTS, ZERO, Arrays


@jit
def _asks_gres(kind: int, sim: Arrays) -> bool:
    """Return whether a kind of job requests more than cores and memory."""
    if sim.needs[kind, GPUS] > 0:
        return True
    for c in range(AMOUNTS, sim.needs.width):
        if sim.needs[kind, c] > 0:
            return True
    return False


@jit
def _cores(kind: int, node: int, gres: bool, sim: Arrays) -> int:
    """Return the number of cores of a node that count.

    These are all free cores, or as many as the job can have.
    """
    if gres:
        return min(sim.fits[node], sim.shape[kind].most) * sim.needs[kind, CORES]
    return sim.min_free[node, CORES]


@jit
def _near(kind: int, node: int, sim: Arrays) -> int:
    """Return how many of a job's requested GPUs are free on a node, in thousandths.

    It is at most what the job would have there.
    """
    asked = sim.needs[kind, GPUS]
    if asked == 0:
        return ZERO
    shape = sim.shape[kind]
    most = asked if shape.tasks == shape.nodes else asked * shape.tasks
    if shape.gpus == 0:
        return min(sim.min_free[node, GPUS], most)
    free = ZERO
    for r in range(ranges(kind, sim)):
        if asked_in(kind, r, sim) > 0:
            for c in range(
                range_from(kind, r, sim.min_free, sim), range_upto(kind, r, sim.min_free, sim)
            ):
                free += sim.min_free[node, c]
    return min(free, most)


@jit
def _goes_on(kind: int, first: int, node: int, sim: Arrays) -> bool:
    """Return whether a node belongs to the run that begins with one before it."""
    if node >= len(sim.share) or sim.fits[node] == 0:
        return False
    return _near(kind, node, sim) == _near(kind, first, sim)


@jit
def _best_run(kind: int, tasks: int, nodes: int, gres: bool, sim: Arrays) -> int:
    """Return the first node of the best run; of equal ones, the first run is best."""
    most = sim.shape[kind].most
    best = -1
    best_suffices = False
    best_cores = ZERO
    first = 0
    while first < len(sim.share):
        if sim.fits[first] == 0:
            first += 1
            continue
        room = ZERO
        cores = ZERO
        node = first
        while node == first or _goes_on(kind, first, node, sim):
            room += min(sim.fits[node], most)
            cores += _cores(kind, node, gres, sim)
            node += 1
        suffices = room >= tasks and node - first >= nodes
        ahead = ZERO if best < 0 else _near(kind, first, sim) - _near(kind, best, sim)
        if suffices:
            better = not best_suffices or cores < best_cores
        else:
            better = cores > best_cores
        if best < 0 or ahead > 0 or (ahead == 0 and better):
            best = first
            best_suffices = suffices
            best_cores = cores
        first = node
    return best


@jit
def _tightest(kind: int, first: int, tasks: int, gres: bool, sim: Arrays) -> int:
    """Return the node with the fewest cores in a run, of the nodes that fit all tasks.

    Returns:
        The node; -1 if there is none.
    """
    best = -1
    least = ZERO
    node = first
    while tasks <= sim.shape[kind].most and (node == first or _goes_on(kind, first, node, sim)):
        if sim.fits[node] >= tasks:
            cores = _cores(kind, node, gres, sim)
            if best < 0 or cores < least:
                best = node
                least = cores
        node += 1
    return best


def place_tightest_run(j: int, sim: Arrays) -> None:
    """Use one node of the best run if it fits all tasks; else the nodes of the run.

    The nodes of a run are used by number. This repeats until all tasks are placed.
    """
    sharing = sim.sharing
    kind = sharing.kind
    shape = sim.shape[kind]
    gres = _asks_gres(kind, sim)
    left = shape.tasks
    while left > 0:
        nodes = shape.nodes - (sharing.chosen - sharing.before)
        first = _best_run(kind, left, nodes, gres, sim)
        if nodes <= 1:
            alone = _tightest(kind, first, left, gres, sim)
            if alone >= 0:
                give_most(alone, left, sim)
                return
        upto = first + 1
        while _goes_on(kind, first, upto, sim):
            upto += 1
        for node in range(first, upto):
            if left > 0:
                left = give_most(node, left, sim)


PLACE = Kernel(place_tightest_run, "void(int64, Sim)")
