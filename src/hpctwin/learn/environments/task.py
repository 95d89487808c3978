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

from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Cluster, Workload
from hpctwin.policies.registry import is_file, load_function
from hpctwin.simulation import Simulation

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = [
    "Hook",
    "Observation",
    "Task",
    "as_hook",
    "by_name",
    "earned_by",
    "is_custom",
    "observation_of",
    "observed",
    "served",
    "watts_of",
]


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
"""Function ``(agent, sim) -> None`` that the engine compiles; see docs/reference/environments.md."""


@dataclass(frozen=True)
class Observation:
    """Observation of an agent.

    Args:
        function: Function that writes each number, by
            ``put_seen(agent_at(agent).seen, place, number)`` of
            `hpctwin.engine.agents.agent_record`. For PolicySelection and Placement: function of the
            environment that returns the numbers.
        shape: Function that returns the shape, from the places of the window (clusters, policies)
            and the nodes of the cluster.
        low: Minimum of the numbers.
        high: Maximum of the numbers.
        facts: Whether the function reads ``sim.fact``.
        amounts: Function that returns numbers for ``agent_at(agent).facts``, from all jobs and the
            cluster.
    """

    function: Callable[..., Any] | Kernel
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
        allow: Hook that writes the available choices, for observations that do not; None for none.
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
    allow: Kernel | None = None


def by_name(kind: str, what: Any, known: Mapping[str, Any]) -> Any:
    """Return the entry with a name, what ``FILE.py:NAME`` names, or the argument itself.

    Raises:
        UnknownNameError: No entry has that name.
        PolicyError: The file does not exist, or fails on import.
    """
    if not isinstance(what, str):
        return what
    if is_file(what):
        return load_function(what, Observation, kind, default=kind)[1]
    if what not in known:
        raise UnknownNameError(kind, what, list(known))
    return known[what]


def observation_of(what: Any, known: Mapping[str, Observation]) -> Observation:
    """Return an observation by its name, or a custom one.

    Raises:
        UnknownNameError, PolicyError: As for `by_name`.
        ConfigError: It is not an `Observation`.
    """
    found = by_name("observation", what, known)
    if not isinstance(found, Observation):
        raise ConfigError(
            f"observation is {what!r}; it must be a name or an Observation(function, shape)"
        )
    return found


def is_custom(what: Any) -> bool:
    """Return whether a reward, observation or action is a custom one, not a name."""
    return not isinstance(what, str) or is_file(what)


def observed(function: Callable[[Any], Any], environment: Any) -> FloatArray:
    """Return what a custom function observes of an environment that is not compiled.

    Raises:
        PolicyError: The function fails, or the result is not in the observation space.
    """
    space = environment.observation_space
    name = getattr(function, "__name__", "observation")
    try:
        found = np.asarray(function(environment), np.float32)
    except Exception as error:  # any error of a user's code
        raise PolicyError(f"observation {name!r} fails: {error!r}") from error
    if not space.contains(found):
        raise PolicyError(f"observation {name!r} returned {found}, which is not in {space}")
    return found


def earned_by(function: Callable[..., Any], *given: Any) -> float:
    """Return the reward of a custom function, for an environment that is not compiled.

    Raises:
        PolicyError: The function fails, or the result is not a finite number.
    """
    name = getattr(function, "__name__", "reward")
    try:
        found: Any = function(*given)
    except Exception as error:  # any error of a user's code
        raise PolicyError(f"reward {name!r} fails: {error!r}") from error
    numbers = (int, float, np.integer, np.floating)
    if isinstance(found, bool) or not isinstance(found, numbers) or not np.isfinite(found):
        raise PolicyError(f"reward {name!r} returned {found!r}; it must be a finite number")
    return float(found)


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
