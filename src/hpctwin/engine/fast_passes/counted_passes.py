"""Passes in which counting decides: one pool, and only job ends are planned.

Free nodes and free shared resources then only grow over time. The plan is therefore two amounts of
each: free now, and spare when the head job starts. A shared resource costs one check per job.

If the queue is kept in order, the fields that a walk reads are copied to one contiguous table
(`Ahead`), once per job. As long as nothing becomes free, a walk continues where the last one ended:
jobs that could not start then cannot start now.
"""

from __future__ import annotations

from hpctwin.engine.capacity.maintenance_windows import maintenance_is_over
from hpctwin.engine.capacity.plan import plan_nodes_back
from hpctwin.engine.compile.intrinsics import move_rows
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.transitions import start_job
from hpctwin.engine.queue.limits import is_skipped, may_start
from hpctwin.engine.queue.order import (
    cache_queue_rows,
    drop_started,
    is_sorted,
    order_candidates,
    order_queue,
    pop_order,
    reckon_fairshare,
)
from hpctwin.engine.queue.priority_tournament import (
    first_fitting,
    note_started,
    ready,
    remove,
    shift_labels,
)
from hpctwin.engine.state.layout import (
    ALL_RESERVE,
    ANYONE_PASSES,
    HEAD_IS_PROTECTED,
    NEVER,
    NOBODY_PASSES,
    ONE,
    ONLY_ACTIVE,
    RETURN,
    TAKE,
    WAITING,
    ZERO,
    Arrays,
)


@jit
def amounts_decide(sim: Arrays) -> bool:
    """Return whether counting decides: one pool, no maintenance, no overdue jobs."""
    now = sim.clock.now
    if sim.rules.pools > 1:
        return False
    if sim.clock.running > 0 and sim.run[sim.clock.run_first].planned <= now:
        return False
    if len(sim.user_limit) > 1:
        return False
    return maintenance_is_over(sim)


@jit
def counting_decides(sim: Arrays) -> bool:
    """Return whether counting nodes alone decides: there are no shared resources."""
    return sim.asks.width == 0 and amounts_decide(sim)


@jit
def plan_stands(sim: Arrays) -> bool:
    """Return whether a plan may be kept from pass to pass.

    Counting nodes must decide, and the pass must skip no job.
    """
    return (
        sim.rules.depths == 0
        and sim.user_running.width == 0
        and len(sim.held) == 0
        and sim.stock[0].down == 0
        and counting_decides(sim)
    )


@jit
def lacks(j: int, sim: Arrays) -> bool:
    """Return whether a resource that a job requests is short now."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.stock[ONE + c].free < sim.asks[j, c]:
            return True
    return False


@jit
def lacks_later(j: int, sim: Arrays) -> bool:
    """Return whether a requested resource is short when the head starts (``sim.low``)."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.low[ONE + c] < sim.asks[j, c]:
            return True
    return False


@jit
def add_asked(j: int, sign: int, sim: Arrays) -> None:
    """Add a job's requests of resources to ``sim.low``, times ``sign``."""
    for c in range(sim.asks.width):
        sim.low[ONE + c] += sign * sim.asks[j, c]


@jit
def reservation_of(head: int, sim: Arrays) -> tuple[int, int]:
    """Return when enough is free for the head job, and how many nodes are spare then.

    Times come from planned ends. The resources that are spare then are left in ``sim.low``.
    """
    free = sim.stock[0].free
    nodes = sim.job[head].nodes
    for c in range(sim.asks.width):
        sim.low[ONE + c] = sim.stock[ONE + c].free
    r = sim.clock.run_first
    shadow = sim.clock.now
    # Nodes that come on if woken now: their rows of the plan, which holds nothing else.
    back = 1
    backs = plan_nodes_back(sim) if sim.clock.unpowered > 0 else 1
    while free < nodes or lacks_later(head, sim):
        shadow = sim.run[r].planned if r < sim.clock.run_end else NEVER
        if back < backs and sim.plan_time[back] <= shadow:
            shadow = sim.plan_time[back]
            free += sim.plan_amount[back, 0] - sim.plan_amount[back - 1, 0]
            back += 1
        while r < sim.clock.run_end and sim.run[r].planned == shadow:
            j = sim.run[r].job
            if j >= 0:
                free += sim.job[j].nodes
                add_asked(j, RETURN, sim)
            r += 1
    add_asked(head, TAKE, sim)
    return shadow, free - nodes


