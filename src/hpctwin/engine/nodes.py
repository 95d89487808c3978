"""Sets of nodes, kept as nodes change, so that nobody looks through all nodes.

Each set is a row of ``sim.index``: a binary tree over the places of nodes in ``by_pool``, in which an inner
place is 1 if anything below it is. To enter, to leave, and to find the first or last member from a place on
cost the logarithm of the number of nodes; ``sim.tally`` counts the members of each pool.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    ASLEEP,
    ASLEEP_NODES,
    AWAKE_NODES,
    COMPUTING,
    FREE_NODES,
    IDLE,
    IDLE_NODES,
    Arrays,
)

__all__ = ["first_in", "is_free", "last_in", "put", "refresh", "touch"]


@jit
def put(chosen: int, node: int, inside: bool, sim: Arrays) -> None:
    """Have a node be in a set or not."""
    index = sim.index
    i = index.width // 2 + sim.node[node].place
    if (index[chosen, i] == 1) == inside:
        return
    if inside:
        sim.tally[sim.pool_of[node], chosen] += 1
        while i > 0 and index[chosen, i] == 0:
            index[chosen, i] = 1
            i //= 2
    else:
        sim.tally[sim.pool_of[node], chosen] -= 1
        index[chosen, i] = 0
        while i > 1 and index[chosen, i ^ 1] == 0:
            i //= 2
            index[chosen, i] = 0


@jit
def first_in(chosen: int, place: int, last: int, sim: Arrays) -> int:
    """The first place of a set from ``place`` on and before ``last``; -1 if there is none."""
    index = sim.index
    leaves = index.width // 2
    if place >= last:
        return -1
    i = leaves + place
    while index[chosen, i] == 0:
        # Up to the first subtree further on, then down on its near side.
        while i & 1 == 1:
            i //= 2
        if i == 0:
            return -1
        i += 1
    while i < leaves:
        i = 2 * i if index[chosen, 2 * i] == 1 else 2 * i + 1
    return i - leaves if i - leaves < last else -1


@jit
def last_in(chosen: int, first: int, place: int, sim: Arrays) -> int:
    """The last place of a set before ``place``, not before ``first``; -1 if there is none."""
    index = sim.index
    leaves = index.width // 2
    if place <= first:
        return -1
    i = leaves + place - 1
    while index[chosen, i] == 0:
        while i & 1 == 0 and i > 0:
            i //= 2
        if i <= 1:
            return -1
        i -= 1
    while i < leaves:
        i = 2 * i + 1 if index[chosen, 2 * i + 1] == 1 else 2 * i
    return i - leaves if i - leaves >= first else -1


@jit
def is_free(node: int, sim: Arrays) -> bool:
    """Whether a job may have a node: it is up, not hidden, and nobody has it."""
    own = sim.node[node]
    return own.job < 0 and own.down == 0 and own.hidden == 0


@jit
def refresh(node: int, sim: Arrays) -> None:
    """Put a node that has changed into the sets it belongs to, and take it out of the others."""
    own = sim.node[node]
    free = is_free(node, sim)
    put(FREE_NODES, node, free, sim)
    if sim.rules.depths == 0:
        return
    had = own.job < 0 and own.down == 0
    at_once = own.power <= COMPUTING or (own.power == ASLEEP and own.boot == 0)
    put(AWAKE_NODES, node, free and at_once, sim)
    put(IDLE_NODES, node, had and own.power == IDLE, sim)
    for depth in range(sim.rules.depths):
        asleep = had and own.power == ASLEEP and own.depth == depth
        put(ASLEEP_NODES + depth, node, asleep, sim)


@jit
def touch(node: int, sim: Arrays) -> None:
    """Have what follows the pass look at a node that has changed; once, however often it has."""
    own = sim.node[node]
    if sim.rules.depths > 0 and own.touched == 0:
        own.touched = sim.clock.touched + 1
        sim.clock.touched = node + 1
    refresh(node, sim)
