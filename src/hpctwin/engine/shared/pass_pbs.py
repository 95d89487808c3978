"""OpenPBS's scheduler on shared nodes; see `passes.pbs`."""

from __future__ import annotations

from numba import types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import ZERO, Arrays
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.pbs import (
    CLOSES,
    ENDS,
    NOTHING,
    RESERVES,
    Numbers,
    in_turn,
    note_reserved,
    open_queues,
    set_timer,
    what_becomes,
)
from hpctwin.engine.rows import SIM
from hpctwin.engine.shared.pass_common import (
    any_may_fit,
    begin_anew,
    start_if_it_fits,
)
from hpctwin.engine.shared.promises import reserve_shared
from hpctwin.engine.shared.room import is_skipped_shared, may_fit

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
        fits = may_fit(sim.job[j].kind, sim)
        if sim.handed_out[q] < 0 or (not fits and what_becomes(q, top, backfills, sim) == NOTHING):
            continue
        if is_skipped_shared(j, sim):
            continue
        if fits:
            for k in range(owed):
                reserve_shared(sim.stack[k], ZERO, sim)
            owed = ZERO
            if start_if_it_fits(j, sim):
                if not any_may_fit(sim):
                    break
                continue
        then = what_becomes(q, top, backfills, sim)
        if then == ENDS:
            break
        if then == CLOSES:
            sim.handed_out[q] = -1
        if then == RESERVES:
            sim.stack[owed] = j
            owed += 1
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
