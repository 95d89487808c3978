"""Which nodes to switch on and off, for all power policies.

Hooks of power policies, which the event loop calls before and after each pass.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.capacity.plan import (
    active_from,
    choose_pools,
    forget_maintenance,
    has_row,
    plan_asleep,
    plan_build,
    plan_fits,
    plan_return,
    plan_take,
)
from hpctwin.engine.compile.intrinsics import call, sim_at
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import first_in
from hpctwin.engine.power.node_states import (
    end_transitions,
    last_over,
    look_again,
    next_due,
    note_use,
    switch_off,
    switch_on,
)
from hpctwin.engine.queue import preemptor_order
from hpctwin.engine.queue.limits import is_skipped
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import (
    ASLEEP_NODES,
    ASLEEP_OVER,
    IDLE_NODES,
    IDLE_OVER,
    NEVER,
    SWITCHING_OFF,
    TAKE,
    ZERO,
    Arrays,
)

__all__ = ["after_pass_managed", "after_pass_unaware", "before_pass", "give_orders"]

AHEAD = 256
"""Number of pending jobs that are planned ahead when nodes must be woken for them."""


@jit
def list_waiting(sim: Arrays) -> int:
    """Put the first `AHEAD` pending jobs into ``sim.later``, in order; return how many.

    Nothing keeps them from their earliest start.
    """
    for c in range(len(sim.not_before)):
        sim.not_before[c] = 0
    if len(sim.claim) > 0:
        return min(preemptor_order.order_jobs(sim), AHEAD)
    reckon_fairshare(sim)
    size = order_queue(sim)
    n = min(size, AHEAD)
    for i in range(n):
        sim.later[i] = pop_order(size - i, sim)
    return n


@jit
def take_waiting(sim: Arrays) -> None:
    """Take pending jobs out of the plan in order, each at its earliest start."""
    for i in range(list_waiting(sim)):
        j = sim.later[i]
        if is_skipped(j, sim):
            continue
        earliest = ZERO
        if sim.rules.in_order == 1:
            earliest = latest_ahead(j, sim)
        first = ZERO
        while has_row(first, sim) and (
            sim.plan_time[first] < earliest or plan_fits(j, first, sim) >= 0
        ):
            first += 1
        if first >= sim.plan_rows[0]:
            continue
        start = sim.plan_time[first]
        choose_pools(j, sim)
        plan_take(j, start, sim)
        note_planned(j, start, sim)


@jit
def latest_ahead(j: int, sim: Arrays) -> int:
    """Return the latest planned start of the jobs ahead that compete with a job.

    These are the jobs that share an eligible pool or a resource with it.
    """
    pools = sim.rules.pools
    kind = sim.job[j].kind
    latest = ZERO
    for p in range(pools):
        if sim.eligible[kind, p] != 0:
            latest = max(latest, sim.not_before[p])
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            latest = max(latest, sim.not_before[pools + c])
    return latest


@jit
def note_planned(j: int, start: int, sim: Arrays) -> None:
    """Record a job's planned start for its eligible pools and its resources."""
    pools = sim.rules.pools
    kind = sim.job[j].kind
    for p in range(pools):
        if sim.eligible[kind, p] != 0:
            sim.not_before[p] = start
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            sim.not_before[pools + c] = start


@jit
def free_at(time: int, p: int, sim: Arrays) -> int:
    """Return the free nodes of a pool in the plan at a time."""
    row = ZERO
    while row + 1 < sim.plan_rows[0] and sim.plan_time[row + 1] <= time:
        row += 1
    return sim.plan_amount[row, p]


@jit
def take_sleepers_out(sim: Arrays) -> None:
    """Remove nodes that are or will be asleep from the plan.

    Amounts below zero are then the numbers of nodes to wake.
    """
    plan_asleep(TAKE, sim)
    time = NEVER
    p = -1
    nodes = 0
    for i in range(sim.clock.switching):
        node = sim.switching[i].job
        own = sim.node[node]
        if own.down > 0 or own.power != SWITCHING_OFF:
            continue
        ready = active_from(node, sim)
        if ready != time or sim.pool_of[node] != p:
            plan_return(time, p, -nodes, sim)
            time = ready
            p = sim.pool_of[node]
            nodes = 0
        nodes += 1
    plan_return(time, p, -nodes, sim)


@jit
def wake_planned(p: int, sim: Arrays) -> None:
    """Wake the nodes of a pool that the plan needs as soon as they can be active."""
    now = sim.clock.now
    pool = sim.pool[p]
    shallower = ZERO
    for depth in range(sim.rules.depths):
        asleep = sim.tally[p, ASLEEP_NODES + depth]
        boot = sim.sleep[p * sim.rules.depths + depth].on_time
        short = -free_at(now + boot, p, sim)
        wanted = min(asleep, short - shallower)
        place = pool.first
        while wanted > 0:
            place = first_in(ASLEEP_NODES + depth, place, pool.last, sim)
            switch_on(sim.by_pool[place], sim)
            wanted -= 1
        # Set the time at which the next nodes must be woken.
        if asleep > 0:
            short = max(short, shallower)
            for row in range(sim.plan_rows[0]):
                if sim.plan_time[row] > now + boot and -sim.plan_amount[row, p] > short:
                    sim.clock.wake_at = min(sim.clock.wake_at, sim.plan_time[row] - boot)
                    break
        shallower += asleep


