"""On which nodes a kind of job certainly finds no room now, so that they need not be looked at.

A bit for each kind and node, which is 1 unless the node was looked at and had no room for a single task;
one more for each block of nodes. What a node gets back sets its bits to 1 again, so they are never 0 where
there is room. And for all kinds, of each block and amount, the most that a node of it has left, or more: of
many kinds each would find out for itself that nodes are full.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import BITS, BLOCK, ONE, ZERO, Arrays

ALL_KINDS = -1
NOT_LISTED = -2


@jit
def is_open(kind: int, node: int, sim: Arrays) -> bool:
    """Whether a node may have room for a task of a kind of job."""
    word = kind // BITS
    return word >= sim.open_to.width or (sim.open_to[node, word] >> (kind % BITS)) & 1 == 1


@jit
def is_open_block(kind: int, block: int, sim: Arrays) -> bool:
    """Whether any node of a block may have room for a task of a kind of job."""
    for c in range(3):
        if sim.most[block, c] < sim.needs[kind, c]:
            return False
    word = kind // BITS
    return word >= sim.open_block.width or (sim.open_block[block, word] >> (kind % BITS)) & 1 == 1


@jit
def close_node(kind: int, node: int, sim: Arrays) -> None:
    """A node has no room for a kind of job."""
    word = kind // BITS
    if word < sim.open_to.width:
        sim.open_to[node, word] &= ~(ONE << (kind % BITS))


@jit
def close_block(kind: int, block: int, sim: Arrays) -> None:
    """No node of a block has room for a kind of job."""
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
    """A node got something back."""
    for word in range(sim.open_to.width):
        sim.open_to[node, word] = ALL_KINDS
        sim.open_block[node // BLOCK, word] = ALL_KINDS
    block = node // BLOCK
    for c in range(3):
        sim.most[block, c] = max(sim.most[block, c], sim.left[node, c])


@jit
def forget_openings(sim: Arrays) -> None:
    """Nothing is known of nodes: not what they have no room for, nor when they will have room."""
    for node in range(len(sim.share)):
        open_node(node, sim)
        sim.moves[node] += 1
        sim.listed[node] = NOT_LISTED
    sim.rooms.valid = 1
