"""Conservative backfilling: each job gets a reservation that never moves later."""

from __future__ import annotations

from typing import Any

from hpctwin.engine.capacity.availability_profile import is_sound
from hpctwin.engine.capacity.gap_index import find_holes, forget_holes, note_lengths
from hpctwin.engine.capacity.persistent_reservations import (
    Held,
    begin_anew,
    drop_past,
    earlier,
    go_on,
    held,
    new_slot,
    reserve_first,
    take_span,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.transitions import start_job
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.queue.order import order_candidates, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import ALL_RESERVE, WAITING, ZERO, Arrays

__all__ = ["PASS"]


@jit
def give_up(j: int, sim: Arrays) -> None:
    """Free the reservation of a job that has not started; others may move earlier."""
    if held(sim.kept)[j].start >= 0:
        capacity.free_held(j, sim)
        held(sim.kept)[j].start = -1
        sim.clock.came_back = 1


@jit
def reservations_stand(sim: Arrays) -> bool:
    """Return whether no reservation is past; skipped jobs give theirs up."""
    sound = True
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held(sim.kept)[j].start
        if start < 0:
            continue
        if capacity.is_skipped(j, sim):
            give_up(j, sim)
        elif start < sim.clock.now:
            sound = False
    return sound


@jit
def keep_or_reserve(j: int, compress: bool, sim: Arrays) -> bool:
    """Give a job a reservation, unless it is skipped; return whether it has one.

    With ``compress`` it moves to where a search puts it: it gives its reservation back, and reserves
    again.
    """
    skipped = capacity.is_skipped(j, sim)
    if held(sim.kept)[j].start >= 0 and compress and not skipped and capacity.finds_again(j, sim):
        return True
    if held(sim.kept)[j].start >= 0 and (compress or skipped):
        capacity.give_back_held(j, sim)
        held(sim.kept)[j].start = -1
        if skipped:
            sim.clock.came_back = 1
    if skipped:
        return False
    if held(sim.kept)[j].start < 0:
        capacity.hold(j, sim)
    return True


@jit
def give_all_up(sim: Arrays) -> None:
    """Drop the reservations of all pending jobs."""
    for i in range(sim.clock.queued):
        held(sim.kept)[sim.queue[i]].start = -1


@jit
def put_reservations(sim: Arrays) -> bool:
    """Put all reservations into the kept plan; return False if they do not fit."""
    for i in range(sim.clock.queued):
        start = held(sim.kept)[sim.queue[i]].start
        if start < 0:
            continue
        if start < sim.clock.now:
            return False
        take_span(new_slot(sim.queue[i], sim), start, sim)
    return is_sound(sim)


@jit
def stand_anew(sim: Arrays) -> None:
    """Rebuild the kept plan from the running jobs and the reservations.

    If the reservations do not fit, all are dropped.
    """
    begin_anew(sim)
    if not put_reservations(sim):
        give_all_up(sim)
        begin_anew(sim)
    note_lengths(sim)
    find_holes(sim)


@jit
def may_move(compress: bool, sim: Arrays) -> int:
    """List jobs that may move, start or reserve in ``sim.later``; return how many."""
    moving = ZERO
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held(sim.kept)[j].start
        if compress or start <= sim.clock.now:
            sim.later[moving] = j
            moving += 1
        else:
            sim.clock.timer = min(sim.clock.timer, start)
    return moving


def pass_standing(sim: Arrays) -> None:
    """Run the pass with a plan that is kept, where counting nodes decides."""
    reckon_fairshare(sim)
    if sim.standing.valid == 1:
        go_on(sim)
    else:
        stand_anew(sim)
    compress = sim.clock.came_back == 1
    sim.clock.came_back = 0
    changes = sim.rules.order_changes == 1
    moving = may_move(compress, sim)
    if changes:
        order_candidates(moving, sim)
    for n in range(moving, 0, -1):
        if changes:
            j = pop_order(n, sim)
        else:
            j = sim.later[moving - n]
        start = held(sim.kept)[j].start
        if start < 0:
            start = reserve_first(j, sim)
        elif compress:
            start = earlier(j, sim)
        if start > sim.clock.now:
            held(sim.kept)[j].start = start
            sim.clock.timer = min(sim.clock.timer, start)
        else:
            held(sim.kept)[j].start = -1
            sim.stay[sim.slot[j]].start = -1
            drop_past(sim)
            sim.take[0] = sim.job[j].nodes
            start_job(j, sim)
    if compress:
        forget_holes(sim)


@jit
def reserve_for_pass(j: int, sim: Arrays) -> None:
    """Reserve the earliest nodes for a job, until the next pass."""
    capacity.hold(j, sim)
    own = held(sim.kept)[j]
    own.once = own.start
    own.start = -1
    sim.clock.timer = min(sim.clock.timer, own.once)


@jit
def start_preemptors(preemptors: int, sim: Arrays) -> None:
    """Start jobs of ``sim.later`` that may preempt others, as if no other job waited."""
    for i in range(preemptors):
        j = sim.later[i]
        held(sim.kept)[j].once = -1
        if not capacity.is_skipped(j, sim) and not capacity.start_or_preempt(j, sim):
            reserve_for_pass(j, sim)


@jit
def plan_again(preemptors: int, sim: Arrays) -> None:
    """Drop all reservations; those of jobs of ``sim.later`` are made again."""
    give_all_up(sim)
    capacity.begin_pass(sim)
    for i in range(preemptors):
        j = sim.later[i]
        if sim.state[j].phase == WAITING and not capacity.is_skipped(j, sim):
            reserve_for_pass(j, sim)


def pass_conservative(sim: Arrays) -> None:
    """Give each job the earliest nodes that disturb no reservation of another job.

    Jobs that may preempt others come first, and reserve again in each pass.
    """
    stand = reservations_stand(sim)
    capacity.begin_with_held(sim)
    preemptors = capacity.list_preemptors(sim)
    start_preemptors(preemptors, sim)
    if not (stand and capacity.load_held(sim)):
        plan_again(preemptors, sim)
    compress = sim.clock.came_back == 1 or preemptors > 0
    sim.clock.came_back = 0
    size = capacity.order_jobs(sim)
    for i in range(size):
        j = capacity.job_at(i, size, sim)
        if capacity.may_preempt(j, sim) or not keep_or_reserve(j, compress, sim):
            continue
        start = held(sim.kept)[j].start
        if start == sim.clock.now:
            held(sim.kept)[j].start = -1
            capacity.start_held(j, sim)
        else:
            # There may be no other event then: the jobs it waited for may have moved earlier.
            sim.clock.timer = min(sim.clock.timer, start)


def take_reservations(sim: Arrays) -> None:
    """Take the reservations of pending jobs out of a plan that another part builds."""
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        own = held(sim.kept)[j]
        once = own.once
        if once >= 0:
            own.start = once
        if own.start >= 0:
            capacity.take_held(j, sim)
        if once >= 0:
            own.start = -1


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Set the initial state: no job has a reservation."""
    kept["start"] = kept["once"] = -1


PASS = Pass(
    pass_conservative,
    kept=Held,
    begin=begin,
    left=give_up,
    reserved=take_reservations,
    others=ALL_RESERVE,
    counted=pass_standing,
    keeps="it would delay the reservation of a job before it",
)
