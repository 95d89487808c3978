"""Which pending jobs may start on shared nodes, and their starts."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import plan_build
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.allocation import start_shared, take_from_promises
from hpctwin.engine.shared.fit import begin_pass, fits_over, goes_by_kind, may_fit, resources_fit
from hpctwin.engine.shared.mixed_tasks import fits_by_kind
from hpctwin.engine.shared.node_reservations import forget_all
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.state.layout import Arrays
from hpctwin.engine.state.records import Grid

MANY_KINDS = 512
"""Of more kinds of jobs than this it is not asked first whether one of any might start."""


@jit
def count_waiting(sim: Arrays) -> None:
    """How many of each kind wait; anew where the queue was put in order anew, or made elsewhere."""
    kinds = len(sim.tried)
    total = 0
    for kind in range(kinds if kinds <= MANY_KINDS else 0):
        total += sim.tried[kind].waiting
    if kinds > MANY_KINDS or total == sim.clock.queued:
        return
    for kind in range(kinds):
        sim.tried[kind].waiting = 0
    for i in range(sim.clock.queued):
        sim.tried[sim.job[sim.queue[i]].kind].waiting += 1


@jit
def any_may_fit(sim: Arrays) -> bool:
    """Whether a job of any kind that waits might fit what is free now; so no pass need look at all jobs."""
    kinds = len(sim.tried)
    if kinds > MANY_KINDS:
        return True
    for kind in range(kinds):
        if sim.tried[kind].waiting > 0 and may_fit(kind, sim):
            return True
    return False


@jit
def begin_anew(sim: Arrays) -> None:
    """A pass begins in which nothing is promised yet."""
    begin_pass(sim)
    forget_all(sim)
    count_waiting(sim)
    sim.plan_rows[0] = 0
    if sim.asks.width > 0:
        plan_build(sim)


@jit
def is_longer(j: int, sim: Arrays) -> bool:
    """Whether a job is expected to run as long, at least, as one of its kind that was found not to fit.

    Of one that `goes_by_kind` that says nothing: with less room, its first tasks may come to lie elsewhere.
    """
    kind = sim.job[j].kind
    if goes_by_kind(kind, sim):
        return False
    tried = sim.tried[kind]
    return tried.look == sim.sharing.looks and sim.job[j].expected >= tried.length


@jit
def fits_from(j: int, begin: int, base: Grid[int], sim: Arrays) -> bool:
    """Whether a job fits nodes over a span that begins at a time; see `fits_over`, `fits_by_kind`."""
    if goes_by_kind(sim.job[j].kind, sim):
        return fits_by_kind(j, begin, base, sim)
    return fits_over(j, begin, base, sim)


@jit
def fits_plan_now(j: int, sim: Arrays) -> bool:
    """Whether a job fits the plan from now on; leaves what `choose` needs."""
    now = sim.clock.now
    if is_longer(j, sim) or not resources_fit(j, now, sim):
        return False
    if not fits_from(j, now, sim.left, sim):
        tried = sim.tried[sim.job[j].kind]
        tried.look = sim.sharing.looks
        tried.length = sim.job[j].expected
        return False
    return True


@jit
def start_chosen(j: int, sim: Arrays) -> None:
    """Start a job of which it was just found that it fits."""
    choose(j, sim)
    start_shared(j, sim)
    take_from_promises(j, sim.clock.now, sim)


@jit
def start_if_it_fits(j: int, sim: Arrays) -> bool:
    """Start a job if it fits the plan from now on; whether it did."""
    fits = fits_plan_now(j, sim)
    if fits:
        start_chosen(j, sim)
    return fits
