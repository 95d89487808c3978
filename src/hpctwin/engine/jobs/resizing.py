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
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.jobs.transitions import forget_end, note_lost, throw_back
from hpctwin.engine.placement.job_nodes import forget_segments
from hpctwin.engine.power.node_states import touch_nodes
from hpctwin.engine.state.layout import SENT_BACK, Arrays
from hpctwin.engine.state.sim import Sim

__all__ = ["STOP", "Lengths", "cleaned_jobs", "own_jobs", "put_amounts", "put_lengths", "stop_jobs"]

IntArray = npt.NDArray[np.int64]


@jit
def stop_job(j: int, cleans: bool, sim: Arrays) -> None:
    """Stop a job: it returns its nodes and waits, and keeps all completed work.

    With cleanup, a job that has run keeps its nodes and waits only when they are clean.
    """
    forget_end(j, sim)
    at = sim.clock.lost
    now = sim.clock.now
    state = sim.state[j]
    if cleans and sim.rules.cleanup > 0 and state.start < now:
        note_lost(j, state.start, now - state.start, sim)
        state.outcome = SENT_BACK
        state.end = now
        sim.clock.ends = heap_push(sim.ends, sim.clock.ends, now + sim.rules.cleanup, j)
        touch_nodes(j, sim)
        return
    empty = state.start == now
    if empty:
        forget_segments(j, sim)
    throw_back(j, sim)
    if empty:
        # The job has not run at all: no attempt is recorded.
        sim.clock.lost = at
    elif sim.clock.lost > at:
        # Otherwise its nodes were still being switched on.
        sim.lost[at].kept = sim.lost[at].end - sim.lost[at].start
    state.requeues -= 1


def _stop(address: int, rows: Any, cleans: bool) -> None:
    sim = sim_at(address)
    for i in range(len(rows)):
        stop_job(rows[i], cleans, sim)


STOP = Kernel(_stop, "void(int64, int64[::1], bool)")
"""Stop running jobs now, so that they wait: ``(address, rows, cleans)``.

``sim.lost`` must have enough free rows for one more attempt of each job.
"""


@dataclass(frozen=True)
class Lengths:
    """Size and length of a job from now on.

    Args:
        nodes: Nodes requested.
        runtime_ms: Actual runtime if nothing ends the job earlier.
        walltime_ms: Requested limit.
        expected_ms: Runtime that the scheduler expects, without the cleanup of the nodes.
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
    job["limit"] = lengths.walltime_ms
    job["expected"] = lengths.expected_ms + sim["rules"]["cleanup"]


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


def stop_jobs(sim: Sim, rows: IntArray, *, cleans: bool) -> None:
    """Stop running jobs: they return their nodes and wait; a pass follows.

    Args:
        sim: Simulation that owns its jobs.
        rows: Rows of the jobs.
        cleans: Whether jobs that have run keep their nodes and do not wait until these are clean.
    """
    STOP(sim.address, rows, cleans)
    sim.clock.pass_due = 1


def cleaned_jobs(sim: Sim) -> IntArray:
    """Return the rows of jobs that have stopped while their nodes are being cleaned up."""
    rows: IntArray = sim.running["job"]
    if sim["rules"]["cleanup"][0] == 0:
        return rows[:0]
    return rows[sim["state"]["end"][rows] <= sim.clock.now]
