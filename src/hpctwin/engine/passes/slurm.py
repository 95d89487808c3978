"""Slurm's scheduler: bounded main cycles at events and periodic backfill cycles.

Names and defaults are those of ``SchedulerParameters`` in slurm.conf(5); the rules are in
docs/reference/rules/backfills.md.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Count, Int, Limit, Millis, Step, YesNo

__all__ = ["PASS", "Numbers", "Own"]


class Numbers:
    """Settings of the backfill, as slurm.conf names them."""

    default_queue_depth: Limit = 100  # number of jobs that a main cycle considers
    partition_job_depth: Limit = 0  # number of jobs of each partition that a main cycle considers
    sched_interval: Step = 60_000  # time between main cycles that consider all jobs
    sched_min_interval: Millis = 0  # minimum time between main cycles
    batch_sched_delay: Millis = 3_000  # minimum time between main cycles without new jobs
    bf_interval: Step = 30_000  # time between backfill cycles
    bf_window: Millis = 86_400_000  # how far ahead a job with a reservation may start
    bf_resolution: Step = 60_000  # reservations begin and end at multiples of this
    bf_round_up: YesNo = 1  # reservations end at the next multiple (25.05 on), else at the last
    bf_max_job_test: Count = 500  # number of jobs tried in a backfill cycle
    bf_max_job_user: Limit = 0  # number of jobs of each user tried in a backfill cycle
    bf_max_job_start: Limit = 0  # number of jobs started in a backfill cycle
    bf_job_part_count_reserve: Limit = 0  # number of jobs of each partition with reservations
    bf_min_age_reserve: Millis = 0  # other jobs may pass one that has waited for less than this
    bf_licenses: YesNo = (
        0  # a job that lacks a cluster-wide resource is not skipped: it gets a reservation
    )


class Own:
    """State that lasts from one pass to the next."""

    looked_at: Int  # time of the last main cycle
    full_at: Int  # time of the last one that considered all jobs
    cycle_at: Int  # time of the last backfill cycle
    told: Int  # number of jobs submitted up to the last main cycle


settings, own = view(Numbers), view(Own)


@jit
def is_due(interval: int, last: int, sim: Arrays) -> bool:
    """Return whether now is a multiple of an interval that has not been used yet."""
    return sim.clock.now % interval == 0 and last != sim.clock.now


@jit
def next_multiple(interval: int, sim: Arrays) -> int:
    """Return the first multiple of an interval after now."""
    return (sim.clock.now // interval + 1) * interval


@jit
def look_from(sim: Arrays) -> int:
    """Return the earliest time of the next main cycle."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    apart = numbers.sched_min_interval
    if mine.told == sim.clock.submitted:
        apart = max(apart, numbers.batch_sched_delay)
    return mine.looked_at + apart


@jit
def depth_of(full: bool, sim: Arrays) -> int:
    """Return how many jobs the main cycle considers."""
    depth = settings(sim.numbers)[0].default_queue_depth
    return NEVER if full or depth == 0 else depth


@jit
def count_nothing(sim: Arrays) -> None:
    """Reset the counts of jobs of each partition."""
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0


@jit
def takes_part(j: int, sim: Arrays) -> bool:
    """Return whether a partition is neither blocked nor full; if so, count the job."""
    q = sim.partition[sim.job[j].kind]
    most = settings(sim.numbers)[0].partition_job_depth
    if sim.reservations_made[q] < 0 or (most > 0 and sim.reservations_made[q] >= most):
        return False
    sim.reservations_made[q] += 1
    return True


