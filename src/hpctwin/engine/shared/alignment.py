"""How well a job matches what is free on the nodes that it would get.

Source: Grandl et al., Tetris, SIGCOMM 2014.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit import goes_by_kind, is_there, mark_pools, may_fit, runs_apart
from hpctwin.engine.shared.mixed_tasks import fits_beside
from hpctwin.engine.shared.node_resources import ALONE, copy_all, give_held, tasks_on
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.state.layout import AMOUNTS, ZERO, Arrays

__all__ = ["alignment"]

NOT_MODELLED = 10**12
"""A node has at least this much of any amount that no node group states."""


@jit
def finds_room(j: int, sim: Arrays) -> bool:
    """Return whether a job fits now, whatever is reserved.

    It sets what `choose` reads.
    """
    kind = sim.job[j].kind
    shape = sim.shape[kind]
    now = sim.clock.now
    if goes_by_kind(kind, sim):
        return fits_beside(j, now, now + 1, sim.left, sim)
    mark_pools(kind, now, now + 1, sim)
    total = 0
    nodes = 0
    sim.rooms.first = len(sim.share)
    copy_all(sim.left, sim.min_free)
    for node in range(len(sim.share)):
        fits = 0
        if is_there(node, now, sim) and not runs_apart(kind, node, now, sim):
            fits = tasks_on(kind, node, sim.left, sim)
        sim.fits[node] = fits
        if fits > 0:
            if nodes == 0:
                sim.rooms.first = node
            total += min(fits, shape.most)
            nodes += 1
    return total >= shape.tasks and nodes >= shape.nodes


@jit
def _aligned(node: int, c: int, sim: Arrays) -> float:
    """Return share held × share free of one amount of a node.

    ``sim.min_free`` has the amount that the job would hold there.
    """
    asked = sim.min_free[node, c]
    if asked <= 0:
        return 0.0
    has = sim.whole[node, c]
    return (asked / has) * (sim.left[node, c] / has)


@jit
def alignment_on_nodes(j: int, sim: Arrays) -> float:
    """Return the sum over a job's nodes of share asked × share free.

    The result is -1 if the job does not fit. It holds for all jobs of a kind until a job starts.
    """
    kind = sim.job[j].kind
    stamp = sim.sharing.looks + sim.clock.starts
    if sim.aligned_at[kind] == stamp:
        return sim.aligned[kind]
    sim.aligned_at[kind] = stamp
    sim.aligned[kind] = -1.0
    if may_fit(kind, sim) and finds_room(j, sim):
        choose(j, sim)
        for node in range(len(sim.share)):
            for c in range(sim.min_free.width):
                sim.min_free[node, c] = 0  # what the job would hold there
        for n in range(sim.sharing.chosen):
            node = sim.chosen_nodes[n]
            give_held(sim.of_kind[n], node, sim.chosen_tasks[n], sim.min_free, node, sim)
        total = 0.0
        for node in range(len(sim.share)):
            for c in range(ALONE):
                if sim.whole[node, c] < NOT_MODELLED:
                    total += _aligned(node, c, sim)
            for c in range(AMOUNTS, sim.whole.width - sim.sharing.gpus):
                total += _aligned(node, c, sim)
        sim.aligned[kind] = total
    return sim.aligned[kind]


@jit
def alignment(j: int, sim: Arrays) -> float:
    """Return the sum over nodes and resources of share asked × share free.

    The resources are the cluster-wide ones. The result is -1 if the job does not fit now.
    """
    total = alignment_on_nodes(j, sim)
    pools = sim.rules.pools
    for c in range(sim.asks.width if total >= 0.0 else 0):
        amount = sim.amount[pools + c]
        if sim.asks[j, c] > max(ZERO, sim.stock[pools + c].free):
            return -1.0
        if amount > 0:
            total += (sim.asks[j, c] / amount) * (sim.stock[pools + c].free / amount)
    return total