@jit
def counts(sim: Arrays) -> bool:
    """Return whether counting decides this pass under this policy."""
    others = sim.rules.others
    if others == ALL_RESERVE:
        return plan_stands(sim)
    if others < 0 or not amounts_decide(sim):
        return False
    # If jobs may get nodes that are not on yet, only the plan knows the nodes that are not
    # available at all.
    return sim.clock.unpowered == 0 or others != HEAD_IS_PROTECTED or sim.rules.shown == ONLY_ACTIVE


def pass_counted(sim: Arrays) -> None:
    """Run a pass in which counting decides; compiled once for all kinds."""
    others = sim.rules.others
    if is_sorted(sim):
        pass_sorted(others, sim)
    elif may_start(sim):
        reckon_fairshare(sim)
        pass_scored(others, sim)


@jit
def is_settled(sim: Arrays) -> bool:
    """Return whether no job seen by the last walk can start.

    That holds if nothing has become free since.
    """
    walk = sim.walk
    if sim.clock.unpowered > 0:
        return False  # the time at which enough nodes are on for the head may have changed
    return (
        walk.settled == 1
        and walk.free == sim.stock[0].free
        and walk.down == sim.stock[0].down
        and walk.running == sim.clock.running
        and walk.starts == sim.clock.starts
    )


@jit
def settle_walk(seen: int, head: bool, shadow: int, spare: int, sim: Arrays) -> None:
    """Save the results of a walk, so that the next one can continue from it."""
    walk = sim.walk
    # Shortages of resources and jobs at limits are not saved.
    unlimited = sim.user_running.width == 0 and len(sim.held) == 0
    walk.settled = 1 if sim.asks.width == 0 and unlimited else 0
    walk.seen = seen
    walk.head = 1 if head else 0
    walk.shadow = shadow
    walk.spare = spare
    walk.free = sim.stock[0].free
    walk.down = sim.stock[0].down
    walk.running = sim.clock.running
    walk.starts = sim.clock.starts


@jit
def close_gaps(gaps: int, lightest: bool, sim: Arrays) -> None:
    """Remove started jobs from the queue.

    Args:
        gaps: Number of started jobs; their places in the queue are in ``sim.later``, in order.
        lightest: Whether one of them had the fewest nodes of all.
        sim: Simulation.
    """
    walk = sim.walk
    kept = sim.later[0]
    for g in range(gaps):
        first = sim.later[g] + 1
        last = sim.later[g + 1] if g + 1 < gaps else sim.clock.queued
        move_rows(sim.queue, kept, first, last)
        move_rows(sim.ahead, kept, first, last)
        kept += last - first
    sim.clock.queued = kept
    walk.known = kept
    if lightest:
        walk.fewest = NEVER
        for i in range(kept):
            walk.fewest = min(walk.fewest, sim.ahead[i].nodes)


@jit
def next_passing(i: int, free: int, spare: int, length: int, sim: Arrays) -> int:
    """Return the first place from ``i`` of a job that may start ahead of the head job.

    It tests the same conditions as `first_fitting`; the result is the queue's length if there is
    none.
    """
    n = sim.clock.queued
    while i < n:
        ahead = sim.ahead[i]
        if ahead.nodes <= free and (ahead.nodes <= spare or ahead.expected <= length):
            break
        i += 1
    return i


