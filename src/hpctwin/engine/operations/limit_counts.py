"""Counts under limits that several jobs share, and the limit that holds a job back."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hpctwin.engine.queue.limits import SECOND_MS
from hpctwin.engine.state.layout import NEVER, PENDING, RUNNING, WAITING
from hpctwin.engine.state.sim import Sim

__all__ = ["begin_used", "count_held", "reached"]

IntArray = npt.NDArray[np.int64]


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
    ceiling = sim["ceiling"][bound["ceiling"]]
    left = ceiling["left"]
    end = -(-(sim["state"]["start"][job] + sim["job"]["limit"][job]) // SECOND_MS)
    np.add.at(held["until"], bound["ceiling"], left * charge * end)
    sim.clock.timed = len(np.unique(job[(left == 1) & (ceiling["used"] == 0)]))
    there = np.flatnonzero(np.isin(phase, (PENDING, WAITING, RUNNING)))
    job, bound = _pairs(there, bounds[there, 1], bounds[there, 2], sim)
    np.add.at(held["amount"], bound["ceiling"], 1)


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
            there = (int(sim["held"]["until"][c]) - there * now if ceiling["left"] else 0) + used
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


def _weighed(job: IntArray, bound: npt.NDArray[np.void], sim: Sim) -> IntArray:
    """Return what each job counts under a limit, for pairs of job and limit."""
    found: IntArray = np.rint(sim["charge"][job, bound["measure"]] * bound["weight"]).astype(
        np.int64
    )
    return found


def _pairs(
    rows: IntArray,
    first: IntArray,
    last: IntArray,
    sim: Sim,
) -> tuple[IntArray, npt.NDArray[np.void]]:
    """Return all pairs of jobs and their limits, as two arrays."""
    count = last - first
    # Position in ``bound`` minus position in the result, for each pair.
    start = np.repeat(first - (np.cumsum(count) - count), count)
    return np.repeat(rows, count), sim["bound"][start + np.arange(count.sum())]
