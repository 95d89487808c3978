"""Spans of time, each with the set of nodes that nobody has reserved in it: plans of particular nodes.

As in Slurm's backfill plugin (22.05: ``node_space`` of ``backfill.c``): a job is tried from a time on with
the nodes that are in no reservation while it would run. Sets are bits in words, so that this takes
(spans * nodes / 64) steps.
"""

from __future__ import annotations

from hpctwin.engine.capacity.maintenance_windows import window_left, windows_before
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import is_free
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays

# Rows of ``sim.sets``: nodes that are free, that a job may have at all, that it may have while it would run,
# that it gets; then those of each pool that are up.
FREE, MAY, CLEAR, PICKED, POOLS = 0, 1, 2, 3, 4


@jit
def bits_of(word: int) -> int:
    """How many bits of a word are 1."""
    word = word - ((word >> 1) & 0x5555555555555555)
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((word * 0x0101010101010101) >> 56) & 0x7F


@jit
def lowest(w: int, word: int) -> int:
    """The lowest node of those in a word that is not 0."""
    return 64 * w + bits_of((word & -word) - 1)


@jit
def has(row: int, node: int, sim: Arrays) -> bool:
    """Whether a node is in a set."""
    return (sim.sets[row, node >> 6] >> (node & 63)) & 1 == 1


@jit
def put_in(row: int, node: int, sim: Arrays) -> None:
    """Put a node into a set."""
    sim.sets[row, node >> 6] |= ONE << (node & 63)


@jit
def size_of(row: int, sim: Arrays) -> int:
    """How many nodes a set has."""
    size = ZERO
    for w in range(sim.sets.width):
        size += bits_of(sim.sets[row, w])
    return size


@jit
def open_spans(sim: Arrays) -> int:
    """See who is free and up, and reserve nothing; how many spans that makes."""
    for row in range(POOLS + sim.rules.pools):
        for w in range(sim.sets.width):
            sim.sets[row, w] = 0
    for node in range(len(sim.node)):
        if sim.node[node].down == 0:
            put_in(POOLS + sim.pool_of[node], node, sim)
        if is_free(node, sim):
            put_in(FREE, node, sim)
    sim.node_span[0].begin = sim.clock.now
    sim.node_span[0].end = NEVER
    sim.node_span[0].next = -1
    for w in range(sim.sets.width):
        sim.span_nodes[0, w] = -1
    for node in range(len(sim.node)):
        sim.clear_until[node] = NEVER
    return ONE


@jit
def cut(time: int, size: int, sim: Arrays) -> int:
    """Have a span begin at a time, of those there are so many; how many there are then."""
    i = ZERO
    while sim.node_span[i].end <= time:
        i = sim.node_span[i].next
    if sim.node_span[i].begin >= time:
        return size
    sim.node_span[size].begin = time
    sim.node_span[size].end = sim.node_span[i].end
    sim.node_span[size].next = sim.node_span[i].next
    sim.node_span[i].end = time
    sim.node_span[i].next = size
    for w in range(sim.sets.width):
        sim.span_nodes[size, w] = sim.span_nodes[i, w]
    return size + 1


@jit
def reserve(row: int, begins: int, ends: int, size: int, sim: Arrays) -> int:
    """Take a set of nodes out of all spans from a time to another; how many spans there are then."""
    for w in range(sim.sets.width):
        word = sim.sets[row, w]
        while word != 0:
            node = lowest(w, word)
            sim.clear_until[node] = min(sim.clear_until[node], begins)
            word &= word - 1
    size = cut(begins, size, sim)
    if ends < NEVER:
        size = cut(ends, size, sim)
    i = ZERO
    while i >= 0 and sim.node_span[i].begin < ends:
        span = sim.node_span[i]
        if span.begin >= begins:
            for w in range(sim.sets.width):
                sim.span_nodes[i, w] &= ~sim.sets[row, w]
        i = span.next
    return size


@jit
def is_reserved(begins: int, ends: int, sim: Arrays) -> bool:
    """Whether a node that was picked is reserved, or maintained, at any time from one to another."""
    i = ZERO
    while i >= 0 and sim.node_span[i].begin < ends:
        span = sim.node_span[i]
        if span.end > begins:
            for w in range(sim.sets.width):
                if sim.sets[PICKED, w] & ~sim.span_nodes[i, w] != 0:
                    return True
        i = span.next
    for i in range(windows_before(ends, sim)):
        window = sim.window[window_left(i, sim)]
        if window.pool < sim.rules.pools and window.end > begins:
            for w in range(sim.sets.width):
                if sim.sets[PICKED, w] & sim.sets[POOLS + window.pool, w] != 0:
                    return True
    return False


@jit
def comes_back(i: int, following: int, sim: Arrays) -> bool:
    """Whether a span has a node that a job may have and that is left out by those up to another."""
    for w in range(sim.sets.width):
        clear = sim.sets[CLEAR, w] & sim.span_nodes[i, w]
        if sim.sets[MAY, w] & sim.span_nodes[following, w] & ~clear != 0:
            return True
    return False


@jit
def narrow(j: int, since: int, until: int, nodes: int, first: int, sim: Arrays) -> int:
    """Leave those nodes that a job may have from a time to another (``CLEAR``).

    Args:
        j: the job.
        since, until: the times.
        nodes: fewer are of no use: then it may leave more than it should, but still fewer than these.
        first: a span; none before it ends after the first of them.
        sim: the simulation.

    Returns:
        The first end of a span, or of maintenance, by which a node comes back that was left out; NEVER if
        none does before the second span that begins later.
    """
    kind = sim.job[j].kind
    for w in range(sim.sets.width):
        word = ZERO
        for p in range(sim.rules.pools):
            if sim.eligible[kind, p] != 0 and sim.blocked[p] == 0:
                word |= sim.sets[POOLS + p, w]
        sim.sets[MAY, w] = word
        sim.sets[CLEAR, w] = word
    later = NEVER
    i = first
    while i >= 0:
        span = sim.node_span[i]
        if span.end > since:
            if span.next >= 0 and later == NEVER and comes_back(i, span.next, sim):
                later = span.end
            if span.begin > until:
                break
            for w in range(sim.sets.width):
                sim.sets[CLEAR, w] &= sim.span_nodes[i, w]
            if later < NEVER and size_of(CLEAR, sim) < nodes:
                break  # too few already
        i = span.next
    for i in range(windows_before(until, sim)):
        window = sim.window[window_left(i, sim)]
        if (
            window.pool < sim.rules.pools
            and sim.eligible[kind, window.pool] != 0
            and window.end > since
        ):
            for w in range(sim.sets.width):
                sim.sets[CLEAR, w] &= ~sim.sets[POOLS + window.pool, w]
            later = min(later, window.end)
    return later
