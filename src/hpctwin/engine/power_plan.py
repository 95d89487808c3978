"""Which nodes to switch on and off, for all policies."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BACKFILL_NONE,
    EXPECTED,
    KIND,
    NEVER,
    NODE_DEPTH,
    NODE_ID,
    NODE_JOB,
    NODE_POOL,
    NODE_POWER,
    NOW,
    QUEUED,
    TAKE,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import order_queue, pop_order
from hpctwin.engine.placement import active_from
from hpctwin.engine.plan import choose_pools, plan_build, plan_change, plan_fits, plan_return
from hpctwin.engine.power import due, switch_off, switch_on
from hpctwin.engine.power_layout import (
    ALLOWED,
    ASLEEP,
    IDLE,
    MANAGED,
    OFF_TIME,
    ON_TIME,
    SPARE,
    SWITCHING_OFF,
    WAKE_AT,
    Power,
    PowerRules,
)
from hpctwin.engine.skipping import is_skipped

AHEAD = 256
"""So many waiting jobs are planned ahead when nodes are to be woken for them."""


@jit()
def plan_ahead(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """The plan with all waiting jobs in it, each at its earliest start in the ordering's order."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    earliest = ZERO
    n = order_queue(order, now, jobs, sim, rules, work)
    for left in range(n, max(0, n - AHEAD), -1):
        j = pop_order(left, work, jobs)
        if is_skipped(j, jobs, machine, sim):
            continue
        row_of_pools = machine.eligible[jobs.fixed[KIND, j]]
        first = earliest
        while (
            first < work.size[0]
            and plan_fits(j, first, jobs.fixed[EXPECTED, j], row_of_pools, jobs, work) >= 0
        ):
            first += 1
        if first >= work.size[0]:
            continue
        choose_pools(j, rules.placement, row_of_pools, jobs, work)
        start = work.time[first]
        plan_change(j, start, start + jobs.fixed[EXPECTED, j], TAKE, pools, jobs, work)
        if rules.backfill == BACKFILL_NONE:
            earliest = first


@jit()
def free_at(time: int, p: int, work: Work) -> int:
    """What the plan has free of a pool at a time."""
    row = ZERO
    while row + 1 < work.size[0] and work.time[row + 1] <= time:
        row += 1
    return work.amount[row, p]


@jit()
def take_sleepers_out(now: int, machine: Machine, sim: Sim, work: Work) -> None:
    """Take out of the plan what is asleep or will be: below zero, so many must be woken."""
    time = NEVER
    p = -1
    nodes = 0
    for i in range(machine.node.shape[1]):
        node = machine.node[NODE_ID, i]
        state = sim.node[NODE_POWER, node]
        if state != ASLEEP and state != SWITCHING_OFF:
            continue
        ready = active_from(node, now, sim)
        # Most are ready at the same time as the one before, and the plan is long.
        if ready != time or machine.node[NODE_POOL, node] != p:
            plan_return(time, p, -nodes, work)
            time = ready
            p = machine.node[NODE_POOL, node]
            nodes = 0
        nodes += 1
    plan_return(time, p, -nodes, work)


@jit()
def wake_planned(
    p: int, now: int, machine: Machine, sim: Sim, work: Work, power: Power, prules: PowerRules
) -> None:
    """Wake the nodes of a pool that the plan needs as soon as they can be active, and no others."""
    shallower = ZERO
    for depth in range(prules.depths):
        asleep = ZERO
        for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
            node = machine.node[NODE_ID, i]
            if sim.node[NODE_POWER, node] == ASLEEP and sim.node[NODE_DEPTH, node] == depth:
                asleep += 1
        boot = power.table[ON_TIME, p * prules.depths + depth]
        short = -free_at(now + boot, p, work)
        wanted = min(asleep, short - shallower)
        for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
            if wanted <= 0:
                break
            node = machine.node[NODE_ID, i]
            if sim.node[NODE_POWER, node] == ASLEEP and sim.node[NODE_DEPTH, node] == depth:
                switch_on(node, now, machine, sim, power, prules)
                wanted -= 1
        # Asked again when the next ones must be woken.
        if asleep > 0:
            short = max(short, shallower)
            for row in range(work.size[0]):
                if work.time[row] > now + boot and -work.amount[row, p] > short:
                    power.count[WAKE_AT] = min(power.count[WAKE_AT], work.time[row] - boot)
                    break
        shallower += asleep


@jit()
def spare_of(p: int, now: int, depth: int, work: Work, power: Power, prules: PowerRules) -> int:
    """How many nodes of a pool the plan does not need before they could be off and on again."""
    column = p * prules.depths + depth
    until = now + power.table[OFF_TIME, column] + power.table[ON_TIME, column]
    least = NEVER
    for row in range(work.size[0]):
        if work.time[row] <= until:
            least = min(least, work.amount[row, p])
    return max(ZERO, least)


@jit()
def manage(
    order: Order,
    now: int,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    power: Power,
    prules: PowerRules,
) -> None:
    """Wake what the plan needs in time; how many idle nodes of each pool may be switched off."""
    power.count[WAKE_AT] = NEVER
    pools = machine.speed.shape[0]
    for p in range(pools):
        power.pool[ALLOWED, p] = NEVER
    if sim.count[QUEUED] == 0 or prules.kind != MANAGED:
        return
    plan_ahead(order, jobs, machine, sim, rules, work)
    take_sleepers_out(now, machine, sim, work)
    for p in range(pools):
        wake_planned(p, now, machine, sim, work, power, prules)
        power.pool[ALLOWED, p] = spare_of(p, now, ZERO, work, power, prules)


@jit()
def switch_off_due(now: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules) -> int:
    """Switch off what has been idle for its timeout, the last nodes first; when to look again."""
    pools = machine.speed.shape[0]
    again = NEVER
    for p in range(pools):
        idle = ZERO
        for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
            node = machine.node[NODE_ID, i]
            if sim.node[NODE_POWER, node] == IDLE and sim.node[NODE_JOB, node] < 0:
                idle += 1
        power.pool[SPARE, p] = idle - power.keep[p]
    for i in range(machine.node.shape[1] - 1, -1, -1):
        node = machine.node[NODE_ID, i]
        time = due(node, machine, sim, power, prules)
        if time > now:
            again = min(again, time)
            continue
        p = machine.node[NODE_POOL, node]
        if sim.node[NODE_POWER, node] == ASLEEP:
            # Who waits could need it sooner than it would be back from there.
            if prules.kind != MANAGED or sim.count[QUEUED] == 0:
                depth = sim.node[NODE_DEPTH, node] + 1
                switch_off(node, depth, now, machine, sim, power, prules)
        elif power.pool[SPARE, p] > 0 and power.pool[ALLOWED, p] > 0:
            switch_off(node, ZERO, now, machine, sim, power, prules)
            if power.table[OFF_TIME, p * prules.depths] == 0:
                again = now  # type: ignore[assignment]  # asleep at once: when to wake it?
            power.pool[SPARE, p] -= 1
            if power.pool[ALLOWED, p] < NEVER:
                power.pool[ALLOWED, p] -= 1
    return again
