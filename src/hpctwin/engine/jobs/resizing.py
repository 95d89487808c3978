"""Jobs stop and go on later, on other numbers of nodes: as they are told between two instants.

What a job asks and how long it runs is then this simulation's own, as it changes. How much of it is done,
who tells it keeps (`hpctwin.simulation.running.sizing`); the engine sees a job of so many nodes and so long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import sim_at
from hpctwin.engine.jobs.transitions import forget_end, throw_back
from hpctwin.engine.placement.job_nodes import forget_segments
from hpctwin.engine.state.layout import Arrays
from hpctwin.engine.state.sim import Sim

__all__ = ["STOP", "Lengths", "own_jobs", "put_lengths", "stop_jobs"]

IntArray = npt.NDArray[np.int64]


@jit
def stop_job(j: int, sim: Arrays) -> None:
    """A job gives back what it was given, and waits; all that it did is kept."""
    forget_end(j, sim)
    at = sim.clock.lost
    empty = sim.state[j].start == sim.clock.now
    if empty:
        forget_segments(j, sim)
    throw_back(j, sim)
    if empty:
        # It never ran: nobody need hear of it.
        sim.clock.lost = at
    elif sim.clock.lost > at:
        # Else its nodes were still being switched on.
        sim.lost[at].kept = sim.lost[at].end - sim.lost[at].start
    sim.state[j].requeues -= 1


def _stop(address: int, rows: Any) -> None:
    sim = sim_at(address)
    for i in range(len(rows)):
        stop_job(rows[i], sim)


STOP = Kernel(_stop, types.void(int64, types.Array(int64, 1, "C")))
"""Running jobs stop now, and wait: ``(address, rows)``; there must be room for as many attempts more."""


@dataclass(frozen=True)
class Lengths:
    """How large and how long a job is from now on.

    Args:
        nodes: it asks for so many.
        runtime_ms: it runs so long if nothing ends it.
        walltime_ms: it runs so long at most.
        expected_ms: the scheduler expects it to run so long.
    """

    nodes: int
    runtime_ms: int
    walltime_ms: int
    expected_ms: int


def own_jobs(sim: Sim) -> None:
    """Make what jobs ask this simulation's own, so that it may change."""
    sim.own("job")


def put_lengths(sim: Sim, row: int, lengths: Lengths) -> None:
    """Say what a job that waits asks from now on.

    Args:
        sim: a simulation that owns its jobs.
        row: of the job.
        lengths: of what is left of it.
    """
    job = sim["job"][row : row + 1]
    job["nodes"], job["runtime"] = lengths.nodes, lengths.runtime_ms
    job["limit"], job["expected"] = lengths.walltime_ms, lengths.expected_ms


def stop_jobs(sim: Sim, rows: IntArray) -> None:
    """Running jobs give back what they have now, and wait; a pass follows."""
    STOP(sim.address, rows)
    sim.clock.pass_due = 1
