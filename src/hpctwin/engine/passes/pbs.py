"""OpenPBS's scheduler: cycles through the queues; the top jobs get reservations.

Top jobs are the first jobs that cannot run. Names and defaults are those of sched_config and of the
server's attributes; the rules are in docs/reference/rules/backfills.md.
"""

from __future__ import annotations

import numpy as np

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.queue.limits import at_any_limit, hold
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import NEVER, RETURN, TAKE, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Int, Step, YesNo

__all__ = ["PASS", "Numbers"]

NOTHING, RESERVES, CLOSES, ENDS = np.arange(4)
"""Effect of a job that does not fit.

Nothing; a reservation; no later job of its queue is tried; no later job at all is tried.
"""


class Numbers:
    """Settings of the backfill, as PBS names them."""

    strict_ordering: YesNo = 0  # the first jobs that cannot run are not delayed by others
    backfill_depth: Int = 1  # top jobs with reservations; 0: no job passes the first of them
    scheduler_iteration: Step = 600_000  # time to the next cycle if there is no event
    by_queue: YesNo = 1  # try one queue after the other, by priority
    round_robin: YesNo = 0  # try a job of each queue in turn


settings = view(Numbers)


@jit
def line_up(size: int, sim: Arrays) -> None:
    """Chain the jobs of each queue.

    ``sim.reservations_made`` holds the first place of each queue, ``sim.stack`` the next place
    after each.
    """
    first = sim.reservations_made
    for q in range(len(first)):
        first[q] = -1
    for i in range(size - 1, -1, -1):
        q = sim.partition[sim.job[sim.later[i]].kind]
        sim.stack[i] = first[q]
        first[q] = i


@jit
def next_queue(sim: Arrays) -> int:
    """Return the first queue with the highest priority among those with jobs left."""
    best = -1
    for q in range(len(sim.reservations_made)):
        if sim.reservations_made[q] < 0:
            continue
        if best < 0 or sim.partition_fact[q].priority > sim.partition_fact[best].priority:
            best = q
    return best


@jit
def take_first(q: int, n: int, sim: Arrays) -> int:
    """Put a queue's first job into place ``n``; return the place after it."""
    place = sim.reservations_made[q]
    sim.order[n].job = sim.later[place]
    sim.reservations_made[q] = sim.stack[place]
    return n + 1


@jit
def by_queues(round_robin: bool, size: int, sim: Arrays) -> None:
    """Order the jobs of ``sim.later`` queue by queue.

    With ``round_robin``, queues of the same priority take turns, one job each.
    """
    line_up(size, sim)
    n = ZERO
    while n < size:
        best = next_queue(sim)
        highest = sim.partition_fact[best].priority
        for q in range(len(sim.reservations_made)):
            if q == best:
                n = take_first(q, n, sim)
                while not round_robin and sim.reservations_made[q] >= 0:
                    n = take_first(q, n, sim)
            elif round_robin and sim.reservations_made[q] >= 0:
                if sim.partition_fact[q].priority == highest:
                    n = take_first(q, n, sim)
    for i in range(size):
        sim.later[i] = sim.order[i].job


@jit
def in_turn(sim: Arrays) -> int:
    """List pending jobs with finite scores in ``sim.later`` as tried; return how many."""
    reckon_fairshare(sim)
    size = ZERO
    if sim.rules.order_changes == 1:
        for n in range(order_queue(sim), 0, -1):
            if sim.order[0].score == np.inf:
                break
            sim.later[size] = pop_order(n, sim)
            size += 1
    else:
        while size < sim.clock.queued and sim.state[sim.queue[size]].key < np.inf:
            sim.later[size] = sim.queue[size]
            size += 1
    numbers = settings(sim.numbers)[0]
    capacity.sort_by_level(size, sim)
    if len(sim.reservations_made) > 1 and (numbers.round_robin == 1 or numbers.by_queue == 1):
        by_queues(numbers.round_robin == 1, size, sim)
        capacity.sort_by_level(size, sim)
    return size


@jit
def open_queues(sim: Arrays) -> bool:
    """Open all queues, without reservations; return whether any may get one."""
    may = settings(sim.numbers)[0].backfill_depth > 0
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0
        if sim.partition_fact[q].backfill_depth > 0:
            may = True
    return may


@jit
def what_becomes(q: int, top: int, backfills: bool, sim: Arrays) -> int:
    """Return what a job that does not fit means for itself and for later jobs.

    Args:
        q: Queue of the job.
        top: Number of jobs with reservations in queues without their own ``backfill_depth``.
        backfills: Whether any queue may get a reservation.
        sim: Simulation.

    Returns:
        `NOTHING`, `RESERVES`, `CLOSES` or `ENDS`.
    """
    numbers = settings(sim.numbers)[0]
    if numbers.strict_ordering == 0:
        return NOTHING
    if not backfills:
        return ENDS
    own = sim.partition_fact[q].backfill_depth
    if own < 0:
        return RESERVES if top < numbers.backfill_depth else NOTHING
    if own == 0:
        return CLOSES
    return RESERVES if sim.reservations_made[q] < own else NOTHING


