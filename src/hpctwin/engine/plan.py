"""The plan: what is free over future time.

A step function of time over all pools and resources: row ``i`` holds from ``work.time[i]`` until
``work.time[i + 1]``, the last one for ever. ``work.size[0]`` rows are in use.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BEST_FIT,
    EXPECTED,
    FREE,
    I8,
    LIMIT,
    NEVER,
    NODE_BOOT,
    NODE_DOWN,
    NODE_ID,
    NODE_POOL,
    NODE_READY,
    NODES,
    OVERDUE_STEP,
    PLANNED,
    RETURN,
    RUN,
    RUNS,
    SPREAD,
    START,
    UNPOWERED,
    WINDOW_AMOUNT,
    WINDOW_END,
    WINDOW_POOL,
    WINDOW_START,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)


@jit()
def planned_end(j: int, now: int, jobs: Jobs, sim: Sim, rules: Rules) -> int:
    """When a running job is expected to end, after now."""
    planned = sim.time[START, j] + jobs.fixed[EXPECTED, j]
    if planned > now:
        return planned
    planned += ((now - planned) // OVERDUE_STEP + 1) * OVERDUE_STEP
    if rules.terminate == 1:
        limit = sim.time[START, j] + jobs.fixed[LIMIT, j]
        if planned > limit and limit > now:
            planned = limit
    return planned


@jit()
def plan_split(work: Work, time: int) -> int:
    """The row that begins at ``time``, made if there is none; ``time`` is not before the plan."""
    n = work.size[0]
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        if work.time[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low < n and work.time[low] == time:
        return low
    width = work.amount.shape[1]
    for i in range(n, low, -1):
        work.time[i] = work.time[i - 1]
        for c in range(width):
            work.amount[i, c] = work.amount[i - 1, c]
    work.time[low] = time
    for c in range(width):
        work.amount[low, c] = work.amount[low - 1, c]
    work.size[0] = n + 1
    return low


@jit()
def plan_change(
    j: int, start: int, end: int, sign: int, pools: int, jobs: Jobs, work: Work
) -> None:
    """Take a job's ``work.take`` nodes and resources out of a span (-1) or put them back (+1)."""
    first = plan_split(work, start)
    last = work.size[0] if end >= NEVER else plan_split(work, end)
    for i in range(first, last):
        for p in range(pools):
            work.amount[i, p] += sign * work.take[p]
        for c in range(jobs.resources.shape[1]):
            work.amount[i, pools + c] += sign * jobs.resources[j, c]


@jit()
def load_take(j: int, pools: int, jobs: Jobs, sim: Sim, work: Work) -> None:
    """Put the nodes a job holds, or holds a reservation for, into ``work.take``."""
    if pools == 1:
        work.take[0] = jobs.fixed[NODES, j]
    else:
        for p in range(pools):
            work.take[p] = sim.take[j, p]


