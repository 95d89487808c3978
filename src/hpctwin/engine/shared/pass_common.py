"""What the passes on shared nodes have in common."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import Arrays
from hpctwin.engine.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.plan import plan_build
from hpctwin.engine.shared.moving import start_shared, take_from_promises
from hpctwin.engine.shared.placing import choose
from hpctwin.engine.shared.promises import forget_all
from hpctwin.engine.shared.room import begin_pass, fits_over, resources_fit


@jit
def jobs_in_order(sim: Arrays) -> int:
    """Put all that wait into ``sim.later``, in the ordering's order; how many."""
    reckon_fairshare(sim)
    if sim.rules.order_changes == 0:
        for i in range(sim.clock.queued):
            sim.later[i] = sim.queue[i]
        return sim.clock.queued
    size = order_queue(sim)
    for n in range(size, 0, -1):
        sim.later[size - n] = pop_order(n, sim)
    return size


@jit
def begin_anew(sim: Arrays) -> None:
    """A pass begins in which nothing is promised yet."""
    begin_pass(sim)
    forget_all(sim)
    if sim.asks.width > 0:
        plan_build(sim)


@jit
def start_if_it_fits(j: int, sim: Arrays) -> bool:
    """Start a job if it fits the plan from now on; whether it did."""
    now = sim.clock.now
    if not (resources_fit(j, now, sim) and fits_over(j, now, sim.left, sim)):
        return False
    choose(j, sim)
    start_shared(j, sim)
    take_from_promises(j, now, sim)
    return True
