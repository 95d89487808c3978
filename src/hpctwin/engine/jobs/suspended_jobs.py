"""Jobs that are suspended for others: their time stands still until all their nodes are theirs again.

``state.start`` of such a job is moved by the time for which it was suspended, so that what follows of it (its
planned end, its walltime) is as if it had run on. As long as it is suspended, it is as if it went on when all
who have its nodes are expected to end.
"""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.containers.suspended_stack import depth_of
from hpctwin.engine.jobs.running_jobs import run_insert, run_remove
from hpctwin.engine.jobs.transitions import forget_end
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = [
    "WAKE", "began", "expect_to_go_on", "go_on", "leaves_by", "list_suspended", "move_start", "suspend",
]  # fmt: skip


@jit
def began(j: int, sim: Arrays) -> int:
    """When a job started that was perhaps suspended since, ms."""
    return sim.state[j].start - sim.cut[j].paused


@jit
def move_start(j: int, start: int, sim: Arrays) -> None:
    """Have a job be as if it had started at another time."""
    state = sim.state[j]
    run_remove(j, state.start + sim.job[j].expected, sim)
    sim.cut[j].paused += start - state.start
    state.start = start
    run_insert(j, start + sim.job[j].expected, sim)


@jit
def suspend(j: int, sim: Arrays) -> None:
    """A running job stands still."""
    cut = sim.cut[j]
    now = sim.clock.now
    since = sim.state[j].start if cut.times == 0 else cut.since
    cut.suspended = 1
    cut.times += 1
    cut.ran = now - sim.state[j].start
    cut.left = sim.state[j].end - now
    forget_end(j, sim)
    if since == now:
        return
    stretch = sim.lost[sim.clock.lost]
    stretch.job = j
    stretch.start = since
    stretch.end = now
    stretch.kept = now - since
    stretch.nodes = sim.job[j].nodes
    sim.clock.lost += 1


@jit
def go_on(j: int, sim: Arrays) -> None:
    """A suspended job runs again."""
    cut = sim.cut[j]
    now = sim.clock.now
    cut.suspended = 0
    cut.since = now
    move_start(j, now - cut.ran, sim)
    sim.state[j].end = now + cut.left
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, now + cut.left, j)


@jit
def list_suspended(sim: Arrays) -> int:
    """List those that are suspended, or are tried to be, in ``sim.stack``; how many."""
    n = ZERO
    for place in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[place].job
        if j >= 0 and (sim.cut[j].suspended == 1 or sim.cut[j].tried == 1):
            sim.stack[n] = j
            n += 1
    return n


def wake_uncovered(sim: Arrays) -> None:
    """Those go on of whose nodes others have none any more."""
    for i in range(list_suspended(sim)):
        if sim.cut[sim.stack[i]].covered == 0:
            go_on(sim.stack[i], sim)


WAKE = Kernel(wake_uncovered, types.void(SIM))


@jit
def leaves_by(j: int, sim: Arrays) -> int:
    """When a job is expected to leave its nodes."""
    planned = planned_end(j, sim)
    leaves = sim.cut[j].leaves
    return leaves if 0 < leaves < planned else planned


@jit
def look_up(node: int, sim: Arrays) -> None:
    """Who lies beneath others on a node goes on when these have ended, at the earliest."""
    depth = depth_of(node, sim)
    if depth == 0:
        return
    until = leaves_by(sim.node[node].job, sim)
    for d in range(depth - 1, -1, -1):
        j = sim.beneath[node, d]
        sim.cut[j].until = max(sim.cut[j].until, until)
        until = max(until, leaves_by(j, sim))


@jit
def expect_to_go_on(n: int, sim: Arrays) -> None:
    """Reckon anew when the first ``n`` of ``sim.stack`` go on, all that are suspended among them."""
    # Once for each level: who lies beneath others waits for these.
    for _ in range(sim.beneath.width):
        for i in range(n):
            sim.cut[sim.stack[i]].until = sim.clock.now
        for node in range(len(sim.node)):
            look_up(node, sim)
        for i in range(n):
            j = sim.stack[i]
            cut = sim.cut[j]
            if cut.suspended == 1:
                move_start(j, cut.until - min(cut.ran, sim.job[j].expected), sim)
