"""Conservative backfilling."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    COMPRESS,
    EXPECTED,
    HELD,
    KIND,
    NOW,
    QUEUE,
    QUEUED,
    RETURN,
    TAKE,
    TIMER,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import order_queue, pop_order
from hpctwin.engine.plan import (
    choose_pools,
    load_take,
    plan_build,
    plan_change,
    plan_earliest,
    plan_split,
)
from hpctwin.engine.skipping import is_skipped
from hpctwin.engine.transitions import start_job


@jit()
def load_reservations(jobs: Jobs, machine: Machine, sim: Sim, work: Work) -> bool:
    """Take all reservations out of the plan; False if they do not fit it."""
    pools = machine.speed.shape[0]
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if sim.time[HELD, j] < 0:
            continue
        start = sim.time[HELD, j]
        end = start + jobs.fixed[EXPECTED, j]
        first = plan_split(work, start)
        last = plan_split(work, end)
        load_take(j, pools, jobs, sim, work)
        for row in range(first, last):
            for p in range(pools):
                if work.take[p] > 0 and work.amount[row, p] < work.take[p]:
                    return False
            for c in range(jobs.resources.shape[1]):
                needed = jobs.resources[j, c]
                if needed > 0 and work.amount[row, pools + c] < needed:
                    return False
        plan_change(j, start, end, TAKE, pools, jobs, work)
    return True


@jit()
def pass_conservative(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Conservative backfilling: every job holds a reservation that never moves to a later time."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    sound = True
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if sim.time[HELD, j] < 0:
            continue
        if is_skipped(j, jobs, machine, sim):
            sim.time[HELD, j] = -1
            sim.count[COMPRESS] = 1
        elif sim.time[HELD, j] < now:
            sound = False
    if not (sound and load_reservations(jobs, machine, sim, work)):
        for i in range(sim.count[QUEUED]):
            sim.time[HELD, sim.number[QUEUE, i]] = -1
        plan_build(now, jobs, machine, sim, rules, work)
    compress = sim.count[COMPRESS] == 1
    sim.count[COMPRESS] = 0
    for n in range(order_queue(order, now, jobs, sim, rules, work), 0, -1):
        j = pop_order(n, work, jobs)
        span = jobs.fixed[EXPECTED, j]
        had = sim.time[HELD, j]
        skipped = is_skipped(j, jobs, machine, sim)
        if had >= 0 and (compress or skipped):
            load_take(j, pools, jobs, sim, work)
            plan_change(j, had, had + span, RETURN, pools, jobs, work)
            sim.time[HELD, j] = -1
            if skipped:
                sim.count[COMPRESS] = 1
        if skipped:
            continue
        if sim.time[HELD, j] < 0:
            row = machine.eligible[jobs.fixed[KIND, j]]
            first = plan_earliest(j, span, row, jobs, work)
            choose_pools(j, rules.placement, row, jobs, work)
            start = work.time[first]
            plan_change(j, start, start + span, TAKE, pools, jobs, work)
            sim.time[HELD, j] = start
            if pools > 1:
                for p in range(pools):
                    sim.take[j, p] = work.take[p]
        if sim.time[HELD, j] == now:
            load_take(j, pools, jobs, sim, work)
            start_job(j, now, jobs, machine, sim, rules, work)
        else:
            # No other event need come then: those it waited for may have moved to earlier times.
            sim.count[TIMER] = min(sim.count[TIMER], sim.time[HELD, j])
