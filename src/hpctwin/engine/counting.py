"""Passes where counting decides: one pool, nothing planned but ends.

What is free of nodes and of each shared resource then only grows, so the plan is two amounts of each: what is
free now, and what the head leaves spare when it starts. A resource costs a look at what each job asks of it.
"""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import NEVER, ONE, RETURN, TAKE, ZERO, Arrays
from hpctwin.engine.order import (
    drop_started,
    order_candidates,
    order_queue,
    pop_order,
    reckon_fairshare,
)
from hpctwin.engine.race import (
    first_fitting,
    play_user,
    ready,
    shift_labels,
    withdraw,
)
from hpctwin.engine.rows import SIM, call_with_job
from hpctwin.engine.skipping import at_limit, is_skipped, may_start
from hpctwin.engine.transitions import start_job

# What becomes of the others once one job does not fit.
NOBODY_PASSES, ANYONE_PASSES, HEAD_IS_PROTECTED = ZERO, ONE, ONE + ONE


@jit
def amounts_decide(sim: Arrays) -> bool:
    """Whether counting decides: one pool, and nothing away or overdue."""
    now = sim.clock.now
    if sim.rules.pools > 1:
        return False
    if sim.clock.running > 0 and sim.run[0].planned <= now:
        return False
    if len(sim.user_limit) > 1:
        return False
    for m in range(len(sim.window)):
        if sim.window[m].end > now:
            return False
    return True


@jit
def counting_decides(sim: Arrays) -> bool:
    """Whether counting nodes alone decides: no resources besides."""
    return sim.asks.width == 0 and amounts_decide(sim)


@jit
def is_sorted(sim: Arrays) -> bool:
    """Whether the queue is kept in the order of jobs and candidates."""
    return sim.rules.order_changes == 0 and sim.rules.own_candidates == 0


@jit
def lacks(j: int, sim: Arrays) -> bool:
    """Whether a resource that a job asks for is short now."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.stock[ONE + c].free < sim.asks[j, c]:
            return True
    return False


@jit
def lacks_later(j: int, sim: Arrays) -> bool:
    """Whether a resource that a job asks for is short in ``sim.low``: when the head starts."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.low[ONE + c] < sim.asks[j, c]:
            return True
    return False


@jit
def add_asked(j: int, sign: int, sim: Arrays) -> None:
    """Change ``sim.low`` by what a job asks of resources."""
    for c in range(sim.asks.width):
        sim.low[ONE + c] += sign * sim.asks[j, c]


@jit
def reservation_of(head: int, sim: Arrays) -> tuple[int, int]:
    """When enough is free for the head job, by planned ends; and how many nodes are spare then.

    What is spare of resources is left in ``sim.low``.
    """
    free = sim.stock[0].free
    nodes = sim.job[head].nodes
    for c in range(sim.asks.width):
        sim.low[ONE + c] = sim.stock[ONE + c].free
    r = 0
    shadow = sim.clock.now
    while free < nodes or lacks_later(head, sim):
        shadow = sim.run[r].planned
        while r < sim.clock.running and sim.run[r].planned == shadow:
            free += sim.job[sim.run[r].job].nodes
            add_asked(sim.run[r].job, RETURN, sim)
            r += 1
    add_asked(head, TAKE, sim)
    return shadow, free - nodes


@jit
def run_counted(others: int, sim: Arrays) -> None:
    """A pass where counting decides, given what becomes of the others once one job does not fit."""
    call_with_job(sim.hooks.run_counted, others, sim)


def pass_counted(others: int, sim: Arrays) -> None:
    """As `run_counted`; compiled once for all passes."""
    if is_sorted(sim):
        pass_sorted(others, sim)
    elif may_start(sim):
        reckon_fairshare(sim)
        pass_scored(others, sim)


COUNTED = Kernel(pass_counted, types.void(int64, SIM))


