"""Running and pending jobs for a simulation in which nothing has happened yet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.intrinsics import sim_at
from hpctwin.engine.compile.jit import Kernel, jit
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
    """Take whole nodes for running jobs.

    Nodes that will leave the cluster count as down already, and jobs do not return them.
    """
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
    """Record that a node of a pool is not available."""
    sim.stock[p].free -= 1
    sim.stock[p].down += 1


@jit
def begin_job(j: int, start: int, end: int, free_at: int, sim: Arrays) -> None:
    """Record that a job has started and when it will end.

    Args:
        j: Job.
        start, end: Times, ms.
        free_at: Time at which its nodes are free, after the cleanup, ms.
        sim: Simulation.
    """
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
    """Add usage of a fair-share label: nodes for an elapsed time, and from now on."""
    sim.usage[label].used += nodes * max(elapsed, ZERO)
    sim.usage[label].nodes += nodes


@jit
def queue_up(arrived: int, sim: Arrays) -> None:
    """Queue the submitted jobs that do not run.

    Jobs with open dependencies are pending, but not in the queue.
    """
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
    """Add running and pending jobs to a simulation whose clock is at the present.

    Args:
        address: Address of the simulation, which owns its table of jobs.
        cleanup: Cleanup time of nodes after a job's end, ms.
        rows: Rows of the running jobs [R].
        start, end: Their start and end, ms [R].
        by_plan: Their indices, sorted by planned end, then row [R].
        first: Index in `held` at which each job's nodes begin [R + 1].
        held: Numbers of the nodes that they have.
        pool: Pool of each node; -1 - pool if it leaves when it is returned [nodes].
        away: Numbers of the unavailable nodes.
        charged: Fair-share nodes of each running job [R]. Computed here for whole nodes.
    """
    sim = sim_at(address)
    clock = sim.clock
    if len(sim.share) == 0:
        take_nodes(rows, first, held, pool, charged, sim)
        for i in range(len(away)):
            lose_node(pool[away[i]], sim)
    everyone = len(sim.promised)
    # Usage before the last reset does not count.
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


PUT_UNDERWAY = Kernel(
    put_underway, f"void(int64, int64, {', '.join(['int64[::1]'] * 9)})", unrolled=False
)
"""The compiled `put_underway`.

Its arguments are ``(address, cleanup, rows, start, end, by_plan, first, held, pool, away,
charged)``.
"""