@jit
def note_reserved(q: int, top: int, sim: Arrays) -> int:
    """Count one more reservation of a queue.

    Returns:
        Number of reservations so far in queues that set no depth.
    """
    if sim.partition_fact[q].backfill_depth < 0:
        return top + 1
    sim.reservations_made[q] += 1
    return top


@jit
def count_running(j: int, sign: int, sim: Arrays) -> None:
    """Stop counting a running job under limits (-1), or count it again."""
    if sim.user_running.width > 0:
        sim.user_running[sim.partition[sim.job[j].kind], sim.job[j].user] += sign
    if len(sim.held) > 0:
        hold(j, sign, sim)


@jit
def next_end(after: int, late: int, r: int, sim: Arrays) -> int:
    """Return the first planned end after a time.

    Overdue jobs, which come before row ``late``, and jobs from row ``r`` on are considered.
    """
    time = NEVER
    for i in range(sim.clock.run_first, late):
        if sim.run[i].job >= 0 and after < planned_end(sim.run[i].job, sim) < time:
            time = planned_end(sim.run[i].job, sim)
    while r < sim.clock.run_end and sim.run[r].job < 0:
        r += 1
    return min(time, sim.run[r].planned) if r < sim.clock.run_end else time


@jit
def lifted_at(j: int, sim: Arrays) -> int:
    """Return when no limit holds a job back any more; NEVER if a limit always does.

    Running jobs are assumed to end at their planned ends.
    """
    late = sim.clock.run_first
    while late < sim.clock.run_end and sim.run[late].planned <= sim.clock.now:
        late += 1
    r = late
    time = sim.clock.now
    found = time
    while at_any_limit(j, sim):
        found = next_end(time, late, r, sim)
        if found == NEVER:
            break
        time = found
        for i in range(sim.clock.run_first, late):
            if sim.run[i].job >= 0 and planned_end(sim.run[i].job, sim) == time:
                count_running(sim.run[i].job, TAKE, sim)
        while r < sim.clock.run_end and (sim.run[r].job < 0 or sim.run[r].planned <= time):
            if sim.run[r].job >= 0:
                count_running(sim.run[r].job, TAKE, sim)
            r += 1
    for i in range(sim.clock.run_first, r):
        if sim.run[i].job >= 0 and (i >= late or planned_end(sim.run[i].job, sim) <= time):
            count_running(sim.run[i].job, RETURN, sim)
    return found


@jit
def cycle(sim: Arrays) -> bool:
    """Try jobs in turn: each starts if it fits, or gets a reservation for this cycle.

    Reservations matter only to a job that could start without them, and are made only for it. Jobs
    whose reservations are still to be made are in ``sim.owed``. The times before which they cannot
    start are in places of ``sim.later`` that the cycle has passed.

    Returns:
        Whether time alone may let more jobs be tried: their scores are infinite now, but change.
    """
    top = ZERO
    owed = ZERO
    size = in_turn(sim)
    left_out = sim.rules.order_changes == 1 and size < sim.clock.queued
    backfills = open_queues(sim)
    for i in range(size):
        j = sim.later[i]
        q = sim.partition[sim.job[j].kind]
        tries = capacity.may_fit(j, sim) or capacity.may_preempt(j, sim)
        tries = tries and not at_any_limit(j, sim)
        then = what_becomes(q, top, backfills, sim)
        if sim.reservations_made[q] < 0 or (not tries and then == NOTHING):
            continue
        if capacity.is_too_large(j, sim):
            continue
        if tries:
            for k in range(owed):
                capacity.reserve(sim.owed[k], sim.later[k], sim)
            owed = ZERO
            if capacity.start_or_preempt(j, sim):
                if not capacity.any_may_start(sim):
                    break
                continue
            if then != RESERVES and capacity.awaits_nodes(j, sim):
                capacity.reserve(j, ZERO, sim)
        if then == ENDS:
            break
        if then == CLOSES:
            sim.reservations_made[q] = -1
        since = lifted_at(j, sim) if then == RESERVES else NEVER
        if since < NEVER:
            sim.owed[owed] = j
            sim.later[owed] = since
            owed += 1
            top = note_reserved(q, top, sim)
    return left_out


@jit
def any_waits(sim: Arrays) -> bool:
    """Return whether any job of the queue has not started in this cycle."""
    for i in range(sim.clock.queued):
        if sim.state[sim.queue[i]].phase == WAITING:
            return True
    return False


@jit
def set_timer(left_out: bool, sim: Arrays) -> None:
    """Set the timer for the next cycle, if jobs are pending and may start later.

    They may if any job runs, or if time alone may help them.

    Args:
        left_out: Result of `cycle`.
        sim: Simulation.
    """
    if (sim.clock.running > 0 or left_out) and any_waits(sim):
        then = sim.clock.now + settings(sim.numbers)[0].scheduler_iteration
        sim.clock.timer = min(sim.clock.timer, then)


def pass_pbs(sim: Arrays) -> None:
    """Run a scheduling cycle."""
    capacity.begin_pass(sim)
    left_out = capacity.any_may_start(sim) and cycle(sim)
    set_timer(left_out, sim)


PASS = Pass(
    pass_pbs,
    numbers=Numbers,
    keeps="it would delay a job before it that has a reservation, or nobody may pass that one",
    reservations=lambda numbers, partitions: numbers["backfill_depth"],
)
