"""OpenPBS's scheduler on shared nodes; see `passes.pbs`."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.pbs import (
    CLOSES,
    ENDS,
    NOTHING,
    RESERVES,
    Numbers,
    in_turn,
    lifted_at,
    note_reserved,
    open_queues,
    owe,
    set_timer,
    what_becomes,
)
from hpctwin.engine.queue.eligibility import at_any_limit
from hpctwin.engine.shared.fit import asks_too_much_shared, may_fit
from hpctwin.engine.shared.node_reservations import reserve_shared
from hpctwin.engine.shared.passes.common import (
    any_may_fit,
    begin_anew,
    start_if_it_fits,
)
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = ["PASS"]


@jit
def cycle(sim: Arrays) -> bool:
    """As `passes.pbs.cycle`; jobs that do not fit are promised nodes for this cycle."""
    top = ZERO
    owed = ZERO
    size = in_turn(sim)
    left_out = sim.rules.order_changes == 1 and size < sim.clock.queued
    backfills = open_queues(sim)
    for i in range(size):
        j = sim.later[i]
        q = sim.partition[sim.job[j].kind]
        fits = may_fit(sim.job[j].kind, sim) and not at_any_limit(j, sim)
        then = what_becomes(q, top, backfills, sim)
        if (
            sim.reservations_made[q] < 0
            or (not fits and then == NOTHING)
            or asks_too_much_shared(j, sim)
        ):
            continue
        if fits:
            for k in range(owed):
                reserve_shared(sim.stack[k], sim.later[k], sim)
            owed = ZERO
            if start_if_it_fits(j, sim):
                if not any_may_fit(sim):
                    break
                continue
        if then == ENDS:
            break
        if then == CLOSES:
            sim.reservations_made[q] = -1
        since = lifted_at(j, sim) if then == RESERVES else NEVER
        if since < NEVER:
            owed = owe(j, since, owed, sim)
            top = note_reserved(q, top, sim)
    return left_out


def shared_pbs(sim: Arrays) -> None:
    """A scheduling cycle."""
    started = sim.clock.starts
    begin_anew(sim)
    left_out = any_may_fit(sim) and cycle(sim)
    set_timer(started, left_out, sim)


PASS = SharedPass(
    Kernel(shared_pbs, types.void(SIM)),
    numbers=Numbers,
    promises=lambda numbers, partitions: numbers["backfill_depth"],
)
