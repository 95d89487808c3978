"""Conservative backfilling by a plan that is kept from pass to pass, where counting nodes decides.

The plan with all reservations in it stays as it is: a pass drops what is past, and gives a job without
reservation the earliest span, in O(P) with P rows of the plan. Only where capacity came free other than
planned may jobs move to earlier times, and only those that it may help are looked at closer: there was no
earlier span for a job when it was last looked at, so an earlier one must touch a span at which capacity came
free since, with as many nodes free there as it needs. What a job that moves leaves behind is such a span for
those after it, and for all others when capacity next comes free. A pass in which j jobs are looked at closer
costs O(Q + j P).
"""

from __future__ import annotations

from hpctwin.engine.counting import counting_decides
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import NEVER, ZERO, Arrays
from hpctwin.engine.plan import plan_split


@jit
def may_stand(sim: Arrays) -> bool:
    """Whether a plan may be kept: counting nodes decides, and nobody is skipped."""
    return (
        sim.rules.depths == 0
        and sim.user_running.width == 0
        and sim.stock[0].down == 0
        and counting_decides(sim)
    )


@jit
def add_freed(which: int, start: int, end: int, sim: Arrays) -> None:
    """Remember a span at which capacity came free: for this pass (0), or for the next ones (1)."""
    standing = sim.standing
    half = len(sim.openings) // 2
    n = standing.freed if which == 0 else standing.freed_next
    place = which * half + n
    if n == half:
        # No room: one longer span, which only costs time.
        span = sim.openings[place - 1]
        span.start = min(span.start, start)
        span.end = max(span.end, end)
    else:
        sim.openings[place].start = start
        sim.openings[place].end = end
        if which == 0:
            standing.freed = n + 1
        else:
            standing.freed_next = n + 1
        place += 1
    if which == 0:
        measure_freed(place - 1, sim)


@jit
def row_at(time: int, sim: Arrays) -> int:
    """The row of the plan that holds at a time, which is not before the plan."""
    low = ZERO
    high = sim.plan_rows[0]
    while high - low > 1:
        middle = (low + high) // 2
        if sim.plan_time[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@jit
def measure_freed(place: int, sim: Arrays) -> None:
    """Find the most nodes that are free at any moment of a span."""
    span = sim.openings[place]
    row = row_at(max(span.start, sim.clock.now), sim)
    most = sim.plan_amount[row, 0]
    row += 1
    while row < sim.plan_rows[0] and sim.plan_time[row] < span.end:
        most = max(most, sim.plan_amount[row, 0])
        row += 1
    span.nodes = most


@jit
def drop_past(sim: Arrays) -> None:
    """Begin the plan now, with no two rows that are the same."""
    now = sim.clock.now
    kept = row_at(now, sim)
    n = sim.plan_rows[0]
    sim.plan_time[0] = now
    sim.plan_amount[0, 0] = sim.plan_amount[kept, 0]
    last = 0
    for row in range(kept + 1, n):
        if sim.plan_amount[row, 0] != sim.plan_amount[last, 0]:
            last += 1
            sim.plan_time[last] = sim.plan_time[row]
            sim.plan_amount[last, 0] = sim.plan_amount[row, 0]
    sim.plan_rows[0] = last + 1


@jit
def change_span(start: int, end: int, nodes: int, sim: Arrays) -> None:
    """Nodes are free for a span besides; not so if negative."""
    if end <= start:
        return
    if sim.plan_rows[0] + 2 > len(sim.plan_time):
        drop_past(sim)
    first = plan_split(start, sim)
    last = plan_split(end, sim)
    for row in range(first, last):
        sim.plan_amount[row, 0] += nodes


@jit
def earliest_from(row: int, nodes: int, length: int, until: int, sim: Arrays) -> int:
    """From when so many nodes are free for so long, or up to a time; ``until`` if not before that.

    Args:
        row: of the plan at which to begin to look.
        nodes: how many.
        length: for how long, ms.
        until: from then on they are free anyway.
        sim: the simulation.
    """
    start = sim.plan_time[row]
    rows = sim.plan_rows[0]
    while start < until:
        if sim.plan_amount[row, 0] < nodes:
            row += 1
            if row == rows:
                return until
            start = sim.plan_time[row]
            continue
        row += 1
        if row == rows or sim.plan_time[row] >= min(start + length, until):
            return start
    return until


@jit
def earlier(j: int, start: int, sim: Arrays) -> int:
    """The earliest start of a job that has a reservation; the same if no span that came free helps."""
    nodes = sim.job[j].nodes
    length = sim.job[j].expected
    now = sim.clock.now
    first = NEVER
    last = ZERO
    for i in range(sim.standing.freed):
        span = sim.openings[i]
        if span.nodes >= nodes and span.start < start and span.end > now:
            first = min(first, span.start - length)
            last = max(last, span.end)
    if last == 0:
        return start
    return earliest_from(row_at(max(first, now), sim), nodes, length, start, sim)


@jit
def move(j: int, start: int, to: int, sim: Arrays) -> None:
    """A job gives its reservation up for an earlier one."""
    nodes = sim.job[j].nodes
    length = sim.job[j].expected
    change_span(to, min(to + length, start), -nodes, sim)
    freed = max(to + length, start)
    change_span(freed, start + length, nodes, sim)
    add_freed(ZERO, freed, start + length, sim)
    add_freed(ZERO + 1, freed, start + length, sim)


@jit
def stand(sim: Arrays) -> bool:
    """Bring the plan up to the present; False if it must be made anew."""
    standing = sim.standing
    if standing.valid == 0 or not may_stand(sim):
        standing.valid = 0
        return False
    drop_past(sim)
    now = sim.clock.now
    for i in range(standing.returned):
        span = sim.returned[i]
        start = max(span.start, now)
        if span.end > start:
            change_span(start, span.end, span.nodes, sim)
            add_freed(ZERO + 1, start, span.end, sim)
    standing.returned = 0
    return True


@jit
def begin_moves(sim: Arrays) -> None:
    """Jobs may move: all that came free since they were last looked at is before them."""
    standing = sim.standing
    half = len(sim.openings) // 2
    for i in range(standing.freed_next):
        sim.openings[i].start = sim.openings[half + i].start
        sim.openings[i].end = sim.openings[half + i].end
        measure_freed(i, sim)
    standing.freed = standing.freed_next
    standing.freed_next = 0


@jit
def stand_anew(sim: Arrays) -> None:
    """The plan of a pass that was made anew is kept, if it may be."""
    standing = sim.standing
    standing.valid = 1 if may_stand(sim) else 0
    standing.returned = 0
    standing.freed_next = 0
    # Where each job was looked at by turns, anything may have come free since.
    add_freed(ZERO + 1, ZERO, NEVER, sim)
