"""Conservative backfilling: every job holds a reservation that never moves to a later time."""

from __future__ import annotations

from typing import Any

from numba import int64, types

from hpctwin.engine.capacity.availability_profile import is_sound
from hpctwin.engine.capacity.gap_index import find_holes, forget_holes, note_lengths
from hpctwin.engine.capacity.persistent_reservations import (
    begin_anew,
    drop_past,
    earlier,
    go_on,
    new_slot,
    reserve_first,
    take_span,
)
from hpctwin.engine.capacity.plan import (
    fits_plan,
    load_take,
    note_freed,
    plan_build,
    plan_change,
    plan_reach,
    plan_split,
    plan_take,
    reserve,
)
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.jobs.transitions import divide_now, start_job, take_started
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import order_candidates, order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import ALL_RESERVE, RETURN, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Held"]


class Held:
    """What is kept of each job."""

    start: Int  # of its reservation; -1 without


held = view(Held)


@jit
def give_up(j: int, sim: Arrays) -> None:
    """A job gives its reservation up without having started; others may move to an earlier time."""
    if held(sim.kept)[j].start >= 0:
        start = held(sim.kept)[j].start
        note_freed(j, start, start + sim.job[j].expected, sim)
        held(sim.kept)[j].start = -1
        sim.clock.came_back = 1


@jit
def load_reservations(sim: Arrays) -> bool:
    """Take all reservations out of the plan; False if they do not fit it."""
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
def reservations_stand(sim: Arrays) -> bool:
    """Whether all reservations lie ahead; jobs that are skipped give theirs up."""
    sound = True
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held(sim.kept)[j].start
        if start < 0:
            continue
        if is_skipped(j, sim):
            give_up(j, sim)
        elif start < sim.clock.now:
            sound = False
    return sound


@jit
def keep_or_reserve(j: int, compress: bool, sim: Arrays) -> bool:
    """Give a job its reservation, if it is not skipped; whether it has one."""
    skipped = is_skipped(j, sim)
    start = held(sim.kept)[j].start
    if start >= 0 and (compress or skipped):
        load_take(j, sim)
        plan_change(j, start, start + sim.job[j].expected, RETURN, sim)
        held(sim.kept)[j].start = -1
        if skipped:
            sim.clock.came_back = 1
    if skipped:
        return False
    if held(sim.kept)[j].start < 0:
        held(sim.kept)[j].start = reserve(j, sim)
        if sim.rules.pools > 1:
            for p in range(sim.rules.pools):
                sim.taken[j, p] = sim.take[p]
    return True


@jit
def divide_anew(j: int, sim: Arrays) -> None:
    """A placement that scores nodes chooses the pools when a job starts, not when it reserves."""
    plan_change(j, sim.clock.now, sim.clock.now + sim.job[j].expected, RETURN, sim)
    fits_plan(j, sim)
    divide_now(j, sim)
    plan_take(j, sim.clock.now, sim)


@jit
def give_all_up(sim: Arrays) -> None:
    """No job that waits has a reservation any more."""
    for i in range(sim.clock.queued):
        held(sim.kept)[sim.queue[i]].start = -1


@jit
def put_reservations(sim: Arrays) -> bool:
    """Put all reservations into the plan that stands; False if they do not fit it."""
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
    """Make the plan that stands of those that run, and of the reservations there are."""
    begin_anew(sim)
    if not put_reservations(sim):
        give_all_up(sim)
        begin_anew(sim)
    note_lengths(sim)
    find_holes(sim)


@jit
def may_move(compress: bool, sim: Arrays) -> int:
    """Put those who may move, start or get a reservation into ``sim.later``; how many they are."""
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
    """The pass by a plan that is kept from pass to pass: where counting nodes decides."""
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


def pass_conservative(sim: Arrays) -> None:
    """Each job takes the earliest span that disturbs no other's reservation.

    By a plan that is made anew: several pools, resources, maintenance, jobs that are skipped.
    """
    sim.standing.valid = 0
    reckon_fairshare(sim)
    plan_build(sim)
    if not (reservations_stand(sim) and load_reservations(sim)):
        give_all_up(sim)
        plan_build(sim)
    compress = sim.clock.came_back == 1
    sim.clock.came_back = 0
    for n in range(order_queue(sim), 0, -1):
        j = pop_order(n, sim)
        if not keep_or_reserve(j, compress, sim):
            continue
        start = held(sim.kept)[j].start
        if start == sim.clock.now:
            load_take(j, sim)
            held(sim.kept)[j].start = -1
            if sim.hooks.place != 0 and sim.rules.pools > 1:
                divide_anew(j, sim)
            start_job(j, sim)
            if sim.state[j].start > sim.clock.now:
                take_started(j, sim.clock.now + sim.job[j].expected, sim)
        else:
            # No other event need come then: those it waited for may have moved to earlier times.
            sim.clock.timer = min(sim.clock.timer, start)


def take_reservations(sim: Arrays) -> None:
    """Take what waiting jobs hold out of the plan."""
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held(sim.kept)[j].start
        if start >= 0:
            load_take(j, sim)
            plan_take(j, start, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """No reservation has been made yet."""
    kept["start"] = -1


PASS = Pass(
    Kernel(pass_conservative, types.void(SIM)),
    kept=Held,
    begin=begin,
    left=Kernel(give_up, types.void(int64, SIM)),
    reserved=Kernel(take_reservations, types.void(SIM)),
    others=ALL_RESERVE,
    counted=Kernel(pass_standing, types.void(SIM)),
    keeps="it would delay the reservation of a job before it",
    shared="hpctwin.engine.shared.passes.conservative",
)
