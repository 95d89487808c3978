"""Whole nodes: a plan holds the number of free nodes over time.

The plan is built when a pass first needs it. As long as nothing is reserved and free capacity only
grows, a job fits if it fits now.
"""

from __future__ import annotations

from hpctwin.engine.capacity.blocked_pools import block, block_nothing, hold_blocked
from hpctwin.engine.capacity.maintenance_windows import maintenance_is_over
from hpctwin.engine.capacity.persistent_reservations import held
from hpctwin.engine.capacity.plan import (
    choose_pools,
    holds,
    load_take,
    note_freed,
    plan_build,
    plan_change,
    plan_earliest,
    plan_fits,
    plan_reach,
    plan_split,
    plan_take,
    row_at,
)
from hpctwin.engine.capacity.rounded_spans import span_begin, span_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.fast_passes.counted_passes import next_passing
from hpctwin.engine.fast_passes.incremental_order import is_kept
from hpctwin.engine.jobs.transitions import divide_now, start_job, take_started
from hpctwin.engine.queue.limits import asks_too_much, is_skipped, may_start
from hpctwin.engine.queue.order import (
    is_sorted,
    job_at,
    job_left,
    order_jobs,
    reckon_fairshare,
    sort_listed,
)
from hpctwin.engine.state.layout import LINED, NEVER, RETURN, TAKE, ZERO, Arrays

__all__ = [
    "alignment", "any_may_start", "awaits_nodes", "begin_cycle", "begin_pass", "begin_with_held",
    "block", "earliest_start", "finds_again", "fits", "free_held", "give_back_held", "hold",
    "is_skipped", "is_sorted", "is_too_large", "job_at", "job_left", "keep_order", "kept_job",
    "list_preemptors", "list_startable", "load_held", "may_fit", "may_preempt", "next_candidate",
    "order_jobs", "reserve", "reserve_rounded", "shortage", "sort_by_level", "start", "start_fitting",
    "start_held", "start_or_preempt", "take_held",
]  # fmt: skip

any_may_start, is_too_large = may_start, asks_too_much


@jit
def begin_cycle(sim: Arrays) -> None:
    """Drop the plan, and block nothing."""
    sim.plan_rows[0] = 0
    sim.walk.tight = 0
    block_nothing(sim)


begin_pass = begin_cycle


@jit
def keep_order(sim: Arrays) -> int:
    """Put the pending jobs in order; return how many there are.

    The order is kept from pass to pass where that pays.
    """
    if sim.rules.order_changes == 0:
        return sim.clock.queued
    reckon_fairshare(sim)
    return sim.race.seated if is_kept(sim) else order_jobs(sim)


@jit
def kept_job(i: int, size: int, sim: Arrays) -> int:
    """Return job ``i`` in the order of `keep_order`."""
    if sim.rules.order_changes == 1 and sim.race.valid == LINED:
        return sim.racer[i].job
    return job_at(i, size, sim)


@jit
def list_startable(sim: Arrays) -> int:
    """Put jobs that may start now into ``sim.later``, in order; return how many."""
    reckon_fairshare(sim)
    size = ZERO
    for i in range(sim.clock.queued):
        if may_fit(sim.queue[i], sim):
            sim.later[size] = sim.queue[i]
            size += 1
    sort_listed(size, sim)
    return size


@jit
def next_candidate(i: int, sim: Arrays) -> int:
    """Return the first place of the queue, from ``i`` on, of a job that may start.

    With one pool it also skips jobs that do not fit at the row of the plan at which the last
    candidate did not fit.
    """
    if sim.rules.pools > 1:
        while i < sim.clock.queued and not may_fit(sim.queue[i], sim):
            i += 1
        return i
    free = sim.stock[0].free
    if free < sim.walk.fewest:
        return sim.clock.queued
    if sim.plan_rows[0] == 0:
        return next_passing(i, free, NEVER, NEVER, sim)
    tight = sim.walk.tight
    length = sim.plan_time[tight] - sim.clock.now
    return next_passing(i, free, sim.plan_amount[tight, 0], length, sim)


