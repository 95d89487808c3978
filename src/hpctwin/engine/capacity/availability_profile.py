"""Free nodes over future time, in a table that changes by single rows.

Rows are contiguous and sorted by time. `Standing.first` is the present; `Standing.last` holds
forever. Each other row is a time at which a job begins to hold nodes or returns them, and moves
with it. Among rows of equal time, rows that return nodes come first. The number of free nodes
between them is then never lower than before or after.

A row that moves changes places with the rows that it passes. Their free nodes change anyway, so
keeping the table sorted costs nothing extra, and scans read memory in order. Past rows stay in
front of the table; all rows move down when the table is full.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays


@jit
def put_row(place: int, row: int, time: int, free: int, sim: Arrays) -> None:
    """Write a row of the profile.

    Args:
        place: Place in the profile.
        row: Number of the row, see `Stay`.
        time: Time from which the row holds, ms.
        free: Free nodes from then on.
        sim: Simulation.
    """
    one = sim.profile[place]
    one.time = time
    one.free = free
    one.row = row
    sim.where[row] = place


@jit
def shift_row(place: int, to: int, nodes: int, sim: Arrays) -> None:
    """Copy a row to another place, with ``nodes`` more free nodes."""
    one = sim.profile[place]
    put_row(to, one.row, one.time, one.free + nodes, sim)


@jit
def bound(sim: Arrays) -> None:
    """Write sentinel rows without free nodes before the first and after the last row."""
    before = sim.profile[sim.standing.first - 1]
    before.time = ZERO
    before.free = -1
    after = sim.profile[sim.standing.last + 1]
    after.time = NEVER
    after.free = -1


@jit
def place_at(time: int, sim: Arrays) -> int:
    """Return the last row that begins at or before a time; the first row if none does."""
    low = sim.standing.first
    high = sim.standing.last + 1
    while high - low > 1:
        middle = (low + high) // 2
        if sim.profile[middle].time <= time:
            low = middle
        else:
            high = middle
    return low


@jit
def first_span(place: int, nodes: int, length: int, end: int, sim: Arrays) -> int:
    """Return the first row from which enough nodes are free long enough; -1 if none.

    Args:
        place: First row to try.
        nodes: Number of nodes.
        length: Duration, ms.
        end: Time by which the span must end, ms.
        sim: Simulation.
    """
    first = place
    while sim.profile[first].time + length <= end:
        free = sim.profile[place].free
        place += 1
        if free < nodes:
            first = place
        elif sim.profile[place].time >= sim.profile[first].time + length:
            return first
    return -1


@jit
def first_of_stretch(place: int, nodes: int, sim: Arrays) -> int:
    """Return the first row of the stretch before a row on which enough nodes are free.

    The result is the row itself if the stretch is empty.
    """
    while sim.profile[place - 1].free >= nodes:
        place -= 1
    return place


@jit
def last_of_stretch(place: int, nodes: int, sim: Arrays) -> int:
    """Return the last row of the stretch after a row on which enough nodes are free.

    The result is the row itself if the stretch is empty.
    """
    while sim.profile[place + 1].free >= nodes:
        place += 1
    return place


@jit
def longest_span(place: int, nodes: int, start: int, end: int, sim: Arrays) -> int:
    """Return the longest time for which enough nodes are free between two times, ms.

    Args:
        place: Row that holds at ``start``.
        nodes: Number of nodes.
        start, end: The times, ms.
        sim: Simulation.
    """
    longest = ZERO
    while sim.profile[place].time < end:
        if sim.profile[place].free < nodes:
            longest = max(longest, sim.profile[place].time - start)
            start = min(sim.profile[place + 1].time, end)
        place += ONE
    return max(longest, end - start)


@jit
def fewest_free(first: int, last: int, sim: Arrays) -> int:
    """Return how many nodes are free on all rows of a range."""
    fewest = sim.profile[first].free
    for place in range(first + 1, last + 1):
        fewest = min(fewest, sim.profile[place].free)
    return fewest


@jit
def most_free(first: int, last: int, sim: Arrays) -> int:
    """Return the largest number of free nodes in a range of rows, without rows of no duration."""
    most = ZERO
    for place in range(first, last + 1):
        if sim.profile[place + 1].time > sim.profile[place].time:
            most = max(most, sim.profile[place].free)
    return most


@jit
def is_sound(sim: Arrays) -> bool:
    """Return whether free nodes are never negative in the profile."""
    for place in range(sim.standing.first, sim.standing.last + 1):
        if sim.profile[place].free < 0:
            return False
    return True
