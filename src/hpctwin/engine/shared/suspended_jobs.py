"""Suspended jobs on shared nodes, while other jobs use some of their cores.

Such a job keeps what it holds. In ``sim.left``, its cores count as its own although other jobs have
them. An amount there may therefore be less than zero. The running jobs never have more cores of a
node than it has.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.suspended_jobs import go_on, leaves_by, list_suspended, move_start, suspend
from hpctwin.engine.queue.limits import count_left
from hpctwin.engine.queue.order import submitted_before
from hpctwin.engine.shared.fit import go_together
from hpctwin.engine.shared.node_resources import ALONE, CORES, held
from hpctwin.engine.state.layout import Arrays

__all__ = ["expect_shared", "order_by_level", "settle_cores", "wake_shared"]


@jit
def goes_before(a: int, b: int, sim: Arrays) -> bool:
    """Return whether a job gets its cores back before another."""
    one = sim.yields[sim.claim[a].standing].level
    other = sim.yields[sim.claim[b].standing].level
    if one != other:
        return one > other
    return submitted_before(a, b, sim)


@jit
def order_by_level(n: int, sim: Arrays) -> None:
    """Sort the first ``n`` jobs of ``sim.stack`` by falling level, then as submitted."""
    for i in range(1, n):
        j = sim.stack[i]
        at = i
        while at > 0 and goes_before(j, sim.stack[at - 1], sim):
            sim.stack[at] = sim.stack[at - 1]
            at -= 1
        sim.stack[at] = j


@jit
def is_above(r: int, j: int, sim: Arrays) -> bool:
    """Return whether job ``j`` may be suspended for job ``r`` of the same node."""
    return sim.preempts[sim.claim[r].standing, sim.claim[j].standing] != 0


@jit
def has_cores_on(j: int, node: int, sim: Arrays) -> bool:
    """Return whether a node has a job's cores next to those of running jobs.

    The cores of jobs for which it may be suspended (`is_above`) must fit too.
    """
    cores = sim.whole[node, CORES]
    alone = sim.whole[node, ALONE]
    row = sim.share[node].part
    while row >= 0:
        part = sim.part[row]
        cut = sim.cut[part.job]
        runs = cut.suspended == 0 and cut.tried == 0
        if part.job == j or runs or is_above(part.job, j, sim):
            cores -= held(part.kind, node, part.tasks, CORES, sim)
            alone -= held(part.kind, node, part.tasks, ALONE, sim)
            if part.job != j and not go_together(sim.job[j].kind, part.kind, sim):
                return False
        row = part.after
    return cores >= 0 and alone >= 0


@jit
def has_cores(j: int, sim: Arrays) -> bool:
    """Return whether all nodes of a job have its cores; see `has_cores_on`."""
    row = sim.state[j].first_node
    while row >= 0:
        if not has_cores_on(j, sim.part[row].node, sim):
            return False
        row = sim.part[row].next
    return True


@jit
def settle_cores(n: int, sim: Arrays) -> None:
    """Resume jobs of ``sim.stack`` that have their cores, and suspend the others.

    The first ``n`` jobs are decided in order. They are all suspended jobs, and running jobs that
    are tried (`Cut.tried`).
    """
    for i in range(n):
        j = sim.stack[i]
        cut = sim.cut[j]
        runs = has_cores(j, sim)
        cut.tried = 0
        if runs and cut.suspended == 1:
            go_on(j, sim)
        elif not runs and cut.suspended == 0:
            suspend(j, sim)


@jit
def expect_shared(n: int, sim: Arrays) -> None:
    """Recompute when suspended jobs among the first ``n`` of ``sim.stack`` resume.

    They are in order. A job resumes when all jobs on its nodes for which it may be suspended are
    expected to end.
    """
    for i in range(n):
        j = sim.stack[i]
        cut = sim.cut[j]
        if cut.suspended == 0:
            continue
        until = sim.clock.now
        row = sim.state[j].first_node
        while row >= 0:
            on = sim.share[sim.part[row].node].part
            while on >= 0:
                if is_above(sim.part[on].job, j, sim):
                    until = max(until, leaves_by(sim.part[on].job, sim))
                on = sim.part[on].after
            row = sim.part[row].next
        move_start(j, until - min(cut.ran, sim.job[j].expected), sim)


def wake_shared(sim: Arrays) -> None:
    """Resume suspended jobs that have their cores on all their nodes.

    If a pass follows, it is computed again when the others are expected to resume. What running
    jobs count under limits of minutes is brought up to now.
    """
    n = list_suspended(sim)
    order_by_level(n, sim)
    settle_cores(n, sim)
    if sim.clock.queued > 0:
        expect_shared(n, sim)
    count_left(sim)
