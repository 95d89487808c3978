"""PAS: jobs that do not fit are pushed down the queue (Goyal and Pavithra, §III).

docs/reference/adaptive-policies.md lists the points that the paper leaves open, and the choice made for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity, kept_of
from hpctwin.engine.queue.order import before, heap_order, pop_order
from hpctwin.engine.queue.pushdown_lists import (
    ASIDE,
    FRESH,
    LISTS,
    MAIN,
    Push,
    has_gaps,
    list_begin,
    list_empty,
    list_end,
    list_first,
    list_insert,
    list_remove,
    put_aside,
    tidy_slots,
)
from hpctwin.engine.state.layout import NEVER, PENDING, ZERO, Arrays, record_type
from hpctwin.engine.state.records import Count, Int, Limit, Millis, Step

__all__ = ["PASS", "Numbers", "Own"]


class Numbers:
    """Settings of the backfill."""

    # The defaults are those of the PAS paper (§III and §IV).
    parallel: Limit = 2  # maximum number of running jobs
    adjacent: Limit = 1  # maximum distance in priority, in places, of jobs that run at once
    places: Int = 4  # number of places that a blocked job is pushed down
    attempts: Int = 3  # a job pushed down more often than this goes into the waiting queue
    every: Count = 4  # the waiting queue is considered in every N-th cycle
    interval: Step = 1  # time between cycles
    promotion: Millis = 1  # runtime of a dependent job that lifts a job by one place; 0: none does


class Own:
    """State that lasts from one pass to the next."""

    cycle_at: Int  # time of the last cycle; -1: there was none
    told: Int  # number of arrived jobs whose predecessors have been promoted


NAME = "pushdown"
settings, own, kept = view(Numbers), view(Own), view(Push)


@jit
def enter(j: int, sim: Arrays) -> None:
    """Add a job that enters the queue to the new jobs."""
    list_begin(j, FRESH, kept(sim.kept))


@jit
def leave(j: int, sim: Arrays) -> None:
    """Remove a job that leaves the queue from its list."""
    list_remove(j, kept(sim.kept))


@jit
def promote(j: int, runtime: int, sim: Arrays) -> None:
    """Move a job up the main queue, one place per ``promotion`` of a given runtime."""
    promotion = settings(sim.numbers)[0].promotion
    if promotion == 0:
        return
    push = kept(sim.kept)
    places = runtime // promotion
    at = j
    while places > 0 and push[at].previous != list_end(MAIN, push):
        at = push[at].previous
        places -= 1
        push[j].risen += 1
    if at != j:
        list_remove(j, push)
        list_insert(j, MAIN, at, push)


@jit
def push_down(j: int, sim: Arrays) -> None:
    """Move a blocked job some places down the main queue.

    After more than ``attempts`` times it moves to the waiting queue.
    """
    push = kept(sim.kept)
    at = push[j].next
    push[j].pushed += 1
    list_remove(j, push)
    if push[j].pushed > settings(sim.numbers)[0].attempts:
        put_aside(j, push)
        return
    places = settings(sim.numbers)[0].places
    while places > 0 and at != list_end(MAIN, push):
        at = push[at].next
        places -= 1
    list_insert(j, MAIN, at, push)


@jit
def promote_for_new(sim: Arrays) -> None:
    """Promote jobs of the main queue for dependents submitted since the last cycle."""
    push = kept(sim.kept)
    if len(sim.tells) > 0:
        for i in range(own(sim.own)[0].told, sim.clock.arrived):
            j = sim.by_submit[i]
            if sim.state[j].phase != PENDING or sim.state[j].dead == 1 or sim.job[j].thinks == 1:
                continue
            for e in range(sim.job[j].waits_from, sim.job[j].waits_to):
                on = sim.waits[e]
                if push[on].list == MAIN:
                    promote(on, sim.job[j].expected, sim)
    own(sim.own)[0].told = sim.clock.arrived


@jit
def take_in(sim: Arrays) -> None:
    """Put new jobs into the main queue by priority, then promote them for dependents."""
    push = kept(sim.kept)
    n = 0
    j = list_first(FRESH, push)
    while j != list_end(FRESH, push):
        sim.order[n].job = j
        sim.order[n].score = sim.state[j].key
        n += 1
        j = push[j].next
    heap_order(n, sim)
    at = list_first(MAIN, push)
    for left in range(n, 0, -1):
        j = pop_order(left, sim)
        own_key = sim.state[j].key
        while at != list_end(MAIN, push) and not before(own_key, j, sim.state[at].key, at, sim):
            at = push[at].next
        list_remove(j, push)
        list_insert(j, MAIN, at, push)
        sim.later[n - left] = j
    for i in range(n):
        j = sim.later[i]
        for e in range(sim.job[j].tells_from, sim.job[j].tells_to):
            other = sim.tells[e].job
            is_there = sim.state[other].phase == PENDING and sim.job[other].thinks == 0
            if is_there and sim.state[other].dead == 0:
                promote(j, sim.job[other].expected, sim)


@jit
def next_that_fits(slot: int, sim: Arrays) -> int:
    """Return the first slot, from ``slot`` on, of a waiting job that fits; -1 if none."""
    push = kept(sim.kept)
    for i in range(slot, push[list_end(ASIDE, push)].slot):
        j = push[i].slotted
        if j >= 0 and capacity.may_fit(j, sim) and capacity.shortage(j, sim) < 0:
            return i
    return -1


@jit
def place_in_queue(j: int, sim: Arrays) -> int:
    """Return how many jobs of the queue come before a job, which may run already."""
    low = 0
    high = sim.clock.queued
    while low < high:
        middle = (low + high) // 2
        other = sim.queue[middle]
        if other != j and before(sim.state[other].key, other, sim.state[j].key, j, sim):
            low = middle + 1
        else:
            high = middle
    return low


@jit
def is_adjacent(j: int, sim: Arrays) -> bool:
    """Return whether a job is close enough, by priority, to a running job.

    At most ``adjacent - 1`` pending jobs may be between them. It is also true if no job runs, or if
    ``adjacent`` is 0.
    """
    adjacent = settings(sim.numbers)[0].adjacent
    if adjacent == 0 or sim.clock.running == 0:
        return True
    place = place_in_queue(j, sim)
    for r in range(sim.clock.run_first, sim.clock.run_end):
        other = sim.run[r].job
        if other < 0:
            continue
        at = place_in_queue(other, sim)
        if at > place:
            between = at - place - 1
        else:
            between = place - at
            # Jobs that started in this pass are still in the queue.
            if sim.queue[at] == other:
                between -= 1
        if between < adjacent:
            return True
    return False


@jit
def any_waits(sim: Arrays) -> bool:
    """Return whether any job is in the main queue or the waiting queue."""
    push = kept(sim.kept)
    return not (list_empty(ASIDE, push) and list_empty(MAIN, push))


@jit
def wait_for_cycle(changed: bool, sim: Arrays) -> int:
    """Return when the next cycle is.

    After a cycle that changed nothing, it is the next one that considers the waiting queue.
    """
    numbers = settings(sim.numbers)[0]
    cycle = sim.clock.now // numbers.interval + 1
    while not changed and (cycle + 1) % numbers.every != 0:
        cycle += 1
    return cycle * numbers.interval


@jit
def start_preemptors(limit: int, sim: Arrays) -> None:
    """Start jobs that may preempt others, in order, from both lists.

    Nodes are reserved for a job that waits for jobs it preempted.
    """
    for i in range(capacity.list_preemptors(sim)):
        j = sim.later[i]
        if capacity.is_skipped(j, sim):
            continue
        may_run = sim.clock.running < limit and is_adjacent(j, sim)
        if may_run and capacity.start_or_preempt(j, sim):
            list_remove(j, kept(sim.kept))
        elif capacity.awaits_nodes(j, sim):
            capacity.reserve(j, ZERO, sim)


@jit
def start_aside(limit: int, sim: Arrays) -> None:
    """Start each job of the waiting queue that fits, in one scan."""
    push = kept(sim.kept)
    if has_gaps(push):
        tidy_slots(push)
    slot = ZERO
    while sim.clock.running < limit:
        slot = next_that_fits(slot, sim)
        if slot < 0:
            return
        j = push[slot].slotted
        list_remove(j, push)
        capacity.start_fitting(j, sim)


@jit
def start_main(limit: int, sim: Arrays) -> bool:
    """Start or push down the first job of the main queue, repeatedly.

    It stops at a job that was considered at this time already, or is not adjacent to a running one.

    Returns:
        Whether any job was pushed down.
    """
    push = kept(sim.kept)
    now = sim.clock.now
    pushed = False
    while sim.clock.running < limit:
        j = list_first(MAIN, push)
        if j == list_end(MAIN, push) or push[j].looked == now:
            break
        short = capacity.shortage(j, sim)
        if short >= 0:
            push[j].looked = now
            push[j].blocked = short
            push_down(j, sim)
            pushed = True
            continue
        if not is_adjacent(j, sim):
            break
        list_remove(j, push)
        capacity.start_fitting(j, sim)
    return pushed


@jit
def pass_pushdown(sim: Arrays) -> None:
    """Run a cycle if one is due, and set the timer for the next."""
    numbers = settings(sim.numbers)[0]
    now = sim.clock.now
    cycle = now // numbers.interval
    if now % numbers.interval != 0 or own(sim.own)[0].cycle_at == now:
        sim.clock.timer = (cycle + 1) * numbers.interval
        return
    own(sim.own)[0].cycle_at = now
    promote_for_new(sim)
    take_in(sim)
    capacity.begin_pass(sim)
    started = sim.clock.starts
    limit = NEVER if numbers.parallel == 0 else numbers.parallel
    start_preemptors(limit, sim)
    looks = (cycle + 1) % numbers.every == 0 or list_empty(MAIN, kept(sim.kept))
    if looks:
        start_aside(limit, sim)
    pushed = start_main(limit, sim)
    changed = pushed or sim.clock.starts > started
    # After a cycle without changes, only one that considers the waiting queue can change anything.
    may_look = not changed and not looks and sim.clock.running < limit
    if any_waits(sim) and (changed or (may_look and next_that_fits(ZERO, sim) >= 0)):
        sim.clock.timer = min(sim.clock.timer, wait_for_cycle(changed, sim))


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Set the initial state: all lists are empty."""
    own["cycle_at"] = -1
    own["told"] = 0
    for name in kept.dtype.names:
        kept[name] = -1
    kept["pushed"] = kept["risen"] = 0
    ends = np.arange(len(kept) - LISTS, len(kept))
    kept["next"][ends] = kept["previous"][ends] = ends
    kept["slot"][ends] = kept["slotted"][ends] = 0


