"""FCFS with SPARS's power manager, by its published rule.

Each call plans from scratch, and gives each node to at most one waiting job. A job gets idle nodes if
there are enough, else those that are released soonest; among these, the ones that waste the least
energy until then. Kept apart since it plans by node where everything else plans by numbers of nodes.
"""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    EXPECTED,
    LATER,
    NEVER,
    NODE_BOOT,
    NODE_JOB,
    NODE_POWER,
    NODE_READY,
    NODE_SINCE,
    NODES,
    NOW,
    PLANNED,
    RUN,
    STACK,
    START,
    STARTS,
    TIMER,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import drop_started, order_queue, pop_order
from hpctwin.engine.placement import claim
from hpctwin.engine.power import note_use, switch_off, switch_on
from hpctwin.engine.power_layout import (
    ACTIVE_W,
    ASLEEP,
    BOOT_W,
    CHOSEN,
    COMPUTING,
    HELD_BY,
    IDLE,
    OFF_TIME,
    ON_TIME,
    RELEASED,
    SWITCHING_OFF,
    SWITCHING_ON,
    Power,
    PowerRules,
)
from hpctwin.engine.transitions import start_job


@jit()
def note_releases(now: int, jobs: Jobs, sim: Sim, power: Power) -> None:
    """When each node is free for another job by the requests; NEVER for what cannot be planned with."""
    for node in range(sim.node.shape[1]):
        power.node[HELD_BY, node] = -1
        state = sim.node[NODE_POWER, node]
        j = sim.node[NODE_JOB, node]
        released = now
        if state == SWITCHING_OFF:
            released = NEVER  # type: ignore[assignment]
        elif j >= 0:
            released = sim.time[START, j] + jobs.fixed[EXPECTED, j]
            if released <= now:
                released = NEVER  # type: ignore[assignment]
        elif state > COMPUTING:
            released = max(now, sim.node[NODE_READY, node]) + sim.node[NODE_BOOT, node]
        power.node[RELEASED, node] = released


@jit()
def is_idle(node: int, sim: Sim) -> bool:
    """Whether a job could start on the node now."""
    return sim.node[NODE_POWER, node] <= COMPUTING and sim.node[NODE_JOB, node] < 0


@jit()
def choose_idle(wanted: int, sim: Sim, power: Power) -> bool:
    """The first idle nodes that no job before holds; False if there are not enough."""
    found = 0
    for node in range(sim.node.shape[1]):
        if power.node[HELD_BY, node] < 0 and is_idle(node, sim):
            power.node[CHOSEN, found] = node
            found += 1
            if found == wanted:
                return True
    return False


@jit()
def time_of_enough(wanted: int, sim: Sim, power: Power) -> int:
    """The first time by which so many nodes that no job before holds are released; NEVER if none."""
    time = -1
    while True:
        following = NEVER
        enough = 0
        for node in range(sim.node.shape[1]):
            if power.node[HELD_BY, node] >= 0:
                continue
            released = power.node[RELEASED, node]
            if released <= time:
                enough += 1
            elif released < following:
                following = released
        if enough >= wanted or following >= NEVER:
            return time if enough >= wanted else NEVER
        time = following  # type: ignore[assignment]


@jit()
def choose_least_waste(
    wanted: int, time: int, now: int, machine: Machine, sim: Sim, power: Power
) -> None:
    """Of the nodes released by a time those that waste the least energy until then."""
    active = power.watts[ACTIVE_W, 0]
    boot = power.watts[BOOT_W, 0]
    for node in range(sim.node.shape[1]):
        released = power.node[RELEASED, node]
        if power.node[HELD_BY, node] >= 0 or released > time:
            power.cost[node] = -1.0
        elif sim.node[NODE_POWER, node] == ASLEEP:
            power.cost[node] = boot * sim.node[NODE_BOOT, node]
        elif sim.node[NODE_POWER, node] == SWITCHING_ON:
            power.cost[node] = boot * (released - now) + active * (time - released)
        else:
            power.cost[node] = active * (time - released)
    for n in range(wanted):
        best = -1
        for node in range(sim.node.shape[1]):
            if power.cost[node] < 0:
                continue
            if best < 0 or power.cost[node] < power.cost[best]:
                best = node
            elif power.cost[node] == power.cost[best]:
                booting = sim.node[NODE_POWER, node] == SWITCHING_ON
                if booting and sim.node[NODE_POWER, best] != SWITCHING_ON:
                    best = node
        power.cost[best] = -1.0
        power.node[CHOSEN, n] = best