@jit
def pass_sorted(others: int, sim: Arrays) -> None:
    """Do the same as `pass_scored`, in one walk along a sorted queue.

    The queue must be kept in the order of both jobs and candidates. Jobs that could not start
    cannot start until something becomes free; until then only later arrivals are considered.
    """
    cache_queue_rows(sim)
    now = sim.clock.now
    walk = sim.walk
    shadow = NEVER
    spare = NEVER
    head = False
    i = 0
    if is_settled(sim):
        i = walk.seen
        head = walk.head == 1
        shadow = walk.shadow
        spare = walk.spare
    n = sim.clock.queued
    gaps = ZERO
    lightest = False
    free = sim.stock[0].free
    while i < n and free >= walk.fewest and not (head and others == NOBODY_PASSES):
        if head or others == ANYONE_PASSES:
            i = next_passing(i, free, spare, shadow - now, sim)
            if i == n:
                break
        j = sim.queue[i]
        ahead = sim.ahead[i]
        if ahead.nodes > free or lacks(j, sim):
            if not head and others != ANYONE_PASSES and not is_skipped(j, sim):
                head = True
                if others == HEAD_IS_PROTECTED:
                    shadow, spare = reservation_of(j, sim)
        elif now + ahead.expected > shadow and lacks_later(j, sim):
            pass
        elif not is_skipped(j, sim):
            sim.take[0] = ahead.nodes
            start_job(j, sim)
            free = sim.stock[0].free
            # Its actual start: nodes that are not on yet delay it.
            if sim.state[j].start + ahead.expected > shadow:
                spare -= ahead.nodes
                add_asked(j, TAKE, sim)
            lightest = lightest or ahead.nodes == walk.fewest
            sim.later[gaps] = i
            gaps += 1
        i += 1
    settle_walk(i - gaps, head, shadow, spare, sim)
    if gaps > 0:
        close_gaps(gaps, lightest, sim)


def pass_raced(sim: Arrays) -> None:
    """Do the same as `pass_scored`, with a tournament; a search finds the next start.

    The tournament does not know resources. If one is short, the ordinary pass continues with the
    rest of the queue.
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
        shift_labels(sim.racer[1].job, sim)
    now = sim.clock.now
    others = sim.rules.others
    shadow = NEVER
    spare = NEVER
    head = others == ANYONE_PASSES
    # Jobs with more nodes than are up are skipped, as in `eligibility.is_skipped`.
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
            if sim.rules.own_candidates == 1:
                cache_queue_rows(sim)
                pass_head(j, sim)
                return
            head = True
            shadow, spare = reservation_of(j, sim)
            continue
        delays = now + sim.job[j].expected > shadow
        if lacks(j, sim) or (delays and lacks_later(j, sim)):
            # The jobs started so far delay no other job: an ordinary pass decides the rest alike.
            drop_started(sim)
            sim.race.done = 0
            return
        sim.take[0] = nodes
        start_job(j, sim)
        remove(leaf, sim)
        note_started(j, sim)
        if delays:
            spare -= nodes
            add_asked(j, TAKE, sim)


@jit
def pass_scored(others: int, sim: Arrays) -> None:
    """Run a pass in which counting decides, in the order of scores.

    EASY's plan is then two numbers: the start of the head job, and the nodes spare then.
    """
    changes = sim.rules.order_changes == 1
    n = sim.clock.queued
    if changes:
        order_queue(sim)
    head = -1
    i = 0
    while i < n and sim.stock[0].free > 0:
        j = pop_order(n - i, sim) if changes else sim.queue[i]
        i += 1
        if is_skipped(j, sim):
            continue
        if sim.job[j].nodes > sim.stock[0].free or lacks(j, sim):
            if others == ANYONE_PASSES:
                continue
            head = j
            break
        sim.take[0] = sim.job[j].nodes
        start_job(j, sim)
    if head >= 0 and others == HEAD_IS_PROTECTED:
        pass_head(head, sim)


@jit
def pass_head(head: int, sim: Arrays) -> None:
    """Start jobs that do not delay the head job, in the candidates' order."""
    now = sim.clock.now
    shadow, spare = reservation_of(head, sim)
    later = ZERO
    free = sim.stock[0].free
    i = next_passing(ZERO, free, spare, shadow - now, sim)
    while i < sim.clock.queued:
        j = sim.queue[i]
        delays = now + sim.ahead[i].expected > shadow
        waits = j != head and sim.state[j].phase == WAITING
        if waits and not lacks(j, sim) and not (delays and lacks_later(j, sim)):
            sim.later[later] = j
            later += 1
        i = next_passing(i + 1, free, spare, shadow - now, sim)
    order_candidates(later, sim)
    for m in range(later, 0, -1):
        j = pop_order(m, sim)
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
