"""Conservative backfilling by a plan that is kept from pass to pass, where counting nodes decides.

The plan is a table of what is free over time (`profile`), with a row where each job begins to hold nodes and
one where it gives them back. A pass drops what is past, and gives a job without reservation the earliest
span, in O(P) with P rows.

Only where capacity came free other than planned may jobs move to earlier times. Nearly all of them slide:
what was in their way has gone, and they begin where the nodes before them have been free since. That costs
the rows they pass, one or two as a rule. To an earlier hole, with something left between, go very few;
`holes` says who has to look for one.
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
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays


@jit
def new_slot(j: int, sim: Arrays) -> int:
    """A place for a job, with two rows."""
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
    """The job at a place holds nothing in the plan any more."""
    stay = sim.stay[slot]
    stay.start = -1
    stay.job = sim.standing.spare
    sim.standing.spare = slot + 1


@jit
def drop_past(sim: Arrays) -> None:
    """Begin the plan now."""
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
    """A job takes its nodes from a time on, which is not before the plan."""
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
    """Give a job that has no reservation the earliest; when it starts."""
    slot = new_slot(j, sim)
    nodes = sim.stay[slot].nodes
    place = first_span(sim.standing.first, nodes, sim.stay[slot].expected, NEVER, sim)
    take_span(slot, sim.profile[place].time, sim)
    note_new(slot, sim)
    return sim.stay[slot].start


@jit
def move(slot: int, to: int, sim: Arrays) -> None:
    """A job gives its reservation up for an earlier one."""
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
    # Until its reservation its nodes were free, so that they came free only after.
    while place < last and sim.profile[place + 1].time <= before:
        place += 1
    wake(place, last, fewest, nodes, sim)


@jit
def earlier(j: int, sim: Arrays) -> int:
    """Move a job that has a reservation to the earliest that disturbs no other; when it starts."""
    slot = sim.slot[j]
    stay = sim.stay[slot]
    if stay.start <= sim.clock.now:
        return stay.start
    # It slides as far as its nodes have been free until its reservation.
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
    """A job gives back what the plan holds for it; how many nodes.

    Its rows go; those before them, of which there are fewer as a rule, close the gap.
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
    """Bring the plan up to the present."""
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
    """Make the plan of the jobs that run."""
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
