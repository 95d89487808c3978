"""Which nodes to switch on and off, for all policies."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    ASLEEP,
    IDLE,
    NEVER,
    SWITCHING_OFF,
    ZERO,
    Arrays,
)
from hpctwin.engine.order import order_queue, pop_order
from hpctwin.engine.plan import (
    active_from,
    choose_pools,
    plan_build,
    plan_fits,
    plan_return,
    plan_take,
)
from hpctwin.engine.power import due, switch_off, switch_on
from hpctwin.engine.skipping import is_skipped

AHEAD = 256
"""So many waiting jobs are planned ahead when nodes are to be woken for them."""


@jit
def plan_ahead(sim: Arrays) -> None:
    """The plan with all waiting jobs in it, each at its earliest start in the ordering's order."""
    plan_build(sim)
    earliest = ZERO
    n = order_queue(sim)
    for left in range(n, max(0, n - AHEAD), -1):
        j = pop_order(left, sim)
        if is_skipped(j, sim):
            continue
        first = earliest
        while first < sim.plan_rows[0] and plan_fits(j, first, sim) >= 0:
            first += 1
        if first >= sim.plan_rows[0]:
            continue
        choose_pools(j, sim)
        plan_take(j, sim.plan_time[first], sim)
        if sim.rules.in_order == 1:
            earliest = first


@jit
def free_at(time: int, p: int, sim: Arrays) -> int:
    """What the plan has free of a pool at a time."""
    row = ZERO
    while row + 1 < sim.plan_rows[0] and sim.plan_time[row + 1] <= time:
        row += 1
    return sim.plan_amount[row, p]


@jit
def take_sleepers_out(sim: Arrays) -> None:
    """Take out of the plan what is asleep or will be: below zero, so many must be woken."""
    time = NEVER
    p = -1
    nodes = 0
    for i in range(len(sim.by_pool)):
        node = sim.by_pool[i]
        state = sim.node[node].power
        if state != ASLEEP and state != SWITCHING_OFF:
            continue
        ready = active_from(node, sim)
        # Most are ready at the same time as the one before, and the plan is long.
        if ready != time or sim.pool_of[node] != p:
            plan_return(time, p, -nodes, sim)
            time = ready
            p = sim.pool_of[node]
            nodes = 0
        nodes += 1
    plan_return(time, p, -nodes, sim)


@jit
def sleeps_at(node: int, depth: int, sim: Arrays) -> bool:
    """Whether a node is asleep in a depth."""
    return sim.node[node].power == ASLEEP and sim.node[node].depth == depth


@jit
def wake_planned(p: int, sim: Arrays) -> None:
    """Wake the nodes of a pool that the plan needs as soon as they can be active, and no others."""
    now = sim.clock.now
    pool = sim.pool[p]
    shallower = ZERO
    for depth in range(sim.rules.depths):
        asleep = ZERO
        for i in range(pool.first, pool.last):
            if sleeps_at(sim.by_pool[i], depth, sim):
                asleep += 1
        boot = sim.sleep[p * sim.rules.depths + depth].on_time
        short = -free_at(now + boot, p, sim)
        wanted = min(asleep, short - shallower)
        for i in range(pool.first, pool.last):
            if wanted <= 0:
                break
            if sleeps_at(sim.by_pool[i], depth, sim):
                switch_on(sim.by_pool[i], sim)
                wanted -= 1
        # Asked again when the next ones must be woken.
        if asleep > 0:
            short = max(short, shallower)
            for row in range(sim.plan_rows[0]):
                if sim.plan_time[row] > now + boot and -sim.plan_amount[row, p] > short:
                    sim.clock.wake_at = min(sim.clock.wake_at, sim.plan_time[row] - boot)
                    break
        shallower += asleep


@jit
def spare_of(p: int, sim: Arrays) -> int:
    """How many nodes of a pool the plan does not need before they could be off and on again."""
    sleep = sim.sleep[p * sim.rules.depths]
    until = sim.clock.now + sleep.off_time + sleep.on_time
    least = NEVER
    for row in range(sim.plan_rows[0]):
        if sim.plan_time[row] <= until:
            least = min(least, sim.plan_amount[row, p])
    return max(ZERO, least)


@jit
def manage(sim: Arrays) -> None:
    """Wake what the plan needs in time; how many idle nodes of each pool may be switched off."""
    if sim.clock.queued == 0:
        return
    plan_ahead(sim)
    take_sleepers_out(sim)
    for p in range(sim.rules.pools):
        wake_planned(p, sim)
        sim.spare[p].allowed = spare_of(p, sim)


@jit
def count_idle(sim: Arrays) -> None:
    """How many idle nodes of each pool there are besides those that are kept on."""
    for p in range(sim.rules.pools):
        pool = sim.pool[p]
        idle = ZERO
        for i in range(pool.first, pool.last):
            node = sim.node[sim.by_pool[i]]
            if node.power == IDLE and node.job < 0:
                idle += 1
        sim.spare[p].idle = idle - pool.keep


@jit
def switch_off_due(deeper: bool, sim: Arrays) -> int:
    """Switch off what has been idle for its timeout, the last nodes first; when to look again.

    Args:
        deeper: whether sleeping nodes may go deeper.
        sim: the simulation.
    """
    now = sim.clock.now
    again = NEVER
    count_idle(sim)
    for i in range(len(sim.by_pool) - 1, -1, -1):
        node = sim.by_pool[i]
        time = due(node, sim)
        if time > now:
            again = min(again, time)
            continue
        p = sim.pool_of[node]
        spare = sim.spare[p]
        if sim.node[node].power == ASLEEP:
            if deeper:
                switch_off(node, sim.node[node].depth + 1, sim)
        elif spare.idle > 0 and spare.allowed > 0:
            switch_off(node, ZERO, sim)
            if sim.sleep[p * sim.rules.depths].off_time == 0:
                again = now  # asleep at once: when to wake it?
            spare.idle -= 1
            if spare.allowed < NEVER:
                spare.allowed -= 1
    return again
