"""A simulation that begins in the middle: some jobs run already, others wait, some nodes are asleep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import node_watts
from hpctwin.engine.operations import warm_start
from hpctwin.engine.operations.power_control import node_powers, nodes_of_job, spent_ms
from hpctwin.engine.operations.warm_start import NodePowers, Running
from hpctwin.engine.state import layout
from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.simulation.lowering.cluster import pool_of_nodes
from hpctwin.simulation.lowering.gpus import lay_running
from hpctwin.simulation.lowering.shared_nodes import held_amounts
from hpctwin.simulation.refusals import check_present
from hpctwin.simulation.running.simulation import Simulation

__all__ = [
    "POWER_STATES",
    "NodePowers",
    "Running",
    "begin_at",
    "energy_j",
    "go_otherwise",
    "looks_again_ms",
    "nodes_of_job",
    "power_of_nodes",
    "runs",
    "starts_of",
]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

POWER_STATES = {
    "on": int(layout.IDLE),
    "switching_off": int(layout.SWITCHING_OFF),
    "asleep": int(layout.ASLEEP),
    "switching_on": int(layout.SWITCHING_ON),
}
"""The power states of a node without a job, by name."""


def begin_at(
    simulation: Simulation,
    now_ms: int,
    running: Running,
    away: IntArray,
    leaving: IntArray,
    parts: Sequence[FloatArray | None] = (),
    powers: NodePowers | None = None,
) -> None:
    """As `engine.operations.warm_start.begin_at`; the simulation must be forked under a policy to be run.

    Args:
        simulation: a new one.
        now_ms: the present.
        running: the jobs that run.
        away: numbers of the nodes that are not there.
        leaving: numbers of those that will not be once they are empty.
        parts: where nodes are shared, the cores, memory (GB), GPUs and consumables that each running job
            holds of each of its nodes [nodes, 3 + consumables]; None if it has them for itself.
        powers: the power states of the nodes, where they have any.

    Raises:
        ConfigError: jobs are suspended for others there.
    """
    check_present(simulation.cluster)
    if simulation.workload.shares_nodes:
        amounts = tuple(
            held_amounts(simulation.state, simulation.cluster, nodes, part)
            for nodes, part in zip(running.nodes, parts, strict=True)
        )
        lay_running(simulation.state, running.rows, running.nodes, amounts)
        running = replace(running, amounts=amounts)
    pool = pool_of_nodes(simulation.cluster)
    cleanup_ms = to_ms(simulation.cluster.cleanup)
    warm_start.begin_at(simulation.state, now_ms, running, pool, away, leaving, powers, cleanup_ms)


def go_otherwise(
    simulation: Simulation,
    runtime_ms: IntArray,
    running: IntArray,
    end_ms: IntArray,
    arrivals: IntArray,
) -> None:
    """As `engine.operations.warm_start.another_future`, of a fork of what `begin_at` began."""
    cleanup_ms = to_ms(simulation.cluster.cleanup)
    warm_start.another_future(simulation.state, runtime_ms, running, end_ms, arrivals, cleanup_ms)


def starts_of(simulation: Simulation, rows: IntArray) -> IntArray:
    """Run until some jobs have started; when each has, ms, -1 for never [rows]."""
    asked = np.zeros(len(rows), bool)
    while True:
        found: IntArray = simulation.column("start")[rows]
        left = np.flatnonzero((found < 0) & ~asked)
        if not len(left):
            return found
        # Whoever comes last in the queue mostly starts last, so that there is little to stop for.
        asked[left[-1]] = True
        simulation.run_until_started(int(rows[left[-1]]))


def power_of_nodes(simulation: Simulation) -> NodePowers:
    """The power states of all nodes at present; those that compute count as idle."""
    return node_powers(simulation.state)


def looks_again_ms(simulation: Simulation) -> int | None:
    """When nodes are next to be switched if nothing else happens; None for never."""
    timer = int(simulation.state.clock.timer)
    return None if timer >= NEVER_MS else timer


def runs(simulation: Simulation) -> npt.NDArray[np.bool_]:
    """Whether each job has nodes at present, on or still to be switched on [jobs]."""
    found: npt.NDArray[np.bool_] = simulation.column("phase") == layout.RUNNING
    return found


def energy_j(simulation: Simulation) -> float:
    """What all nodes have drawn since the beginning, J."""
    spent = spent_ms(simulation.state)
    return float((spent * node_watts(simulation.cluster)).sum()) / MS_PER_S
