"""EASY, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import fits_at_once, fits_plan, reserve
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.jobs.suspended_jobs import WAKE
from hpctwin.engine.passes import Pass
from hpctwin.engine.passes.easy import Numbers
from hpctwin.engine.preempting.eviction import build_plan, start, starts_or_preempts
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import order_candidates, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["PASS", "pass_easy"]

settings = view(Numbers)


@jit
def pass_easy(sim: Arrays) -> None:
    """Jobs in order; who neither fits nor may make room for itself has a reservation, as far as there are."""
    reckon_fairshare(sim)
    build_plan(sim)
    reservations = settings(sim.numbers)[0].reservations
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0
    later = ZERO
    for i in range(by_level(sim)):
        j = sim.later[i]
        q = sim.partition[sim.job[j].kind]
        if sim.reservations_made[q] >= reservations:
            sim.later[later] = j
            later += 1
        elif not is_skipped(j, sim) and not starts_or_preempts(j, sim):
            reserve(j, sim)
            sim.reservations_made[q] += 1
    kept = ZERO
    for i in range(later):
        if fits_at_once(sim.later[i], sim):
            sim.later[kept] = sim.later[i]
            kept += 1
    order_candidates(kept, sim)
    for m in range(kept, 0, -1):
        j = pop_order(m, sim)
        if not is_skipped(j, sim) and fits_plan(j, sim):
            start(j, sim)


PASS = Pass(
    Kernel(pass_easy, types.void(SIM)),
    numbers=Numbers,
    wake=WAKE,
    shared="hpctwin.engine.preempting.passes.shared_easy",
)
