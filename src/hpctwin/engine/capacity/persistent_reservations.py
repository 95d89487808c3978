"""Conservative backfilling with a kept plan, where counting nodes decides.

The plan is a table of free nodes over time (`availability_profile`), with one row where a job
begins to hold nodes and one where it returns them. A pass drops past rows, and gives a job without
a reservation the earliest span, in O(P) with P rows.

Jobs can move to earlier times only if capacity became free other than planned. Nearly all of them
slide: the job in their way has gone, and they begin as early as the nodes before them have been
free. That costs the rows they pass, usually one or two. Very few jobs move to an earlier hole with
something left in between; `gap_index` says which jobs must search for one.

Reservations that outlive a pass, for conservative backfilling.
"""

from __future__ import annotations

from hpctwin.engine.capacity.availability_profile import (
    bound,
    fewest_free,
    first_of_stretch,
    first_span,
    place_at,
    put_row,
    shift_row,
)
from hpctwin.engine.capacity.gap_index import bucket_of, leap, note_lengths, note_new, size_of, wake
from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["Held", "held"]


class Held:
    """Reservation of a job that outlives a pass."""

    start: Int  # begin of the reservation; -1: there is none
    first: Int  # row of its reservation on shared nodes
    once: Int  # begin of a reservation that lasts until the next pass; -1: there is none


held = view(Held)


@jit
def new_slot(j: int, sim: Arrays) -> int:
    """Allocate a place in the plan for a job, with two rows; return it."""
    standing = sim.standing
    slot = standing.spare - 1
    if slot >= 0:
        standing.spare = sim.stay[slot].job
    else:
        slot = standing.slots
        standing.slots += 1
    stay = sim.stay[slot]
    stay.job = j
    stay.nodes = sim.job[j].nodes
    stay.expected = sim.job[j].expected
    stay.size = size_of(stay.nodes)
    stay.start = -1
    sim.slot[j] = slot
    return slot


@jit
def free_slot(slot: int, sim: Arrays) -> None:
    """Free a job's place in the plan."""
    stay = sim.stay[slot]
    stay.start = -1
    stay.job = sim.standing.spare
    sim.standing.spare = slot + 1


