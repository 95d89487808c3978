"""Slurm's scheduler: jobs in order at each event, and backfilling now and then, within bounds.

Names and defaults are those of ``SchedulerParameters`` in slurm.conf(5); the rules are in docs/engine.md.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hpctwin.engine.capacity.maintenance_windows import maintenance_is_over
from hpctwin.engine.capacity.plan import (
    choose_pools,
    fits_at_once,
    fits_plan,
    holds,
    plan_build,
    plan_change,
    plan_earliest,
    plan_split,
)
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.fast_passes.incremental_order import is_kept
from hpctwin.engine.jobs.transitions import divide_now, start_job, take_started
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import LINED, NEVER, TAKE, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Count, Int, Limit, Millis, Step, YesNo

__all__ = ["PASS", "Numbers", "Own", "begin"]


class Numbers:
    """What a policy may set, as slurm.conf has it."""

    default_queue_depth: Limit = 100  # so many jobs are looked at when something happens
    partition_job_depth: Limit = 0  # so many of each partition
    sched_interval: Step = 60_000  # time from one look at all jobs to the next
    sched_min_interval: Millis = 0  # time from one look to the next, at least
    batch_sched_delay: Millis = 3_000  # … if no job was submitted since
    bf_interval: Step = 30_000  # time from one backfill cycle to the next
    bf_window: Millis = 86_400_000  # who would start later than so far ahead has no reservation
    bf_resolution: Step = 60_000  # reservations begin and end at multiples of this
    bf_round_up: YesNo = 1  # reservations end at the next multiple (25.05 on), else at the last
    bf_max_job_test: Count = 500  # so many jobs are tried in a cycle
    bf_max_job_user: Limit = 0  # so many of each user
    bf_max_job_start: Limit = 0  # so many start in a cycle
    bf_job_part_count_reserve: Limit = 0  # so many jobs of each partition have a reservation
    bf_min_age_reserve: Millis = 0  # who waits for less than this is passed by others
    bf_licenses: YesNo = (
        0  # who lacks a resource of the cluster has a reservation, and is not passed by
    )


class Own:
    """What is kept."""

    looked_at: Int  # when jobs were last looked at in order
    full_at: Int  # when all were
    cycle_at: Int  # when the last backfill cycle was
    told: Int  # so many jobs had been submitted when jobs were last looked at


settings, own = view(Numbers), view(Own)


@jit
def is_due(interval: int, last: int, sim: Arrays) -> bool:
    """Whether now is a multiple of an interval at which nothing was done yet."""
    return sim.clock.now % interval == 0 and last != sim.clock.now


@jit
def next_multiple(interval: int, sim: Arrays) -> int:
    """The first multiple of an interval after now."""
    return (sim.clock.now // interval + 1) * interval


@jit
def look_from(sim: Arrays) -> int:
    """From when on jobs may be looked at in order."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    apart = numbers.sched_min_interval
    if mine.told == sim.clock.submitted:
        apart = max(apart, numbers.batch_sched_delay)
    return mine.looked_at + apart


@jit
def depth_of(full: bool, sim: Arrays) -> int:
    """How many jobs are looked at."""
    depth = settings(sim.numbers)[0].default_queue_depth
    return NEVER if full or depth == 0 else depth


@jit
def begin_look(full: bool, sim: Arrays) -> None:
    """Jobs are looked at in order: no partition's turn is over yet, and nothing is blocked."""
    mine = own(sim.own)[0]
    mine.looked_at = sim.clock.now
    mine.told = sim.clock.submitted
    if full:
        mine.full_at = sim.clock.now
    open_all(sim)


@jit
def open_all(sim: Arrays) -> None:
    """Nothing of any partition has been counted, and no pool is blocked."""
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0
    for c in range(len(sim.blocked)):
        sim.blocked[c] = 0


@jit
def takes_part(j: int, sim: Arrays) -> bool:
    """Whether a job's partition is not blocked, nor its depth reached; counts the job."""
    q = sim.partition[sim.job[j].kind]
    most = settings(sim.numbers)[0].partition_job_depth
    if sim.reservations_made[q] < 0 or (most > 0 and sim.reservations_made[q] >= most):
        return False
    sim.reservations_made[q] += 1
    return True


