"""Bit sets of nodes, updated as nodes change, so that no pass scans all nodes.

Each set is a row of two bit arrays:

- ``sim.index``: one bit for each place of a node in ``by_pool``, 64 per word.
- ``sim.summary``: one bit for each of these words that is not 0.

Adding or removing a node changes one or two words. A search for the first or last member from a
place on skips up to 4,096 places per step. ``sim.tally`` counts the members in each pool.
"""

from __future__ import annotations

from hpctwin.engine.compile.intrinsics import leading_zeros
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import (
    ASLEEP,
    ASLEEP_NODES,
    AWAKE_NODES,
    COMPUTING,
    FREE_NODES,
    IDLE,
    IDLE_NODES,
    MINUS_ONE,
    ONE,
    Arrays,
)

__all__ = ["first_in", "is_free", "last_in", "put", "refresh", "touch"]


@jit
def put(chosen: int, node: int, inside: bool, sim: Arrays) -> None:
    """Add a node to a set, or remove it."""
    index = sim.index
    place = sim.node[node].place
    word = index[chosen, place >> 6]
    bit = ONE << (place & 63)
    if (word & bit != 0) == inside:
        return
    index[chosen, place >> 6] = word ^ bit
    if word == 0 or word == bit:
        sim.summary[chosen, place >> 12] ^= ONE << ((place >> 6) & 63)
    sim.tally[sim.pool_of[node], chosen] += 1 if inside else -1


@jit
def lowest_of(word: int) -> int:
    """Return the position of the lowest set bit of a word that is not 0."""
    return 63 - leading_zeros(word & -word)


@jit
def first_in(chosen: int, place: int, last: int, sim: Arrays) -> int:
    """Return the first member's place in ``[place, last)``; -1 if there is none."""
    if place >= last:
        return -1
    i = place >> 6
    word = sim.index[chosen, i] & (MINUS_ONE << (place & 63))
    if word == 0:
        # Bits above this word's; shifted twice, as a shift by 64 is undefined.
        some = sim.summary[chosen, i >> 6] & ((MINUS_ONE << (i & 63)) << 1)
        i >>= 6
        while some == 0:
            i += 1
            if 4096 * i >= last:
                return -1
            some = sim.summary[chosen, i]
        i = 64 * i + lowest_of(some)
        word = sim.index[chosen, i]
    found = 64 * i + lowest_of(word)
    return found if found < last else -1


@jit
def last_in(chosen: int, first: int, place: int, sim: Arrays) -> int:
    """Return the last member's place in ``[first, place)``; -1 if there is none."""
    if place <= first:
        return -1
    i = (place - 1) >> 6
    # Bits up to ``place - 1``; shifted twice, as a shift by 64 is undefined.
    word = sim.index[chosen, i] & ~((MINUS_ONE << ((place - 1) & 63)) << 1)
    if word == 0:
        some = sim.summary[chosen, i >> 6] & ~(MINUS_ONE << (i & 63))
        i >>= 6
        while some == 0:
            i -= 1
            if 4096 * i + 4095 < first:
                return -1
            some = sim.summary[chosen, i]
        i = 64 * i + 63 - leading_zeros(some)
        word = sim.index[chosen, i]
    found = 64 * i + 63 - leading_zeros(word)
    return found if found >= first else -1


@jit
def is_free(node: int, sim: Arrays) -> bool:
    """Return whether a node is available to jobs: up, not hidden, and without a job."""
    own = sim.node[node]
    return own.job < 0 and own.down == 0 and own.hidden == 0


@jit
def refresh(node: int, sim: Arrays) -> None:
    """Update a changed node's membership in all sets."""
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
    """Queue a changed node for the power policy after the pass, and update its sets.

    It is queued once, however often it changes.
    """
    own = sim.node[node]
    if sim.rules.depths > 0 and own.touched == 0:
        own.touched = sim.clock.touched + 1
        sim.clock.touched = node + 1
    refresh(node, sim)
