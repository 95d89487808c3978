"""Suspended jobs: they stand still until no other job uses any of their nodes.

``state.start`` of such a job is moved later by its suspended time. All that follows from it
(planned end, walltime) is then as if the job had run without a break. While the job is suspended,
its start assumes that it resumes when all jobs on its nodes are expected to end.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.containers.suspended_stack import depth_of
from hpctwin.engine.jobs.running_jobs import run_insert, run_remove
from hpctwin.engine.jobs.transitions import forget_end, last_start, next_end, note_stretch
from hpctwin.engine.power.node_states import touch_nodes
from hpctwin.engine.queue.limits import count_left
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = [
    "expect_to_go_on", "go_on", "leaves_by", "let_run", "list_suspended", "move_start", "suspend",
    "wake_uncovered",
]  # fmt: skip


@jit
def move_start(j: int, start: int, sim: Arrays) -> None:
    """Move a job's start to another time, together with its planned end."""
    state = sim.state[j]
    run_remove(j, state.start + sim.job[j].expected, sim)
    sim.cut[j].paused += start - state.start
    state.start = start
    run_insert(j, start + sim.job[j].expected, sim)


@jit
def suspend(j: int, sim: Arrays) -> None:
    """Suspend a running job, and record its time since it started or resumed."""
    cut = sim.cut[j]
    now = sim.clock.now
    if last_start(j, sim) < now:
        note_stretch(j, sim)
    cut.suspended = 1
    cut.times += 1
    cut.pauses += 1
    cut.ran = now - sim.state[j].start
    cut.left = sim.state[j].end - now
    sim.state[j].end = NEVER
    forget_end(j, sim)
    touch_nodes(j, sim)


@jit
def go_on(j: int, sim: Arrays) -> None:
    """Resume a suspended job; reservations may move earlier, as it was expected to resume later."""
    cut = sim.cut[j]
    now = sim.clock.now
    sim.clock.came_back = 1
    cut.suspended = 0
    cut.since = now
    move_start(j, now - cut.ran, sim)
    sim.state[j].end = now + cut.left
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, next_end(j, sim), j)
    touch_nodes(j, sim)


@jit
def let_run(j: int, sim: Arrays) -> None:
    """Resume a job if it is suspended, because it ends now or waits again."""
    if len(sim.beneath) > 0 and sim.cut[j].suspended == 1:
        go_on(j, sim)


@jit
def list_suspended(sim: Arrays) -> int:
    """List suspended and tentatively suspended jobs in ``sim.stack``; return how many."""
    n = ZERO
    for place in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[place].job
        if j >= 0 and (sim.cut[j].suspended == 1 or sim.cut[j].tried == 1):
            sim.stack[n] = j
            n += 1
    return n


@jit
def leaves_by(j: int, sim: Arrays) -> int:
    """Return when a job is expected to leave its nodes: planned end or end of grace."""
    planned = planned_end(j, sim)
    leaves = sim.cut[j].leaves
    return leaves if 0 < leaves < planned else planned


@jit
def look_up(node: int, sim: Arrays) -> None:
    """Delay the resumption of jobs suspended on a node until the jobs above them end."""
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
    """Recompute when suspended jobs resume.

    Args:
        n: Number of jobs in ``sim.stack``, which holds all suspended jobs.
        sim: Simulation.
    """
    # One iteration per level of the stacks: a suspended job waits for the jobs above it, which may
    # be suspended themselves.
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


def wake_uncovered(sim: Arrays) -> None:
    """Resume suspended jobs whose nodes no other job uses any more.

    If a pass follows, it is computed again when the others are expected to resume. What running
    jobs count under limits of minutes is brought up to now.
    """
    n = list_suspended(sim)
    for i in range(n):
        if sim.cut[sim.stack[i]].covered == 0:
            go_on(sim.stack[i], sim)
    if n > 0 and sim.clock.queued > 0:
        expect_to_go_on(n, sim)
    count_left(sim)
