"""Index of jobs that can move forward in a kept plan when nodes become free in it.

Before, no job had an earlier place than its own. Nodes that become free on some rows of the plan
help a job only if three conditions hold:

- It requests more nodes than were free there before.
- It requests at most as many nodes as are free there now.
- The stretch around those rows on which that many nodes are free is as long as the job's expected
  runtime.

The stretch is therefore widened for jobs of each size (half octave of their nodes), and compared
with the shortest job of that size that begins later. In one of forty cases it is long enough, and
is called a **hole**. (The stretches are the largest rectangles in a histogram that contain given
columns; Vandevoorde, Dr. Dobb's Journal, April 1998.)

When the pass comes to a job, it checks the job against the holes, if holes that begin early enough
are long enough for its size (`Scratch.reach`). If the job does not fit, because other jobs have
taken the nodes, the hole is measured again and shortened. A hole is dropped once each job has been
tried since: at the end of the next pass in which jobs may move.

This costs about seven rows for each reservation that moves. Of a hundred jobs checked against a
hole, one moves there.
"""

from __future__ import annotations

from hpctwin.engine.capacity.availability_profile import (
    first_of_stretch,
    first_span,
    last_of_stretch,
    longest_span,
    most_free,
    place_at,
)
from hpctwin.engine.compile.intrinsics import leading_zeros
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import BUCKETS, NEVER, ONE, ZERO, Arrays

JOBS_OF_BUCKET = 16


@jit
def size_of(nodes: int) -> int:
    """Return the half octave of a number of nodes."""
    shift = max(62 - leading_zeros(nodes), 0)
    return 2 * shift + (nodes >> shift) - 1


