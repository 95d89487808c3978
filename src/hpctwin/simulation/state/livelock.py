"""Detection of jobs that are cut off so often that a simulation never ends."""

from __future__ import annotations

import numpy as np

from hpctwin.engine.state.sim import Sim
from hpctwin.errors import SimulationError
from hpctwin.model import MS_PER_S, Workload

__all__ = ["check_cut_off"]

MOST = 100_000
"""Number of interruptions after which a job counts as one that never ends."""


def check_cut_off(workload: Workload, sim: Sim) -> None:
    """Check that no job is cut off forever, by preemption or by failing nodes.

    It is called each time the table of interruptions is enlarged, which is rare.

    Raises:
        SimulationError: A job was cut off more than `MOST` times.
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
