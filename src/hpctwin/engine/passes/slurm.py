"""Slurm's scheduler: jobs in order at each event, and backfilling now and then, within bounds.

Names and defaults are those of ``SchedulerParameters`` in slurm.conf(5); the rules are in docs/engine.md.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Count, Int, Limit, Millis, Step, YesNo

__all__ = ["PASS", "Numbers", "Own"]


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
def count_nothing(sim: Arrays) -> None:
    """Begin to count jobs of each partition."""
    for q in range(len(sim.reservations_made)):
        sim.reservations_made[q] = 0


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
def main_cycle(full: bool, sim: Arrays) -> None:
    """Go through jobs in order, down to a depth; start those that fit what no job before them blocks."""
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
def reserve(j: int, sim: Arrays) -> int:
    """Reserve nodes for a job, unless it would start too far ahead; return when the reservation begins."""
    numbers = settings(sim.numbers)[0]
    last = sim.clock.now + numbers.bf_window
    wide = numbers.bf_licenses == 1
    return capacity.reserve_rounded(j, last, numbers.bf_resolution, numbers.bf_round_up, wide, sim)


@jit
def reserve_before(j: int, owed: int, done: int, sim: Arrays) -> int:
    """Make reservations of ``sim.owed`` after the first ``done``, until a job does not fit any more.

    A job that may preempt others has to do so next to all of them.

    Returns:
        How many are made then; one more than ``owed`` if the job may start next to all of them.
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
    """Go through jobs in order: each starts if it fits, or gets a reservation for this cycle.

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
        sim.later[tried] = j  # before the place that `kept_job` has come to
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
    """Run the main cycle if jobs may be looked at, then a backfill cycle if one is due."""
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
    """Nothing has been looked at yet."""
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