@jit
def pass_sorted(others: int, sim: Arrays) -> None:
    """As `pass_scored`, for a queue that is kept in the order of jobs and candidates: one walk."""
    now = sim.clock.now
    shadow = NEVER
    spare = NEVER
    head = False
    for i in range(sim.clock.queued):
        free = sim.stock[0].free
        if free <= 0:
            return
        j = sim.queue[i]
        nodes = sim.job[j].nodes
        if nodes <= free and not lacks(j, sim):
            ends = now + sim.job[j].expected
            if ends > shadow and (nodes > spare or lacks_later(j, sim)):
                continue
            if is_skipped(j, sim):
                continue
            sim.take[0] = nodes
            start_job(j, sim)
            # Later, if its nodes are not on yet.
            if sim.state[j].start + sim.job[j].expected > shadow:
                spare -= nodes
                add_asked(j, TAKE, sim)
        elif not head and others != ANYONE_PASSES:
            if is_skipped(j, sim):
                continue
            if others == NOBODY_PASSES:
                return
            head = True
            shadow, spare = reservation_of(j, sim)


def pass_raced(sim: Arrays) -> None:
    """As `pass_scored`, by a tournament of those that wait: each search finds one who starts.

    The tournament knows nothing of resources: where one is short, the rest of the queue is gone through.
    """
    if not amounts_decide(sim):
        return
    if not ready(sim):
        return
    sim.race.done = 1
    if sim.racer[1].nodes > sim.stock[0].free:
        return
    if sim.rules.fairshare == 1:
        reckon_fairshare(sim)
        shift_labels(sim)
    now = sim.clock.now
    others = sim.rules.others
    shadow = NEVER
    spare = NEVER
    head = others == ANYONE_PASSES
    # Who asks for more nodes than are up is passed over, as in `skipping.is_skipped`.
    up = sim.amount[0] - sim.stock[0].down
    while sim.racer[1].nodes <= sim.stock[0].free:
        free = sim.stock[0].free
        if not head:
            leaf = first_fitting(up, up, NEVER, sim)
        else:
            leaf = first_fitting(free, spare, shadow - now, sim)
        if leaf == 0:
            return
        j = sim.racer[leaf].job
        nodes = sim.job[j].nodes
        if nodes > free:
            if others == NOBODY_PASSES:
                return
            head = True
            shadow, spare = reservation_of(j, sim)
            continue
        delays = now + sim.job[j].expected > shadow
        if lacks(j, sim) or (delays and lacks_later(j, sim)):
            # Who has started by now has delayed nobody, so nothing changes for those that are left.
            drop_started(sim)
            sim.race.done = 0
            return
        sim.take[0] = nodes
        start_job(j, sim)
        withdraw(leaf, sim)
        user = sim.job[j].user
        if sim.user_running.width > 0 and at_limit(ZERO, user, sim):
            play_user(user, sim)
        if delays:
            spare -= nodes
            add_asked(j, TAKE, sim)


@jit
def pass_scored(others: int, sim: Arrays) -> None:
    """A pass where counting alone decides.

    EASY's plan is then two numbers: when the head job starts, and how many nodes are spare then.
    """
    now = sim.clock.now
    n = order_queue(sim)
    sorted_already = sim.rules.order_changes == 0
    first = 0
    head = -1
    sim.take[0] = 0
    while first < n and sim.stock[0].free > 0:
        if sorted_already:
            j = sim.order[first].job
            first += 1
        else:
            j = pop_order(n, sim)
            n -= 1
        if is_skipped(j, sim):
            continue
        if sim.job[j].nodes > sim.stock[0].free or lacks(j, sim):
            if others == ANYONE_PASSES:
                continue
            head = j
            break
        sim.take[0] = sim.job[j].nodes
        start_job(j, sim)
    if head < 0 or others != HEAD_IS_PROTECTED or sim.stock[0].free <= 0:
        return
    shadow, spare = reservation_of(head, sim)
    later = ZERO
    free = sim.stock[0].free
    for i in range(first, n):
        j = sim.order[i].job
        nodes = sim.job[j].nodes
        if nodes > free or lacks(j, sim):
            continue
        if now + sim.job[j].expected <= shadow or (nodes <= spare and not lacks_later(j, sim)):
            sim.later[later] = j
            later += 1
    order_candidates(later, sim)
    for i in range(later):
        j = pop_order(later - i, sim)
        nodes = sim.job[j].nodes
        if nodes > sim.stock[0].free or lacks(j, sim) or is_skipped(j, sim):
            continue
        if now + sim.job[j].expected > shadow and (nodes > spare or lacks_later(j, sim)):
            continue
        sim.take[0] = nodes
        start_job(j, sim)
        if sim.state[j].start + sim.job[j].expected > shadow:
            spare -= nodes
            add_asked(j, TAKE, sim)
        if sim.stock[0].free <= 0:
            return
