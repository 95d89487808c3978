"""Parts of shared nodes that running jobs would give back if they were preempted.

While victims are chosen, a test shows whether it suffices that a job leaves. A tested job
(``Cut.tried``) counts as if it left when its grace ends (`fit.goes_at`). All that it holds is free
for reservations that begin later. Without a grace it is free now. A job that would be suspended
gives back only what it lends.
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
    """Return whether a running job has nodes of pools that a kind of job may use."""
    row = sim.state[r].first_node
    while row >= 0:
        if sim.eligible[kind, sim.pool_of[sim.part[row].node]] != 0:
            return True
        row = sim.part[row].next
    return False


@jit
def count_nodes(r: int, sim: Arrays) -> int:
    """Return how many nodes a running job has.

    Its tasks on one node may be of several kinds; the node counts once.
    """
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
    """Mark the nodes that were chosen for a job in ``sim.seated``."""
    for node in range(len(sim.share)):
        sim.seated[node] = 0
    for n in range(sim.sharing.chosen):
        sim.seated[sim.chosen_nodes[n]] = 1


@jit
def count_marked(r: int, sim: Arrays) -> int:
    """Return how many of the marked nodes a running job has."""
    found = ZERO
    row = sim.state[r].first_node
    while row >= 0:
        node = sim.part[row].node
        if sim.seated[node] == 1:
            found += 1
            sim.seated[node] = 2  # its other tasks there are not counted again
        row = sim.part[row].next
    row = sim.state[r].first_node
    while row >= 0:
        node = sim.part[row].node
        sim.seated[node] = min(sim.seated[node], ONE)
        row = sim.part[row].next
    return found


@jit
def change(row: int, sign: int, left: Grid[int], place: int, sim: Arrays) -> None:
    """Add what a leaving job gives back of a part to a row; or (TAKE) remove it."""
    part = sim.part[row]
    if is_suspended_for(part.job, sim):
        lend_held(part.kind, part.node, part.tasks, sign, left, place, sim)
    elif sign == RETURN:
        give_held(part.kind, part.node, part.tasks, left, place, sim)
    else:
        take_held(part.kind, part.node, part.tasks, left, place, sim)


@jit
def give_parts(r: int, sign: int, sim: Arrays) -> None:
    """Add what a running job gives back to what is free now; or (TAKE) remove it."""
    row = sim.state[r].first_node
    while row >= 0:
        node = sim.part[row].node
        change(row, sign, sim.left, node, sim)
        if sign == RETURN:
            open_node(node, sim)
        row = sim.part[row].next


@jit
def change_promises(r: int, since: int, until: int, sign: int, sim: Arrays) -> None:
    """Add what a job gives back to what is left at reservations; or (TAKE) remove it.

    These are reservations on its nodes that begin within a span.
    """
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
    """Let a job leave for a test, before its planned end; or (TAKE) end the test."""
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
    """End the test of a job that will leave; its parts become free when it does."""
    cut = sim.cut[r]
    if cut.tried == 1:
        if cut.leaves == sim.clock.now:
            give_parts(r, TAKE, sim)
        cut.tried = 0
        cut.leaves = 0
