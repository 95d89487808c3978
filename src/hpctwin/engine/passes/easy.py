"""EASY: the first jobs that cannot start get a reservation, and the others may not delay it."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import fits_at_once, fits_plan, plan_build, plan_fits, reserve
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.fast_passes.counted_passes import is_sorted, next_passing
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import order_candidates, order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import HEAD_IS_PROTECTED, ZERO, Arrays
from hpctwin.engine.state.records import Count

__all__ = ["PASS", "Numbers", "pass_easy"]


class Numbers:
    """What a policy may set."""

    reservations: Count = 1  # jobs per partition that are protected


settings = view(Numbers)


@jit
def open_partitions(sim: Arrays) -> int:
    """How many partitions have jobs waiting; each has all its reservations left."""
    if len(sim.reservations_made) == 1:
        sim.reservations_made[0] = 0
        return 1
    found = 0
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = -1
    for i in range(sim.clock.queued):
        q = sim.partition[sim.job[sim.queue[i]].kind]
        if sim.reservations_made[q] < 0:
            sim.reservations_made[q] = 0
            found += 1
    return found


@jit
def pass_planned(reservations: int, sim: Arrays) -> None:
    """The pass over a plan: several pools, resources, maintenance, several reservations."""
    plan_build(sim)
    # Partitions count as open while they have jobs waiting and reservations left; when the last one is
    # closed, all others are candidates and the order among them is theirs.
    still_open = open_partitions(sim)
    if reservations == 0:
        still_open = 0
    changes = sim.rules.order_changes == 1
    n = sim.clock.queued
    if changes:
        order_queue(sim)
    later = ZERO
    first = 0
    while first < n and still_open > 0:
        j = pop_order(n - first, sim) if changes else sim.queue[first]
        first += 1
        q = sim.partition[sim.job[j].kind]
        if sim.reservations_made[q] >= reservations:
            sim.later[later] = j
            later += 1
        elif is_skipped(j, sim):
            continue
        elif fits_plan(j, sim):
            start_now(j, sim)
        else:
            reserve(j, sim)
            sim.reservations_made[q] += 1
            if sim.reservations_made[q] == reservations:
                still_open -= 1
    if sim.rules.pools == 1 and is_sorted(sim):
        start_candidates(later, first, sim)
    else:
        start_scored_candidates(later, first, sim)


@jit
def start_candidates(later: int, first: int, sim: Arrays) -> None:
    """Let those start that delay no reservation, in the order of a queue that is kept in it, from one pool.

    Args:
        later: so many of ``sim.later`` come before the rest.
        first: where the rest of the queue begins.
        sim: the simulation.
    """
    for i in range(later):
        start_if_fits(sim.later[i], sim)
    # The row of the plan at which the last one did not fit: most do not there.
    tight = ZERO
    i = first
    while sim.stock[0].free >= sim.walk.fewest:
        free = sim.stock[0].free
        spare = sim.plan_amount[tight, 0]
        i = next_passing(i, free, spare, sim.plan_time[tight] - sim.clock.now, sim)
        if i >= sim.clock.queued:
            return
        row = start_if_fits(sim.queue[i], sim)
        if row >= 0:
            tight = row
        i += 1


@jit
def start_if_fits(j: int, sim: Arrays) -> int:
    """Start a candidate if it fits the plan; the row at which it does not, -1 if that is not why not."""
    if is_skipped(j, sim):
        return -1
    row = plan_fits(j, ZERO, sim)
    if row < 0:
        start_now(j, sim)
    return row


@jit
def start_scored_candidates(later: int, first: int, sim: Arrays) -> None:
    """As `start_candidates`, in the candidates' order, from any pools."""
    changes = sim.rules.order_changes == 1
    kept = 0
    for i in range(later):
        if fits_at_once(sim.later[i], sim):
            sim.later[kept] = sim.later[i]
            kept += 1
    one_pool = sim.rules.pools == 1
    for i in range(sim.clock.queued - first):
        j = sim.order[i].job if changes else sim.queue[first + i]
        # That is all, for most, and sooner told.
        if one_pool and sim.job[j].nodes > sim.stock[0].free:
            continue
        if fits_at_once(j, sim):
            sim.later[kept] = j
            kept += 1
    order_candidates(kept, sim)
    for m in range(kept, 0, -1):
        j = pop_order(m, sim)
        if not is_skipped(j, sim) and fits_plan(j, sim):
            start_now(j, sim)


@jit
def pass_easy(sim: Arrays) -> None:
    """EASY with the policy's number of reservations."""
    if may_start(sim):
        reckon_fairshare(sim)
        pass_planned(settings(sim.numbers)[0].reservations, sim)


PASS = Pass(
    Kernel(pass_easy, types.void(SIM), unrolled=False),
    numbers=Numbers,
    others=HEAD_IS_PROTECTED,
    keeps="it would delay the reservation of a job before it",
    shared="hpctwin.engine.shared.passes.easy",
)
