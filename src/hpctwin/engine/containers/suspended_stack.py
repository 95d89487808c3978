"""Stacks of suspended jobs on nodes that other jobs use now.

A row of ``sim.beneath`` holds the jobs suspended on a node, ordered from the bottom of the stack;
-1 is an empty place. The job that first had the node is at the bottom. The job that runs on the
node, `records.Node.job`, is on top of the stack. Free and planned capacity count a node for the job
at the bottom (``sim.taken``): it is the last job to leave the node.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["depth_of", "is_on", "lowest_on", "pop_suspended", "push_suspended", "remove_suspended"]


@jit
def depth_of(node: int, sim: Arrays) -> int:
    """Return the number of jobs suspended on a node."""
    depth = ZERO
    while depth < sim.beneath.width and sim.beneath[node, depth] >= 0:
        depth += 1
    return depth


@jit
def is_on(j: int, node: int, sim: Arrays) -> bool:
    """Return whether a job runs on a node or is suspended on it."""
    if sim.node[node].job == j:
        return True
    for d in range(depth_of(node, sim)):
        if sim.beneath[node, d] == j:
            return True
    return False


@jit
def lowest_on(node: int, sim: Arrays) -> int:
    """Return the job at the bottom of a node's stack: the last to leave it."""
    first = sim.beneath[node, 0]
    return first if first >= 0 else sim.node[node].job


@jit
def push_suspended(node: int, sim: Arrays) -> None:
    """Suspend the job on a node: it moves onto the stack, and the node has no job.

    The node is then in no job's list of nodes.
    """
    own = sim.node[node]
    sim.cut[own.job].covered += 1
    sim.beneath[node, depth_of(node, sim)] = own.job
    own.job = -1
    own.next = -1


@jit
def pop_suspended(node: int, sim: Arrays) -> int:
    """Remove the top job of a node's stack; return it, or -1 if the stack is empty.

    The caller must then give the node to that job.
    """
    depth = depth_of(node, sim)
    if depth == 0:
        return ZERO - 1
    j = sim.beneath[node, depth - 1]
    sim.beneath[node, depth - 1] = -1
    sim.cut[j].covered -= 1
    return j


@jit
def remove_suspended(j: int, sim: Arrays) -> None:
    """Remove a job that ends from the stacks of all nodes.

    If it was at the bottom of a node's stack, the node counts for the next job above it.
    """
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
