"""Short queues whose order changes with time: lines give the first job.

Scores that are lines over time (`linear_scores`) are drawn once, when a job arrives. The lines of
all pending jobs are contiguous, and each search scans them. The first searches look for the first
job of all; once there is a head job, they look for the first job that fits.

A pass costs Q multiplications for each job that starts, plus two scans. It needs no call of the
ordering and no heap; only jobs whose lines meet within rounding are scored. With hundreds of
pending jobs the tournament (`priority_tournament`) is cheaper, as its searches do not scan all
jobs.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.fast_passes.counted_passes import (
    add_asked,
    amounts_decide,
    lacks,
    lacks_later,
    pass_head,
    reservation_of,
)
from hpctwin.engine.jobs.transitions import start_job
from hpctwin.engine.queue.limits import at_any_limit
from hpctwin.engine.queue.linear_scores import MARGIN, draw_line, margin_of
from hpctwin.engine.queue.order import before, cache_queue_rows, dequeue, drop_started, score
from hpctwin.engine.state.layout import (
    ANYONE_PASSES,
    LINED,
    NEVER,
    NOBODY_PASSES,
    TAKE,
    UNRACED,
    WAITING,
    Arrays,
)


@jit
def line_up(j: int, sim: Arrays) -> bool:
    """Append a job to the list of lines; return False if its line cannot be drawn."""
    race = sim.race
    place = race.seated
    racer = sim.racer[place]
    racer.job = j
    racer.label = sim.job[j].share if sim.rules.fairshare == 1 else 0
    racer.nodes = sim.job[j].nodes
    racer.expected = sim.job[j].expected
    if not draw_line(place, sim):
        return False
    race.seated = place + 1
    race.fewest = min(race.fewest, racer.nodes)
    race.until = min(race.until, racer.until)
    return True


@jit
def leave_line(place: int, sim: Arrays) -> None:
    """Remove the job at a place; the last job moves to its place."""
    sim.race.seated -= 1
    racer = sim.racer[place]
    last = sim.racer[sim.race.seated]
    racer.job = last.job
    racer.label = last.label
    racer.nodes = last.nodes
    racer.expected = last.expected
    racer.until = last.until
    racer.slope = last.slope
    racer.level = last.level


@jit
def line_up_all(sim: Arrays) -> bool:
    """Draw the lines of all pending jobs; return False if one cannot be drawn."""
    race = sim.race
    race.valid = UNRACED
    race.seated = 0
    race.fresh = 0
    race.back = 0
    race.fewest = NEVER
    race.until = NEVER
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if sim.state[j].phase == WAITING and not line_up(j, sim):
            return False
    race.valid = LINED
    return True


@jit
def line_up_fresh(sim: Arrays) -> bool:
    """Add jobs that arrived since the last pass; return False if a line is missing."""
    for i in range(sim.race.fresh):
        j = sim.fresh[i]
        if sim.state[j].phase == WAITING and not line_up(j, sim):
            return False
    sim.race.fresh = 0
    return True


@jit
def draw_expired(sim: Arrays) -> bool:
    """Redraw lines whose validity has ended; return False if one cannot be drawn."""
    race = sim.race
    race.until = NEVER
    for place in range(race.seated):
        if sim.racer[place].until <= sim.clock.now and not draw_line(place, sim):
            return False
        race.until = min(race.until, sim.racer[place].until)
    return True


@jit
def lines_hold(sim: Arrays) -> bool:
    """Update the lines to the present time; return False if one cannot be drawn."""
    race = sim.race
    # Jobs that left without starting are still in the list.
    most = 2 * (sim.clock.queued - race.gone)
    if race.valid == LINED and race.seated + race.fresh <= most:
        holds = line_up_fresh(sim)
    else:
        holds = line_up_all(sim)
    return holds and (race.until > sim.clock.now or draw_expired(sim))


@jit
def scored_before(a: int, b: int, sim: Arrays) -> bool:
    """Return whether job a precedes job b by their scores."""
    order = sim.hooks.order
    return before(score(order, a, sim), a, score(order, b, sim), b, sim)


@jit
def first_lined(free: int, spare: int, length: int, sim: Arrays) -> int:
    """Return the place of the first job that fits; -1 if none does.

    The arguments are those of `priority_tournament.first_fitting`.
    """
    now = sim.clock.now
    race = sim.race
    fewest = NEVER
    best = -1
    leading = 0.0
    moving = 0.0
    place = 0
    while place < race.seated:
        racer = sim.racer[place]
        fewest = min(fewest, racer.nodes)
        place += 1
        if racer.nodes > free or (racer.nodes > spare and racer.expected > length):
            continue
        value = racer.level + racer.slope * now
        margin = MARGIN * max(abs(value), abs(leading))
        margin += (moving + abs(racer.slope)) * margin_of(now)
        if best >= 0 and value > leading + margin:
            continue
        j = racer.job
        if sim.state[j].phase != WAITING:
            place -= 1
            leave_line(place, sim)
        elif not at_any_limit(j, sim):
            if best < 0 or value < leading - margin or scored_before(j, sim.racer[best].job, sim):
                best = place - 1
                leading = value
                moving = abs(racer.slope)
    race.fewest = fewest
    return best


def pass_lined(sim: Arrays) -> None:
    """Do the same as `counted_passes.pass_raced`, with a scan of the lines."""
    race = sim.race
    if not amounts_decide(sim):
        return
    if not lines_hold(sim):
        race.valid = UNRACED
        race.failed = 1
        return
    race.done = 1
    now = sim.clock.now
    others = sim.rules.others
    shadow = NEVER
    spare = NEVER
    head = others == ANYONE_PASSES
    up = sim.amount[0] - sim.stock[0].down
    while race.fewest <= sim.stock[0].free:
        free = sim.stock[0].free
        if not head:
            place = first_lined(up, up, NEVER, sim)
        else:
            place = first_lined(free, spare, shadow - now, sim)
        if place < 0:
            return
        j = sim.racer[place].job
        nodes = sim.job[j].nodes
        if nodes > free:
            if others == NOBODY_PASSES:
                return
            if sim.rules.own_candidates == 1:
                cache_queue_rows(sim)
                pass_head(j, sim)
                return
            head = True
            shadow, spare = reservation_of(j, sim)
            continue
        delays = now + sim.job[j].expected > shadow
        if lacks(j, sim) or (delays and lacks_later(j, sim)):
            # The jobs started so far delay no other job: an ordinary pass decides the rest alike.
            drop_started(sim)
            race.done = 0
            return
        sim.take[0] = nodes
        start_job(j, sim)
        leave_line(place, sim)
        if sim.rules.own_candidates == 0:
            # This is cheaper than searching the queue for started jobs afterwards.
            dequeue(j, sim)
            race.gone -= 1
        if delays:
            spare -= nodes
            add_asked(j, TAKE, sim)
