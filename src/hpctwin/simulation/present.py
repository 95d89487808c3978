"""A simulation that begins in the middle: some jobs run already, others wait."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.engine import begin
from hpctwin.engine.begin import Running
from hpctwin.simulation.lower import pool_of_nodes
from hpctwin.simulation.simulation import Simulation

__all__ = ["Running", "begin_at"]

IntArray = npt.NDArray[np.int64]


def begin_at(
    simulation: Simulation, now_ms: int, running: Running, away: IntArray, leaving: IntArray
) -> None:
    """As `engine.begin.begin_at`; the simulation must be forked under a policy to be run."""
    pool = pool_of_nodes(simulation.cluster)
    begin.begin_at(simulation.state, now_ms, running, pool, away, leaving)
