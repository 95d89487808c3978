"""Spans of time, each with its set of unreserved nodes: plans of particular nodes.

As in Slurm's backfill plugin (22.05: ``node_space`` of ``backfill.c``), a job is tried from some
time on with the nodes that are in no reservation while it would run. Sets are bits in words, so
that one try takes (spans × nodes / 64) steps.
"""

from __future__ import annotations

from hpctwin.engine.capacity.maintenance_windows import window_left, windows_before
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import is_free
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays

# Rows of ``sim.sets``: free nodes; nodes that a job may have at all; nodes that it may have while
# it would run; nodes picked for it; then, for each pool, the nodes that are up.
FREE, MAY, CLEAR, PICKED, POOLS = 0, 1, 2, 3, 4


@jit
def bits_of(word: int) -> int:
    """Return the number of 1 bits in a word."""
    word = word - ((word >> 1) & 0x5555555555555555)
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((word * 0x0101010101010101) >> 56) & 0x7F


@jit
def lowest(w: int, word: int) -> int:
    """Return the lowest node in word ``w`` of a set; the word must not be 0."""
    return 64 * w + bits_of((word & -word) - 1)


@jit
def has(row: int, node: int, sim: Arrays) -> bool:
    """Return whether a node is in a set."""
    return (sim.sets[row, node >> 6] >> (node & 63)) & 1 == 1


@jit
def put_in(row: int, node: int, sim: Arrays) -> None:
    """Add a node to a set."""
    sim.sets[row, node >> 6] |= ONE << (node & 63)


@jit
def size_of(row: int, sim: Arrays) -> int:
    """Return the number of nodes in a set."""
    size = ZERO
    for w in range(sim.sets.width):
        size += bits_of(sim.sets[row, w])
    return size


@jit
def open_spans(sim: Arrays) -> int:
    """Begin a plan without reservations: record the nodes that are free and up.

    Returns:
        Number of spans, which is 1.
    """
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
    """Split the span that contains a time, so that a span begins there.

    Args:
        time: Time of the split, ms.
        size: Number of spans.
        sim: Simulation.

    Returns:
        New number of spans.
    """
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
    """Remove a set of nodes from all spans between two times.

    Args:
        row: Row of ``sim.sets``.
        begins, ends: The times, ms; ``ends`` may be `NEVER`.
        size: Number of spans.
        sim: Simulation.

    Returns:
        New number of spans.
    """
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
    """Return whether a picked node is reserved or in maintenance between two times."""
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
    """Return whether the next span offers an eligible node that is excluded so far.

    Args:
        i: Last span considered.
        following: Span after it.
        sim: Simulation.
    """
    for w in range(sim.sets.width):
        clear = sim.sets[CLEAR, w] & sim.span_nodes[i, w]
        if sim.sets[MAY, w] & sim.span_nodes[following, w] & ~clear != 0:
            return True
    return False


@jit
def narrow(j: int, since: int, until: int, nodes: int, first: int, sim: Arrays) -> int:
    """Set ``CLEAR`` to the nodes that a job may have between two times.

    Args:
        j: Job.
        since, until: The times, ms.
        nodes: Nodes that the job needs. If there are fewer, ``CLEAR`` may hold too many nodes, but
            always fewer than this.
        first: A span; no span before it ends after ``since``.
        sim: Simulation.

    Returns:
        First end of a span or of maintenance at which an excluded node becomes available. `NEVER`
        if there is none before the second span that begins after ``until``.
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