@jit()
def plan_jobs(
    order: Order,
    now: int,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    power: Power,
) -> int:
    """Plan the waiting jobs until nodes run out; how many. Nobody starts before those before."""
    note_releases(now, jobs, sim, power)
    latest = now
    planned = 0
    for left in range(order_queue(order, now, jobs, sim, rules, work), 0, -1):
        j = pop_order(left, work, jobs)
        wanted = jobs.fixed[NODES, j]
        start = now
        if not choose_idle(wanted, sim, power):
            start = time_of_enough(wanted, sim, power)
            if start >= NEVER:
                break
            choose_least_waste(wanted, start, now, machine, sim, power)
        for n in range(wanted):
            power.node[HELD_BY, power.node[CHOSEN, n]] = planned
        latest = max(latest, start)
        work.job[LATER, planned] = j
        work.job[STACK, planned] = latest
        planned += 1
    return planned


@jit()
def start_planned(
    planned: int,
    now: int,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    power: Power,
) -> None:
    """Start those whose time has come."""
    started = sim.count[STARTS]
    for i in range(planned):
        if work.job[STACK, i] > now:
            break
        j = work.job[LATER, i]
        for node in range(sim.node.shape[1]):
            if power.node[HELD_BY, node] == i:
                claim(j, node, sim)
        work.take[0] = jobs.fixed[NODES, j]
        start_job(j, now, jobs, machine, sim, rules, work)
    if sim.count[STARTS] > started:
        drop_started(sim)


@jit()
def switch_planned(
    now: int, machine: Machine, sim: Sim, work: Work, power: Power, prules: PowerRules
) -> tuple[bool, int]:
    """Wake and switch off; whether any was, and when to look again."""
    off_time = power.table[OFF_TIME, 0]
    on_time = power.table[ON_TIME, 0]
    switched = False
    again = NEVER
    for node in range(sim.node.shape[1]):
        i = power.node[HELD_BY, node]
        state = sim.node[NODE_POWER, node]
        if state == ASLEEP and i >= 0:
            wake = work.job[STACK, i] - on_time
            if wake <= now:
                switch_on(node, now, machine, sim, power, prules)
                switched = True
            else:
                again = min(again, wake)
        elif state == IDLE and sim.node[NODE_JOB, node] < 0 and power.timeout[0] < NEVER:
            over = sim.node[NODE_SINCE, node] + power.timeout[0]
            if over > now:
                again = min(again, over)
            elif i < 0 or now + off_time + on_time <= work.job[STACK, i]:
                switch_off(node, ZERO, now, machine, sim, power, prules)
                switched = True
    return switched, again


@jit()
def next_boot_for_end(now: int, sim: Sim, power: Power) -> int:
    """The next time at which a sleeping node would have to be woken to be there when a job ends."""
    for node in range(sim.node.shape[1]):
        if sim.node[NODE_POWER, node] == ASLEEP:
            for r in range(sim.count[RUN]):
                wake = sim.running[PLANNED, r] - power.table[ON_TIME, 0]
                if wake > now:
                    return wake
            return NEVER
    return NEVER


@jit()
def pass_planned_by_node(
    order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    power: Power,
    prules: PowerRules,
) -> int:
    """Plan and act until nothing is left to do at this instant; when to look again."""
    now = sim.count[NOW]
    sim.count[TIMER] = NEVER
    while True:
        started = sim.count[STARTS]
        planned = plan_jobs(order, now, jobs, machine, sim, rules, work, power)
        start_planned(planned, now, jobs, machine, sim, rules, work, power)
        note_use(now, machine, sim, power, prules)
        switched, again = switch_planned(now, machine, sim, work, power, prules)
        if not switched and sim.count[STARTS] == started:
            return min(again, next_boot_for_end(now, sim, power))
