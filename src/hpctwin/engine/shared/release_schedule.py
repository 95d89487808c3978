"""Jobs on shared nodes by planned end, listed for a node when it is first needed.

The list of a node is a sorted row of a table, so reading it touches no other memory. If a node has
too many jobs, it is not listed until it has few again.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit_cache import NOT_LISTED
from hpctwin.engine.state.layout import Arrays

TOO_MANY = -1


@jit
def put_leaving(node: int, planned: int, kind: int, tasks: int, sim: Arrays) -> None:
    """Add tasks of a job to the list of a node, if the node is listed."""
    n = sim.listed[node]
    if sim.rooms.valid == 0 or n < 0:
        return
    if n == sim.leaves_at.width:
        sim.listed[node] = TOO_MANY
        return
    i = n
    while i > 0 and sim.leaves_at[node, i - 1] > planned:
        sim.leaves_at[node, i] = sim.leaves_at[node, i - 1]
        sim.leaves_kind[node, i] = sim.leaves_kind[node, i - 1]
        sim.leaves_tasks[node, i] = sim.leaves_tasks[node, i - 1]
        i -= 1
    sim.leaves_at[node, i] = planned
    sim.leaves_kind[node, i] = kind
    sim.leaves_tasks[node, i] = tasks
    sim.listed[node] = n + 1


@jit
def drop_leaving(node: int, planned: int, kind: int, tasks: int, sim: Arrays) -> None:
    """Remove tasks of a job from the list of a node.

    If several entries are equal, any of them may be removed.
    """
    n = sim.listed[node]
    if sim.rooms.valid == 0 or n < 0:
        if n == TOO_MANY and 2 * sim.share[node].jobs < sim.leaves_at.width:
            sim.listed[node] = NOT_LISTED
        return
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        if sim.leaves_at[node, middle] < planned:
            low = middle + 1
        else:
            high = middle
    while sim.leaves_kind[node, low] != kind or sim.leaves_tasks[node, low] != tasks:
        low += 1
    for i in range(low, n - 1):
        sim.leaves_at[node, i] = sim.leaves_at[node, i + 1]
        sim.leaves_kind[node, i] = sim.leaves_kind[node, i + 1]
        sim.leaves_tasks[node, i] = sim.leaves_tasks[node, i + 1]
    sim.listed[node] = n - 1


@jit
def list_leaving(node: int, sim: Arrays) -> bool:
    """List the jobs on a node, unless done already; return whether it is listed."""
    if sim.listed[node] == NOT_LISTED:
        sim.listed[node] = 0
        row = sim.share[node].part
        while row >= 0:
            part = sim.part[row]
            put_leaving(node, part.planned, part.kind, part.tasks, sim)
            row = part.after
    return sim.listed[node] >= 0
