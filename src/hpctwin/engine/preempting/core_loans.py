"""Loans of cores on shared nodes: a job starts on cores of jobs that it suspends."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import plan_return, planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.suspended_jobs import list_suspended
from hpctwin.engine.preempting.victims import plan_without
from hpctwin.engine.shared.node_resources import give_held, take_held
from hpctwin.engine.shared.suspended_jobs import expect_shared, order_by_level, settle_cores
from hpctwin.engine.state.layout import RETURN, TAKE, Arrays

__all__ = ["settle_shared"]


@jit
def shift(r: int, sign: int, sim: Arrays) -> None:
    """Return what a job holds to the plan from its planned end; or (TAKE) remove it.

    That covers what is left at reservations on its nodes, and cluster-wide resources.
    """
    planned = planned_end(r, sim)
    row = sim.state[r].first_node
    while row >= 0:
        part = sim.part[row]
        p = sim.share[part.node].promise
        while p >= 0:
            if planned <= sim.promise[p].start:
                if sign == RETURN:
                    give_held(part.kind, part.node, part.tasks, sim.promise_left, p, sim)
                else:
                    take_held(part.kind, part.node, part.tasks, sim.promise_left, p, sim)
            p = sim.promise[p].after
        row = part.next
    for c in range(sim.asks.width):
        plan_return(planned, sim.rules.pools + c, sign * sim.asks[r, c], sim)


@jit
def settle_shared(sim: Arrays) -> None:
    """Suspend victims that lost cores, and resume jobs that have all cores again.

    The plan is updated to when the suspended jobs resume.
    """
    n = list_suspended(sim)
    for i in range(n):
        r = sim.stack[i]
        if sim.cut[r].tried == 1:
            plan_without(r, TAKE, sim)
            sim.cut[r].tried = 1
        shift(r, TAKE, sim)
    order_by_level(n, sim)
    settle_cores(n, sim)
    expect_shared(n, sim)
    for i in range(n):
        shift(sim.stack[i], RETURN, sim)
