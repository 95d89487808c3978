"""Lower DVFS modes to fit under a power cap, and raise them, at each event time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpctwin.energy.power.states import node_watts
from hpctwin.engine.operations.power_control import state_rows
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.model import PowerCap
from hpctwin.model.cluster.power import DAY_S
from hpctwin.simulation.result.placements import use_now
from hpctwin.simulation.running.advance import Outcome
from hpctwin.simulation.state.base import SimulationBase
from hpctwin.simulation.state.node_control import put_into_mode

__all__ = ["ModeFitting"]


class ModeFitting:
    """Fastest modes that fit under the cap; all node groups step down together.

    Args:
        cap: Cap of the simulation.
        simulation: Simulation that is advanced.
    """

    def __init__(self, cap: PowerCap, simulation: SimulationBase) -> None:
        self._cap = cap
        self._simulation = simulation
        groups = simulation.cluster.nodes
        by_power = [group.by_power() for group in groups]
        self._levels = [
            [modes[min(level, len(modes) - 1)] for modes in by_power]
            for level in range(max(len(modes) for modes in by_power))
        ]
        self._group = np.repeat(np.arange(len(groups)), [group.count for group in groups])
        self._watts = node_watts(simulation.cluster)

    def advance(
        self, advance: Callable[..., Outcome], *, until_s: float | None, instants: int | None
    ) -> Outcome:
        """Advance one event time after another, and choose the modes at each.

        Args:
            advance: Function that advances the simulation without choosing modes.
            until_s: As for `Simulation.advance`.
            instants: As for `Simulation.advance`.
        """
        self._fit()
        left = instants
        while left is None or left > 0:
            outcome = advance(until_s, instants=1)
            self._fit()
            if outcome != "stepped":
                return outcome
            if left is not None:
                left -= 1
        return "stepped"

    def _fit(self) -> None:
        simulation = self._simulation
        start_s = simulation.workload.start_epoch_s or 0.0
        limit = self._cap.at((start_s + simulation.now_s) % DAY_S)
        rows = state_rows(simulation.state)
        awake = rows <= COMPUTING
        nodes = np.arange(len(rows))
        asleep_w = float(self._watts[rows[~awake], nodes[~awake]].sum())
        groups = simulation.cluster.nodes
        idle, busy = (
            np.bincount(self._group[rows == state], minlength=len(groups))
            for state in (IDLE, COMPUTING)
        )
        used = busy
        if simulation.workload.shares_nodes:
            each = use_now(simulation.workload, simulation.cluster, simulation.state)
            used = np.bincount(self._group, each * (rows == COMPUTING), minlength=len(groups))
        # Levels go from the fastest modes to the slowest; the slowest are kept even if they exceed
        # the cap.
        for modes in self._levels:
            drawn = asleep_w
            for number, name in enumerate(modes):
                mode = groups[number].modes[name]
                drawn += float((idle[number] + busy[number] - used[number]) * mode.idle)
                drawn += float(used[number] * mode.power_w)
            if drawn <= limit:
                break
        for number, (old, new) in enumerate(zip(simulation.modes, modes, strict=True)):
            if old != new:
                put_into_mode(simulation, number, new)
