"""Sums of the free amounts of all shared nodes, over time.

A job does not fit before enough is free. The table is sorted by time, and holds what running jobs
and reservations leave. If it has too little anywhere in the span of a job, no node needs to be
checked.

The table is made when an earliest start is first searched in a pass, if there are enough
reservations for it to pay. It is then updated as nodes are reserved and jobs start, and so is the
order in which reservations end. Each update takes as many steps as there are rows, which are at
most two for each job. If a pass searches many starts, `free_table` adds what is free on each node.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_pop, heap_push
from hpctwin.engine.shared import free_table
from hpctwin.engine.shared.fit import goes_at, goes_by_kind
from hpctwin.engine.shared.node_resources import CORES, GPUS, MEMORY, held
from hpctwin.engine.state.layout import MINUS_ONE, NEVER, ONE, TAKE, ZERO, Arrays

__all__ = ["change_sums", "enough_from", "first_after", "forget_sums", "has_table", "start_in_sums"]

ENOUGH = 8
"""Number of rows of reservations from which the table pays, if no more jobs run."""
SEARCHES = 4
"""Number of searches in a pass after which free cores are also kept for each node."""
STRIDE = 32
"""Number of rows whose times are compared at once."""
ENDS = NEVER // 2
"""Number that marks the end of a reservation, plus its row; greater than any row."""


@jit
def forget_sums(sim: Arrays) -> None:
    """Mark the sums, and the free table, as not valid."""
    sim.rooms.sums = sim.rooms.table = 0


@jit
def add(row: int, kind: int, node: int, tasks: int, sign: int, sim: Arrays) -> None:
    """Add what tasks of a kind hold on a node to a row, times ``sign``."""
    own = sim.sums[row]
    own.cores += sign * held(kind, node, tasks, CORES, sim)
    own.memory += sign * held(kind, node, tasks, MEMORY, sim)
    own.gpus += sign * held(kind, node, tasks, GPUS, sim)


@jit
def add_job(row: int, j: int, sim: Arrays) -> None:
    """Add what a running job holds to a row."""
    p = sim.state[j].first_node
    while p >= 0:
        part = sim.part[p]
        add(row, part.kind, part.node, part.tasks, ONE, sim)
        p = part.next


@jit
def add_promise(row: int, first: int, sign: int, sim: Arrays) -> None:
    """Add what is reserved for a job to a row, times ``sign``."""
    p = first
    while p >= 0:
        own = sim.promise[p]
        add(row, own.kind, own.node, own.tasks, sign, sim)
        p = own.next


@jit
def list_events(sim: Arrays) -> int:
    """Put the ends of running jobs, and the spans of reservations, into ``sim.times``.

    An entry is a job, -1 minus a row (start), or `ENDS` plus a row (end).

    Returns:
        Number of entries.
    """
    n = ZERO
    for place in range(sim.clock.run_first, sim.clock.run_end):
        r = sim.run[place].job
        if r >= 0:
            n = heap_push(sim.times, n, goes_at(r, sim), r)
    return list_promises(n, sim)


@jit
def list_promises(n: int, sim: Arrays) -> int:
    """Add the spans of reservations to ``n`` entries of ``sim.times``; see `list_events`."""
    for row in range(sim.sharing.promises):
        own = sim.promise[row]
        if own.node >= 0 and own.first == 1:
            n = heap_push(sim.times, n, own.start, -1 - row)
            n = heap_push(sim.times, n, own.end, ENDS + row)
    return n


@jit
def make_sums(sim: Arrays) -> None:
    """Compute what is free on all nodes together, from now on."""
    row = ZERO
    sim.sum_time[row] = sim.clock.now
    sum_left(sim)
    n = list_events(sim)
    sim.rooms.promised = sim.rooms.table = 0
    while n > 0:
        time = sim.times[0].time
        what = heap_pop(sim.times, n)
        n -= 1
        if time > sim.sum_time[row]:
            copy_sums(row, row + 1, sim)
            row += 1
            sim.sum_time[row] = time
        if what < 0:
            add_promise(row, -1 - what, -ONE, sim)
        elif what >= ENDS:
            add_promise(row, what - ENDS, ONE, sim)
            sim.promise_end[sim.rooms.promised].time = time
            sim.promise_end[sim.rooms.promised].job = what - ENDS
            sim.rooms.promised += 1
        else:
            add_job(row, what, sim)
    sim.rooms.sums = row + 1


@jit
def copy_sums(row: int, to: int, sim: Arrays) -> None:
    """Copy a row over another."""
    one = sim.sums[row]
    other = sim.sums[to]
    sim.sum_time[to] = sim.sum_time[row]
    other.cores = one.cores
    other.memory = one.memory
    other.gpus = one.gpus
    other.cells = one.cells


@jit
def row_at(time: int, sim: Arrays) -> int:
    """Return the row of a time, which is not past."""
    low = ZERO
    high = sim.rooms.sums
    while high - low > 1:
        middle = (low + high) // 2
        if sim.sum_time[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@jit
def row_from(row: int, time: int, sim: Arrays) -> int:
    """Return the first row, from one on, that does not begin before a time."""
    rows = sim.rooms.sums
    while row + STRIDE < rows and sim.sum_time[row + STRIDE] < time:
        row += STRIDE
    before = ZERO
    for later in range(row, min(row + STRIDE, rows)):
        before += 1 if sim.sum_time[later] < time else 0
    return row + before


@jit
def row_of(time: int, sim: Arrays) -> int:
    """Return the row that begins at a time, which is not past; insert it if missing."""
    low = row_at(time, sim)
    if sim.sum_time[low] >= time:
        return low
    for row in range(sim.rooms.sums - 1, low - 1, -1):
        copy_sums(row, row + 1, sim)
    sim.sum_time[low + 1] = time
    if sim.rooms.table == 1:
        sim.sums[low + 1].cells = sim.rooms.sums
        free_table.copy_cells(sim.sums[low].cells, sim.rooms.sums, sim)
    sim.rooms.sums += 1
    return low + 1


@jit
def clear_behind(sim: Arrays) -> int:
    """Set the row behind those in use to zero, and return it."""
    row = sim.rooms.sums
    sim.sums[row].cores = 0
    sim.sums[row].memory = 0
    sim.sums[row].gpus = 0
    return row


@jit
def change_rows(start: int, end: int, sign: int, sim: Arrays) -> tuple[int, int]:
    """Add the row behind those in use to all rows of a span, times ``sign``.

    If the table is full, it is marked as not valid instead.

    Returns:
        First row of the span, and the row after its last.
    """
    asked = sim.sums[sim.rooms.sums]
    cores = sign * asked.cores
    memory = sign * asked.memory
    gpus = sign * asked.gpus
    if sim.rooms.sums + 3 > len(sim.sums):
        forget_sums(sim)
        return ZERO, ZERO
    first = row_of(start, sim)
    last = row_of(end, sim)
    for row in range(first, last):
        own = sim.sums[row]
        own.cores += cores
        own.memory += memory
        own.gpus += gpus
    return first, last


@jit
def first_after(time: int, sim: Arrays) -> int:
    """Return the place in ``sim.promise_end`` of the first end after a time."""
    low = ZERO
    high = sim.rooms.promised
    while low < high:
        middle = (low + high) // 2
        if sim.promise_end[middle].time <= time:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def put_end(first: int, sim: Arrays) -> None:
    """Insert the end of a reservation into ``sim.promise_end``, which is sorted."""
    end = sim.promise[first].end
    place = sim.rooms.promised
    while place > 0 and sim.promise_end[place - 1].time > end:
        sim.promise_end[place].time = sim.promise_end[place - 1].time
        sim.promise_end[place].job = sim.promise_end[place - 1].job
        place -= 1
    sim.promise_end[place].time = end
    sim.promise_end[place].job = first
    sim.rooms.promised += 1


@jit
def drop_end(first: int, sim: Arrays) -> None:
    """Remove the end of a reservation from ``sim.promise_end``."""
    place = first_after(sim.promise[first].end - 1, sim)
    while sim.promise_end[place].job != first:
        place += 1
    sim.rooms.promised -= 1
    for later in range(place, sim.rooms.promised):
        sim.promise_end[later].time = sim.promise_end[later + 1].time
        sim.promise_end[later].job = sim.promise_end[later + 1].job


@jit
def change_sums(first: int, sign: int, sim: Arrays) -> None:
    """Update the table for a reservation that is made (`TAKE`) or removed (`RETURN`)."""
    if sim.rooms.sums == 0:
        return
    if sign == TAKE:
        put_end(first, sim)
    else:
        drop_end(first, sim)
    add_promise(clear_behind(sim), first, ONE, sim)
    begin, end = change_rows(sim.promise[first].start, sim.promise[first].end, sign, sim)
    if sim.rooms.table == 1:
        free_table.add_reservation(first, begin, end, sign, sim)


@jit
def start_in_sums(j: int, sim: Arrays) -> None:
    """Update the table for a job that has just started."""
    if sim.rooms.sums == 0:
        return
    add_job(clear_behind(sim), j, sim)
    begin, end = change_rows(sim.clock.now, goes_at(j, sim), -ONE, sim)
    if sim.rooms.table == 1:
        free_table.add_job(j, begin, end, -ONE, sim)


@jit
def make_table(sim: Arrays) -> None:
    """Compute what is free on each node in all rows."""
    rows = sim.rooms.sums
    for row in range(rows):
        sim.sums[row].cells = row
        for node in range(len(sim.share)):
            sim.free_cores[row, node] = sim.left[node, CORES] if row == 0 else 0
    for place in range(sim.clock.run_first, sim.clock.run_end):
        r = sim.run[place].job
        if r >= 0:
            row = row_of(goes_at(r, sim), sim)
            free_table.add_job(r, row, row + 1, ONE, sim)
    for p in range(sim.sharing.promises):
        own = sim.promise[p]
        if own.node >= 0 and own.first == 1:
            row = row_of(own.start, sim)
            free_table.add_reservation(p, row, row + 1, -ONE, sim)
            row = row_of(own.end, sim)
            free_table.add_reservation(p, row, row + 1, ONE, sim)
    free_table.sum_up(rows, sim)
    sim.rooms.table = 1


@jit
def sum_left(sim: Arrays) -> None:
    """Set the first row to what is free on all nodes together now."""
    own = sim.sums[0]
    own.cores = own.memory = own.gpus = 0
    for node in range(len(sim.share)):
        own.cores += sim.left[node, CORES]
        own.memory += sim.left[node, MEMORY]
        own.gpus += sim.left[node, GPUS]


@jit
def enough_after_ends(j: int, sim: Arrays) -> int:
    """Return the first time from which enough is free for as long as a job would run.

    The table must not be valid. Planned ends and reservations are visited in order, only as far as
    needed. Overdue jobs count as ended.
    """
    kind = sim.job[j].kind
    tasks = sim.shape[kind].tasks
    cores = tasks * sim.needs[kind, CORES]
    memory = tasks * sim.needs[kind, MEMORY]
    gpus = tasks * sim.needs[kind, GPUS]
    sum_left(sim)
    own = sim.sums[0]
    time = sim.clock.now
    start: int = NEVER
    r = sim.clock.run_first
    n = list_promises(ZERO, sim)
    begins = n // 2
    while True:
        if own.cores < cores or own.memory < memory or own.gpus < gpus:
            start = NEVER
        else:
            start = min(start, time)
        if start < NEVER and begins == 0:
            return start
        following: int = sim.run[r].planned if r < sim.clock.run_end else NEVER
        if n > 0:
            following = min(following, sim.times[0].time)
        if following == NEVER:
            return time
        time = max(time, following)
        if start < NEVER and time - start >= sim.job[j].expected:
            return start
        while n > 0 and sim.times[0].time <= time:
            what = heap_pop(sim.times, n)
            n -= 1
            if what < 0:
                add_promise(ZERO, -1 - what, -ONE, sim)
                begins -= 1
            else:
                add_promise(ZERO, what - ENDS, ONE, sim)
        while r < sim.clock.run_end and sim.run[r].planned <= time:
            if sim.run[r].job >= 0:
                add_job(ZERO, sim.run[r].job, sim)
            r += 1


@jit
def sums_pay(sim: Arrays) -> bool:
    """Return whether there are enough reservations for the sums to pay."""
    return sim.sharing.promises >= max(ENOUGH, sim.clock.running)


@jit
def enough_from(j: int, time: int, sim: Arrays) -> int:
    """Return a time, not before another, before which a job cannot fit.

    From then on, enough is free on all nodes together for as long as the job would run. The given
    time is returned if that cannot be said of the job.
    """
    kind = sim.job[j].kind
    if len(sim.cut) > 0 or goes_by_kind(kind, sim):
        return time
    if sim.rooms.sums == 0:
        if not sums_pay(sim):
            return max(time, enough_after_ends(j, sim))
        make_sums(sim)
    sim.rooms.searches += 1
    if sim.rooms.searches >= SEARCHES and sim.rooms.table == 0 and len(sim.free_cores) > 0:
        make_table(sim)
    return search_rows(j, time, NEVER, ZERO - 1, sim)


@jit
def has_table(sim: Arrays) -> bool:
    """Return whether the table of free cores is valid; make it if it pays for the pending jobs."""
    tabled = len(sim.free_cores) > 0 and sim.clock.queued >= SEARCHES
    if sim.rooms.table == 0 and tabled and sums_pay(sim):
        if sim.rooms.sums == 0:
            make_sums(sim)
        make_table(sim)
    return sim.rooms.table == 1


@jit
def has_sums(row: int, cores: int, memory: int, gpus: int, sim: Arrays) -> bool:
    """Return whether a row has as much free on all nodes together."""
    own = sim.sums[row]
    return own.cores >= cores and own.memory >= memory and own.gpus >= gpus


@jit
def search_rows(j: int, time: int, until: int, promise: int, sim: Arrays) -> int:
    """Return a time, from one on, before which a job does not fit the sums and the table.

    Args:
        j: Job.
        time: First time, ms.
        until: Time at which the search ends; `NEVER` if the job has no reservation.
        promise: First row of the job's reservation, which begins at ``until``; its nodes count as
            free. -1 if it has none.
        sim: Simulation.
    """
    kind = sim.job[j].kind
    tasks = sim.shape[kind].tasks
    cores = tasks * sim.needs[kind, CORES]
    memory = tasks * sim.needs[kind, MEMORY]
    gpus = tasks * sim.needs[kind, GPUS]
    length = sim.job[j].expected
    rows = sim.rooms.sums
    sim.rooms.bounded = 0
    sim.rooms.spanned = -1
    first = row_at(time, sim)
    last = first
    later = MINUS_ONE
    while True:
        # The last row with too little is searched: no start fits that has it in its span.
        enough = max(first, last)
        last = row_from(enough, min(time + length, until), sim)
        row = last - 1
        while row >= enough and has_sums(row, cores, memory, gpus, sim):
            row -= 1
        if row >= enough:
            if row + 1 == rows:
                return time
            first = row + 1
            time = max(time, sim.sum_time[first])
            continue
        if time >= until or sim.rooms.table == 0 or first + 1 == rows:
            return time
        if time + length > until:
            # Its own reservation covers all rows from `until` on in its span. Later starts only add
            # rows, so the minima of these rows are kept.
            if later < 0:
                later = row_at(until, sim)
                free_table.begin_least(later, sim.least_later, sim)
            end = row_at(time + length - 1, sim) + 1
            while later < end:
                free_table.lower_least(later, sim.least_later, sim)
                later += 1
            sim.rooms.spanned = later
            free_table.least_with(promise, sim)
        else:
            free_table.begin_least(last - 1, sim.least_cores, sim)
        misfit = free_table.last_misfit(kind, first, last, sim)
        if misfit < 0 or misfit + 1 == rows:
            sim.rooms.bounded = 1 if misfit < 0 else 0
            return time
        first = misfit + 1
        last = max(last, first)
        time = sim.sum_time[first]
