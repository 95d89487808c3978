"""Environment for power management, after SPARS (Amrizal et al., 2025).

The agent chooses which nodes are on.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium import spaces

from hpctwin.engine.agents import power as hooks
from hpctwin.engine.agents import power as rewards
from hpctwin.errors import ConfigError
from hpctwin.learn.environments.environment import SimulationEnv
from hpctwin.learn.environments.episodes import Source, episodes_of
from hpctwin.learn.environments.scheduling_env import InvalidAction
from hpctwin.learn.environments.task import (
    Observation,
    Task,
    as_hook,
    by_name,
    observation_of,
    watts_of,
)
from hpctwin.model import Cluster, Workload, to_ms
from hpctwin.policies import make_policy
from hpctwin.simulation import Simulation

__all__ = [
    "ACTIONS", "LEVEL", "NODE", "OBSERVATIONS", "PRESETS", "REWARDS", "SHARES", "PowerManagementEnv",
    "power_management",
]  # fmt: skip

MOST = 1e15
"""Larger than any of SPARS's numbers; Gymnasium's checker wants a bound."""

SHARES = (
    "waiting", "nodes asked", "longest wait", "idle", "computing", "sleeping", "waking", "time of day",
)  # fmt: skip
"""Numbers for the agent, all from 0 to 1:

- pending jobs, n / (n + 100)
- the nodes they ask for, over these and all nodes
- their longest wait w as w / (w + an hour)
- the fractions of nodes that are idle, computing, sleeping and waking
- the time of day since time zero, over a day
"""

NODE = (
    "idle", "computing", "switching off", "sleeping", "switching on", "spell", "left", "free",
)  # fmt: skip
"""Numbers for each node:

- its state
- the time s it has been in that state, s / (s + an hour)
- the time l until it can be on, l / (l + an hour)
- whether it is up and no job has it
"""

LEVEL = ("height", "height²", *SHARES)
"""Numbers per level: its height from 0 to 1, its square, height times `SHARES`.

The level with the highest weighted sum therefore rises and falls in proportion to the observation.
"""

ACTIONS = {
    "share": hooks.SWITCH_TO_SHARE_COMING,
    "share-spars": hooks.SWITCH_TO_SHARE,
    "reserve": hooks.SWITCH_TO_RESERVE,
    "nodes": hooks.SWITCH_EACH,
}
"""Actions by name.

- ``share``: the fraction of all nodes that are to be on or on their way.
- ``share-spars``: the same, but nodes on their way do not count.
- ``reserve``: the fraction that is to be on or on its way in addition to computing nodes and those
  that pending jobs ask for.
- ``nodes``: for each node whether it is to be on.
"""

OBSERVATIONS = {
    "shares": Observation(hooks.OBSERVE_SHARES, lambda window, nodes: (len(SHARES),)),
    "spars": Observation(hooks.OBSERVE_SPARS, lambda window, nodes: (6,), high=MOST),
    "levels": Observation(hooks.OBSERVE_LEVELS, lambda window, nodes: (window, len(LEVEL))),
    "nodes": Observation(
        hooks.OBSERVE_NODES, lambda window, nodes: (len(SHARES) + nodes * len(NODE),)
    ),
}
"""Observations by name.

- ``shares`` are `SHARES`.
- ``levels`` is `LEVEL` of each level.
- ``nodes`` adds `NODE` of each node to `SHARES`.
- ``spars`` has its six numbers unscaled: pending jobs, jobs per second, the sums of their walltimes
  (s) and nodes, idle nodes, sleeping nodes.
"""

REWARDS = {
    "shares": rewards.REWARD_SHARES,
    "spars": rewards.REWARD_SPARS,
    "jobs": rewards.REWARD_JOBS,
}
"""Rewards of a step, by name.

- ``spars``: minus alpha × waste (J) / 64, minus beta × the mean wait (s) of jobs that waited in the
  step.
- ``shares``: waste is divided by the largest possible waste, and the wait is the fraction of the
  step that jobs waited.
- ``jobs``: minus alpha × waste (kWh), minus beta × waits (h) in the step, divided by the jobs of
  the episode. Over an episode this gives the waste per job and the mean wait.
"""

PRESETS: dict[str, dict[str, Any]] = {
    "spars": {"action": "share-spars", "observation": "spars", "reward": "spars"},
    "nodes": {"action": "nodes", "observation": "nodes", "reward": "shares"},
}
"""Presets by name: ``spars`` is SPARS as intended; ``nodes`` decides per node.

