"""Jobs that a pass skips: they are at a limit, or too few nodes are up."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.limits import is_over
from hpctwin.engine.queue.order import cache_queue_rows
from hpctwin.engine.state.layout import Arrays


@jit
def at_limit(partition: int, user: int, sim: Arrays) -> bool:
    """Return whether a user has reached the limit of running jobs in a partition."""
    limit = sim.user_limit[partition]
    return limit > 0 and user > 0 and sim.user_running[partition, user] >= limit


@jit
def at_any_limit(j: int, sim: Arrays) -> bool:
    """Return whether a limit keeps a job from starting."""
    if sim.user_running.width > 0:
        if at_limit(sim.partition[sim.job[j].kind], sim.job[j].user, sim):
            return True
    return len(sim.held) > 0 and is_over(j, sim)


@jit
def asks_too_much(j: int, sim: Arrays) -> bool:
    """Return whether a job requests more nodes than are up."""
    kind = sim.job[j].kind
    up = 0
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0:
            up += sim.amount[p] - sim.stock[p].down
    return up < sim.job[j].nodes


@jit
def is_skipped(j: int, sim: Arrays) -> bool:
    """Return whether the pass skips a job: too few nodes are up, or it is at a limit."""
    return asks_too_much(j, sim) or at_any_limit(j, sim)


@jit
def may_start(sim: Arrays) -> bool:
    """Return whether any pending job is small enough for the free nodes."""
    if sim.rules.pools == 1:
        cache_queue_rows(sim)
        return sim.walk.fewest <= sim.stock[0].free
    free = 0
    for p in range(sim.rules.pools):
        if sim.stock[p].free > 0:
            free += sim.stock[p].free
    if free == 0:
        return False
    for i in range(sim.clock.queued):
        if sim.job[sim.queue[i]].nodes <= free:
            return True
    return False