@jit
def only_grows(sim: Arrays) -> bool:
    """Return whether free capacity only grows from now on, except for reservations."""
    return maintenance_is_over(sim) and sim.clock.unpowered == 0


@jit
def need_plan(sim: Arrays) -> None:
    """Build the plan if there is none."""
    if sim.plan_rows[0] == 0:
        plan_build(sim)
        hold_blocked(sim)


@jit
def may_fit(j: int, sim: Arrays) -> bool:
    """Return whether a job fits what is free now and not blocked.

    It is short, as passes call it for each pending job.
    """
    pools = sim.rules.pools
    if sim.plan_amount.width == 1:
        return sim.job[j].nodes <= sim.stock[0].free
    kind = sim.job[j].kind
    nodes = 0
    for p in range(pools):
        if sim.eligible[kind, p] != 0 and sim.blocked[p] == 0:
            nodes += max(ZERO, sim.stock[p].free)
    for c in range(sim.asks.width):
        if sim.stock[pools + c].free < sim.asks[j, c] and sim.asks[j, c] > 0:
            return False
    return nodes >= sim.job[j].nodes


@jit
def load_free(sim: Arrays) -> None:
    """Copy to ``sim.low`` what is free now and not blocked."""
    for c in range(len(sim.low)):
        sim.low[c] = sim.stock[c].free
    for p in range(sim.rules.pools):
        if sim.blocked[p] == 1:
            sim.low[p] = 0


@jit
def fits(j: int, sim: Arrays) -> bool:
    """Return whether a job fits from now on; leave the least amounts in ``sim.low``."""
    if sim.plan_rows[0] == 0:
        load_free(sim)
        if not holds(j, sim):
            return False
        if only_grows(sim):
            return True
        need_plan(sim)
    row = plan_fits(j, ZERO, sim)
    if row >= 0:
        sim.walk.tight = row
    return row < 0


@jit
def start_fitting(j: int, sim: Arrays) -> None:
    """Start a job that fits (``sim.low``); take it out of the plan if there is one."""
    divide_now(j, sim)
    start_job(j, sim)
    if sim.plan_rows[0] > 0:
        take_started(j, sim.clock.now, sim)


@jit
def start(j: int, sim: Arrays) -> bool:
    """Start a job if it fits; return whether it did."""
    if not fits(j, sim):
        return False
    start_fitting(j, sim)
    return True


start_or_preempt = start


@jit
def may_preempt(j: int, sim: Arrays) -> bool:
    """Return False: no job is preempted."""
    return False


awaits_nodes = may_preempt


@jit
def list_preemptors(sim: Arrays) -> int:
    """Return 0: no job may preempt others."""
    return ZERO


@jit
def sort_by_level(size: int, sim: Arrays) -> None:
    """Do nothing: all jobs are of one level."""


@jit
def earliest_start(j: int, not_before: int, sim: Arrays) -> int:
    """Return the earliest time, not before another, from which a job fits."""
    need_plan(sim)
    first = row_at(not_before, sim) if not_before > sim.clock.now else ZERO
    return sim.plan_time[plan_earliest(j, first, sim)]


@jit
def reserve(j: int, not_before: int, sim: Arrays) -> int:
    """Take the earliest span that a job fits out of the plan; return its start."""
    start = earliest_start(j, not_before, sim)
    choose_pools(j, sim)
    plan_take(j, start, sim)
    return start


@jit
def shortage(j: int, sim: Arrays) -> int:
    """Return the shortage that keeps a job from starting.

    It is -1 for none, 0 for nodes, otherwise 1 + the number of a resource.
    """
    if is_skipped(j, sim):
        return 0
    if fits(j, sim):
        return -1
    for c in range(sim.asks.width):
        if sim.low[sim.rules.pools + c] < sim.asks[j, c]:
            return 1 + c
    return 0