``nodes`` has masks.
"""


def power_management(
    source: Source,
    *,
    policy: str = "fcfs+easy~orders",
    every_s: float | None = 1800.0,
    action: Any = "share",
    levels: int | None = None,
    observation: str | Observation = "shares",
    reward: Any = "shares",
    alpha: float = 0.5,
    beta: float = 0.5,
) -> Task:
    """Make the task of `PowerManagementEnv`; arguments and errors as for it."""
    cluster, ruled = source.cluster, make_policy(policy)
    if not cluster.has_power or not cluster.depths:
        raise ConfigError(
            f"cluster {cluster.name} has no power model; add power and sleep states for "
            "PowerManagement (docs/how-to/power-price-and-carbon.md)"
        )
    if ruled.power.control is not None or not ruled.power.switches:
        raise ConfigError(
            f"agents cannot switch nodes under policy {ruled.name!r}; use power policy "
            "'orders', as in fcfs+easy~orders"
        )
    if every_s is not None and not every_s >= 0.001:
        raise ConfigError(
            f"every_s is {every_s:g}; it must be above 0, or None for each event time"
        )
    if levels is not None and levels < 2:
        raise ConfigError(f"levels is {levels}; it must be 2 or more")
    act = by_name("action", action, ACTIONS)
    seen = observation_of(observation, OBSERVATIONS)
    earned = by_name("reward", reward, REWARDS)
    nodes = cluster.node_count
    by_node = act is hooks.SWITCH_EACH
    if (seen is OBSERVATIONS["nodes"]) != by_node and seen in OBSERVATIONS.values():
        raise ConfigError(
            f"action is {action!r} and observation is {observation!r}; set both to 'nodes', or neither"
        )
    if seen is OBSERVATIONS["levels"] and levels is None:
        raise ConfigError("observation 'levels' needs their number; give it, such as levels=17")

    def make(jobs: Workload) -> Simulation:
        return Simulation(jobs, cluster, ruled)

    first = make(source.all_jobs().take(np.arange(1)))
    space: spaces.Space[Any] = spaces.Box(0.0, 1.0, (1,), np.float32)
    if by_node:
        space = spaces.MultiBinary(nodes)
    elif levels is not None:
        space = spaces.Discrete(levels)
    return Task(
        make,
        (
            as_hook(act, "action"),
            hooks.TO_TIME,
            as_hook(seen.function, "observation"),
            as_hook(earned, "reward"),
        ),
        seen.space(levels or 0, nodes),
        space,
        2 * nodes if by_node else levels or 1,
        "nodes" if by_node else "share",
        masked=by_node,
        nodes=nodes,
        numbers={
            "window": levels or 0,
            "every": 0 if every_s is None else to_ms(every_s),
            "most": _most_wasted(first),
            "alpha": alpha,
            "beta": beta,
        },
        watts=watts_of(first),
        facts=_sleepers(first),
        why_not=lambda simulation, choice: (
            "some nodes cannot be switched as chosen; choose what action_masks() allows"
        ),
        allow=hooks.ALLOW_NODES if by_node and seen not in OBSERVATIONS.values() else None,
    )


def _most_wasted(simulation: Simulation) -> float:
    """Return the largest power of all nodes without computing, in W."""
    from hpctwin.energy.power.states import node_watts

    watts = node_watts(simulation.cluster)
    return float(np.delete(watts, 1, axis=0).max(axis=0).sum())


def _sleepers(simulation: Simulation) -> Any:
    """Return whether the nodes of each pool have a sleep state, as 1 or 0 [pools]."""
    from hpctwin.energy.power.states import group_of_node

    asleep = np.array([bool(group.sleep) for group in group_of_node(simulation.cluster)])
    found = np.zeros(simulation.state.pools)
    found[simulation.state["pool_of"]] = asleep
    return found


class PowerManagementEnv(SimulationEnv):
    """Choose how many nodes are on, or which.

    A step lasts to the next multiple of ``every_s``, or over the next event time. The first
    decision comes before any event. A decision is applied at once, and a scheduling pass follows.
    Only nodes without a job are switched off. Nodes with the lowest numbers are switched off and
    woken first. If jobs wait for ten days without other events, the episode is truncated.

    Args:
        workload: The jobs, the path of a trace, or episodes; None for generated jobs.
        cluster: The cluster, or the path of its file; not with episodes. If both are omitted, it
            has 64 nodes that can sleep.
        jobs: Number of jobs in an episode.
        preset: Name in `PRESETS`, for action, observation and reward together.
        policy: Policy that starts jobs; its power policy is ``orders``, or one that switches nodes
            together with the agent.
        every_s: Time between decisions, in seconds; None for a decision after each event time.
        action: Name in `ACTIONS`, or a custom function.
        levels: Number of fractions from 0 to 1 to choose from; None for any fraction.
        observation: Name in `OBSERVATIONS`, or a custom `Observation`.
        reward: Name in `REWARDS`, or a custom function.
        alpha: Weight of waste.
        beta: Weight of waits.
        max_steps: Largest number of steps of an episode; None for no limit.
        invalid_action: Treatment of nodes that cannot be switched as chosen, if ``action`` is
            ``nodes``: ``ignore`` or ``raise``. The other nodes are switched.
        render_mode: ``ansi`` or ``rgb_array``; None for no rendering.

    Raises:
        ConfigError: There are too few jobs, the cluster has no power or sleep states, or the parts
            are incompatible.
        UnknownNameError: No preset, action, observation or reward has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str] | None = None,
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        preset: str | None = None,
        max_steps: int | None = None,
        invalid_action: InvalidAction = "ignore",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        source = episodes_of("PowerManagement", workload, cluster, jobs)
        if preset is not None:
            options = {**by_name("preset", preset, PRESETS), **options}
        task = power_management(source, **options)
        super().__init__(task, source, max_steps, invalid_action, render_mode)
        self.options = {"every_s": 1800.0} | options
