"""Jobs that are cut off again and again, so that a simulation would never end."""

from __future__ import annotations

import numpy as np

from hpctwin.engine.state.sim import Sim
from hpctwin.errors import SimulationError
from hpctwin.model import MS_PER_S, Workload

__all__ = ["check_cut_off"]

MOST = 100_000
"""A job that was cut off so often comes to no end."""


def check_cut_off(workload: Workload, sim: Sim) -> None:
    """Find out whether a job is cut off for ever: by those that preempt it, or by nodes that fail.

    It is asked each time the table of these gets more room, which is seldom.

    Raises:
        SimulationError: one was cut off more than `MOST` times.
    """
    lost = sim["lost"][: sim.clock.lost]
    if len(lost) <= MOST:
        return
    times = np.bincount(lost["job"])
    row = int(times.argmax())
    if times[row] > MOST:
        raise SimulationError(
            f"job {workload.job_id[row]} was cut off {times[row]:,} times until "
            f"{sim.clock.now / MS_PER_S:,.0f} s, and would be for ever: jobs that preempt it, or nodes that "
            "fail, leave it no time to end; a longer 'exempt' or 'requeue_after', a shorter 'grace', "
            "checkpoints, or fewer failures do"
        )