def move(before: Any, sim: Any, place: Any) -> None:
    """Move the lists to a simulation with other jobs; all jobs in them stay."""
    old, new = kept_of(before, NAME), kept_of(sim, NAME)
    row = np.concatenate([place[: before.jobs], sim.jobs + np.arange(LISTS), [-1]])
    stays = np.flatnonzero(row[:-1] >= 0)
    new[row[stays]] = old[stays]
    for name in ("next", "previous"):
        new[name][row[stays]] = row[old[name][stays]]
    slotted = old["slotted"][: old["slot"][before.jobs + ASIDE]]
    aside = row[slotted[slotted >= 0]]
    new["slotted"][: sim.jobs] = -1
    new["slotted"][: len(aside)] = aside
    new["slot"][aside] = np.arange(len(aside))
    new["slot"][sim.jobs + ASIDE] = len(aside)
    told = sim["own"].view(record_type(Own))["told"]
    told[:] = np.count_nonzero(place[before["by_submit"][: int(told[0])]] >= 0)


PASS = Pass(
    pass_pushdown,
    numbers=Numbers,
    own=Own,
    kept=Push,
    more_rows=LISTS,
    begin=begin,
    move=move,
    entered=enter,
    left=leave,
    keeps="its turn had not come, or its priority was not adjacent to that of a job that ran",
    reservations=lambda numbers, partitions: 0,
)
