"""Jobs start on shared nodes, or make room for themselves there."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.suspended_jobs import list_suspended
from hpctwin.engine.preempting.core_loans import settle_shared
from hpctwin.engine.preempting.eviction import make_room, resume
from hpctwin.engine.queue.order import reckon_fairshare
from hpctwin.engine.shared.allocation import take_resources
from hpctwin.engine.shared.fit import goes_at, may_fit
from hpctwin.engine.shared.passes.common import any_may_fit, begin_anew, start_if_it_fits
from hpctwin.engine.shared.suspended_jobs import expect_shared, order_by_level
from hpctwin.engine.state.layout import RETURN, Arrays

__all__ = [
    "any_may_start", "begin_interrupted", "may_make_room", "owe", "starts", "starts_or_preempts",
]  # fmt: skip


@jit
def begin_interrupted(sim: Arrays) -> None:
    """A pass begins; those that were preempted give back what all nodes have together when they go."""
    reckon_fairshare(sim)
    if len(sim.beneath) > 0:
        n = list_suspended(sim)
        order_by_level(n, sim)
        expect_shared(n, sim)
    begin_anew(sim)
    if sim.asks.width == 0:
        return
    for place in range(sim.clock.run_first, sim.clock.run_end):
        r = sim.run[place].job
        if r >= 0:
            leaves = goes_at(r, sim)
            planned = planned_end(r, sim)
            if leaves < planned:
                take_resources(r, leaves, planned, RETURN, sim)


@jit
def may_make_room(j: int, sim: Arrays) -> bool:
    """Whether a job is of a class that may preempt others."""
    return sim.yields[sim.claim[j].standing].level > 0


@jit
def any_may_start(sim: Arrays) -> bool:
    """Whether anybody who waits might start, or have others go."""
    if any_may_fit(sim):
        return True
    for i in range(sim.clock.queued):
        if may_make_room(sim.queue[i], sim):
            return True
    return False


@jit
def starts(j: int, sim: Arrays) -> bool:
    """Start a job if it fits now, where its last checkpoint left it; whether it did."""
    if not may_fit(sim.job[j].kind, sim) or not start_if_it_fits(j, sim):
        return False
    resume(j, sim)
    return True


@jit
def starts_or_preempts(j: int, sim: Arrays) -> bool:
    """Start a job if it fits, or if it fits once others have gone at once; whether it started."""
    if starts(j, sim):
        return True
    if not make_room(j, sim):
        return False
    sim.sharing.looks += 1  # what was found not to fit may now
    started = start_if_it_fits(j, sim)
    assert started
    resume(j, sim)
    if len(sim.beneath) > 0:
        settle_shared(sim)
    return True


@jit
def owe(j: int, owed: int, sim: Arrays) -> int:
    """Note that a job is to be promised nodes before anybody else may start; how many are then.

    In most passes nobody may, and no promise is made.
    """
    sim.order[owed].job = j
    return owed + 1