@jit
def drop_past(sim: Arrays) -> None:
    """Move the begin of the plan to the present."""
    now = sim.clock.now
    first = sim.standing.first
    while first < sim.standing.last and sim.profile[first + 1].time <= now:
        first += 1
        row = sim.profile[first].row
        if row % 2 == 0:
            free_slot(row // 2 - 1, sim)
    sim.standing.first = first
    put_row(first, ZERO, now, sim.profile[first].free, sim)
    bound(sim)


@jit
def take_span(slot: int, start: int, sim: Arrays) -> None:
    """Take a job's nodes out of the plan from a time on.

    The time must not be before the plan's begin.
    """
    stay = sim.stay[slot]
    stay.start = start
    end = start + stay.expected
    place = sim.standing.last
    sim.standing.last += 2
    while sim.profile[place].time >= end and sim.profile[place].time > start:
        shift_row(place, place + 2, ZERO, sim)
        place -= 1
    put_row(place + 2, 2 * slot + 2, end, sim.profile[place].free, sim)
    while sim.profile[place].time > start:
        shift_row(place, place + 1, -stay.nodes, sim)
        place -= 1
    put_row(place + 1, 2 * slot + 1, start, sim.profile[place].free - stay.nodes, sim)
    bound(sim)


@jit
def reserve_first(j: int, sim: Arrays) -> int:
    """Reserve the earliest span for a job without a reservation; return its start."""
    slot = new_slot(j, sim)
    nodes = sim.stay[slot].nodes
    place = first_span(sim.standing.first, nodes, sim.stay[slot].expected, NEVER, sim)
    take_span(slot, sim.profile[place].time, sim)
    note_new(slot, sim)
    return sim.stay[slot].start


@jit
def move(slot: int, to: int, sim: Arrays) -> None:
    """Move a job's reservation to an earlier start."""
    stay = sim.stay[slot]
    nodes = stay.nodes
    before = stay.start
    stay.start = to
    place = sim.where[2 * slot + 1]
    while sim.profile[place - 1].time > to:
        shift_row(place - 1, place, -nodes, sim)
        place -= 1
    put_row(place, 2 * slot + 1, to, sim.profile[place - 1].free - nodes, sim)
    end = to + stay.expected
    last = sim.where[2 * slot + 2]
    place = last
    fewest = NEVER
    while sim.profile[place - 1].time >= end:
        shift_row(place - 1, place, nodes, sim)
        fewest = min(fewest, sim.profile[place].free)
        place -= 1
    put_row(place, 2 * slot + 2, end, sim.profile[place - 1].free + nodes, sim)
    fewest = min(fewest, sim.profile[place].free)
    # Until the old start these nodes were free already: they became free only after it.
    while place < last and sim.profile[place + 1].time <= before:
        place += 1
    wake(place, last, fewest, nodes, sim)


@jit
def earlier(j: int, sim: Arrays) -> int:
    """Move a job's reservation as early as possible without moving others.

    Returns:
        Its start, ms.
    """
    slot = sim.slot[j]
    stay = sim.stay[slot]
    if stay.start <= sim.clock.now:
        return stay.start
    # It slides forward over all rows on which its nodes have been free.
    free_from = first_of_stretch(sim.where[2 * slot + 1], stay.nodes, sim)
    to = sim.profile[free_from].time
    latest = stay.start - stay.expected
    if (
        latest >= sim.clock.now
        and sim.reach[stay.size, sim.standing.buckets - 1] >= stay.expected
        and sim.reach[stay.size, bucket_of(latest, sim)] >= stay.expected
    ):
        to = leap(slot, to, sim)
    if to < stay.start:
        move(slot, to, sim)
    return to


@jit
def take_back(job: int, sim: Arrays) -> int:
    """Return the nodes that the plan holds for a job to the plan; return their number.

    The job's two rows disappear. The rows before them close the gap, as they are usually fewer.
    """
    slot = sim.slot[job]
    nodes = sim.stay[slot].nodes
    returned = nodes
    to = sim.where[2 * slot + 2]
    for place in range(to - 1, sim.standing.first - 1, -1):
        if sim.profile[place].row == 2 * slot + 1:
            returned = ZERO
        else:
            shift_row(place, to, returned, sim)
            to -= 1
    sim.standing.first = to + 1
    free_slot(slot, sim)
    return nodes


@jit
def go_on(sim: Arrays) -> None:
    """Update the plan to the present time."""
    standing = sim.standing
    nodes = ZERO
    start = NEVER
    end = ZERO
    for i in range(standing.returned):
        span = sim.returned[i]
        nodes += take_back(span.job, sim)
        start = min(start, span.start)
        end = max(end, span.end)
    drop_past(sim)
    if standing.last + 2 * sim.clock.queued + 3 >= len(sim.profile):
        for place in range(standing.first, standing.last + 1):
            shift_row(place, place - standing.first + 1, ZERO, sim)
        standing.last -= standing.first - 1
        standing.first = 1
        bound(sim)
    if sim.clock.came_back == 1:
        note_lengths(sim)
    if standing.returned > 0:
        standing.returned = 0
        first = place_at(start, sim)
        last = place_at(end - 1, sim)
        wake(first, last, fewest_free(first, last, sim), nodes, sim)


@jit
def begin_anew(sim: Arrays) -> None:
    """Build the plan from the running jobs."""
    standing = sim.standing
    standing.valid = 1
    standing.returned = 0
    standing.slots = 0
    standing.spare = 0
    standing.holes = 0
    standing.sizes = size_of(sim.amount[0]) + 1
    standing.first = 1
    standing.last = 1
    put_row(ONE, ZERO, sim.clock.now, sim.stock[0].free, sim)
    for r in range(sim.clock.run_first, sim.clock.run_end):
        if sim.run[r].job < 0:
            continue
        slot = new_slot(sim.run[r].job, sim)
        free = sim.profile[standing.last].free + sim.stay[slot].nodes
        standing.last += 1
        put_row(standing.last, 2 * slot + 2, sim.run[r].planned, free, sim)
    bound(sim)
