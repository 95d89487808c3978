"""The order of jobs with preemption: jobs that may preempt others come first."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays


@jit
def order_jobs(sim: Arrays) -> int:
    """Put the pending jobs into ``sim.later``; return how many there are.

    They are sorted by the level of their class, highest first, and within a level in order.
    """
    reckon_fairshare(sim)
    size = order_queue(sim)
    changes = sim.rules.order_changes == 1
    n = ZERO
    for i in range(size):
        j = pop_order(size - i, sim) if changes else sim.queue[i]
        # A job that started in this pass is still in the queue.
        if sim.state[j].phase == WAITING:
            sim.later[n] = j
            n += 1
    sort_by_level(n, sim)
    return n


@jit
def sort_by_level(size: int, sim: Arrays) -> None:
    """Sort the first jobs of ``sim.later`` by level, highest first; equal ones stay in order."""
    for i in range(size):
        sim.stack[i] = sim.later[i]
    kept = ZERO
    level = NEVER
    while kept < size:
        below = ZERO - 1
        for i in range(size):
            own = sim.yields[sim.claim[sim.stack[i]].standing].level
            if own == level:
                sim.later[kept] = sim.stack[i]
                kept += 1
            elif own < level:
                below = max(below, own)
        level = below


@jit
def list_preemptors(sim: Arrays) -> int:
    """Put jobs that may preempt others into ``sim.later``, in order; return how many."""
    if not preemptor_waits(sim):
        return ZERO
    size = order_jobs(sim)
    n = ZERO
    while n < size and may_preempt(sim.later[n], sim):
        n += 1
    return n


@jit
def job_at(i: int, size: int, sim: Arrays) -> int:
    """Return job ``i`` in order."""
    return sim.later[i]


@jit
def job_left(i: int, first: int, sim: Arrays) -> int:
    """Return job ``i`` after the first ``first`` jobs."""
    return sim.later[first + i]


@jit
def is_sorted(sim: Arrays) -> bool:
    """Return False: candidates are not tried by level."""
    return False


@jit
def may_preempt(j: int, sim: Arrays) -> bool:
    """Return whether a job is of a class that may preempt others."""
    return sim.yields[sim.claim[j].standing].level > 0


@jit
def preemptor_waits(sim: Arrays) -> bool:
    """Return whether a pending job is of a class that may preempt others."""
    for i in range(sim.clock.queued):
        if may_preempt(sim.queue[i], sim):
            return True
    return False


@jit
def awaits_nodes(j: int, sim: Arrays) -> bool:
    """Return whether jobs that were preempted for a job are still in their grace time."""
    return sim.cut[j].waits > sim.clock.now