@jit
def alignment(j: int, sim: Arrays) -> float:
    """Return the sum over nodes and resources of share requested × share free.

    It is -1 if the job does not fit now.
    """
    if not may_fit(j, sim):
        return -1.0
    pools = sim.rules.pools
    free = 0
    nodes = 0
    for p in range(pools):
        nodes += sim.amount[p]
        free += max(ZERO, sim.stock[p].free)
    total = (sim.job[j].nodes / nodes) * (free / nodes)
    for c in range(sim.asks.width):
        amount = sim.amount[pools + c]
        if amount > 0:
            total += (sim.asks[j, c] / amount) * (sim.stock[pools + c].free / amount)
    return total


@jit
def begin_with_held(sim: Arrays) -> None:
    """Begin a pass in which held reservations are to be loaded."""
    begin_cycle(sim)
    sim.standing.valid = 0
    need_plan(sim)


@jit
def load_held(sim: Arrays) -> bool:
    """Take all held reservations out of the plan; return False if they do not fit it."""
    pools = sim.rules.pools
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held(sim.kept)[j].start
        if start < 0:
            continue
        plan_reach(start + sim.job[j].expected, sim)
        first = plan_split(start, sim)
        last = plan_split(start + sim.job[j].expected, sim)
        load_take(j, sim)
        for row in range(first, last):
            for p in range(pools):
                if sim.take[p] > 0 and sim.plan_amount[row, p] < sim.take[p]:
                    return False
            for c in range(sim.asks.width):
                needed = sim.asks[j, c]
                if needed > 0 and sim.plan_amount[row, pools + c] < needed:
                    return False
        plan_take(j, start, sim)
    return True


@jit
def hold(j: int, sim: Arrays) -> None:
    """Reserve the earliest nodes for a job, and keep the reservation."""
    held(sim.kept)[j].start = reserve(j, ZERO, sim)
    if len(sim.taken) > 0:
        for p in range(sim.rules.pools):
            sim.taken[j, p] = sim.take[p]


@jit
def free_held(j: int, sim: Arrays) -> None:
    """Record that the nodes of a held reservation become free before the next pass."""
    start = held(sim.kept)[j].start
    note_freed(j, start, start + sim.job[j].expected, sim)


@jit
def finds_again(j: int, sim: Arrays) -> bool:
    """Return False: each job searches again."""
    return False


@jit
def give_back_held(j: int, sim: Arrays) -> None:
    """Put a held reservation back into the plan."""
    start = held(sim.kept)[j].start
    load_take(j, sim)
    plan_change(j, start, start + sim.job[j].expected, RETURN, sim)


@jit
def take_held(j: int, sim: Arrays) -> None:
    """Take a held reservation out of the plan."""
    load_take(j, sim)
    plan_take(j, held(sim.kept)[j].start, sim)


@jit
def start_held(j: int, sim: Arrays) -> None:
    """Start a job whose held reservation begins now."""
    now = sim.clock.now
    load_take(j, sim)
    if sim.hooks.place != 0 and sim.rules.pools > 1:
        # A placement that scores nodes chooses the pools when a job starts, not when it reserves.
        plan_change(j, now, now + sim.job[j].expected, RETURN, sim)
        fits(j, sim)
        divide_now(j, sim)
        plan_take(j, now, sim)
    start_job(j, sim)
    if sim.state[j].start > now:
        take_started(j, now + sim.job[j].expected, sim)


@jit
def reserve_rounded(j: int, last: int, step: int, up: int, wide: bool, sim: Arrays) -> int:
    """Take a job's earliest span out of the plan, between multiples of a step."""
    need_plan(sim)
    start = sim.plan_time[plan_earliest(j, ZERO, sim)]
    if start > last:
        return NEVER
    choose_pools(j, sim)
    begin = span_begin(start, step, sim)
    end = span_end(begin, start + sim.job[j].expected, step, up)
    if wide or sim.asks.width == 0:
        plan_change(j, begin, end, TAKE, sim)
        return begin
    first = plan_split(begin, sim)
    for i in range(first, plan_split(end, sim)):
        for p in range(sim.rules.pools):
            sim.plan_amount[i, p] -= sim.take[p]
    return begin
