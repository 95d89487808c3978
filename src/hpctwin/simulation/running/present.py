"""A simulation that begins in the middle, with running jobs and sleeping nodes."""

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
"""Power states of a node without a job, by name."""


def begin_at(
    simulation: Simulation,
    now_ms: int,
    running: Running,
    away: IntArray,
    leaving: IntArray,
    parts: Sequence[FloatArray | None] = (),
    powers: NodePowers | None = None,
) -> None:
    """Start from a present state; see `engine.operations.warm_start.begin_at`.

    The simulation must be forked under a policy before it can run.

    Args:
        simulation: New simulation.
        now_ms: Present time, in ms.
        running: Running jobs.
        away: Numbers of the nodes that are unavailable.
        leaving: Numbers of the nodes that become unavailable once they are empty.
        parts: Where nodes are shared: cores, memory (GB), GPUs and consumables that each running
            job holds of each of its nodes [nodes, 3 + consumables]. None if the job has its nodes
            for itself.
        powers: Power states of the nodes, if they have any.
    """
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
    """Change a fork's future; see `engine.operations.warm_start.another_future`.

    The simulation is a fork of one that `begin_at` started.
    """
    cleanup_ms = to_ms(simulation.cluster.cleanup)
    warm_start.another_future(simulation.state, runtime_ms, running, end_ms, arrivals, cleanup_ms)


def starts_of(simulation: Simulation, rows: IntArray) -> IntArray:
    """Run until the given jobs started; return the starts in ms, -1 for never [rows]."""
    asked = np.zeros(len(rows), bool)
    while True:
        found: IntArray = simulation.column("start")[rows]
        left = np.flatnonzero((found < 0) & ~asked)
        if not len(left):
            return found
        # The last job in the queue mostly starts last, so that few stops are needed.
        asked[left[-1]] = True
        simulation.run_until_started(int(rows[left[-1]]))


def power_of_nodes(simulation: Simulation) -> NodePowers:
    """Return the present power states of all nodes; computing nodes count as idle."""
    return node_powers(simulation.state)


def looks_again_ms(simulation: Simulation) -> int | None:
    """Return when nodes are next switched without other events, in ms; None for never."""
    timer = int(simulation.state.clock.timer)
    return None if timer >= NEVER_MS else timer


def runs(simulation: Simulation) -> npt.NDArray[np.bool_]:
    """Return which jobs have nodes at present, on or still being switched on [jobs]."""
    found: npt.NDArray[np.bool_] = simulation.column("phase") == layout.RUNNING
    return found


def energy_j(simulation: Simulation) -> float:
    """Return the energy of all nodes since the beginning, in J."""
    spent = spent_ms(simulation.state)
    return float((spent * node_watts(simulation.cluster)).sum()) / MS_PER_S