@jit
def lacks_licence(j: int, sim: Arrays) -> bool:
    """Whether of a resource that all nodes have together less is free now than a job asks for."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.stock[sim.rules.pools + c].free < sim.asks[j, c]:
            return True
    return False


@jit
def waits_for_licence(j: int, sim: Arrays) -> bool:
    """Whether jobs pass by one that lacks a licence, as if it were not there."""
    return settings(sim.numbers)[0].bf_licenses == 0 and lacks_licence(j, sim)


@jit
def ends_look(j: int, sim: Arrays) -> bool:
    """Whether nobody after a job is looked at, which lacks a licence that the cycles plan with."""
    return settings(sim.numbers)[0].bf_licenses == 1 and lacks_licence(j, sim)


@jit
def is_young(j: int, sim: Arrays) -> bool:
    """Whether a job waits for so short a time that others may pass it."""
    waited = sim.clock.now - sim.state[j].eligible
    return waited < settings(sim.numbers)[0].bf_min_age_reserve


@jit
def block(j: int, sim: Arrays) -> bool:
    """A job that does not fit blocks its partition and its pools; whether any pool is left."""
    kind = sim.job[j].kind
    sim.reservations_made[sim.partition[kind]] = -1
    left = False
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0:
            sim.blocked[p] = 1
        elif sim.blocked[p] == 0:
            left = True
    return left


@jit
def only_grows(sim: Arrays) -> bool:
    """Whether what is free only grows from now on, as far as is planned: then who fits now fits."""
    return maintenance_is_over(sim) and sim.clock.unpowered == 0


@jit
def jobs_in_order(sim: Arrays) -> int:
    """Have `nth` give all that wait, in the ordering's order; how many."""
    if sim.rules.order_changes == 0:
        return sim.clock.queued
    return sim.race.seated if is_kept(sim) else order_queue(sim)


@jit
def nth(i: int, size: int, sim: Arrays) -> int:
    """The job at a place of the order; asked one after the other."""
    if sim.rules.order_changes == 0:
        return sim.queue[i]
    return sim.racer[i].job if sim.race.valid == LINED else pop_order(size - i, sim)


@jit
def fits_unblocked(j: int, planned: bool, sim: Arrays) -> bool:
    """Whether a job fits what nobody blocks: by the plan, if there is one."""
    pools = sim.rules.pools
    for c in range(len(sim.low)):
        sim.low[c] = sim.stock[c].free
    for p in range(pools):
        if sim.blocked[p] == 1:
            sim.low[p] = 0
    return holds(j, sim) and (not planned or fits_plan(j, sim))


@jit
def start(j: int, planned: bool, sim: Arrays) -> None:
    """Start a job that fits (``sim.low``); take it out of the plan, if there is one."""
    divide_now(j, sim)
    start_job(j, sim)
    if planned:
        take_started(j, sim.clock.now, sim)


@jit
def look(full: bool, sim: Arrays) -> None:
    """Jobs in order, down to a depth; each starts if it fits what no job before it blocks."""
    begin_look(full, sim)
    if not may_start(sim):
        return
    planned = not only_grows(sim)
    if planned:
        plan_build(sim)
    size = jobs_in_order(sim)
    for i in range(min(size, depth_of(full, sim))):
        j = nth(i, size, sim)
        if not takes_part(j, sim) or is_skipped(j, sim) or waits_for_licence(j, sim):
            continue
        if ends_look(j, sim):
            return
        if fits_unblocked(j, planned, sim):
            start(j, planned, sim)
        elif not is_young(j, sim):
            if not block(j, sim):
                return
            for row in range(sim.plan_rows[0] if planned else 0):
                for p in range(sim.rules.pools):
                    if sim.blocked[p] == 1:
                        sim.plan_amount[row, p] = min(ZERO, sim.plan_amount[row, p])


@jit
def may_be_tried(j: int, tried: int, sim: Arrays) -> bool:
    """Whether fewer jobs of the user than may be are among those tried in this cycle (``sim.later``)."""
    most = settings(sim.numbers)[0].bf_max_job_user
    user = sim.job[j].user
    if most == 0 or user == 0:
        return True
    same = 0
    for i in range(tried):
        if sim.job[sim.later[i]].user == user:
            same += 1
    return same < most


@jit
def may_reserve(j: int, sim: Arrays) -> bool:
    """Whether a job that does not fit may have a reservation; counts it."""
    if is_young(j, sim):
        return False
    most = settings(sim.numbers)[0].bf_job_part_count_reserve
    q = sim.partition[sim.job[j].kind]
    if most > 0 and sim.reservations_made[q] >= most:
        return False
    sim.reservations_made[q] += 1
    return True


