"""Nodes by the score of a custom function, the smallest first."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.intrinsics import ranked_by
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.policy_modules import NodeView
from hpctwin.engine.queue.order import decayed, fair_of, seen
from hpctwin.engine.shared.node_resources import CORES, GPUS, MEMORY
from hpctwin.engine.shared.placement import give_most
from hpctwin.engine.state.layout import Arrays

MB_PER_GB = 1024.0
ENOUGH = 2**39
"""More than any modeled amount."""


@jit
def _amount(node: int, c: int, unit: float, sim: Arrays) -> float:
    """Return the minimum free amount of a node over the span; 0 if it is not modeled."""
    return 0.0 if sim.whole[node, c] > ENOUGH else sim.min_free[node, c] / unit


@jit
def _score_all(j: int, sim: Arrays) -> None:
    factor = 1.0
    current = 0.0
    if sim.rules.fairshare == 1:
        factor, current = fair_of(sim.job[j].share, decayed(len(sim.promised), sim), sim)
    now = sim.clock.now
    job = seen(j, now, factor, current, sim)
    for node in range(len(sim.share)):
        if sim.fits[node] <= 0:
            continue
        pool = sim.pool_of[node]
        fact = sim.pool_fact[pool]
        wakes = 0
        if sim.rules.depths > 0:
            wakes = active_from(node, sim) - now
        score = ranked_by(
            sim.hooks.place,
            now / 1000.0,
            job,
            NodeView(
                float(node),
                fact.group,
                _amount(node, CORES, 1000.0, sim),
                _amount(node, GPUS, 1000.0, sim),
                _amount(node, MEMORY, MB_PER_GB, sim),
                sim.pool[pool].speed,
                fact.idle_w,
                fact.active_w,
                wakes / 1000.0,
                float(sim.stock[pool].free),
            ),
        )
        if score != score:
            sim.clock.bad_job = j
            sim.clock.bad_node = node
        sim.ranked[node].score = score


def place_scored(j: int, sim: Arrays) -> None:
    """Place as many tasks as possible on each node, the smallest score first."""
    _score_all(j, sim)
    left = sim.shape[sim.sharing.kind].tasks
    while left > 0:
        best = -1
        for node in range(len(sim.share)):
            if sim.fits[node] > 0:
                if best < 0 or sim.ranked[node].score < sim.ranked[best].score:
                    best = node
        left = give_most(best, left, sim)


PLACE = Kernel(place_scored, "void(int64, Sim)")
