"""The order in which jobs are gone through: those that may preempt others come before them."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import NEVER, ZERO, Arrays
from hpctwin.engine.order import order_queue, pop_order


@jit
def by_level(sim: Arrays) -> int:
    """Put all that wait into ``sim.later``: by falling level of their classes, then in order; how many."""
    n = order_queue(sim)
    changes = sim.rules.order_changes == 1
    for i in range(n):
        j = pop_order(n - i, sim) if changes else sim.queue[i]
        sim.stack[i] = j
    kept = ZERO
    level = NEVER
    while kept < n:
        below = ZERO - 1
        for i in range(n):
            own = sim.yields[sim.claim[sim.stack[i]].standing].level
            if own == level:
                sim.later[kept] = sim.stack[i]
                kept += 1
            elif own < level:
                below = max(below, own)
        level = below
    return n
