"""Jobs that stop and resume on another number of nodes, between two event times.

The simulation then has its own copy of the jobs' sizes and lengths, as they change. The caller
tracks how much of a job is done (package hpctwin-sizing); the engine sees a job with a number of
nodes and a runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.intrinsics import sim_at
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.jobs.transitions import forget_end, throw_back
from hpctwin.engine.placement.job_nodes import forget_segments
from hpctwin.engine.state.layout import Arrays
from hpctwin.engine.state.sim import Sim

__all__ = ["STOP", "Lengths", "own_jobs", "put_amounts", "put_lengths", "stop_jobs"]

IntArray = npt.NDArray[np.int64]


@jit
def stop_job(j: int, sim: Arrays) -> None:
    """Stop a job: it returns its nodes and waits, and keeps all completed work."""
    forget_end(j, sim)
    at = sim.clock.lost
    empty = sim.state[j].start == sim.clock.now
    if empty:
        forget_segments(j, sim)
    throw_back(j, sim)
    if empty:
        # The job has not run at all: no attempt is recorded.
        sim.clock.lost = at
    elif sim.clock.lost > at:
        # Otherwise its nodes were still being switched on.
        sim.lost[at].kept = sim.lost[at].end - sim.lost[at].start
    sim.state[j].requeues -= 1


def _stop(address: int, rows: Any) -> None:
    sim = sim_at(address)
    for i in range(len(rows)):
        stop_job(rows[i], sim)


STOP = Kernel(_stop, "void(int64, int64[::1])")
"""Stop running jobs now, so that they wait: ``(address, rows)``.

``sim.lost`` must have enough free rows for one more attempt of each job.
"""


@dataclass(frozen=True)
class Lengths:
    """Size and length of a job from now on.

    Args:
        nodes: Nodes requested.
        runtime_ms: Actual runtime if nothing ends the job earlier.
        walltime_ms: Requested limit.
        expected_ms: Runtime that the scheduler expects.
    """

    nodes: int
    runtime_ms: int
    walltime_ms: int
    expected_ms: int


def own_jobs(sim: Sim) -> None:
    """Give this simulation its own copy of the jobs, so that they may change."""
    sim.own("job", "asks", "charge")


def put_lengths(sim: Sim, row: int, lengths: Lengths) -> None:
    """Set size and length of a pending job.

    Args:
        sim: Simulation that owns its jobs.
        row: Row of the job.
        lengths: Size and length of its remaining work.
    """
    job = sim["job"][row : row + 1]
    job["nodes"], job["runtime"] = lengths.nodes, lengths.runtime_ms
    job["limit"], job["expected"] = lengths.walltime_ms, lengths.expected_ms


def put_amounts(sim: Sim, row: int, asks: IntArray, charge: IntArray | None) -> None:
    """Set what a pending job asks for and counts on its present number of nodes.

    Args:
        sim: Simulation that owns its jobs.
        row: Row of the job.
        asks: Cluster-wide resources [resources].
        charge: Amounts that count under limits [measures]; None if the cluster has none.
    """
    sim["asks"][row] = asks
    if charge is not None:
        sim["charge"][row] = charge


def stop_jobs(sim: Sim, rows: IntArray) -> None:
    """Stop running jobs: they return their nodes and wait; a pass follows."""
    STOP(sim.address, rows)
    sim.clock.pass_due = 1
