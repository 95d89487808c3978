"""Switching nodes of a simulation, and their DVFS modes, from outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hpctwin.energy.power.modes import ModeChange
from hpctwin.energy.power.states import group_of_node, nodes_of_group
from hpctwin.engine.operations.creation import more_log
from hpctwin.engine.operations.power_control import change_speed, spent_ms
from hpctwin.engine.state import layout
from hpctwin.errors import SimulationError, UnknownNameError
from hpctwin.model import MS_PER_S
from hpctwin.simulation.lowering.power_states import node_states, speeds
from hpctwin.simulation.lowering.preemption import writes_checkpoints

if TYPE_CHECKING:
    from hpctwin.simulation.state.base import SimulationBase

__all__ = ["put_into_mode", "set_mode", "switch"]


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
    if writes_checkpoints(simulation.workload, simulation.cluster):
        raise SimulationError("modes cannot be set where jobs write checkpoints")
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
