"""The reservations of each node in a list, sorted by start.

A search begins at the reservation that was visited last on the node, because consecutive searches are
mostly for similar times. ``Promise.reach`` is the latest end of a reservation and of all before it in
the list. If that is not after a time, none of these matters from that time on.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import Arrays

__all__ = ["first_over", "insert", "last_begun", "remove"]


@jit
def last_begun(node: int, time: int, sim: Arrays) -> int:
    """Return the last reservation of a node that begins by a time; -1 if there is none."""
    p = sim.near[node] - 1
    if p < 0:
        p = sim.share[node].promise
    while p >= 0 and sim.promise[p].start > time:
        p = sim.promise[p].before
    if p < 0:
        return p
    while sim.promise[p].after >= 0 and sim.promise[sim.promise[p].after].start <= time:
        p = sim.promise[p].after
    sim.near[node] = p + 1
    return p


@jit
def first_over(node: int, time: int, sim: Arrays) -> int:
    """Return a reservation of a node before which all end by a time; -1 if it has none."""
    p = last_begun(node, time, sim)
    if p < 0:
        return sim.share[node].promise
    while sim.promise[p].before >= 0 and sim.promise[sim.promise[p].before].reach > time:
        p = sim.promise[p].before
    return p


@jit
def insert(row: int, sim: Arrays) -> None:
    """Insert a reservation behind all that begin no later."""
    own = sim.promise[row]
    own.before = last_begun(own.node, own.start, sim)
    if own.before >= 0:
        own.after = sim.promise[own.before].after
        sim.promise[own.before].after = row
    else:
        own.after = sim.share[own.node].promise
        sim.share[own.node].promise = row
    if own.after >= 0:
        sim.promise[own.after].before = row
    own.reach = -1
    reckon_reach(row, sim)


@jit
def remove(row: int, sim: Arrays) -> None:
    """Remove a reservation from the list of its node."""
    own = sim.promise[row]
    if own.before >= 0:
        sim.promise[own.before].after = own.after
    else:
        sim.share[own.node].promise = own.after
    if own.after >= 0:
        sim.promise[own.after].before = own.before
        reckon_reach(own.after, sim)
    sim.near[own.node] = own.before + 1


@jit
def reckon_reach(row: int, sim: Arrays) -> None:
    """Compute ``Promise.reach`` again from a reservation on, up to one where it stays the same."""
    p = row
    while p >= 0:
        own = sim.promise[p]
        reach = own.end
        if own.before >= 0:
            reach = max(reach, sim.promise[own.before].reach)
        if reach == own.reach:
            return
        own.reach = reach
        p = own.after
