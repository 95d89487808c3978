"""State changes of a job: it starts, ends, is requeued, or will never run."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import choose_pools, load_take, note_freed, plan_change
from hpctwin.engine.compile.intrinsics import call_with_job
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_push, heap_remove
from hpctwin.engine.containers.suspended_stack import is_on, remove_suspended
from hpctwin.engine.jobs.running_jobs import run_insert, run_remove
from hpctwin.engine.placement.job_nodes import (
    forget_segments,
    nodes_ready,
    note_segments,
    place,
    place_by_score,
    release_nodes,
)
from hpctwin.engine.queue.limits import at_limit, count_submitted, hold
from hpctwin.engine.queue.order import (
    decayed,
    enqueue,
    note_back,
    note_end,
    note_start,
    tidy_queue,
)
from hpctwin.engine.state.layout import (
    AFTER,
    AFTEROK,
    CANCELLED,
    COMPLETED,
    DEPENDENCY,
    FAILED,
    MINUS_ONE,
    NEVER,
    ONE,
    PAUSES,
    PENDING,
    PREEMPTED,
    RACED,
    RUNNING,
    SENT_BACK,
    STRETCH,
    TAKE,
    THOUSANDTH,
    UNSUBMITTED,
    WALLTIME,
    ZERO,
    Arrays,
)

LONGEST = NEVER // 2


@jit
def scaled(runtime: int, top: int, bottom: int) -> int:
    """Return a runtime at a speed given as a fraction, rounded up, ms.

    The result is exact, as all products are integers.
    """
    if bottom > top and runtime > LONGEST // bottom * top:
        return LONGEST
    whole = runtime // top
    rest = runtime - whole * top
    return whole * bottom + (rest * bottom + top - 1) // top


@jit
def slowest_taken(sim: Arrays) -> int:
    """Return the pool of the slowest nodes in ``sim.take``."""
    slowest = -1
    for p in range(sim.rules.pools):
        if sim.take[p] > 0 and (slowest < 0 or sim.pool[p].speed < sim.pool[slowest].speed):
            slowest = p
    return slowest


@jit
def duration(j: int, sim: Arrays) -> int:
    """Return how long a job runs on the nodes in ``sim.take`` if nothing ends it, ms."""
    pool = sim.pool[slowest_taken(sim)]
    if pool.speed == 1.0:
        return sim.job[j].runtime
    return scaled(sim.job[j].runtime, pool.top, pool.bottom)


@jit
def account(j: int, nodes: float, sim: Arrays) -> None:
    """Bring the fair-share usage of a job's label up to now; change its node count.

    Args:
        j: Job.
        nodes: Nodes that the label uses from now on in addition; negative if the job ends.
        sim: Simulation.
    """
    everyone = len(sim.promised)
    counted = nodes * (sim.job[j].counts * THOUSANDTH)
    for label in (sim.job[j].share, everyone):
        used = decayed(label, sim)
        usage = sim.usage[label]
        usage.used = used
        usage.at = sim.clock.now
        usage.nodes += counted


@jit
def next_end(j: int, sim: Arrays) -> int:
    """Return when a running job is due in the heap of ends, ms.

    It is the end of its cleanup. The job is first due at its own end if nodes with power states are
    idle from then on, or if its attempt is to be recorded then as it will be requeued.
    """
    state = sim.state[j]
    if state.outcome == SENT_BACK:
        stops_first = state.end > sim.clock.now
    else:
        stops_first = sim.rules.depths > 0 and state.end >= sim.clock.now
    return state.end if stops_first else state.end + sim.rules.cleanup


@jit
def start_job(j: int, sim: Arrays) -> None:
    """Start a pending job on ``sim.take`` nodes of each pool, once they are on."""
    call_with_job(sim.hooks.start, j, sim)


def start_taken(j: int, sim: Arrays) -> None:
    """Do the same as `start_job`; compiled once for all passes."""
    pools = sim.rules.pools
    job = sim.job[j]
    state = sim.state[j]
    length = duration(j, sim)
    state.outcome = COMPLETED if job.fails == 0 else FAILED
    if sim.rules.terminate == 1 and length > job.limit:
        length = job.limit
        state.outcome = WALLTIME
    begin = sim.clock.now
    if len(sim.node) > 0:
        place(j, sim)
        begin = nodes_ready(j, sim)
    state.phase = RUNNING
    state.start = begin
    state.end = begin + length
    sim.clock.starts += 1
    for p in range(pools):
        sim.stock[p].free -= sim.take[p]
        if len(sim.taken) > 0:
            sim.taken[j, p] = sim.take[p]
    for c in range(sim.asks.width):
        sim.stock[pools + c].free -= sim.asks[j, c]
    if sim.user_running.width > 0:
        sim.user_running[sim.partition[job.kind], job.user] += 1
    if len(sim.held) > 0:
        hold(j, ONE, sim)
    account(j, job.nodes, sim)
    if len(sim.node) > 0:
        note_segments(j, sim)
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, next_end(j, sim), j)
    run_insert(j, begin + job.expected, sim)
    note_given(j, sim)


@jit
def note_given(j: int, sim: Arrays) -> None:
    """Record that a job has begun, or will begin when its nodes are on."""
    job = sim.job[j]
    state = sim.state[j]
    if state.start <= sim.clock.now:
        note_begun(j, sim)
        return
    sim.clock.begins = heap_push(sim.begins, sim.clock.begins, state.start, j)
    if state.started == 0 and job.tells_to > job.tells_from:
        # Until its nodes are on, the job may be cancelled and has then never started.
        sim.clock.releases = heap_push(sim.releases, sim.clock.releases, state.start, -1 - j)


_start = jit(start_taken)


def start_noted(j: int, sim: Arrays) -> None:
    """Do the same as `start_taken`, and update the ordering's state."""
    _start(j, sim)
    note_start(j, sim)