@jit
def span_begin(start: int, sim: Arrays) -> int:
    """Where a reservation begins whose job would start at a time."""
    resolution = settings(sim.numbers)[0].bf_resolution
    return max(sim.clock.now, start // resolution * resolution)


@jit
def span_end(begin: int, end: int, sim: Arrays) -> int:
    """Where a reservation ends that begins at a time and whose job would end at another."""
    numbers = settings(sim.numbers)[0]
    step = numbers.bf_resolution
    more = step - 1 if numbers.bf_round_up == 1 else ZERO
    return max((end + more) // step * step, begin + step)


@jit
def keep_nodes(begin: int, end: int, sim: Arrays) -> None:
    """Take nodes (``sim.take``) out of a span of the plan, and nothing else that a job asks for."""
    first = plan_split(begin, sim)
    for i in range(first, plan_split(end, sim)):
        for p in range(sim.rules.pools):
            sim.plan_amount[i, p] -= sim.take[p]


@jit
def reserve_coarsely(j: int, sim: Arrays) -> int:
    """Take a job's earliest span out of the plan, unless it lies too far ahead; where it begins then."""
    start = sim.plan_time[plan_earliest(j, sim)]
    if start > sim.clock.now + settings(sim.numbers)[0].bf_window:
        return NEVER
    choose_pools(j, sim)
    begin = span_begin(start, sim)
    end = span_end(begin, start + sim.job[j].expected, sim)
    if settings(sim.numbers)[0].bf_licenses == 1 or sim.asks.width == 0:
        plan_change(j, begin, end, TAKE, sim)
    else:
        keep_nodes(begin, end, sim)
    return begin


@jit
def fits_beside(j: int, owed: int, done: int, sim: Arrays) -> int:
    """Make those reservations that are owed, until one keeps a job from starting; how many are made then.

    One more than are owed, if none keeps it.
    """
    ends = sim.clock.now + sim.job[j].expected
    fits = fits_plan(j, sim)
    while fits and done < owed:
        begins = reserve_coarsely(sim.stack[done], sim)
        done += 1
        if begins < ends or done == owed:
            fits = fits_plan(j, sim)
    return done + 1 if fits else done


@jit
def backfill(sim: Arrays) -> None:
    """One cycle: jobs in order; each starts if it fits, or has a reservation for this cycle.

    Reservations matter only to a job that could start without them: they are made (``sim.stack``) when
    there is one.
    """
    numbers = settings(sim.numbers)[0]
    if not may_start(sim):
        return
    open_all(sim)
    planned = False
    tried = ZERO
    owed = ZERO
    done = ZERO
    started = ZERO
    size = jobs_in_order(sim)
    for i in range(size):
        j = nth(i, size, sim)
        if sim.state[j].phase != WAITING or is_skipped(j, sim) or waits_for_licence(j, sim):
            continue
        if not may_be_tried(j, tried, sim):
            continue
        if tried == numbers.bf_max_job_test:
            return
        sim.later[tried] = j
        tried += 1
        if fits_at_once(j, sim):
            if not planned:
                plan_build(sim)
                planned = True
            done = fits_beside(j, owed, done, sim)
            if done > owed:
                done = owed
                start(j, planned, sim)
                started += 1
                if started == numbers.bf_max_job_start:
                    return
                continue
        if may_reserve(j, sim):
            sim.stack[owed] = j
            owed += 1


@jit
def set_timers(looks: bool, full: bool, cycle: bool, changed: bool, sim: Arrays) -> None:
    """Make instants of the times at which jobs are looked at though nothing happens."""
    numbers = settings(sim.numbers)[0]
    timer = NEVER
    if not looks:
        timer = look_from(sim)
    if sim.clock.queued > depth_of(full, sim):
        timer = min(timer, next_multiple(numbers.sched_interval, sim))
    if changed or not cycle:
        timer = min(timer, next_multiple(numbers.bf_interval, sim))
    sim.clock.timer = min(sim.clock.timer, timer)


def pass_slurm(sim: Arrays) -> None:
    """Jobs in order if they may be looked at, then a backfill cycle if one is due."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    reckon_fairshare(sim)
    started = sim.clock.starts
    full = is_due(numbers.sched_interval, mine.full_at, sim)
    looks = full or look_from(sim) <= sim.clock.now
    if looks:
        look(full, sim)
    cycle = is_due(numbers.bf_interval, mine.cycle_at, sim)
    if cycle:
        mine.cycle_at = sim.clock.now
        backfill(sim)
    set_timers(looks, full, cycle, sim.clock.starts > started, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nothing has been looked at yet."""
    own["looked_at"] = -NEVER // 2
    own["full_at"] = own["cycle_at"] = -1
    own["told"] = 0


PASS = Pass(
    Kernel(pass_slurm, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    keeps="no cycle had come yet, or it would delay the reservation of a job before it",
    shared="hpctwin.engine.shared.passes.slurm",
    by_node="hpctwin.engine.slurm_by_node",
)
