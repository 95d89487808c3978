"""The order in which jobs are gone through: those that may preempt others come before them."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import order_queue, pop_order
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays


@jit
def by_level(sim: Arrays) -> int:
    """Put all that wait into ``sim.later``: by falling level of their classes, then in order; how many."""
    size = order_queue(sim)
    changes = sim.rules.order_changes == 1
    n = ZERO
    for i in range(size):
        j = pop_order(size - i, sim) if changes else sim.queue[i]
        # Who started in this pass, and may yet be put back, is still in the queue.
        if sim.state[j].phase == WAITING:
            sim.stack[n] = j
            n += 1
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