@jit
def note_begun(j: int, sim: Arrays) -> None:
    """Release jobs that wait for this job's start, if it is its first one."""
    state = sim.state[j]
    if state.started == 1 or state.phase != RUNNING:
        return
    state.started = 1
    for e in range(sim.job[j].tells_from, sim.job[j].tells_to):
        if sim.tells[e].kind == AFTER:
            come_true(sim.tells[e].job, state.start + sim.tells[e].delay, sim)


@jit
def forget_begin(j: int, sim: Arrays) -> bool:
    """Drop the future begin of a job whose nodes are not on yet; return if it had one."""
    state = sim.state[j]
    if state.start <= sim.clock.now:
        return False
    heap_remove(sim.begins, sim.clock.begins, j)
    sim.clock.begins -= 1
    if state.started == 0 and sim.job[j].tells_to > sim.job[j].tells_from:
        heap_remove(sim.releases, sim.clock.releases, -1 - j)
        sim.clock.releases -= 1
    forget_segments(j, sim)
    state.start = -1
    return True


@jit
def take_started(j: int, since: int, sim: Arrays) -> None:
    """Take a job that has just started out of the plan, until its expected end.

    The end is later than on nodes that are on: the job begins when its nodes are.

    Args:
        j: Job.
        since: Time from which the plan loses its nodes, ms.
        sim: Simulation.
    """
    plan_change(j, since, sim.state[j].start + sim.job[j].expected, TAKE, sim)


@jit
def divide_now(j: int, sim: Arrays) -> None:
    """Divide the nodes of a job that starts now over the pools, given ``sim.low``."""
    if sim.rules.pools > 1 and sim.hooks.place != 0:
        place_by_score(j, sim)
    else:
        choose_pools(j, sim)


@jit
def start_now(j: int, sim: Arrays) -> None:
    """Start a job that fits in the plan now (``sim.low``), and update the plan."""
    divide_now(j, sim)
    start_job(j, sim)
    take_started(j, sim.clock.now, sim)


@jit
def return_nodes(j: int, sim: Arrays) -> None:
    """Return the whole nodes of a running job."""
    load_take(j, sim)
    for p in range(sim.rules.pools):
        sim.stock[p].free += sim.take[p]
    account(j, -sim.job[j].nodes, sim)
    if len(sim.node) > 0:
        release_nodes(j, sim)


def return_noted(j: int, sim: Arrays) -> None:
    """Do the same as `return_nodes`, and update the ordering's state."""
    return_nodes(j, sim)
    note_end(j, sim)


@jit
def give_back(j: int, sim: Arrays) -> None:
    """Return the nodes and resources of a running job."""
    pools = sim.rules.pools
    job = sim.job[j]
    if len(sim.beneath) > 0:
        remove_suspended(j, sim)
    if sim.hooks.gave_back != 0:
        call_with_job(sim.hooks.gave_back, j, sim)
    else:
        return_nodes(j, sim)
    for c in range(sim.asks.width):
        sim.stock[pools + c].free += sim.asks[j, c]
    if sim.user_running.width > 0:
        partition = sim.partition[job.kind]
        if sim.race.valid == RACED and at_limit(partition, job.user, sim):
            note_back(job.user, sim)
        sim.user_running[partition, job.user] -= 1
    if len(sim.held) > 0:
        hold(j, MINUS_ONE, sim)
    planned = sim.state[j].start + job.expected
    if planned != sim.clock.now:
        sim.clock.came_back = 1
        note_freed(j, sim.clock.now, planned, sim)
    run_remove(j, planned, sim)


