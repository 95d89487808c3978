"""Passes over a plan: several pools, resources, maintenance, several reservations."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    EXPECTED,
    FREE,
    KIND,
    LATER,
    NOW,
    ORDER,
    QUEUE,
    QUEUED,
    TAKE,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import heap_order, order_candidates, order_queue, pop_order, score
from hpctwin.engine.plan import (
    choose_pools,
    holds,
    plan_build,
    plan_change,
    plan_earliest,
    plan_fits,
)
from hpctwin.engine.skipping import is_skipped
from hpctwin.engine.transitions import start_job


@jit()
def start_now(j: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """Start a job that fits the plan now (``work.low``), and take it out of the plan."""
    now = sim.count[NOW]
    choose_pools(j, rules.placement, machine.eligible[jobs.fixed[KIND, j]], jobs, work)
    pools = machine.speed.shape[0]
    plan_change(j, now, now + jobs.fixed[EXPECTED, j], TAKE, pools, jobs, work)
    start_job(j, now, jobs, machine, sim, rules, work)


@jit()
def fits_at_once(j: int, jobs: Jobs, machine: Machine, sim: Sim, work: Work) -> bool:
    """Whether a job fits what is free at this moment, the plan apart."""
    for c in range(work.low.shape[0]):
        work.low[c] = sim.amount[FREE, c]
    return holds(j, machine.eligible[jobs.fixed[KIND, j]], jobs, work)


@jit()
def pass_none(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """No backfilling: a job that does not fit blocks what it asks for."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    for c in range(work.blocked.shape[0]):
        work.blocked[c] = 0
    n = order_queue(order, now, jobs, sim, rules, work)
    while n > 0:
        j = pop_order(n, work, jobs)
        n -= 1
        if is_skipped(j, jobs, machine, sim):
            continue
        pools_of_job = machine.eligible[jobs.fixed[KIND, j]]
        blocked = False
        for p in range(pools):
            if pools_of_job[p] != 0 and work.blocked[p] != 0:
                blocked = True
        for c in range(jobs.resources.shape[1]):
            if jobs.resources[j, c] > 0 and work.blocked[pools + c] != 0:
                blocked = True
        if (
            not blocked
            and plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], pools_of_job, jobs, work) < 0
        ):
            start_now(j, jobs, machine, sim, rules, work)
            continue
        for p in range(pools):
            if pools_of_job[p] != 0:
                work.blocked[p] = 1
        for c in range(jobs.resources.shape[1]):
            if jobs.resources[j, c] > 0:
                work.blocked[pools + c] = 1
        free_pools = 0
        for p in range(pools):
            if work.blocked[p] == 0:
                free_pools += 1
        if free_pools == 0:
            return


@jit()
def pass_first_fit(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Everyone that fits starts, in order."""
    now = sim.count[NOW]
    plan_build(now, jobs, machine, sim, rules, work)
    later = 0
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if fits_at_once(j, jobs, machine, sim, work):
            work.job[LATER, later] = j
            later += 1
    # What does not fit at this moment cannot start; only the rest needs an order.
    for i in range(later):
        j = work.job[LATER, i]
        work.job[ORDER, i] = j
        if rules.order_changes == 1:
            work.score[i] = score(order, j, now, jobs, sim, rules, work)
        else:
            work.score[i] = sim.key[j]
    heap_order(later, work, jobs)
    for n in range(later, 0, -1):
        j = pop_order(n, work, jobs)
        if is_skipped(j, jobs, machine, sim):
            continue
        row = machine.eligible[jobs.fixed[KIND, j]]
        if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)


@jit()
def pass_easy(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """EASY: the first ``k`` jobs of each partition that cannot start get a reservation."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    # Partitions count as open while they have jobs waiting and reservations left; when the last one is
    # closed, all others are candidates and the order among them is theirs.
    open_partitions = 0
    for q in range(work.handed_out.shape[0]):
        work.handed_out[q] = -1
    for i in range(sim.count[QUEUED]):
        q = machine.partition[jobs.fixed[KIND, sim.number[QUEUE, i]]]
        if work.handed_out[q] < 0:
            work.handed_out[q] = 0
            open_partitions += 1
    if rules.reservations == 0:
        open_partitions = 0
    n = order_queue(order, now, jobs, sim, rules, work)
    later = 0
    while n > 0 and open_partitions > 0:
        j = pop_order(n, work, jobs)
        n -= 1
        q = machine.partition[jobs.fixed[KIND, j]]
        if work.handed_out[q] >= rules.reservations:
            work.job[LATER, later] = j
            later += 1
            continue
        if is_skipped(j, jobs, machine, sim):
            continue
        row = machine.eligible[jobs.fixed[KIND, j]]
        if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)
            continue
        first = plan_earliest(j, jobs.fixed[EXPECTED, j], row, jobs, work)
        choose_pools(j, rules.placement, row, jobs, work)
        start = work.time[first]
        plan_change(j, start, start + jobs.fixed[EXPECTED, j], TAKE, pools, jobs, work)
        work.handed_out[q] += 1
        if work.handed_out[q] == rules.reservations:
            open_partitions -= 1
    for i in range(n):
        work.job[LATER, later] = work.job[ORDER, i]
        later += 1
    kept = 0
    for i in range(later):
        if fits_at_once(work.job[LATER, i], jobs, machine, sim, work):
            work.job[LATER, kept] = work.job[LATER, i]
            kept += 1
    order_candidates(order, candidate_order, kept, now, jobs, sim, rules, work)
    for m in range(kept, 0, -1):
        j = pop_order(m, work, jobs)
        if is_skipped(j, jobs, machine, sim):
            continue
        row = machine.eligible[jobs.fixed[KIND, j]]
        if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)
