"""The plan: free nodes and resources over future time.

It is a step function of time over all pools and resources. Row ``i`` holds from
``sim.plan_time[i]`` until ``sim.plan_time[i + 1]``; the last row holds forever.
``sim.plan_rows[0]`` rows are in use.

The plan contains maintenance only up to ``sim.windows.known``, which grows as passes read the plan
(`plan_reach`, `has_row`). Rows after that time may be missing or wrong.
"""

from __future__ import annotations

from hpctwin.engine.capacity.maintenance_windows import follow_clock
from hpctwin.engine.compile.intrinsics import call, call_with_job, move_rows
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import (
    ASLEEP_NODES,
    BEST_FIT,
    NEVER,
    ONLY_ACTIVE,
    OVERDUE_STEP,
    RETURN,
    SPREAD,
    TAKE,
    ZERO,
    Arrays,
)


@jit
def planned_end(j: int, sim: Arrays) -> int:
    """Return when a running job is expected to end; always after now.

    An overdue job is expected to end at the next multiple of `OVERDUE_STEP` after its planned end.
    If walltimes end jobs, that is at most its walltime.
    """
    now = sim.clock.now
    start = sim.state[j].start
    planned = start + sim.job[j].expected
    if planned > now:
        return planned
    planned += ((now - planned) // OVERDUE_STEP + 1) * OVERDUE_STEP
    if sim.rules.terminate == 1:
        limit = start + sim.job[j].limit + sim.rules.cleanup
        if planned > limit and limit > now:
            planned = limit
    return planned


@jit
def plan_split(time: int, sim: Arrays) -> int:
    """Return the row that begins at a time; insert it if there is none.

    The time must not be before the plan's begin.
    """
    n = sim.plan_rows[0]
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        if sim.plan_time[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low < n and sim.plan_time[low] == time:
        return low
    width = sim.plan_amount.width
    move_rows(sim.plan_time, low + 1, low, n)
    # The row before is duplicated: the new row begins with its amounts.
    move_rows(sim.plan_amount, low * width, (low - 1) * width, n * width)
    sim.plan_time[low] = time
    sim.plan_rows[0] = n + 1
    return low


@jit
def plan_change(j: int, start: int, end: int, sign: int, sim: Arrays) -> None:
    """Take a job's ``sim.take`` nodes and resources out of a span (-1) or return them."""
    first = plan_split(start, sim)
    last = sim.plan_rows[0] if end >= NEVER else plan_split(end, sim)
    if sim.plan_amount.width == 1:
        nodes = sign * sim.take[0]
        for i in range(first, last):
            sim.plan_amount[i, 0] += nodes
        return
    pools = sim.rules.pools
    for i in range(first, last):
        for p in range(pools):
            sim.plan_amount[i, p] += sign * sim.take[p]
        for c in range(sim.asks.width):
            sim.plan_amount[i, pools + c] += sign * sim.asks[j, c]


@jit
def plan_take(j: int, start: int, sim: Arrays) -> None:
    """Take a job out of the plan for its expected runtime."""
    plan_change(j, start, start + sim.job[j].expected, TAKE, sim)


@jit
def note_freed(j: int, start: int, end: int, sim: Arrays) -> None:
    """Record that a job's nodes become free for a span, other than planned.

    The next pass updates the kept plan. If too many jobs are recorded, the plan is rebuilt.
    """
    standing = sim.standing
    if standing.valid == 0:
        return
    if standing.returned == len(sim.returned):
        standing.valid = 0
        return
    span = sim.returned[standing.returned]
    span.job = j
    span.start = start
    span.end = end
    standing.returned += 1


@jit
def load_take(j: int, sim: Arrays) -> None:
    """Copy the nodes that a job holds or has reserved to ``sim.take``."""
    if len(sim.taken) == 0:
        sim.take[0] = sim.job[j].nodes
    else:
        for p in range(sim.rules.pools):
            sim.take[p] = sim.taken[j, p]


@jit
def plan_build(sim: Arrays) -> None:
    """Build the plan from running jobs and maintenance alone."""
    call(sim.hooks.build_plan, sim)


def build_plan(sim: Arrays) -> None:
    """Do the same as `plan_build`; compiled once for all passes."""
    now = sim.clock.now
    pools = sim.rules.pools
    width = sim.plan_amount.width
    sim.plan_time[0] = now
    for c in range(width):
        sim.plan_amount[0, c] = sim.stock[c].free
    n = 1
    running = sim.clock.run_end
    overdue = sim.clock.run_first
    # Overdue jobs come first in ``sim.run``, but their expected ends are not sorted with the
    # others.
    while overdue < running and sim.run[overdue].planned <= now:
        overdue += 1
    for r in range(overdue, running):
        j = sim.run[r].job
        if j < 0:
            continue
        planned = sim.run[r].planned
        if planned != sim.plan_time[n - 1]:
            sim.plan_time[n] = planned
            for c in range(width):
                sim.plan_amount[n, c] = sim.plan_amount[n - 1, c]
            n += 1
        load_take(j, sim)
        for p in range(pools):
            sim.plan_amount[n - 1, p] += sim.take[p]
        for c in range(sim.asks.width):
            sim.plan_amount[n - 1, pools + c] += sim.asks[j, c]
    sim.plan_rows[0] = n
    for r in range(sim.clock.run_first, overdue):
        j = sim.run[r].job
        if j < 0:
            continue
        load_take(j, sim)
        plan_change(j, planned_end(j, sim), NEVER, RETURN, sim)
    if len(sim.cut) > 0:
        plan_preempted(sim)
    if sim.clock.unpowered > 0:
        plan_switched_off(sim)
    know_changes(sim.clock.changes_done, sim)


@jit
def plan_preempted(sim: Arrays) -> None:
    """Let preempted jobs leave the plan when their grace ends."""
    for place in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[place].job
        if j < 0 or sim.cut[j].leaves == 0:
            continue
        planned = planned_end(j, sim)
        if sim.cut[j].leaves < planned:
            load_take(j, sim)
            plan_change(j, sim.cut[j].leaves, planned, RETURN, sim)


@jit
def know_changes(done: int, sim: Arrays) -> None:
    """Record that the first ``done`` maintenance changes are in the plan or past."""
    sim.windows.planned = done
    sim.windows.known = sim.change[done].time - 1 if done < len(sim.change) else NEVER


@jit
def plan_reach(time: int, sim: Arrays) -> None:
    """Extend the maintenance in the plan up to a time."""
    if time > sim.windows.known:
        call_with_job(sim.hooks.reach_plan, time, sim)


def reach_plan(time: int, sim: Arrays) -> None:
    """Do the same as `plan_reach`, if changes are left; compiled once for all passes.

    Each call at least doubles the number of changes in the plan. All calls together then cost as
    much as one pass over the changes considered.
    """
    first = sim.windows.planned
    last = min(2 * first - sim.clock.changes_done, len(sim.change))
    while last < len(sim.change) and sim.change[last].time <= time:
        last += 1
    split_at_changes(first, last, sim)
    for c in range(sim.plan_amount.width):
        sim.shift[c] = 0
    i = first
    for row in range(plan_split(sim.change[first].time, sim), sim.plan_rows[0]):
        while i < last and sim.change[i].time == sim.plan_time[row]:
            sim.shift[sim.change[i].pool] += sim.change[i].sign * sim.change[i].amount
            i += 1
        for c in range(sim.plan_amount.width):
            sim.plan_amount[row, c] += sim.shift[c]
    know_changes(last, sim)


@jit
def split_at_changes(first: int, last: int, sim: Arrays) -> None:
    """Insert rows at the times of maintenance changes.

    It works from the last change backward, so that each row moves only once.
    """
    row = sim.plan_rows[0] - 1
    to = row + new_times(first, last, sim)
    sim.plan_rows[0] = to + 1
    i = last - 1
    while to > row:
        origin = row
        begins = sim.plan_time[origin]
        time = sim.change[i].time
        if time <= begins:
            row -= 1
        if time >= begins:
            i = change_before(i, sim)
        sim.plan_time[to] = max(time, begins)
        for c in range(sim.plan_amount.width):
            sim.plan_amount[to, c] = sim.plan_amount[origin, c]
        to -= 1


@jit
def change_before(i: int, sim: Arrays) -> int:
    """Return the last maintenance change before the time of change ``i``; -1 if none."""
    time = sim.change[i].time
    while i >= 0 and sim.change[i].time == time:
        i -= 1
    return i


@jit
def new_times(first: int, last: int, sim: Arrays) -> int:
    """Return at how many times of maintenance changes in a range no row begins."""
    found = 0
    rows = sim.plan_rows[0]
    row = rows
    while row > 0 and sim.plan_time[row - 1] >= sim.change[first].time:
        row -= 1
    before = -1
    for i in range(first, last):
        time = sim.change[i].time
        while row < rows and sim.plan_time[row] < time:
            row += 1
        if time != before and (row == rows or sim.plan_time[row] != time):
            found += 1
        before = time
    return found


@jit
def has_row(row: int, sim: Arrays) -> bool:
    """Return whether the plan has a row; extend maintenance until the row is valid.

    The row must be the first one, or follow rows that are known.
    """
    windows = sim.windows
    while windows.known < NEVER:
        time = windows.known + 1
        if row < sim.plan_rows[0]:
            if sim.plan_time[row] <= windows.known:
                return True
            time = sim.plan_time[row]
        plan_reach(time, sim)
    return row < sim.plan_rows[0]


@jit
def row_at(time: int, sim: Arrays) -> int:
    """Return the valid row that begins at a time; insert it if there is none."""
    plan_reach(time, sim)
    return plan_split(time, sim)


@jit
def forget_maintenance(sim: Arrays) -> None:
    """Return the nodes in maintenance to the plan, as far as it knows maintenance."""
    if len(sim.window) == 0:
        return
    follow_clock(sim)
    pools = sim.rules.pools
    for p in range(pools):
        sim.shift[p] = 0
    for i in range(sim.windows.under_way):
        window = sim.window[sim.under_way[i]]
        if window.pool < pools:
            sim.shift[window.pool] += window.amount
    i = sim.clock.changes_done
    for row in range(sim.plan_rows[0]):
        while i < sim.windows.planned and sim.change[i].time <= sim.plan_time[row]:
            change = sim.change[i]
            if change.pool < pools:
                sim.shift[change.pool] -= change.sign * change.amount
            i += 1
        for p in range(pools):
            sim.plan_amount[row, p] += sim.shift[p]


@jit
def active_from(node: int, sim: Arrays) -> int:
    """Return the earliest time at which a node is active."""
    return max(sim.clock.now, sim.node[node].ready) + sim.node[node].boot


@jit
def plan_switched_off(sim: Arrays) -> None:
    """Add nodes that are not switched on to the plan.

    They are available from the time at which they are active, if woken at once.
    """
    if sim.rules.shown == ONLY_ACTIVE:
        plan_asleep(RETURN, sim)
    time = NEVER
    p = -1
    nodes = 0
    for i in range(sim.clock.switching):
        node = sim.switching[i].job
        if sim.node[node].hidden == 0 or sim.node[node].down > 0:
            continue
        ready = active_from(node, sim)
        # Consecutive nodes are often ready at the same time: the long plan changes once for all.
        if ready != time or sim.pool_of[node] != p:
            plan_return(time, p, nodes, sim)
            time = ready
            p = sim.pool_of[node]
            nodes = 0
        nodes += 1
    plan_return(time, p, nodes, sim)


@jit
def plan_nodes_back(sim: Arrays) -> int:
    """Build a plan of only the nodes that are not switched on.

    Returns:
        Number of its rows.
    """
    sim.plan_time[0] = sim.clock.now
    for c in range(sim.plan_amount.width):
        sim.plan_amount[0, c] = 0
    sim.plan_rows[0] = 1
    plan_switched_off(sim)
    return sim.plan_rows[0]


@jit
def plan_asleep(sign: int, sim: Arrays) -> None:
    """Add sleeping nodes to the plan from when they can be on, or (-1) remove them.

    Sleeping nodes that are on at once are in the plan already; only removal includes them.
    """
    depths = sim.rules.depths
    for p in range(sim.rules.pools):
        for depth in range(depths):
            boot = sim.sleep[p * depths + depth].on_time
            if boot > 0 or sign == TAKE:
                nodes = sign * sim.tally[p, ASLEEP_NODES + depth]
                plan_return(sim.clock.now + boot, p, nodes, sim)


@jit
def plan_return(time: int, p: int, nodes: int, sim: Arrays) -> None:
    """Add nodes of a pool to the plan from a time on; remove them if negative."""
    if nodes != 0:
        for row in range(plan_split(time, sim), sim.plan_rows[0]):
            sim.plan_amount[row, p] += nodes


@jit
def holds(j: int, sim: Arrays) -> bool:
    """Return whether a job fits in the amounts of ``sim.low``."""
    pools = sim.rules.pools
    kind = sim.job[j].kind
    for c in range(sim.asks.width):
        if sim.low[pools + c] < sim.asks[j, c] and sim.asks[j, c] > 0:
            return False
    nodes = 0
    for p in range(pools):
        if sim.eligible[kind, p] != 0 and sim.low[p] > 0:
            nodes += sim.low[p]
    return nodes >= sim.job[j].nodes


@jit
def plan_fits(j: int, first: int, sim: Arrays) -> int:
    """Check whether a job fits from row ``first`` on, which is valid.

    The least free amounts of the span are left in ``sim.low``.

    Returns:
        -1 if the job fits, else the row at which the amounts became too small.
    """
    end = sim.plan_time[first] + sim.job[j].expected
    plan_reach(end, sim)
    width = sim.plan_amount.width
    for c in range(width):
        sim.low[c] = sim.plan_amount[first, c]
    if not holds(j, sim):
        return first
    i = first + 1
    while i < sim.plan_rows[0] and sim.plan_time[i] < end:
        less = False
        for c in range(width):
            if sim.plan_amount[i, c] < sim.low[c]:
                sim.low[c] = sim.plan_amount[i, c]
                less = True
        if less and not holds(j, sim):
            return i
        i += 1
    return -1


@jit
def fits_plan(j: int, sim: Arrays) -> bool:
    """Return whether a job fits from now on.

    The least free amounts of its span are left in ``sim.low``.
    """
    return plan_fits(j, ZERO, sim) < 0


@jit
def least_of_four(row: int, sim: Arrays) -> int:
    """Return the fewest free nodes in four rows from one on, with a single pool."""
    one = min(sim.plan_amount[row, 0], sim.plan_amount[row + 1, 0])
    other = min(sim.plan_amount[row + 2, 0], sim.plan_amount[row + 3, 0])
    return min(one, other)


@jit
def first_row(row: int, nodes: int, length: int, sim: Arrays) -> int:
    """Return the first row from which enough nodes are free long enough; -1 if none.

    The plan must hold the nodes of one pool and nothing else.

    Args:
        row: First row to try.
        nodes: Number of nodes.
        length: Duration, ms.
        sim: Simulation.
    """
    while has_row(row, sim):
        if sim.plan_amount[row, 0] < nodes:
            row += 1
            continue
        first = row
        end = sim.plan_time[first] + length
        plan_reach(end, sim)
        rows = sim.plan_rows[0]
        row += 1
        # Four rows at a time: this loop dominates the cost of plans with hundreds of rows.
        while row + 3 < rows and sim.plan_time[row + 3] < end and least_of_four(row, sim) >= nodes:
            row += 4
        while row < rows and sim.plan_time[row] < end and sim.plan_amount[row, 0] >= nodes:
            row += 1
        if row == rows or sim.plan_time[row] >= end:
            return first
    return -1


@jit
def plan_earliest(j: int, first: int, sim: Arrays) -> int:
    """Return the first row, from one on, from which a job fits; -1 if there is none."""
    if sim.plan_amount.width == 1:
        return first_row(first, sim.job[j].nodes, sim.job[j].expected, sim)
    while has_row(first, sim):
        row = plan_fits(j, first, sim)
        if row < 0:
            return first
        # With one pool, the row that was too small rules out all starts up to it. With several
        # pools, only the minimum over the whole span was too small.
        first = row + 1 if sim.rules.pools == 1 else first + 1
    return -1


@jit
def choose_pools(j: int, sim: Arrays) -> None:
    """Divide a job's nodes over the pools; ``sim.low`` has the least free amounts."""
    pools = sim.rules.pools
    left = sim.job[j].nodes
    if pools == 1:
        sim.take[0] = left
        return
    kind = sim.job[j].kind
    for p in range(pools):
        sim.take[p] = 0
        if sim.eligible[kind, p] == 0 or sim.low[p] < 0:
            sim.low[p] = 0
    placement = sim.rules.placement
    if placement == SPREAD:
        _spread(left, sim)
        return
    if placement == BEST_FIT:
        best = -1
        for p in range(pools):
            if sim.low[p] >= left and (best < 0 or sim.low[p] < sim.low[best]):
                best = p
        if best >= 0:
            sim.take[best] = left
            return
    while left > 0:
        best = -1
        for p in range(pools):
            if sim.take[p] == 0 and sim.low[p] > 0:
                if best < 0 or (placement == BEST_FIT and sim.low[p] > sim.low[best]):
                    best = p
        sim.take[best] = min(left, sim.low[best])
        left -= sim.take[best]


@jit
def _spread(nodes: int, sim: Arrays) -> None:
    """Take nodes one by one from the fullest pool, computed in one step.

    The result cuts all pools to one level, which is found by bisection.
    """
    pools = sim.rules.pools
    low = 0
    high = 0
    for p in range(pools):
        high = max(high, sim.low[p])
    while low < high:
        level = (low + high) // 2
        above = 0
        for p in range(pools):
            above += max(0, sim.low[p] - level)
        if above <= nodes:
            high = level
        else:
            low = level + 1
    left = nodes
    for p in range(pools):
        sim.take[p] = max(0, sim.low[p] - low)
        left -= sim.take[p]
    for p in range(pools):
        if left > 0 and sim.low[p] >= low and low > 0:
            sim.take[p] += 1
            left -= 1