@jit
def end_job(j: int, phase: int, sim: Arrays) -> None:
    """End a running job; its entry is no longer in the heap of ends."""
    give_back(j, sim)
    settle(j, phase, sim)


@jit
def has_ended(j: int, sim: Arrays) -> bool:
    """Return whether a job has ended, while its nodes are being cleaned up."""
    return sim.rules.cleanup > 0 and sim.state[j].end <= sim.clock.now


@jit
def finish(j: int, sim: Arrays) -> None:
    """End a running job with its known outcome, or free its nodes after the cleanup.

    Its entry is no longer in the heap of ends.
    """
    ended = sim.state[j].end
    before = sim.clock.ended
    end_job(j, sim.state[j].outcome, sim)
    sim.state[j].end = ended
    sim.clock.ended = max(before, ended)


@jit
def forget_end(j: int, sim: Arrays) -> None:
    """Remove a running job from the heap of ends, because it ends in another way."""
    heap_remove(sim.ends, sim.clock.ends, j)
    sim.clock.ends -= 1


@jit
def slowest_of(j: int, sim: Arrays) -> int:
    """Return the pool of the slowest whole nodes that a job has or awaits.

    ``taken`` does not count nodes on which other jobs are at the bottom of the stack.
    """
    slowest = -1
    for node in range(len(sim.node)):
        p = sim.pool_of[node]
        if slowest < 0 or sim.pool[p].speed < sim.pool[slowest].speed:
            if is_on(j, node, sim):
                slowest = p
    return slowest


@jit
def slowest_held(j: int, sim: Arrays) -> int:
    """Return the pool of the slowest nodes that a running job has."""
    if len(sim.share) == 0:
        if len(sim.beneath) > 0:
            return slowest_of(j, sim)
        load_take(j, sim)
        return slowest_taken(sim)
    row = sim.state[j].first_node
    slowest = sim.pool_of[sim.part[row].node]
    while row >= 0:
        p = sim.pool_of[sim.part[row].node]
        if sim.pool[p].speed < sim.pool[slowest].speed:
            slowest = p
        row = sim.part[row].next
    return slowest


@jit
def keep_done(j: int, sim: Arrays) -> int:
    """Save the work up to a cut-off job's last checkpoint; return its duration, ms."""
    every = sim.claim[j].checkpoint
    if every == 0:
        return 0
    pool = sim.pool[slowest_held(j, sim)]
    kept = (sim.clock.now - sim.state[j].start) // every * every
    whole = kept // pool.bottom
    rest = kept - whole * pool.bottom
    sim.cut[j].done += whole * pool.top + rest * pool.top // pool.bottom
    return kept


@jit
def began(j: int, sim: Arrays) -> int:
    """Return when a job started, also if it was suspended since, ms."""
    return sim.state[j].start - sim.cut[j].paused


@jit
def last_start(j: int, sim: Arrays) -> int:
    """Return when a job started or last resumed, ms."""
    return sim.state[j].start if sim.cut[j].pauses == 0 else sim.cut[j].since


@jit
def note_lost(j: int, start: int, kept: int, sim: Arrays) -> None:
    """Record an attempt of a job, or a part of it, that ends now."""
    lost = sim.lost[sim.clock.lost]
    lost.job = j
    lost.start = start
    lost.end = sim.clock.now
    lost.kept = kept
    lost.nodes = sim.job[j].nodes
    lost.what = 0
    lost.attempt = start
    sim.clock.lost += 1


@jit
def note_stretch(j: int, sim: Arrays) -> None:
    """Record the time since a job started or last resumed, which ends now."""
    since = last_start(j, sim)
    note_lost(j, since, sim.clock.now - since, sim)
    stretch = sim.lost[sim.clock.lost - 1]
    stretch.what = STRETCH
    stretch.attempt = began(j, sim)


@jit
def note_attempt(j: int, sim: Arrays) -> None:
    """Record the attempt of a running job that is cut off now; only its checkpoints remain.

    If it was suspended, its last stretch is recorded too.
    """
    kept = keep_done(j, sim) if len(sim.cut) > 0 else ZERO
    if len(sim.beneath) == 0 or sim.cut[j].pauses == 0:
        note_lost(j, sim.state[j].start, kept, sim)
        return
    note_stretch(j, sim)
    note_lost(j, began(j, sim), kept, sim)
    sim.lost[sim.clock.lost - 1].what = PAUSES


