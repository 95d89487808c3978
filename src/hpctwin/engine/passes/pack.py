"""Packing: among the first jobs in order, the best match for free capacity starts.

A job's value is the alignment of its demand with free capacity (Grandl et al., Tetris, SIGCOMM
2014), divided by its expected runtime. It is reduced by up to a half for a late place in the order.
The job that has waited longest is protected once it has waited for ``patience``: no job starts
that would delay it.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.queue.order import before
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Count, Int, Millis

__all__ = ["PASS", "Numbers", "Own"]


class Numbers:
    """Settings of the backfill."""

    depth: Count = 1000  # number of jobs, the first in order, that are compared with free capacity
    patience: Millis = (
        86_400_000  # a job is protected once it has waited for this long since it was eligible
    )


class Own:
    """State that lasts from one pass to the next."""

    oldest: Int  # no pending job was eligible before this time


settings, own = view(Numbers), view(Own)


@jit
def note_eligible(j: int, sim: Arrays) -> None:
    """Record the eligible time of a job that enters the queue."""
    keeps = own(sim.own)[0]
    keeps.oldest = min(keeps.oldest, sim.state[j].eligible)


@jit
def longest_waiting(sim: Arrays) -> int:
    """Return the longest-waiting pending job if its patience is over; otherwise -1."""
    now = sim.clock.now
    patience = settings(sim.numbers)[0].patience
    keeps = own(sim.own)[0]
    if now - keeps.oldest < patience:
        return -1
    keeps.oldest = NEVER
    found = -1
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if sim.state[j].phase != WAITING:
            continue
        since = sim.state[j].eligible
        keeps.oldest = min(keeps.oldest, since)
        if now - since < patience or capacity.is_skipped(j, sim):
            continue
        if found < 0 or before(float(since), j, float(sim.state[found].eligible), found, sim):
            found = j
    return found


@jit
def start_preemptors(sim: Arrays) -> None:
    """Start jobs that may preempt others, in order.

    Nodes are reserved for a job that waits for jobs it preempted.
    """
    for i in range(capacity.list_preemptors(sim)):
        j = sim.later[i]
        if capacity.is_skipped(j, sim) or capacity.start_or_preempt(j, sim):
            continue
        if capacity.awaits_nodes(j, sim):
            capacity.reserve(j, ZERO, sim)


@jit
def protect(sim: Arrays) -> int:
    """Start jobs whose patience is over, in order of their eligible times.

    The first of them that does not fit gets a reservation.

    Returns:
        The job with the reservation; -1 if there is none.
    """
    while True:
        j = longest_waiting(sim)
        if j < 0:
            return -1
        if capacity.awaits_nodes(j, sim):
            return j  # it has a reservation
        if not (capacity.may_fit(j, sim) and capacity.start(j, sim)):
            capacity.reserve(j, ZERO, sim)
            return j


@jit
def candidates(protected: int, size: int, sim: Arrays) -> int:
    """List the fitting jobs of the first ``depth`` in ``sim.later``; return how many.

    ``sim.stack`` gets the number of jobs in order before each.
    """
    found = ZERO
    for i in range(min(size, settings(sim.numbers)[0].depth)):
        j = capacity.job_at(i, size, sim)
        if sim.state[j].phase != WAITING or j == protected:
            continue
        if capacity.may_fit(j, sim) and not capacity.is_skipped(j, sim):
            sim.later[found] = j
            sim.stack[found] = i
            found += 1
    return found


@jit
def take_best(found: int, size: int, sim: Arrays) -> int:
    """Start the candidate of the largest value; return how many candidates are left."""
    best = -1
    most = -1.0
    kept = ZERO
    for i in range(found):
        j = sim.later[i]
        aligned = capacity.alignment(j, sim)
        if aligned < 0.0:
            continue
        sim.later[kept] = j
        sim.stack[kept] = sim.stack[i]
        value = (1.0 - 0.5 * sim.stack[i] / size) * aligned / sim.job[j].expected
        if value > most:
            most = value
            best = kept
        kept += 1
    if best < 0:
        return ZERO
    j = sim.later[best]
    for i in range(best, kept - 1):
        sim.later[i] = sim.later[i + 1]
        sim.stack[i] = sim.stack[i + 1]
    if not capacity.is_skipped(j, sim):
        capacity.start(j, sim)
    return kept - 1


def pass_pack(sim: Arrays) -> None:
    """Protect the longest-waiting job, then start the best matches for free capacity."""
    capacity.begin_pass(sim)
    if not capacity.any_may_start(sim):
        return
    start_preemptors(sim)
    protected = protect(sim)
    size = capacity.order_jobs(sim)
    found = candidates(protected, size, sim)
    while found > 0:
        found = take_best(found, size, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Set the initial state from the jobs that are pending already."""
    own["oldest"] = min(state["eligible"][queue], default=NEVER)


PASS = Pass(
    pass_pack,
    numbers=Numbers,
    own=Own,
    begin=begin,
    entered=note_eligible,
    keeps="it would delay the job that has waited longest, or too many come before it",
    reservations=lambda numbers, partitions: 1,
)
