"""Limits that several jobs share: limits of a user, an account or a QOS.

All jobs of one user, account, QOS and partition share the same limits, which are stored once for
all of them (`Bound`). The cost of a start or an end grows only with the number of limits of that
job.

Jobs that a pass skips: they are at a limit, or too few nodes are up.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import cache_queue_rows
from hpctwin.engine.state.layout import NEVER, ONE, PENDING, RUNNING, WAITING, Arrays
from hpctwin.engine.state.sim import Sim

__all__ = [
    "LOOK_MS",
    "begin_used",
    "count_held",
    "count_left",
    "count_submitted",
    "forget_used",
    "hold",
    "is_over",
    "learn_least",
    "next_decay",
    "next_look",
    "reached",
    "room_of",
    "too_many_submitted",
]

SECOND_MS = 1000
LOOK_MS = 60_000
"""Step at which limits are checked again that only time can lift, ms.

Its multiples are event times while jobs run and wait under such a limit.
"""


@jit
def walltime_ends(start: int, j: int, sim: Arrays) -> int:
    """Return the end of the walltime of a job that starts at a time, s, rounded up."""
    return (start + sim.job[j].limit + SECOND_MS - 1) // SECOND_MS


@jit
def counts_until(j: int, sim: Arrays) -> int:
    """Return the time up to which a running job counts under limits of minutes, s.

    It is the end of its walltime, as if it had never been suspended. A job that was suspended may
    run longer, and then counts nothing: the time is now, and changes with it.
    """
    start = sim.state[j].start
    if len(sim.beneath) == 0:
        return walltime_ends(start, j, sim)
    end = walltime_ends(start - sim.cut[j].paused, j, sim)
    return max(end, sim.clock.now // SECOND_MS)


@jit
def is_over(j: int, sim: Arrays) -> bool:
    """Return whether a job would break a limit if it started now."""
    for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
        bound = sim.bound[b]
        if bound.holds == 0:
            continue
        ceiling = sim.ceiling[bound.ceiling]
        if ceiling.timed == 1:
            if is_over_time(j, b, sim):
                return True
        elif sim.held[bound.ceiling].amount + sim.charge[j, bound.measure] > ceiling.most:
            return True
    return False


@jit
def is_over_time(j: int, b: int, sim: Arrays) -> bool:
    """Return whether a job would break a limit on amounts times seconds.

    Args:
        j: Job.
        b: Row of ``bound``.
        sim: Simulation.
    """
    bound = sim.bound[b]
    ceiling = sim.ceiling[bound.ceiling]
    charge = sim.charge[j, bound.measure]
    if ceiling.used == 1 and charge == 0:
        return False
    there = 0
    if bound.seen == 1:
        if ceiling.used == 1 and used_s(bound.ceiling, sim) >= ceiling.most:
            return True
        there = reckoned(bound.ceiling, sim)
    own = 0
    if ceiling.own == 1:
        seconds = walltime_ends(sim.clock.now, j, sim) - sim.clock.now // SECOND_MS
        own = times(charge, bound.own) * seconds
    return there + own > ceiling.most


@jit
def times(charge: int, weight: float) -> int:
    """Return a job's charge times a weight, rounded."""
    return int(np.rint(charge * weight))