@jit()
def plan_build(now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """The plan from running jobs and maintenance alone."""
    pools = machine.speed.shape[0]
    width = work.amount.shape[1]
    work.time[0] = now
    for c in range(width):
        work.amount[0, c] = sim.amount[FREE, c]
    n = 1
    running = sim.count[RUN]
    overdue = 0
    while overdue < running and sim.running[PLANNED, overdue] <= now:
        overdue += 1
    for r in range(overdue, running):
        j = sim.running[RUNS, r]
        planned = sim.running[PLANNED, r]
        if planned != work.time[n - 1]:
            work.time[n] = planned
            for c in range(width):
                work.amount[n, c] = work.amount[n - 1, c]
            n += 1
        load_take(j, pools, jobs, sim, work)
        for p in range(pools):
            work.amount[n - 1, p] += work.take[p]
        for c in range(jobs.resources.shape[1]):
            work.amount[n - 1, pools + c] += jobs.resources[j, c]
    work.size[0] = n
    for r in range(overdue):
        j = sim.running[RUNS, r]
        load_take(j, pools, jobs, sim, work)
        plan_change(j, planned_end(j, now, jobs, sim, rules), NEVER, RETURN, pools, jobs, work)
    if sim.count[UNPOWERED] > 0:
        plan_switched_off(now, machine, sim, work)
    for m in range(machine.windows.shape[1]):
        if machine.windows[WINDOW_END, m] <= now:
            continue
        p = machine.windows[WINDOW_POOL, m]
        last = plan_split(work, machine.windows[WINDOW_END, m])
        if machine.windows[WINDOW_START, m] <= now:
            for i in range(last, work.size[0]):
                work.amount[i, p] += machine.windows[WINDOW_AMOUNT, m]
        else:
            first = plan_split(work, machine.windows[WINDOW_START, m])
            for i in range(first, plan_split(work, machine.windows[WINDOW_END, m])):
                work.amount[i, p] -= machine.windows[WINDOW_AMOUNT, m]


@jit()
def plan_switched_off(now: int, machine: Machine, sim: Sim, work: Work) -> None:
    """Nodes that are not switched on can be had from when they are active, if woken at once."""
    time = NEVER
    p = -1
    nodes = 0
    for i in range(machine.node.shape[1]):
        node = machine.node[NODE_ID, i]
        if sim.node[NODE_DOWN, node] == 0:
            continue
        ready = max(now, sim.node[NODE_READY, node]) + sim.node[NODE_BOOT, node]
        if ready != time or machine.node[NODE_POOL, node] != p:
            plan_return(time, p, nodes, work)
            time = ready
            p = machine.node[NODE_POOL, node]
            nodes = 0
        nodes += 1
    plan_return(time, p, nodes, work)


@jit()
def plan_return(time: int, p: int, nodes: int, work: Work) -> None:
    """Nodes of a pool are free from a time on; not so if negative."""
    if nodes != 0:
        for row in range(plan_split(work, time), work.size[0]):
            work.amount[row, p] += nodes


@jit()
def holds(j: int, row_of_pools: I8, jobs: Jobs, work: Work) -> bool:
    """Whether a job fits amounts of ``work.low``."""
    pools = row_of_pools.shape[0]
    for c in range(jobs.resources.shape[1]):
        if work.low[pools + c] < jobs.resources[j, c] and jobs.resources[j, c] > 0:
            return False
    nodes = 0
    for p in range(pools):
        if row_of_pools[p] != 0 and work.low[p] > 0:
            nodes += work.low[p]
    return nodes >= jobs.fixed[NODES, j]


@jit()
def plan_fits(j: int, first: int, duration: int, row_of_pools: I8, jobs: Jobs, work: Work) -> int:
    """Whether a job fits from row ``first`` on; leaves the least free amounts in ``work.low``.

    Returns -1 if it fits, else the row at which the amounts so far became too small.
    """
    end = work.time[first] + duration
    width = work.low.shape[0]
    for c in range(width):
        work.low[c] = work.amount[first, c]
    if not holds(j, row_of_pools, jobs, work):
        return first
    i = first + 1
    while i < work.size[0] and work.time[i] < end:
        less = False
        for c in range(width):
            if work.amount[i, c] < work.low[c]:
                work.low[c] = work.amount[i, c]
                less = True
        if less and not holds(j, row_of_pools, jobs, work):
            return i
        i += 1
    return -1


@jit()
def plan_earliest(j: int, duration: int, row_of_pools: I8, jobs: Jobs, work: Work) -> int:
    """The first row from which a job fits; -1 if there is none."""
    pools = row_of_pools.shape[0]
    first = 0
    while first < work.size[0]:
        row = plan_fits(j, first, duration, row_of_pools, jobs, work)
        if row < 0:
            return first
        # With one pool the row that was too small alone rules out all starts up to it. With
        # several, only the least over the whole span was too small.
        first = row + 1 if pools == 1 else first + 1
    return -1


@jit()
def choose_pools(j: int, placement: int, row_of_pools: I8, jobs: Jobs, work: Work) -> None:
    """Divide a job's nodes over the pools, given the least free amounts in ``work.low``."""
    pools = row_of_pools.shape[0]
    left = jobs.fixed[NODES, j]
    if pools == 1:
        work.take[0] = left
        return
    for p in range(pools):
        work.take[p] = 0
        if row_of_pools[p] == 0 or work.low[p] < 0:
            work.low[p] = 0
    if placement == SPREAD:
        _spread(left, pools, work)
        return
    if placement == BEST_FIT:
        best = -1
        for p in range(pools):
            if work.low[p] >= left and (best < 0 or work.low[p] < work.low[best]):
                best = p
        if best >= 0:
            work.take[best] = left
            return
    while left > 0:
        best = -1
        for p in range(pools):
            if work.take[p] == 0 and work.low[p] > 0:
                if best < 0 or (placement == BEST_FIT and work.low[p] > work.low[best]):
                    best = p
        work.take[best] = min(left, work.low[best])
        left -= work.take[best]


@jit()
def _spread(nodes: int, pools: int, work: Work) -> None:
    """One node at a time from the fullest pool, done at once: cut all pools to one level."""
    low = 0
    high = 0
    for p in range(pools):
        high = max(high, work.low[p])
    while low < high:
        level = (low + high) // 2
        above = 0
        for p in range(pools):
            above += max(0, work.low[p] - level)
        if above <= nodes:
            high = level
        else:
            low = level + 1
    left = nodes
    for p in range(pools):
        work.take[p] = max(0, work.low[p] - low)
        left -= work.take[p]
    for p in range(pools):
        if left > 0 and work.low[p] >= low and low > 0:
            work.take[p] += 1
            left -= 1
