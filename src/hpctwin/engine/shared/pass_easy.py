"""EASY on shared nodes: the first jobs that cannot start are promised nodes, which no other may take."""

from __future__ import annotations

from numba import types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import ZERO, Arrays
from hpctwin.engine.order import order_candidates, pop_order
from hpctwin.engine.passes import Pass
from hpctwin.engine.passes.easy import Numbers, settings
from hpctwin.engine.rows import SIM
from hpctwin.engine.shared.moving import GAVE_BACK
from hpctwin.engine.shared.pass_common import begin_anew, jobs_in_order, start_if_it_fits
from hpctwin.engine.shared.promises import reserve_shared
from hpctwin.engine.shared.room import is_skipped_shared, may_fit

__all__ = ["PASS"]


@jit
def starts_after_promises(j: int, owed: int, sim: Arrays) -> bool:
    """Make the promises that are owed (``sim.stack``), in order; then start a job if it still fits.

    They matter only to a job that could start without them; in most passes there is none, and none is made.
    """
    for i in range(owed):
        reserve_shared(sim.stack[i], ZERO, sim)
    return start_if_it_fits(j, sim)


def shared_easy(sim: Arrays) -> None:
    """In order, until each partition has promised as often as it may; then the candidates in theirs."""
    reservations = settings(sim.numbers)[0].reservations
    begin_anew(sim)
    for q in range(len(sim.handed_out)):
        sim.handed_out[q] = 0
    candidates = ZERO
    owed = ZERO
    for i in range(jobs_in_order(sim)):
        j = sim.later[i]
        q = sim.partition[sim.job[j].kind]
        if sim.handed_out[q] >= reservations:
            if may_fit(j, sim):
                sim.later[candidates] = j
                candidates += 1
            continue
        if is_skipped_shared(j, sim):
            continue
        if may_fit(j, sim):
            done = starts_after_promises(j, owed, sim)
            owed = ZERO
            if done:
                continue
        sim.handed_out[q] += 1
        sim.stack[owed] = j
        owed += 1
    order_candidates(candidates, sim)
    for n in range(candidates, 0, -1):
        j = pop_order(n, sim)
        if may_fit(j, sim) and not is_skipped_shared(j, sim):
            starts_after_promises(j, owed, sim)
            owed = ZERO


PASS = Pass(Kernel(shared_easy, types.void(SIM)), numbers=Numbers, gave_back=GAVE_BACK)
