"""Loans of nodes: a job starts on nodes of other jobs, which are suspended.

Nodes with chosen victims only are free for a moment. The job gets some of these and of the other
free nodes, as its placement says. The rest return to their jobs, which continue to run if they have
all their nodes.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import load_take, plan_change, plan_return, planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import touch
from hpctwin.engine.containers.suspended_stack import (
    depth_of,
    is_on,
    lowest_on,
    pop_suspended,
    push_suspended,
)
from hpctwin.engine.jobs.suspended_jobs import expect_to_go_on, go_on, list_suspended, suspend
from hpctwin.engine.placement.job_nodes import claim
from hpctwin.engine.state.layout import RETURN, SUSPENDED, TAKE, Arrays

__all__ = ["cover", "has_nodes_for", "is_suspended_for", "leave_nodes", "lend", "settle"]


@jit
def is_suspended_for(r: int, sim: Arrays) -> bool:
    """Return whether a job is suspended if it is preempted."""
    return sim.yields[sim.claim[r].standing].mode == SUSPENDED


@jit
def has_nodes_for(r: int, kind: int, sim: Arrays) -> bool:
    """Return whether a job has or awaits nodes that a kind of job may use."""
    for node in range(len(sim.node)):
        if sim.eligible[kind, sim.pool_of[node]] != 0 and is_on(r, node, sim):
            return True
    return False


@jit
def would_be_left(node: int, sim: Arrays) -> bool:
    """Return whether all jobs on a node, suspended ones too, are tested as victims."""
    job = sim.node[node].job
    if job < 0 or sim.cut[job].tried == 0:
        return False
    for d in range(depth_of(node, sim)):
        if sim.cut[sim.beneath[node, d]].tried == 0:
            return False
    return True


@jit
def last_grace(node: int, sim: Arrays) -> int:
    """Return the longest grace of the jobs on a node."""
    grace = sim.yields[sim.claim[sim.node[node].job].standing].grace
    for d in range(depth_of(node, sim)):
        grace = max(grace, sim.yields[sim.claim[sim.beneath[node, d]].standing].grace)
    return grace


@jit
def plan_node(node: int, since: int, until: int, sign: int, sim: Arrays) -> None:
    """Add a node to the plan for a span; or (TAKE) remove it."""
    if since < until:
        plan_return(since, sim.pool_of[node], sign, sim)
        plan_return(until, sim.pool_of[node], -sign, sim)


@jit
def leave_nodes(r: int, sign: int, sim: Arrays) -> None:
    """Let a job leave for a test; or (TAKE) end the test.

    Nodes with tested jobs only are in the plan meanwhile, from the end of the longest grace on.
    """
    if sign == RETURN:
        sim.cut[r].tried = 1
    now = sim.clock.now
    for node in range(len(sim.node)):
        if is_on(r, node, sim) and would_be_left(node, sim):
            until = planned_end(lowest_on(node, sim), sim)
            plan_node(node, now + last_grace(node, sim), until, sign, sim)
    if not is_suspended_for(r, sim):
        # A suspended job keeps its cluster-wide resources.
        for p in range(sim.rules.pools):
            sim.take[p] = 0
        leaves = now + sim.yields[sim.claim[r].standing].grace
        planned = planned_end(r, sim)
        if leaves < planned:
            plan_change(r, leaves, planned, sign, sim)
    if sign == TAKE:
        sim.cut[r].tried = 0


@jit
def lend_nodes(r: int, sim: Arrays) -> None:
    """Free the nodes of a job on which all jobs are chosen victims."""
    node = sim.state[r].first_node
    sim.state[r].first_node = -1
    while node >= 0:
        following = sim.node[node].next
        if would_be_left(node, sim):
            push_suspended(node, sim)
            sim.stock[sim.pool_of[node]].free += 1
            touch(node, sim)
        else:
            sim.node[node].next = sim.state[r].first_node
            sim.state[r].first_node = node
        node = following


@jit
def lend(sim: Arrays) -> None:
    """Free the nodes on which all jobs are chosen to be suspended."""
    for place in range(sim.clock.run_first, sim.clock.run_end):
        r = sim.run[place].job
        if r >= 0 and sim.cut[r].tried == 1:
            lend_nodes(r, sim)


@jit
def cover(j: int, sim: Arrays) -> None:
    """Return lent nodes that a job which has started does not use; correct the plan.

    The job may have started on some of the lent nodes.
    """
    now = sim.clock.now
    for node in range(len(sim.node)):
        if depth_of(node, sim) == 0:
            continue
        has = sim.node[node].job
        if has >= 0 and has != j:
            continue
        p = sim.pool_of[node]
        plan_node(node, now, planned_end(sim.beneath[node, 0], sim), TAKE, sim)
        if has == j:
            sim.taken[j, p] -= 1
            plan_node(node, now, sim.state[j].start + sim.job[j].expected, RETURN, sim)
        else:
            sim.stock[p].free -= 1
            claim(pop_suspended(node, sim), node, sim)


@jit
def shift_plan(n: int, sign: int, sim: Arrays) -> None:
    """Add what jobs hold to the plan from their planned ends on; or (TAKE) remove it.

    These are the first ``n`` jobs of ``sim.stack``.
    """
    for i in range(n):
        r = sim.stack[i]
        planned = planned_end(r, sim)
        load_take(r, sim)
        for p in range(sim.rules.pools):
            plan_return(planned, p, sign * sim.take[p], sim)
        for c in range(sim.asks.width):
            plan_return(planned, sim.rules.pools + c, sign * sim.asks[r, c], sim)


@jit
def settle(sim: Arrays) -> None:
    """Suspend victims that lost nodes, and resume jobs that have all nodes again.

    The plan is updated to when the suspended jobs resume.
    """
    n = list_suspended(sim)
    shift_plan(n, TAKE, sim)
    for i in range(n):
        r = sim.stack[i]
        cut = sim.cut[r]
        cut.tried = 0
        if cut.covered > 0 and cut.suspended == 0:
            suspend(r, sim)
        elif cut.covered == 0 and cut.suspended == 1:
            go_on(r, sim)
    expect_to_go_on(n, sim)
    shift_plan(n, RETURN, sim)
