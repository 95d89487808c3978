"""The power states of a live cluster's nodes: from what it tells to a simulation, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpctwin.model import MS_PER_S, Cluster
from hpctwin.rms.records.records import NodePower, NodeRecord
from hpctwin.simulation import Simulation
from hpctwin.simulation.running.present import POWER_STATES, NodePowers, power_of_nodes

__all__ = ["as_expected", "powers_of", "switched"]

LATE_MS = 60_000
"""A transition that should be over is expected to be at the next whole such span, ms."""


def as_expected(machine: Cluster, nodes: Sequence[NodeRecord]) -> Cluster:
    """The machine at one speed; without power states, unless it is told in which its nodes are.

    What is expected of a job is expected on this cluster, so no speed is to be applied again.
    """
    if machine.cap is None and all(
        group.speed == 1.0 and not group.modes for group in machine.nodes
    ):
        return machine
    powered = any(node.power is not None for node in nodes)
    groups = []
    for group in machine.nodes:
        changes: dict[str, Any] = {"speed": 1.0}
        if powered and group.modes:
            own = group.initial.model_copy(update={"speed": 1.0})
            changes |= {"modes": {group.first_mode: own}}
        else:
            changes |= {"modes": {}, "mode": "", "sleep": (), "components": {}, "racks": None}
        groups.append(group.model_copy(update=changes))
    return machine.model_copy(update={"nodes": tuple(groups), "cap": None})


def powers_of(nodes: Sequence[NodeRecord], now_ms: int) -> NodePowers:
    """The power states of the nodes; those of which nothing is told are on, and idle from now on."""
    on = NodePower(since_s=now_ms / MS_PER_S)
    told = [node.power or on for node in nodes]
    ready = np.array([round((p.until_s or 0.0) * MS_PER_S) for p in told], np.int64)
    late = np.maximum(now_ms - ready, 0) // LATE_MS + 1
    return NodePowers(
        np.array([POWER_STATES[p.state] for p in told], np.int64),
        np.array([p.depth for p in told], np.int64),
        np.array([min(round(p.since_s * MS_PER_S), now_ms) for p in told], np.int64),
        np.where(ready > now_ms, ready, ready + late * LATE_MS),
    )


def switched(before: Simulation, after: Simulation) -> list[tuple[int, NodePower]]:
    """The nodes whose power states differ between two simulations of one machine, and those of the latter."""
    old, new = power_of_nodes(before), power_of_nodes(after)
    names = {number: name for name, number in POWER_STATES.items()}
    found = []
    for node in np.flatnonzero((old.power != new.power) | (old.depth != new.depth)).tolist():
        state = names[int(new.power[node])]
        switches = state.startswith("switching")
        power = NodePower.model_validate(
            {
                "state": state,
                "depth": int(new.depth[node]),
                "since_s": int(new.since_ms[node]) / MS_PER_S,
                "until_s": int(new.ready_ms[node]) / MS_PER_S if switches else None,
            }
        )
        found.append((node, power))
    return found
