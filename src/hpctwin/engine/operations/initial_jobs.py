"""Jobs that run and jobs that wait, put into a simulation in which nothing has happened yet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import sim_at
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.jobs.running_jobs import put
from hpctwin.engine.state.layout import (
    COMPLETED,
    NEVER,
    PENDING,
    REJECTED,
    RUNNING,
    THOUSANDTH,
    WAITING,
    ZERO,
    Arrays,
)

__all__ = ["PUT_UNDERWAY"]

_Numbers = npt.NDArray[np.int64]


@jit
def take_nodes(
    rows: _Numbers, first: _Numbers, held: _Numbers, pool: _Numbers, charged: _Numbers, sim: Arrays
) -> None:
    """Take whole nodes for running jobs; those that are to leave are gone, and are not given back."""
    for r in range(len(rows)):
        j = rows[r]
        for i in range(first[r], first[r + 1]):
            p = pool[held[i]]
            if p < 0:
                lose_node(-1 - p, sim)
                continue
            sim.stock[p].free -= 1
            charged[r] += 1
            if len(sim.taken) > 0:
                sim.taken[j, p] += 1
        sim.job[j].nodes = charged[r]


@jit
def lose_node(p: int, sim: Arrays) -> None:
    """A node of a pool is not there."""
    sim.stock[p].free -= 1
    sim.stock[p].down += 1


@jit
def begin_job(j: int, start: int, end: int, free_at: int, sim: Arrays) -> None:
    """A job has started, and will end."""
    state = sim.state[j]
    state.phase = RUNNING
    state.outcome = COMPLETED
    state.started = 1
    state.eligible = sim.job[j].submit
    state.start = start
    state.end = end
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, free_at, j)
    sim.clock.running += 1
    pools = len(sim.pool)
    for c in range(sim.asks.width):
        sim.stock[pools + c].free -= sim.asks[j, c]
    if sim.user_running.width > 0:
        sim.user_running[sim.partition[sim.job[j].kind], sim.job[j].user] += 1


@jit
def add_use(label: int, nodes: float, elapsed: int, sim: Arrays) -> None:
    """A label for fair shares has used nodes for some time, and has them."""
    sim.usage[label].used += nodes * max(elapsed, ZERO)
    sim.usage[label].nodes += nodes


@jit
def queue_up(arrived: int, sim: Arrays) -> None:
    """Queue the jobs that were submitted and do not run; those that wait for others are pending."""
    clock = sim.clock
    for j in range(arrived):
        state = sim.state[j]
        if state.phase == RUNNING:
            continue
        if sim.job[j].rejected != 0:
            state.phase = REJECTED
            clock.alive -= 1
        elif state.open > 0:
            state.phase = PENDING
        else:
            state.phase = WAITING
            state.eligible = sim.job[j].submit
            sim.queue[clock.queued] = j
            clock.queued += 1


def put_underway(
    address: int,
    cleanup: int,
    rows: _Numbers,
    start: _Numbers,
    end: _Numbers,
    by_plan: _Numbers,
    first: _Numbers,
    held: _Numbers,
    pool: _Numbers,
    away: _Numbers,
    charged: _Numbers,
) -> None:
    """Put jobs that run and jobs that wait into a simulation whose clock stands at the present.

    Args:
        address: of the simulation, whose table of jobs is its own.
        cleanup: nodes are free so long after jobs have ended, ms.
        rows: of the running jobs [R].
        start, end: of these, ms [R].
        by_plan: places of these by planned end, then row [R].
        first: where the nodes of each begin in `held` [R + 1].
        held: numbers of the nodes that they have.
        pool: of each node, -1 - its pool where it leaves when it is given back [nodes].
        away: numbers of nodes that are not there.
        charged: how many nodes each running job has for fair shares; of whole nodes it is found here [R].
    """
    sim = sim_at(address)
    clock = sim.clock
    if len(sim.share) == 0:
        take_nodes(rows, first, held, pool, charged, sim)
        for i in range(len(away)):
            lose_node(pool[away[i]], sim)
    everyone = len(sim.promised)
    # Use before the last reset is forgotten.
    forgotten = sim.reset[clock.resets_done - 1] if clock.resets_done > 0 else -NEVER
    for r in range(len(rows)):
        j = rows[r]
        begin_job(j, start[r], end[r], end[r] + cleanup, sim)
        for label in (sim.job[j].share, everyone):
            counted = charged[r] * (sim.job[j].counts * THOUSANDTH)
            add_use(label, counted, clock.now - max(start[r], forgotten), sim)
        j = rows[by_plan[r]]
        put(r, start[by_plan[r]] + sim.job[j].expected, j, sim)
    clock.run_end = len(rows)
    for label in range(everyone + 1):
        sim.usage[label].at = clock.now
    queue_up(clock.arrived, sim)


_ROWS = types.Array(int64, 1, "C")
PUT_UNDERWAY = Kernel(put_underway, types.void(int64, int64, *[_ROWS] * 9), unrolled=False)
"""``(address, cleanup, rows, start, end, by_plan, first, held, pool, away, charged)``."""
