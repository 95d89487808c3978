"""EASY on shared nodes, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.easy import Numbers, settings
from hpctwin.engine.preempting.fit_after_eviction import FITS_LATER
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.preempting.shared_start import (
    any_may_start,
    begin_interrupted,
    may_make_room,
    owe,
    starts,
    starts_or_preempts,
)
from hpctwin.engine.queue.order import order_candidates, pop_order
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.node_reservations import reserve_shared
from hpctwin.engine.shared.suspended_jobs import WAKE_SHARED
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["PASS"]


@jit
def keep_promises(owed: int, sim: Arrays) -> int:
    """Make the promises that are owed, in order; none is then."""
    for i in range(owed):
        reserve_shared(sim.order[i].job, ZERO, sim)
    return ZERO


def preempting_easy(sim: Arrays) -> None:
    """Jobs in order; who neither fits nor may make room for itself is promised nodes, as far as any are."""
    reservations = settings(sim.numbers)[0].reservations
    begin_interrupted(sim)
    if not any_may_start(sim):
        return
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0
    later = ZERO
    owed = ZERO
    for i in range(by_level(sim)):
        j = sim.later[i]
        kind = sim.job[j].kind
        q = sim.partition[kind]
        if sim.reservations_made[q] >= reservations:
            sim.later[later] = j
            later += 1
            continue
        if is_skipped_shared(j, sim):
            continue
        if may_fit(kind, sim) or may_make_room(j, sim):
            owed = keep_promises(owed, sim)
            if starts_or_preempts(j, sim):
                continue
        owed = owe(j, owed, sim)
        sim.reservations_made[q] += 1
    kept = ZERO
    for i in range(later):
        if may_fit(sim.job[sim.later[i]].kind, sim):
            sim.later[kept] = sim.later[i]
            kept += 1
    if kept == 0:
        return
    keep_promises(owed, sim)
    order_candidates(kept, sim)
    for m in range(kept, 0, -1):
        j = pop_order(m, sim)
        if not is_skipped_shared(j, sim):
            starts(j, sim)


PASS = SharedPass(
    Kernel(preempting_easy, types.void(SIM)),
    numbers=Numbers,
    promises=lambda numbers, partitions: numbers["reservations"] * partitions,
    fits_later=FITS_LATER,
    wake=WAKE_SHARED,
)