@jit
def spare_of(p: int, sim: Arrays) -> int:
    """Return how many nodes the plan can spare until they could be off and on again."""
    sleep = sim.sleep[p * sim.rules.depths]
    until = sim.clock.now + sleep.off_time + sleep.on_time
    least = NEVER
    for row in range(sim.plan_rows[0]):
        if sim.plan_time[row] <= until:
            least = min(least, sim.plan_amount[row, p])
    return max(ZERO, least)


@jit
def manage(sim: Arrays) -> None:
    """Wake nodes in time for the plan, and compute how many nodes it can spare.

    The free nodes of the plan, below zero if nodes must be woken, are the demand of
    docs/reference/rules/power.md with the opposite sign. Nodes in maintenance count as on, as an
    overdue job may still run there.
    """
    if sim.clock.queued == 0:
        return
    plan_build(sim)
    if sim.hooks.reserved != 0:
        call(sim.hooks.reserved, sim)
    else:
        take_waiting(sim)
    forget_maintenance(sim)
    take_sleepers_out(sim)
    for p in range(sim.rules.pools):
        wake_planned(p, sim)
        sim.spare[p].allowed = spare_of(p, sim)


@jit
def count_idle(sim: Arrays) -> None:
    """Count the idle nodes of each group beyond the nodes that always stay on."""
    for p in range(sim.rules.pools):
        sim.spare[p].idle = -sim.pool[p].keep
    for p in range(sim.rules.pools):
        sim.spare[sim.pool[p].group].idle += sim.tally[p, IDLE_NODES]


@jit
def next_to_switch_off(sim: Arrays) -> int:
    """Return the last idle node that may be switched off now; -1 if there is none."""
    last = -1
    for p in range(sim.rules.pools):
        if sim.spare[p].allowed > 0 and sim.spare[sim.pool[p].group].idle > 0:
            last = max(last, last_over(IDLE_OVER, p, sim))
    return last


@jit
def switch_off_due(deeper: bool, sim: Arrays) -> bool:
    """Switch off nodes whose timeout has ended, the last nodes first.

    Args:
        deeper: Whether sleeping nodes may go to deeper sleep.
        sim: Simulation.

    Returns:
        Whether any node is asleep at once.
    """
    now = sim.clock.now
    at_once = False
    if deeper:
        for p in range(sim.rules.pools):
            node = last_over(ASLEEP_OVER, p, sim)
            while node >= 0:
                switch_off(node, sim.node[node].depth + 1, sim)
                if sim.node[node].ready <= now:
                    at_once = True
                node = last_over(ASLEEP_OVER, p, sim)
    count_idle(sim)
    node = next_to_switch_off(sim)
    while node >= 0:
        switch_off(node, ZERO, sim)
        if sim.node[node].ready <= now:
            at_once = True
        p = sim.pool_of[node]
        sim.spare[sim.pool[p].group].idle -= 1
        if sim.spare[p].allowed < NEVER:
            sim.spare[p].allowed -= 1
        node = next_to_switch_off(sim)
    return at_once


@jit
def open_all(sim: Arrays) -> int:
    """Allow switching off all nodes.

    Returns:
        Time at which the first timeout ends, ms.
    """
    first = note_use(sim)
    sim.clock.wake_at = NEVER
    for p in range(sim.rules.pools):
        sim.spare[p].allowed = NEVER
    return first


@jit
def switch_and_look_again(first: int, deeper: bool, sim: Arrays) -> None:
    """Switch off nodes whose timeout has ended, and set the timer for the next action.

    Args:
        first: Time at which the first timeout ends, ms.
        deeper: Whether sleeping nodes may go to deeper sleep.
        sim: Simulation.
    """
    at_once = False
    if first <= sim.clock.now:
        at_once = switch_off_due(deeper, sim)
    # Transitions that take no time end at once.
    end_transitions(sim)
    note_use(sim)
    look_again(sim.clock.now if at_once else next_due(sim), sim)


def before_pass(sim: Arrays) -> None:
    """End transitions that are due."""
    end_transitions(sim)


def after_pass_unaware(sim: Arrays) -> None:
    """Switch off nodes that were idle for their timeout; wake nodes given to jobs."""
    switch_and_look_again(open_all(sim), True, sim)


def after_pass_managed(sim: Arrays) -> None:
    """Wake nodes in time for the plan, and keep nodes on that it needs soon."""
    first = open_all(sim)
    manage(sim)
    # A pending job could need a sleeping node sooner than it would be back from a deeper sleep.
    switch_and_look_again(first, sim.clock.queued == 0, sim)


def give_orders(address: int, nodes: Any, on: int) -> None:
    """Switch nodes on (1) or off (0) now; request a pass."""
    sim = sim_at(address)
    for i in range(len(nodes)):
        if on == 1:
            switch_on(nodes[i], sim)
        else:
            switch_off(nodes[i], ZERO, sim)
    end_transitions(sim)
    if sim.clock.switching > 0:
        sim.clock.timer = min(sim.clock.timer, sim.switching[0].time)
    sim.clock.pass_due = 1