@jit
def note_preempted(j: int, sim: Arrays) -> None:
    """Record the attempt of a job that stops now because it is preempted and requeued."""
    note_attempt(j, sim)
    lost = sim.lost[sim.clock.lost - 1]
    sim.cut[j].lost += lost.end - lost.start - lost.kept


@jit
def cut_off(j: int, sim: Arrays) -> None:
    """Take the nodes from a running job whose attempt is recorded, as if it had never started.

    The job is then neither running nor in the queue.
    """
    if len(sim.cut) > 0:
        sim.cut[j].leaves = 0
    give_back(j, sim)
    # The queue may still hold the job from its earlier wait.
    tidy_queue(sim)
    sim.race.valid = 0
    forget_begin(j, sim)
    if len(sim.beneath) > 0:
        cut = sim.cut[j]
        cut.before += cut.paused
        cut.paused = 0
        cut.pauses = 0
    sim.state[j].requeues += 1
    sim.state[j].start = -1
    sim.state[j].end = -1


@jit
def throw_back(j: int, sim: Arrays) -> None:
    """Requeue a running job whose node failed."""
    if sim.state[j].start <= sim.clock.now:
        note_attempt(j, sim)
    cut_off(j, sim)
    enqueue(j, sim)


@jit
def send_back(j: int, sim: Arrays) -> None:
    """Requeue a job that was preempted, or stopped for another size, now that its nodes are free.

    A preempted job joins the queue after a delay.
    """
    if not has_ended(j, sim):
        note_preempted(j, sim)
    cut_off(j, sim)
    if len(sim.cut) > 0:
        sim.cut[j].times += 1
    else:
        sim.state[j].requeues -= 1  # a change of size is no requeue
    if sim.job[j].cancel < sim.clock.now:
        # It was canceled while its nodes were cleaned up.
        settle(j, CANCELLED, sim)
        return
    if sim.rules.sent_back_for == 0:
        enqueue(j, sim)
        return
    state = sim.state[j]
    state.phase = PENDING
    time = sim.clock.now + sim.rules.sent_back_for
    sim.clock.releases = heap_push(sim.releases, sim.clock.releases, time, j)


@jit
def come_true(j: int, time: int, sim: Arrays) -> None:
    """Record that one dependency of a job is satisfied at ``time``."""
    state = sim.state[j]
    state.open -= 1
    if time > state.release:
        state.release = time
    if state.open == 0 and state.dead == 0 and state.phase == PENDING:
        sim.clock.releases = heap_push(sim.releases, sim.clock.releases, state.release, j)


@jit
def hold_for_ever(j: int, sim: Arrays) -> None:
    """Keep a job whose dependency failed pending.

    It is not alive any more: the simulation does not wait for it, unless it will be cancelled.
    """
    if sim.job[j].cancel >= NEVER:
        sim.clock.alive -= 1


@jit
def close(j: int, phase: int, sim: Arrays) -> None:
    """Set a job's final phase; dependent jobs are not notified yet."""
    if len(sim.held) > 0 and sim.state[j].phase != UNSUBMITTED:
        count_submitted(j, MINUS_ONE, sim)
    if sim.state[j].phase == RUNNING and sim.state[j].start >= 0:
        sim.clock.ended = sim.clock.now
    sim.state[j].phase = phase
    sim.state[j].end = sim.clock.now
    sim.clock.alive -= 1


@jit
def settle(j: int, phase: int, sim: Arrays) -> None:
    """Set a job's final phase, and update the jobs that depend on it, directly or not."""
    close(j, phase, sim)
    tell_dependants(j, sim)


@jit
def tell_dependants(j: int, sim: Arrays) -> None:
    """Update the jobs that depend on a job that has ended.

    Some of them may end by that, so the update continues with their dependent jobs.
    """
    if len(sim.tells) == 0:
        return
    now = sim.clock.now
    sim.stack[0] = j
    depth = 1
    while depth > 0:
        depth -= 1
        ended = sim.stack[depth]
        for e in range(sim.job[ended].tells_from, sim.job[ended].tells_to):
            edge = sim.tells[e]
            other = edge.job
            if edge.kind == AFTER and sim.state[ended].started == 1:
                continue
            if edge.kind != AFTEROK or sim.state[ended].phase == COMPLETED:
                come_true(other, now + edge.delay, sim)
                continue
            if sim.state[other].dead == 1 or PREEMPTED >= sim.state[other].phase >= COMPLETED:
                continue
            sim.state[other].dead = 1
            if sim.state[other].phase == UNSUBMITTED:
                continue
            if sim.rules.hold_dependents == 1:
                hold_for_ever(other, sim)
            else:
                close(other, DEPENDENCY, sim)
                sim.stack[depth] = other
                depth += 1
