"""Passes where counting nodes decides: one pool, no resources, nothing planned but ends."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BACKFILL_EASY,
    BACKFILL_FIRST_FIT,
    BACKFILL_NONE,
    EXPECTED,
    FREE,
    LATER,
    NEVER,
    NODES,
    NOW,
    ORDER,
    PLANNED,
    QUEUE,
    QUEUED,
    RUN,
    RUNS,
    UNPOWERED,
    WINDOW_END,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import order_candidates, order_queue, pop_order
from hpctwin.engine.skipping import is_skipped
from hpctwin.engine.transitions import start_job


@jit(inline=True)
def is_plain(now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules) -> bool:
    """Whether counting alone decides: one pool, no resources, nothing away or overdue."""
    if machine.speed.shape[0] > 1 or jobs.resources.shape[1] > 0:
        return False
    if rules.backfill == BACKFILL_EASY and (rules.reservations != 1 or sim.count[UNPOWERED] > 0):
        return False
    if sim.count[RUN] > 0 and sim.running[PLANNED, 0] <= now:
        return False
    if machine.user_limit.shape[0] > 1:
        return False
    for m in range(machine.windows.shape[1]):
        if machine.windows[WINDOW_END, m] > now:
            return False
    return True


@jit()
def reservation_of(head: int, jobs: Jobs, sim: Sim) -> tuple[int, int]:
    """When enough nodes are free for the head job, by planned ends; and how many are spare then."""
    free = sim.amount[FREE, 0]
    r = 0
    shadow = sim.count[NOW]
    while free < jobs.fixed[NODES, head]:
        shadow = sim.running[PLANNED, r]
        while r < sim.count[RUN] and sim.running[PLANNED, r] == shadow:
            free += jobs.fixed[NODES, sim.running[RUNS, r]]
            r += 1
    return shadow, free - jobs.fixed[NODES, head]


@jit()
def pass_sorted(jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """As `pass_plain`, for a queue that is kept in the order of jobs and candidates: one walk."""
    now = sim.count[NOW]
    shadow = NEVER
    spare = NEVER
    head = False
    for i in range(sim.count[QUEUED]):
        if sim.amount[FREE, 0] <= 0:
            return
        j = sim.number[QUEUE, i]
        nodes = jobs.fixed[NODES, j]
        ends = now + jobs.fixed[EXPECTED, j]
        if nodes <= sim.amount[FREE, 0]:
            if ends > shadow and nodes > spare:
                continue
            if is_skipped(j, jobs, machine, sim):
                continue
            if ends > shadow:
                spare -= nodes
            work.take[0] = nodes
            start_job(j, now, jobs, machine, sim, rules, work)
        elif not head and rules.backfill != BACKFILL_FIRST_FIT:
            if is_skipped(j, jobs, machine, sim):
                continue
            if rules.backfill == BACKFILL_NONE:
                return
            head = True
            shadow, spare = reservation_of(j, jobs, sim)


@jit()
def pass_plain(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """None, first-fit or EASY with one reservation, where counting alone decides.

    EASY's plan is then two numbers: when the head job starts, and how many nodes are spare then.
    """
    now = sim.count[NOW]
    n = order_queue(order, now, jobs, sim, rules, work)
    sorted_already = rules.order_changes == 0
    first = 0
    head = -1
    work.take[0] = 0
    while first < n and sim.amount[FREE, 0] > 0:
        if sorted_already:
            j = work.job[ORDER, first]
            first += 1
        else:
            j = pop_order(n, work, jobs)
            n -= 1
        if is_skipped(j, jobs, machine, sim):
            continue
        if jobs.fixed[NODES, j] > sim.amount[FREE, 0]:
            if rules.backfill == BACKFILL_FIRST_FIT:
                continue
            head = j
            break
        work.take[0] = jobs.fixed[NODES, j]
        start_job(j, now, jobs, machine, sim, rules, work)
    if head < 0 or rules.backfill != BACKFILL_EASY or sim.amount[FREE, 0] <= 0:
        return
    shadow, spare = reservation_of(head, jobs, sim)
    later = 0
    for i in range(first, n):
        j = work.job[ORDER, i]
        nodes = jobs.fixed[NODES, j]
        if nodes <= sim.amount[FREE, 0] and (
            nodes <= spare or now + jobs.fixed[EXPECTED, j] <= shadow
        ):
            work.job[LATER, later] = j
            later += 1
    order_candidates(order, candidate_order, later, now, jobs, sim, rules, work)
    for i in range(later):
        j = pop_order(later - i, work, jobs)
        nodes = jobs.fixed[NODES, j]
        if nodes > sim.amount[FREE, 0] or is_skipped(j, jobs, machine, sim):
            continue
        if now + jobs.fixed[EXPECTED, j] > shadow:
            if nodes > spare:
                continue
            spare -= nodes
        work.take[0] = nodes
        start_job(j, now, jobs, machine, sim, rules, work)
        if sim.amount[FREE, 0] <= 0:
            return
