"""What has happened to all jobs up to now, read from the state in one call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.intrinsics import sim_at
from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.state.layout import COMPLETED, PENDING, RUNNING, SENT_BACK, UNSUBMITTED
from hpctwin.engine.state.sim import Sim

__all__ = ["TELL_COURSE", "Course", "course_of", "submitted_ms"]

IntArray = npt.NDArray[np.int64]


class Course(NamedTuple):
    """What has happened to jobs; times in ms, -1 if it has not happened.

    Args:
        eligible, start, end: Times; the start is the last one, and includes suspended time [jobs].
        phase: Phase of each job; for jobs whose nodes are being cleaned up, their phase after it
            [jobs].
        put_back: Whether any job was requeued.
    """

    eligible: IntArray
    start: IntArray
    end: IntArray
    phase: npt.NDArray[np.int8]
    put_back: bool


def submitted_ms(sim: Sim, recorded_ms: IntArray) -> IntArray:
    """Return when each job was submitted, ms [jobs].

    A job with a think time is submitted when it becomes eligible.

    Args:
        sim: Simulation.
        recorded_ms: Submit times of the workload. They are valid for all other jobs, and for jobs
            still in their think time [jobs].
    """
    thinks = sim["job"]["thinks"] != 0
    if not thinks.any():
        return recorded_ms
    eligible = sim["state"]["eligible"]
    return np.where(thinks & (eligible >= 0), eligible, recorded_ms)


def course_of(sim: Sim) -> Course:
    """Return what has happened to all jobs up to now."""
    eligible, start, end = np.empty((3, sim.size("state")), np.int64)
    phase = np.empty(len(eligible), np.int8)
    put_back = TELL_COURSE(sim.bare_address, eligible, start, end, phase)
    return Course(eligible, start, end, phase, bool(put_back))


def tell_course(
    address: int, eligible: IntArray, start: IntArray, end: IntArray, phase: npt.NDArray[np.int8]
) -> bool:
    """Fill arrays as `course_of` returns them; return whether any job was requeued."""
    sim = sim_at(address)
    put_back = False
    for j in range(len(sim.state)):
        state = sim.state[j]
        now = state.phase
        if now == RUNNING and sim.rules.cleanup > 0 and state.end <= sim.clock.now:
            now = state.outcome
        waits = now == UNSUBMITTED or now == SENT_BACK
        eligible[j] = state.eligible
        start[j] = -1 if now == SENT_BACK else state.start
        end[j] = state.end if now >= COMPLETED and not waits else -1
        phase[j] = PENDING if waits else now
        put_back |= state.requeues > 0
    return put_back


TELL_COURSE = Kernel(tell_course, "bool(int64, int64[::1], int64[::1], int64[::1], int8[::1])")
"""The compiled `tell_course`."""
