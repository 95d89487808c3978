"""The nodes of a job, where nodes have identity."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.intrinsics import call_with_job
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import touch
from hpctwin.engine.containers.suspended_stack import pop_suspended
from hpctwin.engine.state.layout import Arrays


@jit
def claim(j: int, node: int, sim: Arrays) -> None:
    """Give a node to a job."""
    sim.node[node].job = j
    sim.node[node].next = sim.state[j].first_node
    sim.state[j].first_node = node
    touch(node, sim)


@jit
def place(j: int, sim: Arrays) -> None:
    """Choose and claim the nodes of a starting job: ``sim.take`` from each pool.

    It does nothing if the power policy has claimed them.
    """
    if sim.hooks.place_nodes != 0:
        call_with_job(sim.hooks.place_nodes, j, sim)


@jit
def place_by_score(j: int, sim: Arrays) -> None:
    """Divide a job's nodes over the pools by placement scores, given ``sim.low``."""
    call_with_job(sim.hooks.place_by_score, j, sim)


@jit
def nodes_ready(j: int, sim: Arrays) -> int:
    """Return when all nodes of a job are active; now if nodes have no power states."""
    ready = sim.clock.now
    if sim.rules.depths > 0:
        node = sim.state[j].first_node
        while node >= 0:
            ready = max(ready, active_from(node, sim))
            node = sim.node[node].next
    return ready


@jit
def release_nodes(j: int, sim: Arrays) -> None:
    """Take all nodes from a job.

    A job suspended on top of a node's stack gets the node back.
    """
    node = sim.state[j].first_node
    while node >= 0:
        following = sim.node[node].next
        sim.node[node].job = -1
        sim.node[node].next = -1
        touch(node, sim)
        if len(sim.beneath) > 0:
            lower = pop_suspended(node, sim)
            if lower >= 0:
                claim(lower, node, sim)
        node = following
    sim.state[j].first_node = -1


@jit
def note_segments(j: int, sim: Arrays) -> None:
    """Record where a job that has just started runs, as runs of node numbers."""
    node = sim.state[j].first_node
    last = -1
    while node >= 0:
        if last >= 0 and sim.segment[last].first - 1 == node:
            sim.segment[last].first = node
            sim.segment[last].nodes += 1
        else:
            last = sim.clock.segments
            sim.clock.segments = last + 1
            sim.segment[last].job = j
            sim.segment[last].start = sim.state[j].start
            sim.segment[last].first = node
            sim.segment[last].nodes = 1
        node = sim.node[node].next


@jit
def forget_segments(j: int, sim: Arrays) -> None:
    """Mark the segments of a job as never used: it never began on these nodes."""
    for i in range(sim.clock.segments):
        if sim.segment[i].job == j and sim.segment[i].start == sim.state[j].start:
            sim.segment[i].nodes = 0
