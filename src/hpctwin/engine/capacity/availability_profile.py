"""What is free over future time, in a table that changes by a row here and there.

Rows lie in order of time, in one piece: `Standing.first` is the present, `Standing.last` holds for ever. Each
of the others is where a job begins to hold nodes or where it gives them back, and goes where that goes. Of
rows of one time those that give back come first: what lies between them is then never less than what is free
before or after.

A row that moves changes places with those that it passes, whose free nodes change anyway, so it costs
nothing to keep them in one piece; and to look along them is to read memory in its order. Rows of the past are
left behind, and all are moved down when the table is full.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays


@jit
def put_row(place: int, row: int, time: int, free: int, sim: Arrays) -> None:
    """Write a row of the profile: from a time on, so much is free."""
    one = sim.profile[place]
    one.time = time
    one.free = free
    one.row = row
    sim.where[row] = place


@jit
def shift_row(place: int, to: int, nodes: int, sim: Arrays) -> None:
    """Write a row to another place, with so many nodes more."""
    one = sim.profile[place]
    put_row(to, one.row, one.time, one.free + nodes, sim)


@jit
def bound(sim: Arrays) -> None:
    """Put a row before the first and one after the last, on which nobody finds a node."""
    before = sim.profile[sim.standing.first - 1]
    before.time = ZERO
    before.free = -1
    after = sim.profile[sim.standing.last + 1]
    after.time = NEVER
    after.free = -1


@jit
def place_at(time: int, sim: Arrays) -> int:
    """The last row that does not begin after a time; the first one if all do."""
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
    """The first row from which so many nodes are free for so long, before an end; -1 if there is none."""
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
    """The first of the rows before one on all of which so many nodes are free; itself if there is none."""
    while sim.profile[place - 1].free >= nodes:
        place -= 1
    return place


@jit
def last_of_stretch(place: int, nodes: int, sim: Arrays) -> int:
    """The last of the rows after one on all of which so many nodes are free; itself if there is none."""
    while sim.profile[place + 1].free >= nodes:
        place += 1
    return place


@jit
def longest_span(place: int, nodes: int, start: int, end: int, sim: Arrays) -> int:
    """For how long at most so many nodes are free, between a time on a row and an end."""
    longest = ZERO
    while sim.profile[place].time < end:
        if sim.profile[place].free < nodes:
            longest = max(longest, sim.profile[place].time - start)
            start = min(sim.profile[place + 1].time, end)
        place += ONE
    return max(longest, end - start)


@jit
def fewest_free(first: int, last: int, sim: Arrays) -> int:
    """How many nodes are free on all of some rows."""
    fewest = sim.profile[first].free
    for place in range(first + 1, last + 1):
        fewest = min(fewest, sim.profile[place].free)
    return fewest


@jit
def most_free(first: int, last: int, sim: Arrays) -> int:
    """How many nodes at most are free on some rows, for any time."""
    most = ZERO
    for place in range(first, last + 1):
        if sim.profile[place + 1].time > sim.profile[place].time:
            most = max(most, sim.profile[place].free)
    return most


@jit
def is_sound(sim: Arrays) -> bool:
    """Whether there are as many nodes as the profile gives away, at all times."""
    for place in range(sim.standing.first, sim.standing.last + 1):
        if sim.profile[place].free < 0:
            return False
    return True
