"""Which kinds of jobs certainly do not fit on a node now, and can be skipped.

There is a bit for each kind and node. It is 1 unless the node was checked and not a single task of
the kind fits on it. Each block of nodes also has a bit for each kind. If a node gets something
back, its bits and those of its block become 1 again. A bit is thus never 0 if a task fits.

For all kinds together, each block has upper bounds of the amounts that are free on any of its
nodes. Without them, each of many kinds would have to find by itself that nodes are full.

The module also lists the jobs of a node by planned end, when the list is first needed.

The list of a node is a sorted row of a table, so reading it touches no other memory. If a node has
too many jobs, it is not listed until it has few again.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import BITS, BLOCK, ONE, ZERO, Arrays

ALL_KINDS = -1
NOT_LISTED = -2


@jit
def is_open(kind: int, node: int, sim: Arrays) -> bool:
    """Return whether a task of a kind of job may fit on a node now."""
    word = kind // BITS
    return word >= sim.open_to.width or (sim.open_to[node, word] >> (kind % BITS)) & 1 == 1


@jit
def is_open_block(kind: int, block: int, sim: Arrays) -> bool:
    """Return whether a task of a kind of job may fit on any node of a block."""
    for c in range(3):
        if sim.most[block, c] < sim.needs[kind, c]:
            return False
    word = kind // BITS
    return word >= sim.open_block.width or (sim.open_block[block, word] >> (kind % BITS)) & 1 == 1


@jit
def close_node(kind: int, node: int, sim: Arrays) -> None:
    """Record that no task of a kind of job fits on a node."""
    word = kind // BITS
    if word < sim.open_to.width:
        sim.open_to[node, word] &= ~(ONE << (kind % BITS))


@jit
def close_block(kind: int, block: int, sim: Arrays) -> None:
    """Record that no task of a kind fits on a block, and update the block's bounds."""
    for c in range(3):
        most = ZERO
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(sim.share))):
            most = max(most, sim.left[node, c])
        sim.most[block, c] = most
    word = kind // BITS
    if word < sim.open_block.width:
        sim.open_block[block, word] &= ~(ONE << (kind % BITS))


@jit
def open_node(node: int, sim: Arrays) -> None:
    """Record that a node got something back: any kind of job may fit on it."""
    for word in range(sim.open_to.width):
        sim.open_to[node, word] = ALL_KINDS
        sim.open_block[node // BLOCK, word] = ALL_KINDS
    block = node // BLOCK
    for c in range(3):
        sim.most[block, c] = max(sim.most[block, c], sim.left[node, c])


@jit
def forget_openings(sim: Arrays) -> None:
    """Forget which kinds of jobs do not fit on nodes, and when they will fit."""
    for node in range(len(sim.share)):
        open_node(node, sim)
        sim.moves[node] += 1
        sim.listed[node] = NOT_LISTED
    sim.rooms.valid = 1


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
