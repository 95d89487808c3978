"""When each job would have started had nobody come after it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hpctwin.simulation import Simulation

__all__ = ["fair_starts"]


def fair_starts(
    simulation: Simulation, progress: Callable[[float], None] | None = None
) -> npt.NDArray[np.float64]:
    """The fair start time of each job (Sabin and Sadayappan, JSSPP 2005).

    At each submission the simulation is forked, later arrivals are left out, and the fork runs until
    the job has started.

    Args:
        simulation: one that has not begun; it is run to its end.
        progress: called now and then with the share of jobs done.

    Returns:
        Seconds [jobs]; NaN for jobs that never start.
    """
    submit = simulation.workload.submit_ms / 1000
    fair = np.full(len(submit), np.nan)
    for row, time in enumerate(submit):
        simulation.advance(time)
        start = simulation.fork(arrivals=False).run_until_started(row)
        if start is not None:
            fair[row] = start
        if progress is not None and row % 200 == 0:
            progress(row / len(submit))
    simulation.advance()
    return fair
