"""The pass of PAS on shared nodes; see `passes.pushdown`."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.pushdown import (
    ENTERED,
    LEFT,
    Numbers,
    Own,
    any_waits,
    begin,
    is_adjacent,
    kept,
    own,
    promote_for_new,
    push_down,
    settings,
    take_in,
    wait_for_cycle,
)
from hpctwin.engine.queue.pushdown_lists import (
    ASIDE,
    LISTS,
    MAIN,
    Push,
    has_gaps,
    list_empty,
    list_end,
    list_first,
    list_remove,
    tidy_slots,
)
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit, short_resource
from hpctwin.engine.shared.passes.common import begin_anew, fits_plan_now, start_chosen
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = ["PASS"]


@jit
def shortage(j: int, sim: Arrays) -> int:
    """What keeps a job from starting: -1 nothing, 0 nodes, else 1 + the number of the resource."""
    if is_skipped_shared(j, sim):
        return ZERO
    short = short_resource(j, sim.clock.now, sim)
    if short >= 0:
        return 1 + short
    return ZERO - 1 if may_fit(sim.job[j].kind, sim) and fits_plan_now(j, sim) else ZERO


@jit
def next_that_fits(slot: int, sim: Arrays) -> int:
    """The slot, from one on, of the first job of the waiting queue that fits; -1 if none does."""
    push = kept(sim.kept)
    for i in range(slot, push[list_end(ASIDE, push)].slot):
        j = push[i].slotted
        if j >= 0 and may_fit(sim.job[j].kind, sim) and shortage(j, sim) < 0:
            return i
    return ZERO - 1


@jit
def start_aside(limit: int, sim: Arrays) -> None:
    """Go through the waiting queue once: each that fits starts."""
    push = kept(sim.kept)
    if has_gaps(push):
        tidy_slots(push)
    slot = ZERO
    while sim.clock.running < limit:
        slot = next_that_fits(slot, sim)
        if slot < 0:
            return
        j = push[slot].slotted
        list_remove(j, push)
        start_chosen(j, sim)


@jit
def start_main(limit: int, sim: Arrays) -> bool:
    """Look at the first of the main queue, again and again; whether any was pushed down."""
    push = kept(sim.kept)
    now = sim.clock.now
    pushed = False
    while sim.clock.running < limit:
        j = list_first(MAIN, push)
        if j == list_end(MAIN, push) or push[j].looked == now:
            break
        short = shortage(j, sim)
        if short >= 0:
            push[j].looked = now
            push[j].blocked = short
            push_down(j, sim)
            pushed = True
            continue
        if not is_adjacent(j, sim):
            break
        list_remove(j, push)
        start_chosen(j, sim)
    return pushed


def shared_pushdown(sim: Arrays) -> None:
    """One cycle, if one is due; sets the timer for the next."""
    numbers = settings(sim.numbers)[0]
    now = sim.clock.now
    cycle = now // numbers.interval
    if now % numbers.interval != 0 or own(sim.own)[0].cycle_at == now:
        sim.clock.timer = (cycle + 1) * numbers.interval
        return
    own(sim.own)[0].cycle_at = now
    promote_for_new(sim)
    take_in(sim)
    begin_anew(sim)
    started = sim.clock.starts
    limit = NEVER if numbers.parallel == 0 else numbers.parallel
    looks = (cycle + 1) % numbers.every == 0 or list_empty(MAIN, kept(sim.kept))
    if looks:
        start_aside(limit, sim)
    pushed = start_main(limit, sim)
    changed = pushed or sim.clock.starts > started
    may_look = not changed and not looks and sim.clock.running < limit
    if any_waits(sim) and (changed or (may_look and next_that_fits(ZERO, sim) >= 0)):
        sim.clock.timer = wait_for_cycle(changed, sim)


PASS = SharedPass(
    Kernel(shared_pushdown, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    kept=Push,
    more_rows=LISTS,
    begin=begin,
    entered=ENTERED,
    left=LEFT,
    promises=lambda numbers, partitions: 0,
)
