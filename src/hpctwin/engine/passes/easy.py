"""EASY: the first jobs that do not fit get reservations; no other job delays them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import HEAD_IS_PROTECTED, NEVER, ZERO, Arrays
from hpctwin.engine.state.records import Count

if TYPE_CHECKING:
    from hpctwin.engine.queue.order import order_candidates, pop_order, reckon_fairshare
    from hpctwin.engine.queue.priority_tournament import (
        first_fitting,
        hide,
        ready,
        remove,
        shift_labels,
        show,
    )
    from hpctwin.engine.shared.fit import is_longer
    from hpctwin.engine.shared.reservations.kind_bounds import (
        bound_kind,
        list_begins,
        search_all_kinds,
        search_kinds_that_fit,
    )

__all__ = ["PASS", "Numbers", "pass_easy"]


class Numbers:
    """Settings of the backfill."""

    reservations: Count = 1  # number of protected jobs per partition


settings = view(Numbers)


@jit
def open_partitions(sim: Arrays) -> int:
    """Return how many partitions have pending jobs; each may make all reservations."""
    made = sim.reservations_made
    if len(made) == 1:
        made[0] = 0
        return 1
    found = 0
    for q in range(len(made)):
        made[q] = -1
    for i in range(sim.clock.queued):
        q = sim.partition[sim.job[sim.queue[i]].kind]
        if made[q] < 0:
            made[q] = 0
            found += 1
    return found


@jit
def reserve_owed(owed: int, sim: Arrays) -> int:
    """Make the first ``owed`` reservations of ``sim.owed``; return 0: none is left.

    Reservations matter only to a job that could start without them. Most passes have no such job,
    and make none.
    """
    for i in range(owed):
        capacity.reserve(sim.owed[i], ZERO, sim)
    return ZERO


@jit
def try_candidate(j: int, owed: int, sim: Arrays) -> int:
    """Start a candidate that may fit, if it delays no reservation.

    Returns:
        Number of reservations still to be made; -1 if no job can start any more.
    """
    if capacity.is_skipped(j, sim):
        return owed
    reserve_owed(owed, sim)
    if capacity.start(j, sim) and not capacity.any_may_start(sim):
        return ZERO - 1
    return ZERO


@jit
def start_sorted_candidates(later: int, first: int, owed: int, sim: Arrays) -> None:
    """Start candidates in the order of the queue.

    Args:
        later: Number of jobs of ``sim.later`` that come before the rest.
        first: Place where the rest of the queue begins.
        owed: Number of reservations still to be made.
        sim: Simulation.
    """
    for i in range(later):
        if capacity.may_fit(sim.later[i], sim):
            owed = try_candidate(sim.later[i], owed, sim)
        if owed < 0:
            return
    i = capacity.next_candidate(first, sim)
    while i < sim.clock.queued and owed >= 0:
        owed = try_candidate(sim.queue[i], owed, sim)
        i = capacity.next_candidate(i + 1, sim)


@jit
def start_candidates(later: int, first: int, size: int, owed: int, sim: Arrays) -> None:
    """Start candidates in the candidates' separate order.

    Args:
        later: Number of jobs of ``sim.later`` that come before the rest.
        first: Number of jobs in order before the rest.
        size: Number of jobs in order.
        owed: Number of reservations still to be made.
        sim: Simulation.
    """
    kept = ZERO
    for i in range(later + size - first):
        j = sim.later[i] if i < later else capacity.job_left(i - later, first, sim)
        if capacity.may_fit(j, sim):
            sim.later[kept] = j
            kept += 1
    order_candidates(kept, sim)
    for left in range(kept, 0, -1):
        j = pop_order(left, sim)
        if capacity.may_fit(j, sim):
            owed = try_candidate(j, owed, sim)
        if owed < 0:
            return


@jit
def pass_easy(sim: Arrays) -> None:
    """Start jobs in order until partitions have their reservations; then candidates."""
    capacity.begin_pass(sim)
    if not capacity.any_may_start(sim):
        return
    reservations = settings(sim.numbers)[0].reservations
    still_open = open_partitions(sim) if reservations > 0 else ZERO
    size = capacity.order_jobs(sim)
    first = ZERO
    later = ZERO
    owed = ZERO
    while first < size and still_open > 0:
        j = capacity.job_at(first, size, sim)
        first += 1
        q = sim.partition[sim.job[j].kind]
        if sim.reservations_made[q] >= reservations:
            sim.later[later] = j
            later += 1
            continue
        if capacity.is_skipped(j, sim):
            continue
        if capacity.may_fit(j, sim) or capacity.may_preempt(j, sim):
            owed = reserve_owed(owed, sim)
            if capacity.start_or_preempt(j, sim):
                if not capacity.any_may_start(sim):
                    return
                continue
        sim.owed[owed] = j
        owed += 1
        sim.reservations_made[q] += 1
        if sim.reservations_made[q] == reservations:
            still_open -= 1
    if capacity.is_sorted(sim):
        start_sorted_candidates(later, first, owed, sim)
    else:
        start_candidates(later, first, size, owed, sim)


@jit
def start_raced(reservations: int, sim: Arrays) -> int:
    """Start jobs and candidates that a tournament finds, in order.

    Returns:
        Number of jobs that were hidden from the tournament; their leaves are in ``sim.later``.
    """
    hidden = ZERO
    owed = ZERO
    search_all_kinds(sim)
    last = len(sim.tried)
    length: int = NEVER
    begins = ZERO
    while True:
        leaf = first_fitting(last, NEVER, length, sim)
        if leaf == 0:
            return hidden
        j = sim.racer[leaf].job
        tried = sim.tried[sim.job[j].kind]
        if capacity.is_skipped(j, sim) or (reservations == 0 and not capacity.may_fit(j, sim)):
            tried.below = 0
            continue
        if capacity.may_fit(j, sim):
            owed = reserve_owed(owed, sim)
            if capacity.start(j, sim):
                remove(leaf, sim)
                if not capacity.any_may_start(sim):
                    return hidden
                continue
        if reservations == 0 and is_longer(j, sim):
            bound_kind(sim.job[j].kind, begins, sim)
            continue
        # The kind of the job does not say that it was tried.
        hide(leaf, sim)
        sim.later[hidden] = leaf
        hidden += 1
        if reservations > 0:
            sim.owed[owed] = j
            owed += 1
            reservations -= 1
            if reservations == 0:
                owed = reserve_owed(owed, sim)
                begins = list_begins(sim)
                last, length = search_kinds_that_fit(begins, sim)


def pass_raced(sim: Arrays) -> None:
    """Do the same as `pass_easy` with one partition of shared nodes and no limits.

    A tournament finds the next job.
    """
    if len(sim.tried) >= sim.clock.queued:
        return  # a scan of all jobs is as fast
    capacity.begin_pass(sim)
    sim.race.done = 1
    if not capacity.any_may_start(sim):
        return
    if not ready(sim):
        sim.race.done = 0
        return
    if sim.rules.fairshare == 1:
        reckon_fairshare(sim)
        shift_labels(sim.racer[1].job, sim)
    hidden = start_raced(settings(sim.numbers)[0].reservations, sim)
    for i in range(hidden):
        show(sim.later[i], sim)


PASS = Pass(
    pass_easy,
    numbers=Numbers,
    others=HEAD_IS_PROTECTED,
    raced=pass_raced,
    keeps="it would delay the reservation of a job before it",
    reservations=lambda numbers, partitions: numbers["reservations"] * partitions,
)
