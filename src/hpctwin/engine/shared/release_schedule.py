"""The jobs on a shared node by their planned ends, of nodes of which somebody asked.

They lie in a row of a table, sorted, so that going through them touches no memory but that row. A node
that has too many is not listed until it has few again.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit_cache import NOT_LISTED
from hpctwin.engine.state.layout import Arrays

TOO_MANY = -1


@jit
def put_leaving(node: int, planned: int, kind: int, tasks: int, sim: Arrays) -> None:
    """Add tasks of a job to the list of a node that has one."""
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
    """Take tasks of a job off the list of a node; which of several that are alike does not matter."""
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
    """List who is on a node if that is not done yet; whether it could be."""
    if sim.listed[node] == NOT_LISTED:
        sim.listed[node] = 0
        row = sim.share[node].part
        while row >= 0:
            part = sim.part[row]
            put_leaving(node, part.planned, part.kind, part.tasks, sim)
            row = part.after
    return sim.listed[node] >= 0
