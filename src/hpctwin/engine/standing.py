"""Conservative backfilling by a plan that is kept from pass to pass, where counting nodes decides.

The plan is a chain of rows by time: one where a job begins to hold nodes, one where it gives them back, so
that a reservation that moves takes its two rows along. Of rows of one time those that give back come first:
what lies between them is then never less than what is free before or after. A pass drops what is past, and
gives a job without reservation the earliest span, in O(P) with P rows.

Only where capacity came free other than planned may jobs move to earlier times. Nearly all of them slide:
what was in their way has gone, and they begin where the nodes before them have been free since. That costs
the rows they pass, one or two as a rule. To an earlier hole, with something left between, go very few;
`holes` says who has to look for one.
"""

from __future__ import annotations

from hpctwin.engine.holes import forget_mark, note_lengths, note_new, size_of, wake
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import NEVER, ZERO, Arrays


@jit
def unlink(row: int, sim: Arrays) -> None:
    """Take a row out of the chain."""
    before = sim.chain[row].before
    after = sim.chain[row].after
    sim.chain[before].after = after
    if after >= 0:
        sim.chain[after].before = before


@jit
def link(row: int, before: int, time: int, nodes: int, sim: Arrays) -> None:
    """Put a row into the chain, from which on so many nodes more are free than before.

    Args:
        row: it.
        before: the row before it.
        time: when it begins.
        nodes: how many; negative for less.
        sim: the simulation.
    """
    after = sim.chain[before].after
    one = sim.chain[row]
    one.time = time
    one.free = sim.chain[before].free + nodes
    one.before = before
    one.after = after
    sim.chain[before].after = row
    if after >= 0:
        sim.chain[after].before = row


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
    forget_mark(slot, sim)
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
    head = sim.chain[0]
    row = head.after
    while row >= 0 and sim.chain[row].time <= now:
        head.free = sim.chain[row].free
        unlink(row, sim)
        if row % 2 == 0:
            free_slot(row // 2 - 1, sim)
        row = head.after
    head.time = now


@jit
def first_span(row: int, nodes: int, length: int, end: int, sim: Arrays) -> int:
    """The first row from which so many nodes are free for so long, before an end; -1 if there is none."""
    first = row
    while sim.chain[first].time + length <= end:
        free = sim.chain[row].free
        row = sim.chain[row].after
        if free < nodes:
            if row < 0:
                return -1
            first = row
        elif row < 0 or sim.chain[row].time >= sim.chain[first].time + length:
            return first
    return -1


@jit
def take_span(slot: int, start: int, row: int, sim: Arrays) -> None:
    """A job takes its nodes from a time on, which is not before that of a row."""
    stay = sim.stay[slot]
    stay.start = start
    after = sim.chain[row].after
    while after >= 0 and sim.chain[after].time <= start:
        row = after
        after = sim.chain[row].after
    link(2 * slot + 1, row, start, -stay.nodes, sim)
    row = 2 * slot + 1
    end = start + stay.expected
    while after >= 0 and sim.chain[after].time < end:
        row = after
        sim.chain[row].free -= stay.nodes
        after = sim.chain[row].after
    link(2 * slot + 2, row, end, stay.nodes, sim)


@jit
def reserve_first(j: int, sim: Arrays) -> int:
    """Give a job that has no reservation the earliest; when it starts."""
    slot = new_slot(j, sim)
    row = first_span(ZERO, sim.stay[slot].nodes, sim.stay[slot].expected, NEVER, sim)
    take_span(slot, sim.chain[row].time, row, sim)
    note_new(slot, sim)
    return sim.stay[slot].start


@jit
def slide(slot: int, sim: Arrays) -> int:
    """From when on a job's nodes have been free until its reservation."""
    stay = sim.stay[slot]
    start = stay.start
    row = sim.chain[2 * slot + 1].before
    while row >= 0 and sim.chain[row].free >= stay.nodes:
        start = sim.chain[row].time
        row = sim.chain[row].before
    return start


@jit
def leap(slot: int, sim: Arrays) -> int:
    """The earliest start in the holes that a job was told of; that of its reservation if none fits."""
    stay = sim.stay[slot]
    row = ZERO
    after = sim.chain[row].after
    while after >= 0 and sim.chain[after].time <= stay.low:
        row = after
        after = sim.chain[row].after
    row = first_span(row, stay.nodes, stay.expected, min(stay.high, stay.start), sim)
    forget_mark(slot, sim)
    return stay.start if row < 0 else sim.chain[row].time


@jit
def move(slot: int, to: int, sim: Arrays) -> None:
    """A job gives its reservation up for an earlier one."""
    stay = sim.stay[slot]
    nodes = stay.nodes
    before = stay.start
    stay.start = to
    first = 2 * slot + 1
    row = sim.chain[first].before
    unlink(first, sim)
    while sim.chain[row].time > to:
        sim.chain[row].free -= nodes
        row = sim.chain[row].before
    link(first, row, to, -nodes, sim)
    last = 2 * slot + 2
    end = to + stay.expected
    row = sim.chain[last].before
    beyond = sim.chain[last].after
    unlink(last, sim)
    while sim.chain[row].time >= end:
        sim.chain[row].free += nodes
        row = sim.chain[row].before
    link(last, row, end, nodes, sim)
    row = last
    while row != beyond:
        after = sim.chain[row].after
        if after < 0 or sim.chain[after].time > before:
            wake(row, nodes, sim)
        row = after


@jit
def earlier(j: int, sim: Arrays) -> int:
    """Move a job that has a reservation to the earliest that disturbs no other; when it starts."""
    slot = sim.slot[j]
    start = sim.stay[slot].start
    if start <= sim.clock.now:
        return start
    to = slide(slot, sim)
    if sim.stay[slot].high > 0:
        to = min(to, leap(slot, sim))
    if to < start:
        move(slot, to, sim)
    return to


@jit
def depart(j: int, sim: Arrays) -> None:
    """A job starts: it is no reservation any more."""
    sim.stay[sim.slot[j]].start = -1
    drop_past(sim)


@jit
def take_back(job: int, sim: Arrays) -> int:
    """A job gives back what the plan holds for it; how many nodes."""
    slot = sim.slot[job]
    stay = sim.stay[slot]
    row = ZERO
    if stay.start >= 0:
        row = sim.chain[2 * slot + 1].after
        unlink(2 * slot + 1, sim)
    while row != 2 * slot + 2:
        sim.chain[row].free += stay.nodes
        row = sim.chain[row].after
    unlink(row, sim)
    free_slot(slot, sim)
    return stay.nodes


@jit
def go_on(sim: Arrays) -> None:
    """Bring the plan up to the present."""
    standing = sim.standing
    nodes = ZERO
    start = NEVER
    end = ZERO
    for i in range(standing.returned):
        span = sim.returned[i]
        nodes += take_back(span.nodes, sim)
        start = min(start, span.start)
        end = max(end, span.end)
    drop_past(sim)
    if sim.clock.came_back == 1:
        note_lengths(sim)
    if standing.returned > 0:
        standing.returned = 0
        row = ZERO
        while row >= 0 and sim.chain[row].time < end:
            after = sim.chain[row].after
            if after < 0 or sim.chain[after].time > start:
                wake(row, nodes, sim)
            row = after


@jit
def begin_anew(sim: Arrays) -> None:
    """Make the plan of the jobs that run."""
    standing = sim.standing
    standing.valid = 1
    standing.returned = 0
    standing.slots = 0
    standing.spare = 0
    head = sim.chain[0]
    head.time = sim.clock.now
    head.free = sim.stock[0].free
    head.before = -1
    head.after = -1
    row = ZERO
    for r in range(sim.clock.run_first, sim.clock.run_end):
        if sim.run[r].job < 0:
            continue
        slot = new_slot(sim.run[r].job, sim)
        link(2 * slot + 2, row, sim.run[r].planned, sim.stay[slot].nodes, sim)
        row = 2 * slot + 2


@jit
def stay_at(j: int, start: int, sim: Arrays) -> None:
    """Put a reservation that was made before into the plan."""
    slot = new_slot(j, sim)
    take_span(slot, start, ZERO, sim)
    # Nobody knows what has come free since it was made.
    sim.stay[slot].low = ZERO
    sim.stay[slot].high = NEVER


@jit
def is_sound(sim: Arrays) -> bool:
    """Whether there are as many nodes as the plan gives away, at all times."""
    row = ZERO
    while row >= 0:
        if sim.chain[row].free < 0:
            return False
        row = sim.chain[row].after
    return True
