"""Limits that several jobs are under together: those of a user, an account, a QOS.

Who is under which limit is the same for all jobs of a user, account, QOS and partition (`Bound`), so that
it is held once for all of them. What a start or an end costs grows with the limits of that job alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import NEVER, PENDING, RUNNING, WAITING, Arrays
from hpctwin.engine.sim import Sim

__all__ = [
    "LOOK_MS", "count_held", "count_submitted", "hold", "is_over", "learn_least", "next_look", "reached",
    "room_of", "too_many_submitted",
]  # fmt: skip

SECOND_MS = 1000
LOOK_MS = 60_000
"""While jobs run and wait under a limit that time alone may lift, its multiples are instants, ms."""


@jit
def walltime_ends(start: int, j: int, sim: Arrays) -> int:
    """When a job's walltime is over that starts at a time, s, rounded up."""
    return (start + sim.job[j].limit + SECOND_MS - 1) // SECOND_MS


@jit
def is_over(j: int, sim: Arrays) -> bool:
    """Whether a job would break a limit if it started now."""
    for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
        bound = sim.bound[b]
        if bound.holds == 0:
            continue
        charge = sim.charge[j, bound.measure]
        ceiling = sim.ceiling[bound.ceiling]
        held = sim.held[bound.ceiling]
        if ceiling.timed == 0:
            if held.amount + charge > ceiling.most:
                return True
            continue
        now = sim.clock.now // SECOND_MS
        own = charge * (walltime_ends(sim.clock.now, j, sim) - now)
        if held.until - held.amount * now + own > ceiling.most:
            return True
    return False


@jit
def learn_least(j: int, sim: Arrays) -> None:
    """What a job counts may be the least of all that wait under the same limits."""
    for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
        charge = sim.charge[j, sim.bound[b].measure]
        lightest = sim.lightest[b]
        lightest.charge = min(lightest.charge, charge)
        lightest.each = min(lightest.each, charge // sim.job[j].nodes)


@jit
def room_of(first: int, last: int, sim: Arrays) -> int:
    """How many nodes a job under some limits may have at most, so as to break none; 0 if all jobs do.

    Limits that time alone may lift are left out: `is_over` tells.

    Args:
        first, last: rows of ``bound``.
        sim: the simulation; `learn_least` knows all jobs that wait under these.
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
    """When it is next looked at whether time has lifted a limit."""
    return (sim.clock.now // LOOK_MS + 1) * LOOK_MS


@jit
def hold(j: int, sign: int, sim: Arrays) -> None:
    """A job that starts, ``state.start`` being set, counts under its limits; or no more, if negative."""
    timed = 0
    for b in range(sim.bounds[j, 0], sim.bounds[j, 1]):
        bound = sim.bound[b]
        charge = sign * sim.charge[j, bound.measure]
        held = sim.held[bound.ceiling]
        held.amount += charge
        if sim.ceiling[bound.ceiling].timed == 1:
            held.until += charge * walltime_ends(sim.state[j].start, j, sim)
            timed = 1
    sim.clock.timed += sign * timed


@jit
def too_many_submitted(j: int, sim: Arrays) -> bool:
    """Whether as many jobs wait and run as may be, so that one more is refused."""
    for b in range(sim.bounds[j, 1], sim.bounds[j, 2]):
        bound = sim.bound[b]
        if bound.holds == 1 and sim.held[bound.ceiling].amount >= sim.ceiling[bound.ceiling].most:
            return True
    return False


@jit
def count_submitted(j: int, sign: int, sim: Arrays) -> None:
    """One job more waits or runs; or less, if negative."""
    for b in range(sim.bounds[j, 1], sim.bounds[j, 2]):
        sim.held[sim.bound[b].ceiling].amount += sign


def count_held(sim: Sim) -> None:
    """Count anew what all jobs have that wait and run."""
    held = sim["held"]
    if not len(held):
        return
    held.fill(0)
    sim.clock.timed = 0
    phase, bounds = sim["state"]["phase"], sim["bounds"]
    running = np.flatnonzero(phase == RUNNING)
    job, bound = _pairs(running, bounds[running, 0], bounds[running, 1], sim)
    charge = sim["charge"][job, bound["measure"]]
    np.add.at(held["amount"], bound["ceiling"], charge)
    timed = sim["ceiling"]["timed"][bound["ceiling"]]
    end = -(-(sim["state"]["start"][job] + sim["job"]["limit"][job]) // SECOND_MS)
    np.add.at(held["until"], bound["ceiling"], timed * charge * end)
    sim.clock.timed = len(np.unique(job[timed == 1]))
    there = np.flatnonzero(np.isin(phase, (PENDING, WAITING, RUNNING)))
    job, bound = _pairs(there, bounds[there, 1], bounds[there, 2], sim)
    np.add.at(held["amount"], bound["ceiling"], 1)


def reached(sim: Sim, row: int) -> int:
    """The first limit that keeps a waiting job from starting: a row of ``ceiling``; -1 if none does."""
    if not len(sim["held"]):
        return -1
    now = int(sim.clock.now) // SECOND_MS
    first, last, _ = sim["bounds"][row]
    for bound in sim["bound"][first:last]:
        charge = int(sim["charge"][row, bound["measure"]])
        ceiling, held = sim["ceiling"][bound["ceiling"]], sim["held"][bound["ceiling"]]
        there = int(held["amount"])
        if ceiling["timed"]:
            end = -(-(int(sim.clock.now) + int(sim["job"]["limit"][row])) // SECOND_MS)
            there, charge = int(held["until"]) - there * now, charge * (end - now)
        if bound["holds"] and there + charge > ceiling["most"]:
            return int(bound["ceiling"])
    return -1


def _pairs(
    rows: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    sim: Sim,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Each job as often as it has limits, and these."""
    count = last - first
    start = np.repeat(first - (np.cumsum(count) - count), count)
    return np.repeat(rows, count), sim["bound"][start + np.arange(count.sum())]
