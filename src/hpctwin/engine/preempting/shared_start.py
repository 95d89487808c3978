"""Starts of jobs on shared nodes, with preemption of other jobs if necessary."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.suspended_jobs import list_suspended
from hpctwin.engine.preempting.core_loans import settle_shared
from hpctwin.engine.preempting.eviction import make_room, resume
from hpctwin.engine.shared.allocation import take_resources
from hpctwin.engine.shared.fit import goes_at
from hpctwin.engine.shared.job_starts import begin_anew, start_if_it_fits
from hpctwin.engine.shared.suspended_jobs import expect_shared, order_by_level
from hpctwin.engine.state.layout import RETURN, Arrays

__all__ = ["begin_interrupted", "expect_suspended", "return_early", "start_after_preempting"]


@jit
def begin_interrupted(sim: Arrays) -> None:
    """Begin a pass without any reservations."""
    expect_suspended(sim)
    begin_anew(sim)
    return_early(sim)


@jit
def expect_suspended(sim: Arrays) -> None:
    """Recompute when suspended jobs resume."""
    if len(sim.beneath) > 0:
        n = list_suspended(sim)
        order_by_level(n, sim)
        expect_shared(n, sim)


@jit
def return_early(sim: Arrays) -> None:
    """Return cluster-wide resources of preempted jobs to the plan when they leave."""
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
def start_after_preempting(j: int, sim: Arrays) -> bool:
    """Start a job that fits once others left at once; return whether it started."""
    if not make_room(j, sim):
        return False
    sim.sharing.looks += 1  # jobs that did not fit before may fit now
    started = start_if_it_fits(j, sim)
    assert started
    resume(j, sim)
    if len(sim.beneath) > 0:
        settle_shared(sim)
    return True
