"""Power policies written in Python: what such a function sees, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.job_history import submitted_ms
from hpctwin.engine.state.sim import Sim
from hpctwin.model import MS_PER_S, Cluster, Workload

__all__ = ["Control", "Orders", "PowerView"]


class Looked(Protocol):
    """What a view is of: a simulation."""

    @property
    def now_s(self) -> float:
        """The present instant, seconds."""

    cluster: Cluster
    """The machine."""

    outside: Any
    """What was ordered so far."""

    @property
    def state(self) -> Sim:
        """The engine's arrays."""

    @property
    def workload(self) -> Workload:
        """The jobs."""

    @property
    def node_states(self) -> list[str]:
        """The state each node is in."""


@dataclass(frozen=True)
class Orders:
    """What a control function wants done.

    Args:
        on: numbers of sleeping nodes to switch on.
        off: numbers of idle nodes to switch off.
        again_s: when to be asked again at the latest, seconds; None if only after the next event.
    """

    on: Iterable[int] = ()
    off: Iterable[int] = ()
    again_s: float | None = None


class PowerView:
    """What a control function sees; nothing of what jobs will really run."""

    def __init__(self, simulation: Looked) -> None:
        self._simulation = simulation
        self.now_s = simulation.now_s
        """The present instant, seconds."""

    orders = Orders
    """What to give back."""

    @property
    def due(self) -> bool:
        """Whether the time at which the function wanted to be asked again has come; so it has at first."""
        again_s = self._simulation.outside.again_s
        return again_s is None or self.now_s >= again_s

    @cached_property
    def can_sleep(self) -> npt.NDArray[np.bool_]:
        """Whether each node has a sleep state [nodes]."""
        groups = self._simulation.cluster.nodes
        return np.repeat([bool(group.sleep) for group in groups], [g.count for g in groups])

    @property
    def sim(self) -> Sim:
        """The engine's arrays; to be looked at, not changed, and not for what jobs will really run."""
        return self._simulation.state

    @cached_property
    def states(self) -> npt.NDArray[np.str_]:
        """The state of each node: ``idle``, ``computing``, ``sleeping`` … [nodes]."""
        return np.array([state.partition(":")[0] for state in self._simulation.node_states])

    def nodes(self, state: str) -> npt.NDArray[np.int64]:
        """The numbers of the nodes in a state.

        Args:
            state: ``idle``, ``computing``, ``switching_off``, ``sleeping`` or ``switching_on``.
        """
        return np.flatnonzero(self.states == state)

    @cached_property
    def since_s(self) -> npt.NDArray[np.float64]:
        """For how long each node has been in its state, seconds [nodes]."""
        sim = self._simulation.state
        found: npt.NDArray[np.float64] = (sim.clock.now - sim["node"]["since"]) / MS_PER_S
        return found

    @cached_property
    def waiting(self) -> list[tuple[int, float, float]]:
        """Nodes, walltime and wait so far (seconds) of each waiting job, by submit time."""
        sim, workload = self._simulation.state, self._simulation.workload
        rows = np.sort(sim["queue"][: sim.clock.queued])
        wait = (sim.clock.now - submitted_ms(sim, workload.submit_ms)[rows]) / MS_PER_S
        return list(
            zip(
                workload.nodes[rows].tolist(),
                (workload.walltime_ms[rows] / MS_PER_S).tolist(),
                wait.tolist(),
                strict=True,
            )
        )


Control = Callable[[PowerView], Orders | None]
"""A power policy written in Python: what to switch, given what is."""
