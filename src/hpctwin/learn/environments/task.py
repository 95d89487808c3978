"""What an environment is made of: what is decided, seen and earned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model import Cluster, Workload
from hpctwin.simulation import Simulation

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = ["Hook", "Observation", "Task", "as_hook", "by_name", "watts_of"]

FloatArray = npt.NDArray[np.float32]
Hook = Callable[[int, Any], None]
"""A function ``(agent, sim) -> None`` that the engine compiles; see docs/learn.md."""


@dataclass(frozen=True)
class Observation:
    """What an agent sees.

    Args:
        function: writes it, by ``put_seen(agent_at(agent).seen, place, number)`` of
            `hpctwin.engine.agents.agent_record`; and which choices there are, by ``put_mask``.
        shape: of it, given the places of the window and the nodes of the machine.
        low: no number is below.
        high: … or above.
        facts: whether it reads ``sim.fact``.
        amounts: numbers it finds in ``agent_at(agent).facts``, of all jobs and the machine.
    """

    function: Hook | Kernel
    shape: Callable[[int, int], tuple[int, ...]]
    low: float = 0.0
    high: float = 1.0
    facts: bool = False
    amounts: Callable[[Workload, Cluster], npt.NDArray[np.float64]] | None = None

    def space(self, window: int, nodes: int) -> spaces.Box:
        """The space of it."""
        return spaces.Box(self.low, self.high, self.shape(window, nodes), np.float32)


@dataclass(frozen=True, eq=False)
class Task:
    """What an environment is made of.

    Args:
        make: a simulation in which nothing has happened yet, of an episode's jobs.
        hooks: act, go, observe, reward; see `hpctwin.engine.agents`.
        observation_space: of what is seen.
        action_space: of what is chosen.
        width: how many choices a mask tells of.
        chosen: how the engine is told: a number, a share, or a byte for each node.
        masked: whether some choices may be ruled out.
        numbers: other fields of `hpctwin.engine.agents.agent_record.Agent`.
        watts: what a node draws in each state, W [pools * states]; None where that is not known.
        facts: numbers that the hooks read; None for none.
        why_not: why a choice is refused, given the simulation and the choice.
        scale: what is earned in an episode of these jobs is multiplied by that; None for 1.
        nodes: of the machine.
    """

    make: Callable[[Workload], Simulation]
    hooks: tuple[Any, Any, Any, Any]
    observation_space: spaces.Box
    action_space: spaces.Space[Any]
    width: int
    chosen: Literal["place", "share", "nodes"]
    masked: bool
    nodes: int
    numbers: Mapping[str, float] = field(default_factory=dict)
    watts: npt.NDArray[np.float64] | None = None
    facts: npt.NDArray[np.float64] | None = None
    why_not: Callable[[Simulation, int], str] = lambda simulation, choice: ""
    scale: Callable[[Workload], float] | None = None


def by_name(kind: str, what: Any, known: Mapping[str, Any]) -> Any:
    """One of those with names, or what was given itself.

    Raises:
        UnknownNameError: none has that name.
    """
    if not isinstance(what, str):
        return what
    if what not in known:
        raise UnknownNameError(kind, what, list(known))
    return known[what]


def as_hook(what: Any, kind: str) -> Any:
    """A function of the user's, or one of the engine's, to be handed over.

    Raises:
        ConfigError: it is neither.
    """
    from hpctwin.engine.agents.agent_record import hook
    from hpctwin.engine.compile.jit import Kernel

    if isinstance(what, Kernel):
        return what
    if not callable(what):
        raise ConfigError(f"{kind} is {what!r}; it must be a name or a function (agent, sim)")
    return hook(what)


def watts_of(simulation: Simulation) -> npt.NDArray[np.float64] | None:
    """What a node of each pool draws in each state, W [pools * states]; None where that is not known."""
    from hpctwin.energy.power.states import node_watts

    if not simulation.cluster.has_power:
        return None
    watts, pool = node_watts(simulation.cluster), simulation.state["pool_of"]
    found = np.zeros((simulation.state.pools, simulation.state["spent"].shape[1]))
    found[pool, : len(watts)] = watts.T
    return found.ravel()
