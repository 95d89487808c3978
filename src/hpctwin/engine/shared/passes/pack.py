"""The pass that packs, on shared nodes; see `passes.pack`.

A job is aligned with each of the nodes that it would get.
"""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.pack import ENTERED, Numbers, Own, begin, own, settings
from hpctwin.engine.queue.order import before, order_queue, pop_order, reckon_fairshare
from hpctwin.engine.shared.fit import (
    goes_by_kind,
    is_skipped_shared,
    is_there,
    mark_pools,
    may_fit,
    runs_apart,
)
from hpctwin.engine.shared.mixed_tasks import fits_beside
from hpctwin.engine.shared.node_reservations import reserve_shared
from hpctwin.engine.shared.node_resources import ALONE, copy_all, give_held, tasks_on
from hpctwin.engine.shared.passes.common import any_may_fit, begin_anew, start_if_it_fits
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.state.layout import AMOUNTS, NEVER, WAITING, ZERO, Arrays

__all__ = ["PASS"]

NOT_MODELLED = 10**12
"""A node has so much of what no node group states."""


@jit
def longest_waiting(sim: Arrays) -> int:
    """The waiting job that was eligible first, if its patience is over; else -1."""
    now = sim.clock.now
    patience = settings(sim.numbers)[0].patience
    keeps = own(sim.own)[0]
    if now - keeps.oldest < patience:
        return -1
    keeps.oldest = NEVER
    found = -1
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if sim.state[j].phase != WAITING:
            continue
        since = sim.state[j].eligible
        keeps.oldest = min(keeps.oldest, since)
        if now - since < patience or is_skipped_shared(j, sim):
            continue
        if found < 0 or before(float(since), j, float(sim.state[found].eligible), found, sim):
            found = j
    return found


@jit
def protect(sim: Arrays) -> int:
    """Start those whose patience is over, by eligible time; promise nodes to the first that does not fit.

    Returns that one, or -1.
    """
    while True:
        j = longest_waiting(sim)
        if j < 0:
            return -1
        if not start_if_it_fits(j, sim):
            reserve_shared(j, ZERO, sim)
            return j


@jit
def finds_room(j: int, sim: Arrays) -> bool:
    """Whether nodes have room for a job at this moment, whatever is promised; leaves what `choose` needs."""
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
    """Share held × share free of an amount of a node, of what a job would hold there (``sim.min_free``)."""
    asked = sim.min_free[node, c]
    if asked <= 0:
        return 0.0
    has = sim.whole[node, c]
    return (asked / has) * (sim.left[node, c] / has)


@jit
def alignment_on_nodes(j: int, sim: Arrays) -> float:
    """Sum over the nodes that a job would get of share asked × share free; -1 if it finds no room.

    It is that of all jobs of its kind, as long as nothing starts.
    """
    kind = sim.job[j].kind
    if sim.aligned_at[kind] == sim.sharing.looks:
        return sim.aligned[kind]
    sim.aligned_at[kind] = sim.sharing.looks
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
    """Sum over nodes and cluster-wide resources of share asked × share free; -1 if it does not fit now."""
    total = alignment_on_nodes(j, sim)
    pools = sim.rules.pools
    for c in range(sim.asks.width if total >= 0.0 else 0):
        amount = sim.amount[pools + c]
        if sim.asks[j, c] > max(ZERO, sim.stock[pools + c].free):
            return -1.0
        if amount > 0:
            total += (sim.asks[j, c] / amount) * (sim.stock[pools + c].free / amount)
    return total


@jit
def candidates(protected: int, sim: Arrays) -> int:
    """Put those of the first ``depth`` jobs that fit into ``later``; into ``stack`` how many come before."""
    n = sim.clock.queued
    changes = sim.rules.order_changes == 1
    if changes:
        order_queue(sim)
    found = 0
    for i in range(min(n, settings(sim.numbers)[0].depth)):
        if changes:
            j = pop_order(n - i, sim)
        else:
            j = sim.queue[i]
        if sim.state[j].phase != WAITING or j == protected:
            continue
        if alignment(j, sim) >= 0.0 and not is_skipped_shared(j, sim):
            sim.later[found] = j
            sim.stack[found] = i
            found += 1
    return found


@jit
def take_best(found: int, sim: Arrays) -> int:
    """Start the candidate of the largest value if it fits the plan; how many candidates are left."""
    n = sim.clock.queued
    best = -1
    most = -1.0
    kept = 0
    for i in range(found):
        j = sim.later[i]
        aligned = alignment(j, sim)
        if aligned < 0.0:
            continue
        sim.later[kept] = j
        sim.stack[kept] = sim.stack[i]
        value = (1.0 - 0.5 * sim.stack[i] / n) * aligned / sim.job[j].expected
        if value > most:
            most = value
            best = kept
        kept += 1
    if best < 0:
        return 0
    j = sim.later[best]
    for i in range(best, kept - 1):
        sim.later[i] = sim.later[i + 1]
        sim.stack[i] = sim.stack[i + 1]
    if not is_skipped_shared(j, sim) and start_if_it_fits(j, sim):
        sim.sharing.looks += 1  # what is free is another now
    return kept - 1


def shared_pack(sim: Arrays) -> None:
    """Protect who has waited longest, then fill what is free with what goes best."""
    begin_anew(sim)
    if not any_may_fit(sim):
        return
    reckon_fairshare(sim)
    protected = protect(sim)
    sim.sharing.looks += 1
    found = candidates(protected, sim)
    while found > 0:
        found = take_best(found, sim)


PASS = SharedPass(
    Kernel(shared_pack, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    entered=ENTERED,
    promises=lambda numbers, partitions: 1,
)
