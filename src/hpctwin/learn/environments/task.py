"""Parts of an environment: decisions, observations and rewards.

Metrics of an episode's jobs, by which all policies are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from gymnasium import spaces

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Cluster, Workload
from hpctwin.simulation import Simulation

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = ["Hook", "Observation", "Task", "as_hook", "by_name", "served", "watts_of"]


def served(jobs: pl.DataFrame) -> dict[str, Any]:
    """Return means over the jobs that ran, and the number of these jobs.

    Args:
        jobs: Table of a result, or its columns of submission, start, end and nodes.

    Returns:
        ``mean_bounded_slowdown``, ``mean_wait_s``, ``mean_turnaround_s``, ``served``.
    """
    found = with_job_metrics(jobs).select("bounded_slowdown", "wait_s", "turnaround_s")
    means = found.mean().row(0, named=True)
    ran = len(found["bounded_slowdown"].drop_nulls())
    return {**{f"mean_{name}": value for name, value in means.items()}, "served": ran}


FloatArray = npt.NDArray[np.float32]
Hook = Callable[[int, Any], None]
"""Function ``(agent, sim) -> None`` that the engine compiles; see docs/how-to/train-agents.md."""


@dataclass(frozen=True)
class Observation:
    """Observation of an agent.

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
        """Return its Gymnasium space."""
        return spaces.Box(self.low, self.high, self.shape(window, nodes), np.float32)


@dataclass(frozen=True, eq=False)
class Task:
    """Parts that an environment is made of.

    Args:
        make: Function that returns a new simulation of an episode's jobs.
        hooks: Hooks to act, advance, observe and reward; see `hpctwin.engine.agents`.
        observation_space: Space of observations.
        action_space: Space of actions.
        width: Number of choices in a mask.
        chosen: Form of an action for the engine: a number, a fraction, or a byte per node.
        masked: Whether some choices may be forbidden.
        numbers: Other fields of `hpctwin.engine.agents.agent_record.Agent`.
        watts: Power of a node in each state, in W [pools * states]; None if unknown.
        facts: Numbers that the hooks read; None for none.
        why_not: Function that returns why a choice is rejected.
        scale: Function that returns the factor of an episode's rewards; None for 1.
        nodes: Number of nodes of the cluster.
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
    """Return the entry with a name, or the argument itself if it is no name.

    Raises:
        UnknownNameError: No entry has that name.
    """
    if not isinstance(what, str):
        return what
    if what not in known:
        raise UnknownNameError(kind, what, list(known))
    return known[what]


def as_hook(what: Any, kind: str) -> Any:
    """Return a custom function or an engine kernel as a hook.

    Raises:
        ConfigError: It is neither.
    """
    from hpctwin.engine.agents.agent_record import hook
    from hpctwin.engine.compile.jit import Kernel

    if isinstance(what, Kernel):
        return what
    if not callable(what):
        raise ConfigError(f"{kind} is {what!r}; it must be a name or a function (agent, sim)")
    return hook(what)


def watts_of(simulation: Simulation) -> npt.NDArray[np.float64] | None:
    """Return the power of a node of each pool in each state, in W; None if unknown.

    The array is [pools * states].
    """
    from hpctwin.energy.power.states import node_watts

    if not simulation.cluster.has_power:
        return None
    watts, pool = node_watts(simulation.cluster), simulation.state["pool_of"]
    found = np.zeros((simulation.state.pools, simulation.state["spent"].shape[1]))
    found[pool, : len(watts)] = watts.T
    return found.ravel()
