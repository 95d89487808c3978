"""All events of one event time, applied as a batch."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_pop, heap_push, heap_remove
from hpctwin.engine.containers.node_sets import touch
from hpctwin.engine.jobs.suspended_jobs import go_on, let_run
from hpctwin.engine.jobs.transitions import (
    close,
    finish,
    forget_begin,
    forget_end,
    give_back,
    has_ended,
    hold_for_ever,
    note_begun,
    note_preempted,
    send_back,
    settle,
    tell_dependants,
    throw_back,
)
from hpctwin.engine.power.node_states import touch_nodes
from hpctwin.engine.queue.limits import count_submitted, forget_used, too_many_submitted
from hpctwin.engine.queue.order import dequeue, enqueue, leave, submitted_at
from hpctwin.engine.state.layout import (
    CANCELLED,
    DEPENDENCY,
    MINUS_ONE,
    NEVER,
    NODE_FAILURE,
    ONE,
    PENDING,
    REJECTED,
    RETURN,
    RUNNING,
    SENT_BACK,
    TAKE,
    UNSUBMITTED,
    WAITING,
    ZERO,
    Arrays,
)


@jit
def next_time(sim: Arrays) -> tuple[int, int]:
    """Return the time of the next event, and of the next event that is real work.

    Node failures, resets of usage and timers are not work.
    """
    clock = sim.clock
    work_time = NEVER
    if clock.ends > 0:
        work_time = min(work_time, sim.ends[0].time)
    if clock.arrived < clock.arrival_end:
        work_time = min(work_time, sim.job[sim.by_submit[clock.arrived]].submit)
    if clock.cancels_done < len(sim.by_cancel):
        work_time = min(work_time, sim.job[sim.by_cancel[clock.cancels_done]].cancel)
    if clock.releases > 0:
        work_time = min(work_time, sim.releases[0].time)
    if clock.changes_done < len(sim.change):
        work_time = min(work_time, sim.change[clock.changes_done].time)
    time = min(work_time, clock.timer)
    if clock.resets_done < len(sim.reset):
        time = min(time, sim.reset[clock.resets_done])
    if clock.outages_done < len(sim.outage):
        time = min(time, sim.outage[clock.outages_done].time)
    return time, work_time


@jit
def release_submitted(j: int, sim: Arrays) -> None:
    """Make a submitted job eligible, or let it wait for its dependencies."""
    state = sim.state[j]
    state.phase = PENDING
    if state.dead == 1:
        hold_for_ever(j, sim)
    elif state.open > 0:
        return
    elif state.release > sim.clock.now:
        sim.clock.releases = heap_push(sim.releases, sim.clock.releases, state.release, j)
    else:
        note_eligible(j, sim)
        enqueue(j, sim)


@jit
def note_eligible(j: int, sim: Arrays) -> None:
    """Record that a job is eligible, as far as dependencies allow.

    A job with a think time counts as submitted only now.
    """
    sim.state[j].eligible = sim.clock.now
    sim.clock.submitted += sim.job[j].thinks


@jit
def lengthen_chains(first: int, last: int, sim: Arrays) -> None:
    """Update the chains of jobs on which newly submitted jobs depend, directly or not.

    Args:
        first, last: Range of ``by_submit`` with the newly submitted jobs.
        sim: Simulation.
    """
    now = sim.clock.now
    n = 0
    for i in range(first, last):
        j = sim.by_submit[i]
        if sim.job[j].waits_to > sim.job[j].waits_from and sim.job[j].thinks == 0:
            n = heap_push(sim.levels, n, sim.job[j].level, j)
    done = -1
    # By level, so that a job's own chain is final before it lengthens others.
    while n > 0:
        j = heap_pop(sim.levels, n)
        n -= 1
        if j == done:
            continue
        done = j
        length = sim.state[j].chain + sim.job[j].expected
        for e in range(sim.job[j].waits_from, sim.job[j].waits_to):
            on = sim.waits[e]
            if sim.state[on].chain >= length:
                continue
            sim.state[on].chain = length
            rules = sim.rules
            if rules.chains == 1 and rules.order_changes == 0 and sim.state[on].phase == WAITING:
                dequeue(on, sim)
                enqueue(on, sim)
            # A job that is not submitted yet does not reveal its dependencies.
            if submitted_at(on, sim) <= now:
                n = heap_push(sim.levels, n, sim.job[on].level, on)


@jit
def let_in(first: int, last: int, sim: Arrays) -> int:
    """Count submitted jobs under their limits; list refused ones in ``sim.later``.

    Args:
        first, last: Range of ``by_submit`` with the newly submitted jobs.
        sim: Simulation.

    Returns:
        Number of refused jobs, which a limit does not admit.
    """
    refused = 0
    for i in range(first, last):
        j = sim.by_submit[i]
        if sim.job[j].rejected != 0:
            continue
        if too_many_submitted(j, sim):
            sim.later[refused] = j
            refused += 1
        else:
            count_submitted(j, ONE, sim)
    return refused


@jit
def apply_submissions(sim: Arrays) -> None:
    """Apply all submissions of this time.

    Jobs that can never run are settled first, then the jobs that fail because they depend on them.
    """
    now = sim.clock.now
    first = sim.clock.arrived
    last = first
    while last < sim.clock.arrival_end and sim.job[sim.by_submit[last]].submit == now:
        last += 1
    sim.clock.arrived = last
    sim.clock.submitted += last - first
    refused = let_in(first, last, sim) if len(sim.held) > 0 else ZERO
    for i in range(first, last):
        j = sim.by_submit[i]
        if sim.job[j].rejected != 0:
            settle(j, REJECTED, sim)
    for i in range(refused):
        settle(sim.later[i], REJECTED, sim)
    # A failed dependency only marks jobs that are not submitted yet: repeat until none of these
    # jobs is newly marked.
    fallen = len(sim.tells) > 0 and sim.rules.hold_dependents == 0
    while fallen:
        fallen = False
        for i in range(first, last):
            j = sim.by_submit[i]
            if sim.state[j].dead == 1 and sim.state[j].phase == UNSUBMITTED:
                if len(sim.held) > 0:
                    count_submitted(j, MINUS_ONE, sim)
                settle(j, DEPENDENCY, sim)
                fallen = True
    if len(sim.tells) > 0:
        for i in range(first, last):
            sim.clock.submitted -= sim.job[sim.by_submit[i]].thinks
        lengthen_chains(first, last, sim)
    for i in range(first, last):
        j = sim.by_submit[i]
        if sim.state[j].phase == UNSUBMITTED:
            release_submitted(j, sim)


@jit
def clean_up_from_now(j: int, outcome: int, sim: Arrays) -> None:
    """End a running job now, unless it has ended; cleanup then delays its nodes."""
    if has_ended(j, sim):
        return
    forget_end(j, sim)
    state = sim.state[j]
    state.outcome = outcome
    state.end = sim.clock.now
    begin_cleanup(j, sim)


@jit
def begin_cleanup(j: int, sim: Arrays) -> None:
    """Begin the cleanup of the nodes of a job that ends now, or is preempted."""
    if sim.state[j].outcome == SENT_BACK:
        note_preempted(j, sim)
    else:
        sim.clock.ended = sim.clock.now
    time = sim.clock.now + sim.rules.cleanup
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, time, j)
    touch_nodes(j, sim)


@jit
def free_nodes(j: int, sim: Arrays) -> None:
    """Take its nodes from a job that has ended, or requeue it if it was preempted."""
    if sim.state[j].outcome == SENT_BACK:
        send_back(j, sim)
    else:
        finish(j, sim)


@jit
def cancel_job(j: int, sim: Arrays) -> None:
    """Cancel a job that has not ended."""
    phase = sim.state[j].phase
    if phase == RUNNING:
        if len(sim.beneath) > 0 and sim.cut[j].suspended == 1:
            go_on(j, sim)  # other jobs use its nodes: there is nothing to clean up
        elif sim.rules.cleanup > 0 and sim.state[j].start <= sim.clock.now:
            clean_up_from_now(j, CANCELLED, sim)
            return
        forget_end(j, sim)
        give_back(j, sim)
        forget_begin(j, sim)
        close(j, CANCELLED, sim)
    elif phase == WAITING:
        leave(j, sim)
        close(j, CANCELLED, sim)
    elif phase == PENDING:
        if sim.state[j].open == 0 and sim.state[j].dead == 0:
            # It was requeued or waits out a delay, so it is in the heap of releases.
            heap_remove(sim.releases, sim.clock.releases, j)
            sim.clock.releases -= 1
        close(j, CANCELLED, sim)


@jit
def node_event(node: int, sign: int, sim: Arrays) -> None:
    """Apply a node failure (sign -1) or repair (+1).

    A failure ends or requeues the jobs on the node, including jobs suspended there.
    """
    p = sim.pool_of[node]
    own = sim.node[node]
    sim.clock.faults += 1
    if sign > 0:
        own.down -= 1
        if own.down == 0:
            sim.stock[p].down -= 1
            if own.hidden == 0:
                sim.stock[p].free += 1
            sim.clock.came_back = 1
            touch(node, sim)
        return
    own.down += 1
    if own.down > 1:
        return
    touch(node, sim)
    while own.job >= 0:
        j = own.job
        let_run(j, sim)
        forget_end(j, sim)
        if has_ended(j, sim):
            free_nodes(j, sim)
        elif sim.rules.requeue == 1:
            throw_back(j, sim)
        else:
            give_back(j, sim)
            forget_begin(j, sim)
            settle(j, NODE_FAILURE, sim)
    sim.stock[p].down += 1
    if own.hidden == 0:
        sim.stock[p].free -= 1


@jit
def maintenance(sign: int, sim: Arrays) -> None:
    """Apply all starts (-1) or ends (+1) of maintenance windows at this time."""
    while sim.clock.changes_done < len(sim.change):
        change = sim.change[sim.clock.changes_done]
        if change.time != sim.clock.now or change.sign != sign:
            return
        sim.stock[change.pool].free += sign * change.amount
        sim.clock.changes_done += 1


@jit
def outages(sign: int, sim: Arrays) -> None:
    """Apply all node failures (-1) or repairs (+1) at this time."""
    while sim.clock.outages_done < len(sim.outage):
        outage = sim.outage[sim.clock.outages_done]
        if outage.time != sim.clock.now or outage.sign != sign:
            return
        node_event(outage.node, sign, sim)
        sim.clock.outages_done += 1


@jit
def apply_cancellations(sim: Arrays) -> None:
    """Apply all cancellations of this time, then their effects on dependent jobs.

    The order matters: a dependent job that is cancelled at the same time counts as cancelled.
    """
    first = sim.clock.cancels_done
    last = first
    while last < len(sim.by_cancel) and sim.job[sim.by_cancel[last]].cancel <= sim.clock.now:
        cancel_job(sim.by_cancel[last], sim)
        last += 1
    sim.clock.cancels_done = last
    for i in range(first, last):
        j = sim.by_cancel[i]
        if sim.state[j].phase == CANCELLED:
            tell_dependants(j, sim)


@jit
def forget_use(sim: Arrays) -> None:
    """Reset past usage to zero, for fair shares and under limits."""
    for label in range(len(sim.usage)):
        sim.usage[label].used = 0.0
        sim.usage[label].at = sim.clock.now
    forget_used(sim)
    sim.clock.ranked = -1
    sim.clock.resets_done += 1


@jit
def apply_events(sim: Arrays) -> None:
    """Apply all events of the present time, in the order of docs/reference/rules/time-and-events.md."""
    clock = sim.clock
    if clock.resets_done < len(sim.reset) and sim.reset[clock.resets_done] == clock.now:
        forget_use(sim)
    while clock.ends > 0 and sim.ends[0].time == clock.now:
        j = heap_pop(sim.ends, clock.ends)
        clock.ends -= 1
        if sim.state[j].end + sim.rules.cleanup > clock.now:
            begin_cleanup(j, sim)
        else:
            free_nodes(j, sim)
    maintenance(TAKE, sim)
    outages(TAKE, sim)
    maintenance(RETURN, sim)
    outages(RETURN, sim)
    apply_submissions(sim)
    apply_cancellations(sim)
    while clock.releases > 0 and sim.releases[0].time == clock.now:
        j = heap_pop(sim.releases, clock.releases)
        clock.releases -= 1
        if j < 0:
            note_begun(-1 - j, sim)
        elif sim.state[j].phase == PENDING:
            # A requeued job has been eligible before.
            if sim.state[j].eligible < 0:
                note_eligible(j, sim)
            enqueue(j, sim)
