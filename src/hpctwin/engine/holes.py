"""Which jobs may have an earlier place in a plan that stands, when nodes come free in it.

Before, there was no place for anybody earlier than its own. Nodes that come free on a row of the plan help
a job only if it asks for more than were free there, at most as many as are free now, and if the hole around
the row is then as long as the job is expected to run. So the hole is widened from the row on, to the side
where more is free, until less is free than anybody needs, and its length is compared with that of the
shortest job that may want it: of all that begin later, by their number of nodes in half octaves and by when
they begin. Where one may be short enough all jobs are gone through, and those that fit are told from when
to when to look.

To widen a hole so is to find the largest rectangles in a histogram (Vandevoorde, Dr. Dobb's Journal, April
1998) that hold one of its columns. It takes some ten rows for each reservation that moves; for one in
thirty rows all jobs are gone through, and of a hundred that are told to look one finds a place.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import BUCKETS, NEVER, ONE, SIZES, ZERO, Arrays
from hpctwin.engine.rows import leading_zeros

JOBS_OF_BUCKET = 16


@jit
def size_of(nodes: int) -> int:
    """The half octave of a number of nodes."""
    octave = 63 - leading_zeros(nodes)
    if octave == 0:
        return ZERO
    return 2 * octave + ((nodes >> (octave - 1)) & 1)


@jit
def fewest_of(size: int) -> int:
    """The fewest nodes of a half octave."""
    if size < 2:
        return ONE
    return (2 + (size & 1)) << (size // 2 - 1)


@jit
def forget_mark(slot: int, sim: Arrays) -> None:
    """A job knows of no hole."""
    sim.stay[slot].low = NEVER
    sim.stay[slot].high = 0


@jit
def bucket_of(time: int, sim: Arrays) -> int:
    """The bucket of jobs that begin at a time."""
    standing = sim.standing
    return min((time - standing.since) // standing.width, standing.buckets - 1)


@jit
def note_lengths(sim: Arrays) -> None:
    """How long the shortest jobs are, by when they begin at the earliest and by size."""
    standing = sim.standing
    last = sim.clock.now
    for slot in range(standing.slots):
        last = max(last, sim.stay[slot].start)
    buckets = min(BUCKETS, 1 + standing.slots // JOBS_OF_BUCKET)
    standing.since = sim.clock.now
    standing.width = (last - sim.clock.now) // buckets + 1
    standing.buckets = buckets
    for i in range(buckets * SIZES):
        sim.shortest[i] = NEVER
    for slot in range(standing.slots):
        stay = sim.stay[slot]
        if stay.start >= sim.clock.now:
            i = bucket_of(stay.start, sim) * SIZES + stay.size
            sim.shortest[i] = min(sim.shortest[i], stay.expected)
    for i in range((buckets - 1) * SIZES - 1, -1, -1):
        sim.shortest[i] = min(sim.shortest[i], sim.shortest[i + SIZES])


@jit
def note_new(slot: int, sim: Arrays) -> None:
    """The same when a job is new in the plan."""
    stay = sim.stay[slot]
    if sim.standing.buckets > 0:
        for bucket in range(bucket_of(stay.start, sim) + 1):
            i = bucket * SIZES + stay.size
            sim.shortest[i] = min(sim.shortest[i], stay.expected)


@jit
def shortest_of(bucket: int, first: int, last: int, sim: Arrays) -> int:
    """How long the shortest job is that begins in a bucket or later, of some sizes."""
    found = NEVER
    for size in range(bucket * SIZES + first, bucket * SIZES + last + 1):
        found = min(found, sim.shortest[size])
    return found


@jit
def wake(row: int, nodes: int, sim: Arrays) -> None:
    """Tell those that may fall into the hole that nodes left on a row which just came free there."""
    after = sim.chain[row].after
    start = sim.chain[row].time
    end = NEVER if after < 0 else sim.chain[after].time
    if end <= start:
        return
    most = sim.chain[row].free
    bucket = bucket_of(start, sim)
    size = size_of(most)
    smallest = size_of(max(most - nodes, ZERO) + 1)
    while smallest <= size and sim.shortest[bucket * SIZES + smallest] == NEVER:
        smallest += 1
    if smallest > size:
        return
    enough = max(max(most - nodes, ZERO) + 1, fewest_of(smallest))
    steps = widen(row, enough, size, smallest, bucket, sim)
    if steps > 0:
        tell(start, enough, most, steps, sim)


@jit
def widen(row: int, enough: int, size: int, smallest: int, bucket: int, sim: Arrays) -> int:
    """Find how long the hole about a row is, for each number of nodes; `Scratch.openings`.

    Args:
        row: where it is widest.
        enough: at least so many nodes.
        size: half octave of what is free on the row,
        smallest: … and of the fewest nodes.
        bucket: that of the row's time.
        sim: the simulation.

    Returns:
        How many steps the hole has; 0 if no job that waits is short enough for it.
    """
    nodes = sim.chain[row].free
    least = fewest_of(size)
    left = sim.chain[row].before
    right = sim.chain[row].after
    start = sim.chain[row].time
    end = sim.chain[right].time if right >= 0 else NEVER
    free_left = sim.chain[left].free if left >= 0 else -1
    free_right = sim.chain[right].free if right >= 0 else -1
    needed = shortest_of(bucket, smallest, size, sim)
    fits = False
    steps = 0
    while True:
        fits = fits or needed <= end - start
        wider = max(free_left, free_right)
        if wider < nodes:
            opening = sim.openings[steps]
            opening.nodes = nodes
            opening.start = start
            opening.end = end
            steps += 1
            nodes = wider
            if nodes < enough:
                return steps if fits else 0
            if nodes < least:
                while nodes < least:
                    size -= 1
                    least = fewest_of(size)
                needed = shortest_of(bucket, smallest, size, sim)
        if free_left >= free_right:
            start = sim.chain[left].time
            left = sim.chain[left].before
            free_left = sim.chain[left].free if left >= 0 else -1
        else:
            right = sim.chain[right].after
            end = sim.chain[right].time if right >= 0 else NEVER
            free_right = sim.chain[right].free if right >= 0 else -1


@jit
def tell(start: int, fewest: int, most: int, steps: int, sim: Arrays) -> None:
    """Tell all jobs for which a hole is long enough.

    Args:
        start: those that begin later.
        fewest: nodes, at least,
        most: … and at most.
        steps: rows of `Scratch.openings`: the hole for each number of nodes.
        sim: the simulation.
    """
    longest = sim.openings[steps - 1].end - sim.openings[steps - 1].start
    for slot in range(sim.standing.slots):
        stay = sim.stay[slot]
        if stay.expected > longest or stay.start < start:
            continue
        if stay.nodes < fewest or stay.nodes > most:
            continue
        i = steps - 1
        while sim.openings[i].nodes < stay.nodes:
            i -= 1
        hole = sim.openings[i]
        if stay.expected <= min(hole.end, stay.start) - hole.start:
            stay.low = min(stay.low, hole.start)
            stay.high = max(stay.high, hole.end)
