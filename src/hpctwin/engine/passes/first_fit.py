"""First fit: everyone that fits starts, in order; no one is protected."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import fits_at_once, fits_plan, plan_build
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import heap_order, pop_order, reckon_fairshare, score
from hpctwin.engine.state.layout import ANYONE_PASSES, ZERO, Arrays

__all__ = ["PASS", "pass_first_fit"]


@jit
def pass_planned(sim: Arrays) -> None:
    """The pass over a plan: several pools, resources, maintenance."""
    plan_build(sim)
    later = ZERO
    # What does not fit at this moment cannot start; only the rest needs an order.
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if fits_at_once(j, sim):
            sim.order[later].job = j
            if sim.rules.order_changes == 1:
                sim.order[later].score = score(sim.hooks.order, j, sim)
            else:
                sim.order[later].score = sim.state[j].key
            later += 1
    heap_order(later, sim)
    for n in range(later, 0, -1):
        j = pop_order(n, sim)
        if not is_skipped(j, sim) and fits_plan(j, sim):
            start_now(j, sim)


@jit
def pass_first_fit(sim: Arrays) -> None:
    """Everyone that fits starts, in order."""
    if may_start(sim):
        reckon_fairshare(sim)
        pass_planned(sim)


PASS = Pass(
    Kernel(pass_first_fit, types.void(SIM)),
    others=ANYONE_PASSES,
    keeps="its user may run no more, or too few nodes that suit it are free",
    shared="hpctwin.engine.shared.passes.first_fit",
)