@jit
def fewest_of(size: int) -> int:
    """Return the fewest nodes of a half octave."""
    shift = max((size - 1) // 2, 0)
    return (size + 1 - 2 * shift) << shift


@jit
def bucket_of(time: int, sim: Arrays) -> int:
    """Return the bucket of jobs or holes that begin at a time."""
    standing = sim.standing
    return min(max(time - standing.since, ZERO) >> standing.shift, standing.buckets - 1)


@jit
def note_lengths(sim: Arrays) -> None:
    """Compute the length of the shortest jobs, by bucket of their start and by size.

    A bucket includes all later ones: ``sim.shortest`` for one size, ``sim.least_of`` for it and all
    larger sizes.
    """
    standing = sim.standing
    now = sim.clock.now
    last = now
    for slot in range(standing.slots):
        last = max(last, sim.stay[slot].start)
    buckets = min(BUCKETS, 1 + standing.slots // JOBS_OF_BUCKET)
    shift = ZERO
    while (last - now) >> shift >= buckets:
        shift += 1
    buckets = ((last - now) >> shift) + 1
    standing.since = now
    standing.shift = shift
    standing.buckets = buckets
    for bucket in range(buckets):
        for size in range(standing.sizes):
            sim.shortest[bucket, size] = NEVER
    for slot in range(standing.slots):
        stay = sim.stay[slot]
        if stay.start >= now:
            bucket = bucket_of(stay.start, sim)
            shortest = sim.shortest[bucket, stay.size]
            sim.shortest[bucket, stay.size] = min(shortest, stay.expected)
    for bucket in range(buckets - 1, -1, -1):
        least = NEVER
        for size in range(standing.sizes - 1, -1, -1):
            shortest = sim.shortest[bucket, size]
            if bucket < buckets - 1:
                shortest = min(shortest, sim.shortest[bucket + 1, size])
                sim.shortest[bucket, size] = shortest
            least = min(least, shortest)
            sim.least_of[bucket, size] = least
    note_holes(ZERO, standing.sizes, sim)


@jit
def note_new(slot: int, sim: Arrays) -> None:
    """Update the shortest lengths for a job that is new in the plan."""
    stay = sim.stay[slot]
    if sim.standing.buckets > 0:
        for bucket in range(bucket_of(stay.start, sim) + 1):
            shortest = sim.shortest[bucket, stay.size]
            sim.shortest[bucket, stay.size] = min(shortest, stay.expected)
            for size in range(stay.size + 1):
                sim.least_of[bucket, size] = min(sim.least_of[bucket, size], stay.expected)


@jit
def note_holes(first: int, last: int, sim: Arrays) -> None:
    """Compute the length of the longest hole, by size and by bucket of its begin.

    A bucket includes all earlier ones (``sim.reach``).

    Args:
        first, last: Range of sizes.
        sim: Simulation.
    """
    for size in range(first, last):
        for bucket in range(sim.standing.buckets):
            sim.reach[size, bucket] = 0
        for hole in range(sim.standing.holes):
            if sim.room[size, hole] > 0:
                note_room(size, bucket_of(sim.hole[hole].start, sim), sim.room[size, hole], sim)


@jit
def note_room(size: int, bucket: int, room: int, sim: Arrays) -> None:
    """Update ``sim.reach`` for one more hole with a length for a size."""
    while bucket < sim.standing.buckets and sim.reach[size, bucket] < room:
        sim.reach[size, bucket] = room
        bucket += 1


@jit
def widen_hole(hole: int, size: int, start: int, end: int, sim: Arrays) -> int:
    """Extend a hole by a span in which jobs of a size fit.

    Args:
        hole: Hole to extend; -1 for a new one.
        size: Size of the jobs.
        start, end: The span, ms.
        sim: Simulation.

    Returns:
        The hole.
    """
    if hole < 0:
        # The last hole includes all holes for which there is no row.
        hole = min(sim.standing.holes, len(sim.hole) - 1)
        if hole == sim.standing.holes:
            sim.standing.holes += 1
            sim.hole[hole].start = NEVER
            sim.hole[hole].end = 0
            for other in range(sim.standing.sizes):
                sim.room[other, hole] = 0
    one = sim.hole[hole]
    one.start = min(one.start, start)
    one.end = max(one.end, end)
    one.fresh = 1
    sim.room[size, hole] = max(sim.room[size, hole], end - start)
    return hole


@jit
def span_around(first: int, last: int, nodes: int, sim: Arrays) -> int:
    """Return how long enough nodes are free around rows on which they are free, ms."""
    end = sim.profile[last_of_stretch(last, nodes, sim) + 1].time
    return end - sim.profile[first_of_stretch(first, nodes, sim)].time


@jit
def wake(first: int, last: int, fewest: int, nodes: int, sim: Arrays) -> None:
    """Find a hole around rows on which nodes have just become free.

    Args:
        first, last: The rows.
        fewest: Fewest nodes that are free on all of these rows now.
        nodes: Number of nodes that have become free.
        sim: Simulation.
    """
    bucket = bucket_of(sim.profile[first].time, sim)
    enough = max(fewest - nodes, ZERO) + 1
    smallest = size_of(enough)
    # The stretch is longest for the fewest nodes; nearly always no job fits there.
    longest = span_around(first, last, enough, sim)
    if sim.least_of[bucket, smallest] > longest:
        return
    most = most_free(first, last, sim)
    if most == 0:
        return
    largest = size_of(most)
    hole = -ONE
    left = first
    right = last
    for size in range(largest, smallest - 1, -1):
        shortest = sim.shortest[bucket, size]
        if shortest == NEVER or shortest > longest:
            continue
        wanted = max(enough, fewest_of(size))
        left = first_of_stretch(left, wanted, sim)
        right = last_of_stretch(right, wanted, sim)
        start = sim.profile[left].time
        end = sim.profile[right + 1].time
        if end - start >= shortest:
            hole = widen_hole(hole, size, start, end, sim)
    if hole >= 0:
        bucket = bucket_of(sim.hole[hole].start, sim)
        for size in range(smallest, largest + 1):
            note_room(size, bucket, sim.room[size, hole], sim)


@jit
def find_holes(sim: Arrays) -> None:
    """Make a hole of each long enough stretch of the plan.

    This is for a plan without a record of where nodes became free.
    """
    last = sim.standing.last
    for size in range(sim.standing.sizes):
        wanted = fewest_of(size)
        place = sim.standing.first
        while place < last:
            if sim.profile[place].free >= wanted:
                start = sim.profile[place].time
                place = last_of_stretch(place, wanted, sim)
                # No job begins later than the last one ends.
                end = min(sim.profile[place + 1].time, sim.profile[last].time)
                if end - start >= sim.shortest[bucket_of(start, sim), size]:
                    widen_hole(-ONE, size, start, end, sim)
            place += 1
    note_holes(ZERO, sim.standing.sizes, sim)


@jit
def long_hole(hole: int, size: int, length: int, sim: Arrays) -> int:
    """Return the next hole from one on that is long enough for a size.

    The result is the number of holes if there is none.
    """
    holes = sim.standing.holes
    while hole < holes and sim.room[size, hole] < length:
        hole += ONE
    return hole


@jit
def leap(slot: int, to: int, sim: Arrays) -> int:
    """Return the earliest start of a job in a hole; ``to`` if none is earlier."""
    stay = sim.stay[slot]
    size = stay.size
    missed = False
    hole = long_hole(ZERO, size, stay.expected, sim)
    while hole < sim.standing.holes:
        start = sim.hole[hole].start
        if start < to and start + stay.expected <= stay.start:
            place = place_at(start, sim)
            end = sim.hole[hole].end
            found = first_span(place, stay.nodes, stay.expected, min(end, stay.start), sim)
            if found >= 0:
                to = min(to, sim.profile[found].time)
            else:
                room = longest_span(place, fewest_of(size), start, end, sim)
                for larger in range(size, sim.standing.sizes):
                    sim.room[larger, hole] = min(sim.room[larger, hole], room)
                missed = True
        hole = long_hole(hole + 1, size, stay.expected, sim)
    if missed:
        note_holes(size, size + 1, sim)
    return to


@jit
def forget_holes(sim: Arrays) -> None:
    """Drop holes of the pass before, and holes that are filled.

    All jobs have been tried by now.
    """
    standing = sim.standing
    kept = ZERO
    for hole in range(standing.holes):
        if sim.hole[hole].fresh == 0:
            continue
        longest = ZERO
        for size in range(standing.sizes):
            room = sim.room[size, hole]
            sim.room[size, kept] = room
            longest = max(longest, room)
        if longest > 0:
            sim.hole[kept].start = sim.hole[hole].start
            sim.hole[kept].end = sim.hole[hole].end
            sim.hole[kept].fresh = 0
            kept += 1
    standing.holes = kept
