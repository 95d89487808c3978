"""EASY on shared nodes: the first jobs that cannot start are promised nodes, which no other may take."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.easy import Numbers, settings
from hpctwin.engine.queue.order import order_candidates, pop_order
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.node_reservations import reserve_shared
from hpctwin.engine.shared.passes.common import (
    MANY_KINDS,
    any_may_fit,
    begin_anew,
    is_longer,
    jobs_in_order,
    nth,
    start_if_it_fits,
)
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["PASS"]


@jit
def starts_after_promises(j: int, owed: int, sim: Arrays) -> bool:
    """Make the promises that are owed (``sim.stack``), in order; then start a job if it still fits.

    They matter only to a job that could start without them; in most passes there is none, and none is made.
    """
    for i in range(owed):
        reserve_shared(sim.stack[i], ZERO, sim)
    return start_if_it_fits(j, sim)


@jit
def try_candidate(j: int, owed: int, sim: Arrays) -> int:
    """Start a candidate if it fits beside what is promised; how many promises are still owed then, or -1.

    -1 where nobody who waits could start any more.
    """
    if is_longer(j, sim) or not may_fit(sim.job[j].kind, sim) or is_skipped_shared(j, sim):
        return owed
    started = starts_after_promises(j, owed, sim)
    return -1 if started and not any_may_fit(sim) else 0


@jit
def all_promised(reservations: int, sim: Arrays) -> bool:
    """Whether each partition in which jobs wait has promised as often as it may."""
    kinds = len(sim.tried)
    if kinds > MANY_KINDS:
        return False
    for kind in range(kinds):
        if (
            sim.tried[kind].waiting > 0
            and sim.reservations_made[sim.partition[kind]] < reservations
        ):
            return False
    return True


def shared_easy(sim: Arrays) -> None:
    """In order, until each partition has promised as often as it may; then the candidates in theirs."""
    reservations = settings(sim.numbers)[0].reservations
    begin_anew(sim)
    if not any_may_fit(sim):
        return  # promises live for this pass only
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0
    candidates = ZERO
    owed = ZERO
    size = jobs_in_order(sim)
    rest = size
    for i in range(size):
        j = nth(i, sim)
        q = sim.partition[sim.job[j].kind]
        if sim.reservations_made[q] >= reservations:
            if may_fit(sim.job[j].kind, sim):
                sim.later[candidates] = j
                candidates += 1
            continue
        if is_skipped_shared(j, sim):
            continue
        if may_fit(sim.job[j].kind, sim):
            done = starts_after_promises(j, owed, sim)
            owed = ZERO
            if done:
                if not any_may_fit(sim):
                    return
                continue
        sim.reservations_made[q] += 1
        sim.stack[owed] = j
        owed += 1
        if sim.rules.own_candidates == 0 and all_promised(reservations, sim):
            rest = i + 1  # all that follow are candidates, in this order
            break
    if sim.rules.own_candidates == 0:
        for i in range(candidates + size - rest):
            j = sim.later[i] if i < candidates else nth(rest + i - candidates, sim)
            owed = try_candidate(j, owed, sim)
            if owed < 0:
                return
        return
    order_candidates(candidates, sim)
    for n in range(candidates, 0, -1):
        owed = try_candidate(pop_order(n, sim), owed, sim)
        if owed < 0:
            return


PASS = SharedPass(
    Kernel(shared_easy, types.void(SIM)),
    numbers=Numbers,
    promises=lambda numbers, partitions: numbers["reservations"] * partitions,
)
