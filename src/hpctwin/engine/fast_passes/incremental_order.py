"""Queues whose order changes with time, kept sorted from pass to pass.

Most pending jobs keep their order between two passes. The lines of their scores (`linear_scores`,
`score_line_scan`) are therefore stored in that order, and a pass scans them once. A job that has
arrived since, or whose line has crossed the one before it, moves forward to its place. Only jobs
whose lines meet within rounding are scored.

This is an insertion sort whose steps are the changes of order. It costs Q multiplications, no call
of the ordering and no heap; scoring all jobs costs ten times as much. If there are many changes,
all jobs are scored and sorted again.
"""

from __future__ import annotations

from hpctwin.engine.compile.intrinsics import move_rows
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.fast_passes.score_line_scan import (
    draw_expired,
    line_up,
    line_up_fresh,
    scored_before,
)
from hpctwin.engine.queue.linear_scores import MARGIN, margin_of, value_of
from hpctwin.engine.queue.order import order_queue, pays, pop_order
from hpctwin.engine.queue.priority_tournament import shift_labels
from hpctwin.engine.state.layout import LINED, NEVER, UNRACED, WAITING, ZERO, Arrays

STEPS = 32
"""Steps per pending job that cost as much as sorting from scratch."""


@jit
def is_kept(sim: Arrays) -> bool:
    """Sort pending jobs in ``sim.racer``; return False if that fails or is too slow.

    Fair shares must be up to date.
    """
    rules = sim.rules
    race = sim.race
    fits = rules.order_power > 0.0 and rules.chains == 0 and race.failed == 0
    if rules.fairshare == 1 and len(sim.promised) > sim.clock.queued:
        fits = False
    if not (fits and pays(rules.lines_from, LINED, sim)):
        race.valid = UNRACED
        return False
    if race.valid == LINED and line_up_fresh(sim):
        if race.until > sim.clock.now or draw_expired(sim):
            if sort_lines(sim):
                return True
    return line_up_in_order(sim)


@jit
def line_up_in_order(sim: Arrays) -> bool:
    """Sort all pending jobs by their scores; return False if a line cannot be drawn."""
    race = sim.race
    race.valid = UNRACED
    race.seated = 0
    race.fresh = 0
    race.fewest = NEVER
    race.until = NEVER
    for left in range(order_queue(sim), 0, -1):
        j = pop_order(left, sim)
        if sim.state[j].phase == WAITING and not line_up(j, sim):
            race.failed = 1
            return False
    race.valid = LINED
    return True


@jit
def sort_lines(sim: Arrays) -> bool:
    """Drop jobs that are no longer pending, and sort the others.

    Returns False if that takes too many steps.
    """
    race = sim.race
    if sim.rules.fairshare == 1 and race.seated > 0:
        shift_labels(sim.racer[0].job, sim)
    now = sim.clock.now
    around = margin_of(now)
    most = STEPS * race.seated
    steps = ZERO
    kept = ZERO
    last = 0.0
    moving = 0.0
    for place in range(race.seated):
        line = sim.racer[place]
        if sim.state[line.job].phase != WAITING:
            continue
        value = line.level + line.slope * now
        if sim.rules.fairshare == 1:
            value += sim.fair[line.label].shift
        to = kept
        # The test of `comes_before`, inlined: it is called only if lines are close.
        margin = MARGIN * max(abs(value), abs(last)) + (moving + abs(line.slope)) * around
        if kept > 0 and value <= last + margin:
            to = place_among(place, kept, sim)
            steps += kept - to
            if steps > most:
                return False
        if to == kept:
            last = value
            moving = abs(line.slope)
        move_line(place, to, kept, sim)
        kept += 1
    race.seated = kept
    return True


@jit
def comes_before(a: int, b: int, sim: Arrays) -> bool:
    """Return whether the job at a place precedes the job at another.

    Lines decide; if they meet within rounding, scores decide.
    """
    one = sim.racer[a]
    other = sim.racer[b]
    mine = value_of(a, sim)
    theirs = value_of(b, sim)
    margin = MARGIN * max(abs(mine), abs(theirs))
    margin += (abs(one.slope) + abs(other.slope)) * margin_of(sim.clock.now)
    if abs(mine - theirs) > margin:
        return mine < theirs
    return scored_before(one.job, other.job, sim)


@jit
def place_among(place: int, kept: int, sim: Arrays) -> int:
    """Return the place of a job among the first ``kept`` jobs, which are in order.

    Args:
        place: Present place of the job.
        kept: Number of sorted jobs.
        sim: Simulation.
    """
    if not comes_before(place, kept - 1, sim):
        return kept
    low = ZERO
    high = kept - 1
    while low < high:
        middle = (low + high) // 2
        if comes_before(place, middle, sim):
            high = middle
        else:
            low = middle + 1
    return low


@jit
def move_line(place: int, to: int, kept: int, sim: Arrays) -> None:
    """Move the line at a place to a place among the first ``kept`` lines.

    Args:
        place: Present place of the line.
        to: New place.
        kept: Number of sorted lines; those from ``to`` on move back by one.
        sim: Simulation.
    """
    if place == to:
        return
    line = sim.racer[place]
    job = line.job
    label = line.label
    nodes = line.nodes
    expected = line.expected
    until = line.until
    slope = line.slope
    level = line.level
    move_rows(sim.racer, to + 1, to, kept)
    line = sim.racer[to]
    line.job = job
    line.label = label
    line.nodes = nodes
    line.expected = expected
    line.until = until
    line.slope = slope
    line.level = level
