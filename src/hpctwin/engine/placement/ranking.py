"""Placement by a score function: the nodes with the lowest scores."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.intrinsics import ranked_by
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.policy_modules import NodeView
from hpctwin.engine.containers.node_sets import is_free
from hpctwin.engine.placement.job_nodes import claim
from hpctwin.engine.queue.order import decayed, fair_of, seen
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["divide_by_score", "place_ranked"]


def divide_by_score(j: int, sim: Arrays) -> None:
    """Do the same as `place_by_score`; compiled once for all passes."""
    kind = sim.job[j].kind
    for p in range(sim.rules.pools):
        sim.take[p] = 0
        if sim.eligible[kind, p] == 0:
            sim.low[p] = 0
    left = sim.job[j].nodes
    n = rank_free(j, sim)
    while left > 0:
        p = sim.pool_of[pop_ranked(n, sim)]
        n -= 1
        if sim.low[p] > 0:
            sim.low[p] -= 1
            sim.take[p] += 1
            left -= 1


def place_ranked(j: int, sim: Arrays) -> None:
    """Claim the nodes with the lowest scores, ``sim.take`` of each pool."""
    left = 0
    for p in range(sim.rules.pools):
        sim.low[p] = sim.take[p]
        left += sim.take[p]
    n = rank_free(j, sim)
    while left > 0:
        node = pop_ranked(n, sim)
        n -= 1
        p = sim.pool_of[node]
        if sim.low[p] > 0:
            sim.low[p] -= 1
            left -= 1
            claim(j, node, sim)


@jit
def rank_free(j: int, sim: Arrays) -> int:
    """Heap the free nodes of pools with ``sim.low`` above 0 by score; return how many."""
    factor = 1.0
    current = 0.0
    if sim.rules.fairshare == 1:
        factor, current = fair_of(sim.job[j].share, decayed(len(sim.promised), sim), sim)
    job = seen(j, sim.clock.now, factor, current, sim)
    now = sim.clock.now
    n = 0
    for p in range(sim.rules.pools):
        if sim.low[p] <= 0:
            continue
        fact = sim.pool_fact[p]
        for i in range(sim.pool[p].first, sim.pool[p].last):
            node = sim.by_pool[i]
            if not is_free(node, sim):
                continue
            wakes = 0
            if sim.rules.depths > 0:
                wakes = active_from(node, sim) - now
            own = ranked_by(
                sim.hooks.place,
                now / 1000.0,
                job,
                NodeView(
                    float(node),
                    fact.group,
                    fact.cores,
                    fact.gpus,
                    fact.memory_gb,
                    sim.pool[p].speed,
                    fact.idle_w,
                    fact.active_w,
                    wakes / 1000.0,
                    float(sim.stock[p].free),
                ),
            )
            if own != own:
                sim.clock.bad_job = j
                sim.clock.bad_node = node
            sim.ranked[n].score = own
            sim.ranked[n].node = node
            n += 1
    for i in range(n // 2 - 1, -1, -1):
        _sink(n, i, sim)
    return n


@jit
def pop_ranked(n: int, sim: Arrays) -> int:
    """Remove the node with the lowest score from the heap of ``n``; ties go by number."""
    first = sim.ranked[0].node
    sim.ranked[0].score = sim.ranked[n - 1].score
    sim.ranked[0].node = sim.ranked[n - 1].node
    _sink(n - 1, ZERO, sim)
    return first


@jit
def _comes_first(a: int, b: int, sim: Arrays) -> bool:
    one = sim.ranked[a]
    other = sim.ranked[b]
    return one.score < other.score or (one.score == other.score and one.node < other.node)


@jit
def _sink(n: int, i: int, sim: Arrays) -> None:
    """Sink an entry of the heap of ``n`` nodes to its place."""
    while True:
        least = i
        for child in range(2 * i + 1, min(2 * i + 3, n)):
            if _comes_first(child, least, sim):
                least = child
        if least == i:
            return
        score = sim.ranked[i].score
        node = sim.ranked[i].node
        sim.ranked[i].score = sim.ranked[least].score
        sim.ranked[i].node = sim.ranked[least].node
        sim.ranked[least].score = score
        sim.ranked[least].node = node
        i = least
