"""What a running job holds of shared nodes, while it is tried whether it suffices that it leaves.

A job that is tried is as if it left when its grace is over (`fit.goes_at`): what it holds is there for
promises that begin later. If it has no grace, it is free now.
Of one that would be suspended this is but what it lends.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.preempting.node_loans import is_suspended_for
from hpctwin.engine.shared.allocation import take_resources
from hpctwin.engine.shared.fit_cache import open_node
from hpctwin.engine.shared.node_resources import give_held, lend_held, take_held
from hpctwin.engine.state.layout import ONE, RETURN, TAKE, ZERO, Arrays
from hpctwin.engine.state.records import Grid

__all__ = [
    "count_marked", "count_nodes", "has_parts_for", "leave_parts", "mark_chosen", "settle_parts",
]  # fmt: skip


@jit
def has_parts_for(r: int, kind: int, sim: Arrays) -> bool:
    """Whether a running job has nodes of pools that a kind of job may use."""
    row = sim.state[r].first_node
    while row >= 0:
        if sim.eligible[kind, sim.pool_of[sim.part[row].node]] != 0:
            return True
        row = sim.part[row].next
    return False


@jit
def count_nodes(r: int, sim: Arrays) -> int:
    """How many nodes a running job has; on one its tasks may be of several kinds."""
    found = ZERO
    row = sim.state[r].first_node
    while row >= 0:
        other = sim.state[r].first_node
        while sim.part[other].node != sim.part[row].node:
            other = sim.part[other].next
        if other == row:
            found += 1
        row = sim.part[row].next
    return found


@jit
def mark_chosen(sim: Arrays) -> None:
    """Mark in ``sim.seated`` the nodes that were chosen for a job."""
    for node in range(len(sim.share)):
        sim.seated[node] = 0
    for n in range(sim.sharing.chosen):
        sim.seated[sim.chosen_nodes[n]] = 1


@jit
def count_marked(r: int, sim: Arrays) -> int:
    """How many of the nodes that were marked a running job has."""
    found = ZERO
    row = sim.state[r].first_node
    while row >= 0:
        node = sim.part[row].node
        if sim.seated[node] == 1:
            found += 1
            sim.seated[node] = 2  # its other tasks there count no more
        row = sim.part[row].next
    row = sim.state[r].first_node
    while row >= 0:
        node = sim.part[row].node
        sim.seated[node] = min(sim.seated[node], ONE)
        row = sim.part[row].next
    return found


@jit
def change(row: int, sign: int, left: Grid[int], place: int, sim: Arrays) -> None:
    """Put what a job that leaves gives up of a part into a row of what is left; or (TAKE) take it out."""
    part = sim.part[row]
    if is_suspended_for(part.job, sim):
        lend_held(part.kind, part.node, part.tasks, sign, left, place, sim)
    elif sign == RETURN:
        give_held(part.kind, part.node, part.tasks, left, place, sim)
    else:
        take_held(part.kind, part.node, part.tasks, left, place, sim)


@jit
def give_parts(r: int, sign: int, sim: Arrays) -> None:
    """Put what a running job holds into what is left of nodes now; or (TAKE) take it out again."""
    row = sim.state[r].first_node
    while row >= 0:
        node = sim.part[row].node
        change(row, sign, sim.left, node, sim)
        if sign == RETURN:
            open_node(node, sim)
        row = sim.part[row].next


@jit
def change_promises(r: int, since: int, until: int, sign: int, sim: Arrays) -> None:
    """Put what a running job holds into what is left when promises begin in a span; or take it out."""
    row = sim.state[r].first_node
    while row >= 0:
        p = sim.share[sim.part[row].node].promise
        while p >= 0:
            if since <= sim.promise[p].start and sim.promise[p].start < until:
                change(row, sign, sim.promise_left, p, sim)
            p = sim.promise[p].after
        row = sim.part[row].next


@jit
def leave_parts(r: int, leaves: int, planned: int, sign: int, sim: Arrays) -> None:
    """Have a job be tried to leave at a time, before its planned end; or (TAKE) not any more."""
    cut = sim.cut[r]
    if leaves == sim.clock.now:
        give_parts(r, sign, sim)
    change_promises(r, leaves, planned, sign, sim)
    if not is_suspended_for(r, sim):
        take_resources(r, leaves, planned, sign, sim)
    cut.tried = 1 if sign == RETURN else 0
    cut.leaves = leaves if sign == RETURN else ZERO


@jit
def settle_parts(r: int, sim: Arrays) -> None:
    """A job that was tried will leave: what it holds is free when it does so."""
    cut = sim.cut[r]
    if cut.tried == 1:
        if cut.leaves == sim.clock.now:
            give_parts(r, TAKE, sim)
        cut.tried = 0
        cut.leaves = 0
