"""OpenPBS's scheduler: cycles through the queues, with reservations for the first jobs that cannot run.

Names and defaults are those of sched_config and of the server's attributes; the rules are in docs/engine.md.
"""

from __future__ import annotations

import numpy as np

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.queue.eligibility import at_any_limit
from hpctwin.engine.queue.limits import hold
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import NEVER, RETURN, TAKE, ZERO, Arrays
from hpctwin.engine.state.records import Int, Step, YesNo

__all__ = ["PASS", "Numbers"]

NOTHING, RESERVES, CLOSES, ENDS = np.arange(4)
"""Of a job that does not fit: nothing, a reservation, or that nobody of its queue, or at all, follows."""


class Numbers:
    """What a policy may set, as PBS has it."""

    strict_ordering: YesNo = 0  # the first jobs that cannot run are not delayed by others
    backfill_depth: Int = 1  # … so many of them; 0: nobody passes the first
    scheduler_iteration: Step = 600_000  # time to the next cycle if nothing happens
    by_queue: YesNo = 1  # one queue after the other, by priority
    round_robin: YesNo = 0  # a job of each queue in turn


settings = view(Numbers)


@jit
def line_up(size: int, sim: Arrays) -> None:
    """Chain the jobs of each queue: ``sim.reservations_made`` has the first, then each next job."""
    first = sim.reservations_made
    for q in range(len(first)):
        first[q] = -1
    for i in range(size - 1, -1, -1):
        q = sim.partition[sim.job[sim.later[i]].kind]
        sim.stack[i] = first[q]
        first[q] = i


@jit
def next_queue(sim: Arrays) -> int:
    """Of the queues that have jobs left the one with the highest priority, the first of equals."""
    best = -1
    for q in range(len(sim.reservations_made)):
        if sim.reservations_made[q] < 0:
            continue
        if best < 0 or sim.partition_fact[q].priority > sim.partition_fact[best].priority:
            best = q
    return best


@jit
def take_first(q: int, n: int, sim: Arrays) -> int:
    """Put the first job that a queue has left into place ``n``; the place after it."""
    place = sim.reservations_made[q]
    sim.order[n].job = sim.later[place]
    sim.reservations_made[q] = sim.stack[place]
    return n + 1


@jit
def by_queues(round_robin: bool, size: int, sim: Arrays) -> None:
    """Have the jobs of ``sim.later`` go queue by queue, or a job of each queue in turn."""
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
    """Put all that wait, and have no infinite score, into ``sim.later``, as they are tried; how many."""
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
    if len(sim.reservations_made) > 1 and (numbers.round_robin == 1 or numbers.by_queue == 1):
        by_queues(numbers.round_robin == 1, size, sim)
    return size


@jit
def open_queues(sim: Arrays) -> bool:
    """No queue is over, nor has any reservation; whether any may have one in this cycle."""
    may = settings(sim.numbers)[0].backfill_depth > 0
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0
        if sim.partition_fact[q].backfill_depth > 0:
            may = True
    return may


@jit
def what_becomes(q: int, top: int, backfills: bool, sim: Arrays) -> int:
    """What becomes of a job that does not fit, and of those after it.

    Args:
        q: its queue.
        top: so many jobs of queues that say nothing of it have reservations.
        backfills: whether any queue may have a reservation.
        sim: the simulation.

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
    """One more job of a queue has a reservation; how many now have of queues that say nothing of it."""
    if sim.partition_fact[q].backfill_depth < 0:
        return top + 1
    sim.reservations_made[q] += 1
    return top


@jit
def count_running(j: int, sign: int, sim: Arrays) -> None:
    """A running job counts no more under limits (-1), or does again."""
    if sim.user_running.width > 0:
        sim.user_running[sim.partition[sim.job[j].kind], sim.job[j].user] += sign
    if len(sim.held) > 0:
        hold(j, sign, sim)


@jit
def next_end(after: int, late: int, r: int, sim: Arrays) -> int:
    """The first planned end after a time: of overdue jobs (before row ``late``), and from row ``r`` on."""
    time = NEVER
    for i in range(sim.clock.run_first, late):
        if sim.run[i].job >= 0 and after < planned_end(sim.run[i].job, sim) < time:
            time = planned_end(sim.run[i].job, sim)
    while r < sim.clock.run_end and sim.run[r].job < 0:
        r += 1
    return min(time, sim.run[r].planned) if r < sim.clock.run_end else time


@jit
def lifted_at(j: int, sim: Arrays) -> int:
    """When no limit keeps a job back any more, as running jobs come to their planned ends; NEVER."""
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
    """Go through jobs in turn: each starts if it fits, or gets a reservation for this cycle.

    Reservations matter only to a job that could start without them, and are made for it. Jobs are in
    ``sim.owed``, the times before which these cannot start in passed places of ``sim.later``.

    Returns:
        Whether time alone may have other jobs tried: their scores are infinite, and change.
    """
    top = ZERO
    owed = ZERO
    size = in_turn(sim)
    left_out = sim.rules.order_changes == 1 and size < sim.clock.queued
    backfills = open_queues(sim)
    for i in range(size):
        j = sim.later[i]
        q = sim.partition[sim.job[j].kind]
        fits = capacity.may_fit(j, sim) and not at_any_limit(j, sim)
        then = what_becomes(q, top, backfills, sim)
        if sim.reservations_made[q] < 0 or (not fits and then == NOTHING):
            continue
        if capacity.is_too_large(j, sim):
            continue
        if fits:
            for k in range(owed):
                capacity.reserve(sim.owed[k], sim.later[k], sim)
            owed = ZERO
            if capacity.start(j, sim):
                if not capacity.any_may_start(sim):
                    break
                continue
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
def set_timer(started: int, left_out: bool, sim: Arrays) -> None:
    """Make the next cycle an instant, if jobs wait and any runs, or time alone may help them.

    Args:
        started: so many jobs had started before this cycle.
        left_out: see `cycle`.
        sim: the simulation.
    """
    waiting = sim.clock.queued - (sim.clock.starts - started)
    if waiting > 0 and (sim.clock.running > 0 or left_out):
        then = sim.clock.now + settings(sim.numbers)[0].scheduler_iteration
        sim.clock.timer = min(sim.clock.timer, then)


def pass_pbs(sim: Arrays) -> None:
    """Run a scheduling cycle."""
    started = sim.clock.starts
    capacity.begin_pass(sim)
    left_out = capacity.any_may_start(sim) and cycle(sim)
    set_timer(started, left_out, sim)


PASS = Pass(
    pass_pbs,
    numbers=Numbers,
    keeps="it would delay a job before it that has a reservation, or nobody may pass that one",
    reservations=lambda numbers, partitions: numbers["backfill_depth"],
)
