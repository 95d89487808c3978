"""Nodes of suspended jobs that others have: who lies beneath whom.

A row of ``sim.beneath`` holds those who wait for a node, who had it first at the beginning; -1 where nobody
is. Who has the node, `records.Node.job`, is on top of them. In what is free, and planned, a node counts as
one of the lowest (``sim.taken``), who has it last.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["depth_of", "is_on", "lowest_on", "pop_suspended", "push_suspended", "remove_suspended"]


@jit
def depth_of(node: int, sim: Arrays) -> int:
    """How many lie beneath who has a node."""
    depth = ZERO
    while depth < sim.beneath.width and sim.beneath[node, depth] >= 0:
        depth += 1
    return depth


@jit
def is_on(j: int, node: int, sim: Arrays) -> bool:
    """Whether a job has a node, or waits for it to come back."""
    if sim.node[node].job == j:
        return True
    for d in range(depth_of(node, sim)):
        if sim.beneath[node, d] == j:
            return True
    return False


@jit
def lowest_on(node: int, sim: Arrays) -> int:
    """Who has a node last, of those who are on it."""
    first = sim.beneath[node, 0]
    return first if first >= 0 else sim.node[node].job


@jit
def push_suspended(node: int, sim: Arrays) -> None:
    """Who has a node lies beneath from now on, and nobody has it; it is in no list of nodes."""
    own = sim.node[node]
    sim.cut[own.job].covered += 1
    sim.beneath[node, depth_of(node, sim)] = own.job
    own.job = -1
    own.next = -1


@jit
def pop_suspended(node: int, sim: Arrays) -> int:
    """Who lies uppermost, and does no more; -1 if nobody did. The node must be given to that job."""
    depth = depth_of(node, sim)
    if depth == 0:
        return ZERO - 1
    j = sim.beneath[node, depth - 1]
    sim.beneath[node, depth - 1] = -1
    sim.cut[j].covered -= 1
    return j


@jit
def remove_suspended(j: int, sim: Arrays) -> None:
    """A job that ends lies beneath no more; a node that it would have had last is another's then."""
    if sim.cut[j].covered == 0:
        return
    for node in range(len(sim.node)):
        depth = depth_of(node, sim)
        at = ZERO
        while at < depth and sim.beneath[node, at] != j:
            at += 1
        if at == depth:
            continue
        for d in range(at, depth - 1):
            sim.beneath[node, d] = sim.beneath[node, d + 1]
        sim.beneath[node, depth - 1] = -1
        if at == 0:
            p = sim.pool_of[node]
            sim.taken[j, p] -= 1
            sim.taken[lowest_on(node, sim), p] += 1
    sim.cut[j].covered = 0