@jit
def lacks_licence(j: int, sim: Arrays) -> bool:
    """Return whether a job requests more of a cluster-wide resource than is free."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.stock[sim.rules.pools + c].free < sim.asks[j, c]:
            return True
    return False


@jit
def waits_for_licence(j: int, sim: Arrays) -> bool:
    """Return whether a job is skipped because it lacks a license."""
    return settings(sim.numbers)[0].bf_licenses == 0 and lacks_licence(j, sim)


@jit
def ends_look(j: int, sim: Arrays) -> bool:
    """Return whether a job ends the main cycle: it lacks a license that cycles plan."""
    return settings(sim.numbers)[0].bf_licenses == 1 and lacks_licence(j, sim)


@jit
def is_young(j: int, sim: Arrays) -> bool:
    """Return whether a job has waited for so short a time that others may pass it."""
    waited = sim.clock.now - sim.state[j].eligible
    return waited < settings(sim.numbers)[0].bf_min_age_reserve


@jit
def main_cycle(full: bool, sim: Arrays) -> None:
    """Go through jobs in order, down to a depth; start jobs that fit.

    A job that does not fit blocks its partition and its pools for later jobs, unless it is young.
    """
    mine = own(sim.own)[0]
    mine.looked_at = sim.clock.now
    mine.told = sim.clock.submitted
    if full:
        mine.full_at = sim.clock.now
    count_nothing(sim)
    if not capacity.any_may_start(sim):
        return
    size = capacity.keep_order(sim)
    for i in range(min(size, depth_of(full, sim))):
        j = capacity.kept_job(i, size, sim)
        if not takes_part(j, sim) or capacity.is_skipped(j, sim) or waits_for_licence(j, sim):
            continue
        if ends_look(j, sim):
            return
        tries = capacity.may_fit(j, sim) or capacity.may_preempt(j, sim)
        if not (tries and capacity.start_or_preempt(j, sim)) and not is_young(j, sim):
            sim.reservations_made[sim.partition[sim.job[j].kind]] = -1
            if not capacity.block(j, sim):
                return


@jit
def may_be_tried(j: int, tried: int, sim: Arrays) -> bool:
    """Return whether a user may have one more job tried (``sim.later``) in this cycle."""
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
    """Return whether a job that does not fit may have a reservation; if so, count it."""
    if is_young(j, sim):
        return False
    most = settings(sim.numbers)[0].bf_job_part_count_reserve
    q = sim.partition[sim.job[j].kind]
    if most > 0 and sim.reservations_made[q] >= most:
        return False
    sim.reservations_made[q] += 1
    return True


@jit
def reserve(j: int, sim: Arrays) -> int:
    """Reserve nodes for a job, unless it would start too far ahead.

    Returns:
        Begin of the reservation; NEVER if none was made.
    """
    numbers = settings(sim.numbers)[0]
    last = sim.clock.now + numbers.bf_window
    wide = numbers.bf_licenses == 1
    return capacity.reserve_rounded(j, last, numbers.bf_resolution, numbers.bf_round_up, wide, sim)


@jit
def reserve_before(j: int, owed: int, done: int, sim: Arrays) -> int:
    """Make owed reservations, after the first ``done``, until a job no longer fits.

    A job that may preempt others must do so next to all of these reservations.

    Returns:
        Number of reservations made; ``owed + 1`` if the job may start next to all of them.
    """
    preempts = capacity.may_preempt(j, sim)
    ends = sim.clock.now + sim.job[j].expected
    while preempts or capacity.fits(j, sim):
        if done == owed:
            return done + 1
        begins = NEVER
        while done < owed and (preempts or begins >= ends):
            begins = reserve(sim.owed[done], sim)
            done += 1
    return done


@jit
def backfill_cycle(sim: Arrays) -> None:
    """Try jobs in order: each starts if it fits, or gets a reservation for this cycle.

    Reservations matter only to a job that could start without them, and are made when there is one.
    """
    numbers = settings(sim.numbers)[0]
    if not capacity.any_may_start(sim):
        return
    count_nothing(sim)
    tried = ZERO
    owed = ZERO
    done = ZERO
    started = ZERO
    size = capacity.keep_order(sim)
    for i in range(size):
        j = capacity.kept_job(i, size, sim)
        if sim.state[j].phase != WAITING or capacity.is_skipped(j, sim):
            continue
        if waits_for_licence(j, sim) or not may_be_tried(j, tried, sim):
            continue
        if tried == numbers.bf_max_job_test:
            return
        sim.later[tried] = j  # before the place that `kept_job` has reached
        tried += 1
        if capacity.may_fit(j, sim) or capacity.may_preempt(j, sim):
            done = reserve_before(j, owed, done, sim)
            if done > owed:
                done = owed
                if capacity.start_or_preempt(j, sim):
                    started += 1
                    if started == numbers.bf_max_job_start:
                        return
                    continue
        if may_reserve(j, sim):
            sim.owed[owed] = j
            owed += 1


@jit
def set_timers(looks: bool, full: bool, cycle: bool, changed: bool, sim: Arrays) -> None:
    """Set the timer for the next cycle that is due without an event."""
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
    """Run the main cycle if it may run, then a backfill cycle if one is due."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    started = sim.clock.starts
    full = is_due(numbers.sched_interval, mine.full_at, sim)
    looks = full or look_from(sim) <= sim.clock.now
    cycle = is_due(numbers.bf_interval, mine.cycle_at, sim)
    if looks:
        capacity.begin_pass(sim)
        main_cycle(full, sim)
    if cycle:
        mine.cycle_at = sim.clock.now
        if looks:
            capacity.begin_cycle(sim)
        else:
            capacity.begin_pass(sim)
        backfill_cycle(sim)
    set_timers(looks, full, cycle, sim.clock.starts > started, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Set the initial state: there was no cycle yet."""
    own["looked_at"] = -NEVER // 2
    own["full_at"] = own["cycle_at"] = -1
    own["told"] = 0


PASS = Pass(
    pass_slurm,
    numbers=Numbers,
    own=Own,
    begin=begin,
    keeps="no cycle had come yet, or it would delay the reservation of a job before it",
    reservations=lambda numbers, partitions: numbers["bf_max_job_test"],
    by_node=True,
)
