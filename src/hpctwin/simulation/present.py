"""A simulation that begins in the middle: some jobs run already, others wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hpctwin.engine import begin
from hpctwin.engine.begin import Running
from hpctwin.simulation.lower import pool_of_nodes
from hpctwin.simulation.sharing import held_amounts
from hpctwin.simulation.simulation import Simulation

__all__ = ["Running", "begin_at"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def begin_at(
    simulation: Simulation,
    now_ms: int,
    running: Running,
    away: IntArray,
    leaving: IntArray,
    parts: Sequence[FloatArray | None] = (),
) -> None:
    """As `engine.begin.begin_at`; the simulation must be forked under a policy to be run.

    Args:
        simulation: a new one.
        now_ms: the present.
        running: the jobs that run.
        away: numbers of the nodes that are not there.
        leaving: numbers of those that will not be once they are empty.
        parts: where nodes are shared, the cores, memory (GB) and GPUs that each running job holds of each of
            its nodes [nodes, 3]; None if it has them for itself.
    """
    if simulation.workload.shares_nodes:
        amounts = tuple(
            held_amounts(simulation.state, nodes, part)
            for nodes, part in zip(running.nodes, parts, strict=True)
        )
        running = replace(running, amounts=amounts)
    pool = pool_of_nodes(simulation.cluster)
    begin.begin_at(simulation.state, now_ms, running, pool, away, leaving)
