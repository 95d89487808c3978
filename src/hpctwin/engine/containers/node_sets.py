"""Sets of nodes, kept as nodes change, so that nobody looks at each node.

Each set is a row of ``sim.index``: a bit for each place of a node in ``by_pool``, 64 in a word, and of
``sim.summary``: a bit for each of these words that is not 0. To enter and to leave touch one word, or two,
and the first or last member from a place on is found 4,096 places at a time; ``sim.tally`` counts the members
of each pool.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import leading_zeros
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
    """Have a node be in a set or not."""
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
    """The lowest bit of a word that is not 0."""
    return 63 - leading_zeros(word & -word)


@jit
def first_in(chosen: int, place: int, last: int, sim: Arrays) -> int:
    """The first place of a set from ``place`` on and before ``last``; -1 if there is none."""
    if place >= last:
        return -1
    i = place >> 6
    word = sim.index[chosen, i] & (MINUS_ONE << (place & 63))
    if word == 0:
        # Words behind this one; twice, as a word cannot be moved by 64.
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
    """The last place of a set before ``place``, not before ``first``; -1 if there is none."""
    if place <= first:
        return -1
    i = (place - 1) >> 6
    # Those up to the place before; twice, as a word cannot be moved by 64.
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
