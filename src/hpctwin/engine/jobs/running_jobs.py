"""The running jobs by planned end: a sorted table with holes.

A job that ends leaves a hole, which keeps its time. A job that starts moves only the jobs between
its place and the nearest hole. With thousands of running jobs few are moved; a table without holes
would move half of them.

The idea is the packed-memory array of Bender, Demaine and Farach-Colton (FOCS 2000), without their
proof: holes are where jobs ended, and holes before the first job are given up. If thousands of jobs
run and each end is followed by a start, few holes are left. If the nearest hole is far, each job
gets a new hole behind it.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import Arrays

_FEW = 16
_MANY = 512
_FAR = 128


@jit
def first_from(planned: int, sim: Arrays) -> int:
    """Return the first place whose planned end is not before a time."""
    low = sim.clock.run_first
    high = sim.clock.run_end
    while low < high:
        middle = (low + high) // 2
        if sim.run[middle].planned < planned:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def put(place: int, planned: int, j: int, sim: Arrays) -> None:
    """Write one place of the table."""
    sim.run[place].planned = planned
    sim.run[place].job = j


@jit
def close_holes(sim: Arrays) -> None:
    """Move all jobs to the beginning, without holes."""
    n = 0
    for r in range(sim.clock.run_first, sim.clock.run_end):
        if sim.run[r].job >= 0:
            put(n, sim.run[r].planned, sim.run[r].job, sim)
            n += 1
    sim.clock.run_first = 0
    sim.clock.run_end = n


@jit
def spread_holes(sim: Arrays) -> None:
    """Put a hole behind each job; the table must have enough rows."""
    close_holes(sim)
    n = sim.clock.run_end
    for r in range(n - 1, -1, -1):
        planned = sim.run[r].planned
        job = sim.run[r].job
        put(2 * r + 1, planned, -1, sim)
        put(2 * r, planned, job, sim)
    sim.clock.run_end = 2 * n - 1


@jit
def nearest_hole(place: int, sim: Arrays) -> tuple[int, int]:
    """Return the nearest hole to the left and to the right of a place.

    Only one of the two is a hole; the search stops there, and the other is equally far away. The
    right one has priority. Places outside the used range count as holes.
    """
    clock = sim.clock
    right = place
    left = place - 1
    while right < clock.run_end and sim.run[right].job >= 0:
        if left >= 0 and (left < clock.run_first or sim.run[left].job < 0):
            break
        right += 1
        left -= 1
    return left, right


@jit
def run_insert(j: int, planned: int, sim: Arrays) -> None:
    """Insert a job into the running jobs, behind jobs with the same planned end."""
    clock = sim.clock
    used = clock.run_end - clock.run_first
    # Compact the table if it is full or mostly holes.
    most = 4 if clock.running > _MANY else 2
    if clock.run_end == len(sim.run) or used > most * clock.running + _FEW:
        close_holes(sim)
    place = first_from(planned + 1, sim)
    left, right = nearest_hole(place, sim)
    if right - place > _FAR and 2 * clock.running <= len(sim.run):
        spread_holes(sim)
        place = first_from(planned + 1, sim)
        left, right = nearest_hole(place, sim)
    if right < clock.run_end and sim.run[right].job >= 0:
        for r in range(left, place - 1):
            put(r, sim.run[r + 1].planned, sim.run[r + 1].job, sim)
        put(place - 1, planned, j, sim)
        clock.run_first = min(clock.run_first, left)
    else:
        for r in range(right, place, -1):
            put(r, sim.run[r - 1].planned, sim.run[r - 1].job, sim)
        put(place, planned, j, sim)
        clock.run_end = max(clock.run_end, right + 1)
    clock.running += 1


@jit
def run_remove(j: int, planned: int, sim: Arrays) -> None:
    """Remove a job from the running jobs, given its planned end in the table."""
    clock = sim.clock
    place = first_from(planned, sim)
    while sim.run[place].job != j:
        place += 1
    sim.run[place].job = -1
    clock.running -= 1
    # Neither the first nor the last place is a hole.
    while clock.run_first < clock.run_end and sim.run[clock.run_first].job < 0:
        clock.run_first += 1
    while clock.run_end > clock.run_first and sim.run[clock.run_end - 1].job < 0:
        clock.run_end -= 1
