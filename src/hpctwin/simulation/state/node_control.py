"""Changes to the nodes of a simulation from outside, and accounts of all nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.accounts.shared_energy import SharedComponentEnergy, SharedEnergy
from hpctwin.energy.power.modes import ModeChange, split_log, time_by_mode
from hpctwin.energy.power.states import group_of_node, nodes_of_group
from hpctwin.engine.operations.creation import more_log
from hpctwin.engine.operations.power_control import (
    change_speed,
    past_states,
    spent_ms,
    spent_since_end_ms,
)
from hpctwin.engine.state import layout
from hpctwin.errors import SimulationError, UnknownNameError
from hpctwin.model import MS_PER_S
from hpctwin.simulation.lowering.power_states import node_states, speeds

if TYPE_CHECKING:
    import polars as pl

    from hpctwin.simulation.state.base import SimulationBase

__all__ = ["accounts", "put_into_mode", "set_mode", "switch"]


def switch(simulation: SimulationBase, *, on: Iterable[int], off: Iterable[int]) -> None:
    """Switch nodes on and off now; see `Simulation.switch`."""
    from hpctwin.engine.power.policy_hooks import give_orders

    states = node_states(simulation.state, simulation.cluster)
    sleeping = [bool(group.sleep) for group in group_of_node(simulation.cluster)]
    for nodes, wanted, number in ((off, "idle", 0), (on, "sleeping", 1)):
        chosen = np.array(sorted(set(nodes)), np.int64)
        for node in chosen.tolist():
            if not 0 <= node < len(states):
                raise SimulationError(f"there is no node {node}; there are {len(states)}")
            if states[node].partition(":")[0] != wanted:
                raise SimulationError(
                    f"node {node} is {states[node]}, it must be {wanted} to be switched "
                    f"{'on' if number else 'off'}"
                )
            if not sleeping[node]:
                raise SimulationError(f"node {node} has no sleep state; it stays on")
        if len(chosen):
            if simulation.log:
                more_log(simulation.state)
            simulation.decided()
            give_orders(simulation.state.address, chosen, number)


def set_mode(simulation: SimulationBase, group: str, mode: str) -> None:
    """Put a node group into another mode now; see `Simulation.set_mode`."""
    if simulation.sizing is not None:
        raise SimulationError("modes cannot be set where the sizes of jobs are decided (sizing)")
    names = [one.name for one in simulation.cluster.nodes]
    if group not in names:
        raise UnknownNameError("node group", group, names)
    number = names.index(group)
    own = simulation.cluster.nodes[number]
    if mode not in own.modes:
        raise UnknownNameError(f"mode of node group {group!r}", mode, own.modes)
    if simulation.cluster.cap is not None:
        raise SimulationError("modes cannot be set under a power cap")
    put_into_mode(simulation, number, mode)


def put_into_mode(simulation: SimulationBase, number: int, mode: str) -> None:
    """Put a node group into a mode: `set_mode` without its checks."""
    sim, cluster, outside = simulation.state, simulation.cluster, simulation.outside
    pools = np.unique(sim["pool_of"][nodes_of_group(cluster, number)])
    speed = speeds(sim, cluster, {number: mode})
    terminate = simulation.overrun == "terminate"
    left = change_speed(sim, pools, speed, outside.work, terminate=terminate)
    awake = spent_ms(sim)[: layout.COMPUTING + 1]
    change = ModeChange(round(simulation.now_s * MS_PER_S), number, mode, awake)
    simulation.outside = dataclasses.replace(
        outside, work={**outside.work, **left}, changes=(*outside.changes, change)
    )


def accounts(simulation: SimulationBase, jobs: pl.DataFrame, node_map: pl.DataFrame) -> Energy:
    """Return time and energy of each node in each state, and of each job.

    They cover the time from the first submission to the last end of a job, or to now if the
    simulation has not ended.

    Args:
        simulation: The simulation.
        jobs: Table of the jobs' results.
        node_map: Nodes of each job; where nodes are shared, also the fractions used and held.
    """
    sim, cluster, workload = simulation.state, simulation.cluster, simulation.workload
    spent = spent_ms(sim)
    end_ms = int(sim.clock.now)
    begin_ms = end_ms - int(spent[:, 0].sum())
    log = past_states(sim) if simulation.log else None
    changes = simulation.outside.changes
    if simulation.done and 0 <= sim.clock.ended < end_ms:
        # Jobs that never run may be submitted, or canceled, after the last end.
        end_ms = int(sim.clock.ended)
        spent -= spent_since_end_ms(sim)
        changes = tuple(change for change in changes if change.time_ms <= end_ms)
        if log is not None:
            log = log[:, log[2] < end_ms]
            log[3] = np.minimum(log[3], end_ms)
    spent = spent[: 2 + 3 * cluster.depths]
    if changes:
        spent = time_by_mode(cluster, changes, spent)
        log = None if log is None else split_log(cluster, changes, log)
    about = (
        jobs, node_map, cluster, spent, log, changes, workload.start_epoch_s, begin_ms / MS_PER_S
    )  # fmt: skip
    if all(group.components for group in cluster.nodes):
        kind = SharedComponentEnergy if workload.shares_nodes else ComponentEnergy
        return kind(*about, usage=workload.usage)
    return SharedEnergy(*about) if workload.shares_nodes else Energy(*about)
