"""Preemption of jobs so that another can start, and restarts from checkpoints."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import fits_plan
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.jobs.transitions import (
    end_job,
    forget_end,
    next_end,
    scaled,
    send_back,
    slowest_held,
    start_now,
)
from hpctwin.engine.loop.events import clean_up_from_now
from hpctwin.engine.preempting.core_loans import settle_shared
from hpctwin.engine.preempting.held_parts import settle_parts
from hpctwin.engine.preempting.node_loans import cover, is_suspended_for, lend, settle
from hpctwin.engine.preempting.victims import choose, grace_of, may_preempt, plan_without
from hpctwin.engine.queue.order import dequeue
from hpctwin.engine.state.layout import (
    COMPLETED,
    FAILED,
    SENT_BACK,
    TAKE,
    WALLTIME,
    Arrays,
)


@jit
def end_at(j: int, time: int, sim: Arrays) -> None:
    """Set a new end of a running job."""
    forget_end(j, sim)
    sim.state[j].end = time
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, next_end(j, sim), j)


@jit
def forget_queued(r: int, sim: Arrays) -> None:
    """Remove a job from the queue, if it is there.

    A job stays in the queue until the end of the pass in which it started.
    """
    for i in range(sim.clock.queued):
        if sim.queue[i] == r:
            dequeue(r, sim)
            return


@jit
def let_go(r: int, sim: Arrays) -> None:
    """Preempt a running job: it leaves at once, or when its grace and the cleanup end."""
    if len(sim.share) > 0:
        settle_parts(r, sim)
    sim.cut[r].tried = 0
    mode = sim.yields[sim.claim[r].standing].mode
    leaves = sim.clock.now + grace_of(r, sim)
    if leaves > sim.clock.now:
        sim.cut[r].leaves = leaves
        stops = leaves - sim.rules.cleanup
        if stops == sim.clock.now:
            clean_up_from_now(r, mode, sim)
        elif sim.state[r].end > stops:
            sim.state[r].outcome = mode
            end_at(r, stops, sim)
        return
    forget_end(r, sim)
    if mode == SENT_BACK:
        if sim.rules.sent_back_for == 0:
            if sim.state[r].start == sim.clock.now:
                forget_queued(r, sim)
            # It may start again at once on other nodes.
            sim.clock.timer = sim.clock.now
        send_back(r, sim)
    else:
        end_job(r, mode, sim)


@jit
def resume(j: int, sim: Arrays) -> None:
    """Continue a job that has just started from its last checkpoint."""
    done = sim.cut[j].done
    if done == 0:
        return
    job = sim.job[j]
    pool = sim.pool[slowest_held(j, sim)]
    length = scaled(job.runtime - done, pool.top, pool.bottom)
    sim.state[j].outcome = COMPLETED if job.fails == 0 else FAILED
    if sim.rules.terminate == 1 and length > job.limit:
        length = job.limit
        sim.state[j].outcome = WALLTIME
    end_at(j, sim.state[j].start + length, sim)


@jit
def start(j: int, sim: Arrays) -> None:
    """Start a job that fits the plan now (``sim.low``), from its last checkpoint."""
    start_now(j, sim)
    resume(j, sim)


@jit
def spare_suspended(first: int, last: int, sim: Arrays) -> None:
    """Undo the tentative suspension of victims, as the job does not start now."""
    for i in range(first, last + 1):
        if is_suspended_for(sim.victim[i].job, sim):
            plan_without(sim.victim[i].job, TAKE, sim)


@jit
def make_room(j: int, sim: Arrays) -> bool:
    """Preempt other jobs for a job that does not fit.

    Returns:
        Whether it fits now, as all of them have left at once.
    """
    if not may_preempt(j, sim):
        # Jobs that it preempted may still be in their grace time.
        if sim.cut[j].waits > sim.clock.now:
            sim.clock.timer = min(sim.clock.timer, sim.cut[j].waits)
        return False
    first, last = choose(j, sim)
    if last < first:
        return False
    grace = 0
    for i in range(first, last + 1):
        grace = max(grace, grace_of(sim.victim[i].job, sim))
    if len(sim.beneath) > 0 and grace > 0:
        spare_suspended(first, last, sim)
    for i in range(first, last + 1):
        if not is_suspended_for(sim.victim[i].job, sim):
            let_go(sim.victim[i].job, sim)
    if grace > 0:
        sim.cut[j].waits = sim.clock.now + grace
        sim.clock.timer = min(sim.clock.timer, sim.cut[j].waits)
        if len(sim.beneath) > 0:
            if len(sim.share) > 0:
                settle_shared(sim)
            else:
                settle(sim)
        return False
    if len(sim.beneath) > 0 and len(sim.share) == 0:
        lend(sim)
    return True


@jit
def starts_or_preempts(j: int, sim: Arrays) -> bool:
    """Start a job if it fits, or once others left at once; return whether it started."""
    if fits_plan(j, sim):
        start(j, sim)
        return True
    if not make_room(j, sim):
        return False
    fits_plan(j, sim)
    start(j, sim)
    if len(sim.beneath) > 0:
        cover(j, sim)
        settle(sim)
    return True