@jit
def reckoned(c: int, sim: Arrays) -> int:
    """Return the amounts times seconds that count under a limit at present.

    A job that is about to start is not included.
    """
    found = 0
    if sim.ceiling[c].left == 1:
        held = sim.held[c]
        found = held.until - held.amount * (sim.clock.now // SECOND_MS)
    if sim.ceiling[c].used == 1:
        found += used_s(c, sim)
    return found


@jit
def used_s(c: int, sim: Arrays) -> int:
    """Return the past usage under a limit: amounts times seconds.

    Only whole minutes of whole units count.
    """
    minute = sim.ceiling[c].minute
    return int(used_by_now(c, sim) // minute) * (minute // SECOND_MS)


@jit
def used_by_now(c: int, sim: Arrays) -> float:
    """Return the past usage under a limit, decayed to now.

    It is exact as long as the set of running jobs does not change.
    """
    used = sim.used[c]
    rate = sim.ceiling[c].decay
    amount = sim.held[c].amount
    elapsed = sim.clock.now - used.at
    if elapsed == 0:
        return used.amount
    if rate == 0.0:
        return used.amount + amount * elapsed
    steady = amount / rate
    return (used.amount - steady) * math.exp(-rate * elapsed) + steady


@jit
def forget_used(sim: Arrays) -> None:
    """Reset the past usage under all limits to zero."""
    for c in range(len(sim.used)):
        sim.used[c].amount = 0.0
        sim.used[c].at = sim.clock.now


@jit
def learn_least(j: int, sim: Arrays) -> None:
    """Update the smallest pending charges under a job's limits by its own charges."""
    for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
        charge = sim.charge[j, sim.bound[b].measure]
        lightest = sim.lightest[b]
        lightest.charge = min(lightest.charge, charge)
        lightest.each = min(lightest.each, charge // sim.job[j].nodes)


@jit
def room_of(first: int, last: int, sim: Arrays) -> int:
    """Return an upper bound of a job's nodes under some limits; 0 if none may start.

    It ignores limits that only time can lift: `is_over` checks them.

    Args:
        first, last: Range of rows of ``bound``.
        sim: Simulation; `learn_least` has seen all jobs that wait under these limits.
    """
    room = NEVER
    for b in range(first, last):
        bound = sim.bound[b]
        ceiling = sim.ceiling[bound.ceiling]
        if bound.holds == 0 or ceiling.timed == 1:
            continue
        left = ceiling.most - sim.held[bound.ceiling].amount
        lightest = sim.lightest[b]
        if left < lightest.charge:
            return 0
        if lightest.each > 0:
            room = min(room, left // lightest.each)
    return room


@jit
def next_look(sim: Arrays) -> int:
    """Return the next time at which to check limits that only time can lift."""
    return (sim.clock.now // LOOK_MS + 1) * LOOK_MS


@jit
def next_decay(sim: Arrays) -> int:
    """Return the next time at which to check whether past usage has decayed enough.

    `NEVER` if no limit depends on it.
    """
    for c in range(len(sim.used)):
        ceiling = sim.ceiling[c]
        if ceiling.decay == 0.0 or ceiling.most <= 0:
            continue
        least = ONE if ceiling.own == 1 else ceiling.most
        used = sim.used[c]
        undecayed = used.amount + sim.held[c].amount * (sim.clock.now - used.at)
        if ceiling.left == 0 and undecayed < least * SECOND_MS:
            continue
        if reckoned(c, sim) >= least:
            return (sim.clock.now // sim.rules.fair_every + 1) * sim.rules.fair_every
    return NEVER


@jit
def hold(j: int, sign: int, sim: Arrays) -> None:
    """Count a job that starts (sign 1) or ends (-1) under its limits.

    ``state.start`` must be set.
    """
    timed = 0
    for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
        bound = sim.bound[b]
        charge = sign * times(sim.charge[j, bound.measure], bound.weight)
        held = sim.held[bound.ceiling]
        ceiling = sim.ceiling[bound.ceiling]
        if ceiling.used == 1:
            used = sim.used[bound.ceiling]
            used.amount = used_by_now(bound.ceiling, sim)
            used.at = sim.clock.now
        held.amount += charge
        if ceiling.left == 1:
            held.until += charge * counts_until(j, sim)
            timed = max(timed, 1 - ceiling.used)
    sim.clock.timed += sign * timed


@jit
def count_left(sim: Arrays) -> None:
    """Recount `records.Held.until` if jobs may be suspended: `counts_until` changes then."""
    if len(sim.held) == 0 or len(sim.beneath) == 0:
        return
    for c in range(len(sim.held)):
        sim.held[c].until = 0
    for place in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[place].job
        if j < 0:
            continue
        for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
            bound = sim.bound[b]
            if sim.ceiling[bound.ceiling].left == 1:
                charge = times(sim.charge[j, bound.measure], bound.weight)
                sim.held[bound.ceiling].until += charge * counts_until(j, sim)


@jit
def too_many_submitted(j: int, sim: Arrays) -> bool:
    """Return whether a limit of submitted jobs is reached, so that a job is refused."""
    for b in range(sim.bounds[j, 1], sim.bounds[j, 2]):
        bound = sim.bound[b]
        if bound.holds == 1 and sim.held[bound.ceiling].amount >= sim.ceiling[bound.ceiling].most:
            return True
    return False


@jit
def count_submitted(j: int, sign: int, sim: Arrays) -> None:
    """Count one more (sign 1) or one less (-1) pending or running job."""
    for b in range(sim.bounds[j, 1], sim.bounds[j, 2]):
        sim.held[sim.bound[b].ceiling].amount += sign


def count_held(sim: Sim) -> None:
    """Recount what all pending and running jobs have under their limits."""
    held = sim["held"]
    if not len(held):
        return
    held.fill(0)
    sim.clock.timed = 0
    phase, bounds = sim["state"]["phase"], sim["bounds"]
    running = np.flatnonzero(phase == RUNNING)
    job, bound = _pairs(running, bounds[running, 0], bounds[running, 1], sim)
    charge = _weighed(job, bound, sim)
    np.add.at(held["amount"], bound["ceiling"], charge)
    held["until"] = _until(sim)
    ceiling = sim["ceiling"][bound["ceiling"]]
    sim.clock.timed = len(np.unique(job[(ceiling["left"] == 1) & (ceiling["used"] == 0)]))
    there = np.flatnonzero(np.isin(phase, (PENDING, WAITING, RUNNING)))
    job, bound = _pairs(there, bounds[there, 1], bounds[there, 2], sim)
    np.add.at(held["amount"], bound["ceiling"], 1)


def _until(sim: Sim) -> npt.NDArray[np.int64]:
    """Return `records.Held.until` of each limit at present."""
    bounds = sim["bounds"]
    running = np.flatnonzero(sim["state"]["phase"] == RUNNING)
    job, bound = _pairs(running, bounds[running, 0], bounds[running, 1], sim)
    start = sim["state"]["start"][job]
    if suspends := len(sim["beneath"]) > 0:
        start = start - sim["cut"]["paused"][job]
    end = -(-(start + sim["job"]["limit"][job]) // SECOND_MS)
    if suspends:
        end = np.maximum(end, sim.clock.now // SECOND_MS)
    found = np.zeros(len(sim["held"]), np.int64)
    left = sim["ceiling"]["left"][bound["ceiling"]]
    np.add.at(found, bound["ceiling"], left * _weighed(job, bound, sim) * end)
    return found


def reached(sim: Sim, row: int) -> int:
    """Return the first limit that holds a pending job back: row of ``ceiling``, or -1."""
    if not len(sim["held"]):
        return -1
    first, last, _ = sim["bounds"][row]
    for bound in sim["bound"][first:last]:
        c, charge = int(bound["ceiling"]), int(sim["charge"][row, bound["measure"]])
        ceiling = sim["ceiling"][c]
        there, most = int(sim["held"]["amount"][c]), int(ceiling["most"])
        if ceiling["timed"]:
            used = _used_s(c, sim) if ceiling["used"] else 0
            if ceiling["used"] and charge == 0:
                continue
            now = int(sim.clock.now) // SECOND_MS
            there = (int(_until(sim)[c]) - there * now if ceiling["left"] else 0) + used
            there *= int(bound["seen"])
            end = -(-(int(sim.clock.now) + int(sim["job"]["limit"][row])) // SECOND_MS)
            charge = int(np.rint(charge * bound["own"])) * (end - now) * int(ceiling["own"])
            if ceiling["used"] and bound["seen"] and used >= most:
                charge = max(charge, most + 1 - there)
        if bound["holds"] and there + charge > most:
            return c
    return -1


def _used_s(c: int, sim: Sim) -> int:
    """Do the same as `used_s`, in Python."""
    ceiling, used = sim["ceiling"][c], sim["used"][c]
    elapsed, rate = int(sim.clock.now) - int(used["at"]), float(ceiling["decay"])
    amount, found = int(sim["held"]["amount"][c]), float(used["amount"])
    if elapsed and rate == 0.0:
        found += amount * elapsed
    elif elapsed:
        steady = amount / rate
        found = (found - steady) * math.exp(-rate * elapsed) + steady
    return int(found // ceiling["minute"]) * (int(ceiling["minute"]) // SECOND_MS)


def begin_used(now_ms: int, sim: Sim) -> None:
    """Set past usage to that of the running jobs since their start or the last reset.

    The usage of other jobs is unknown.
    """
    used, bounds = sim["used"], sim["bounds"]
    if not len(used):
        return
    used["at"] = now_ms
    running = np.flatnonzero(sim["state"]["phase"] == RUNNING)
    job, bound = _pairs(running, bounds[running, 0], bounds[running, 1], sim)
    since = np.maximum(sim["state"]["start"][job], last_reset(now_ms, sim))
    amount = _weighed(job, bound, sim) * np.maximum(now_ms - since, 0.0)
    of_use = bound["ceiling"] < len(used)
    np.add.at(used["amount"], bound["ceiling"][of_use], amount[of_use])


def last_reset(now_ms: int, sim: Sim) -> int:
    """Return the time of the last usage reset; far in the past if there was none."""
    done = sim["reset"][sim["reset"] <= now_ms]
    return int(done[-1]) if len(done) else -NEVER


def _weighed(
    job: npt.NDArray[np.int64], bound: npt.NDArray[np.void], sim: Sim
) -> npt.NDArray[np.int64]:
    """Return what each job counts under a limit, for pairs of job and limit."""
    found: npt.NDArray[np.int64] = np.rint(
        sim["charge"][job, bound["measure"]] * bound["weight"]
    ).astype(np.int64)
    return found


def _pairs(
    rows: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    sim: Sim,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Return all pairs of jobs and their limits, as two arrays."""
    count = last - first
    # Position in ``bound`` minus position in the result, for each pair.
    start = np.repeat(first - (np.cumsum(count) - count), count)
    return np.repeat(rows, count), sim["bound"][start + np.arange(count.sum())]


@jit
def at_limit(partition: int, user: int, sim: Arrays) -> bool:
    """Return whether a user has reached the limit of running jobs in a partition."""
    limit = sim.user_limit[partition]
    return limit > 0 and user > 0 and sim.user_running[partition, user] >= limit


@jit
def at_any_limit(j: int, sim: Arrays) -> bool:
    """Return whether a limit keeps a job from starting."""
    if sim.user_running.width > 0:
        if at_limit(sim.partition[sim.job[j].kind], sim.job[j].user, sim):
            return True
    return len(sim.held) > 0 and is_over(j, sim)


@jit
def asks_too_much(j: int, sim: Arrays) -> bool:
    """Return whether a job requests more nodes than are up."""
    kind = sim.job[j].kind
    up = 0
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0:
            up += sim.amount[p] - sim.stock[p].down
    return up < sim.job[j].nodes


@jit
def is_skipped(j: int, sim: Arrays) -> bool:
    """Return whether the pass skips a job: too few nodes are up, or it is at a limit."""
    return asks_too_much(j, sim) or at_any_limit(j, sim)


@jit
def may_start(sim: Arrays) -> bool:
    """Return whether any pending job is small enough for the free nodes."""
    if sim.rules.pools == 1:
        cache_queue_rows(sim)
        return sim.walk.fewest <= sim.stock[0].free
    free = 0
    for p in range(sim.rules.pools):
        if sim.stock[p].free > 0:
            free += sim.stock[p].free
    if free == 0:
        return False
    for i in range(sim.clock.queued):
        if sim.job[sim.queue[i]].nodes <= free:
            return True
    return False
