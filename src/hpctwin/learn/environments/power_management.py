"""The environment in which an agent says which nodes are on, after SPARS (Amrizal et al., 2025)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium import spaces

from hpctwin.engine.agents import power as hooks
from hpctwin.engine.agents import power_rewards as rewards
from hpctwin.errors import ConfigError
from hpctwin.learn.environments.environment import Environment
from hpctwin.learn.environments.episodes import Source, episodes_of
from hpctwin.learn.environments.task import Observation, Task, as_hook, by_name, watts_of
from hpctwin.model import Cluster, Workload, to_ms
from hpctwin.policies import make_policy
from hpctwin.simulation import Simulation

__all__ = [
    "ACTIONS", "LEVEL", "NODE", "OBSERVATIONS", "PRESETS", "REWARDS", "SHARES", "PowerManagement",
    "power_management",
]  # fmt: skip

MOST = 1e15
"""More than any of SPARS's numbers; a space without a bound is doubted by the checker."""

SHARES = (
    "waiting", "nodes asked", "longest wait", "idle", "computing", "sleeping", "waking", "time of day",
)  # fmt: skip
"""All from 0 to 1: jobs that wait, n / (n + 100); nodes they ask for, over those and all nodes; their
longest wait w as w / (w + an hour); shares of all nodes; time of day since time zero, over a day."""

NODE = (
    "idle", "computing", "switching off", "sleeping", "switching on", "spell", "left", "free",
)  # fmt: skip
"""Of each node: its state; for how long s it has been in it, s / (s + an hour); how long l until it can
be on, l / (l + an hour); whether no job has it and it is up."""

LEVEL = ("height", "height²", *SHARES)
"""Of each level: how high it is, from 0 to 1; its square; and, times how high it is, `SHARES`. So the level
whose sum is highest is one that goes up and down in proportion to what is seen."""

ACTIONS = {
    "share": hooks.SWITCH_TO_SHARE_COMING,
    "share-spars": hooks.SWITCH_TO_SHARE,
    "reserve": hooks.SWITCH_TO_RESERVE,
    "nodes": hooks.SWITCH_EACH,
}
"""By name: ``share`` is the share of all nodes that are to be on or on their way; ``share-spars`` the
same, but those on their way do not count; ``reserve`` the share that is to be on or on its way beside
nodes that compute and those that waiting jobs ask for; ``nodes`` says of each node whether it is to be on."""

OBSERVATIONS = {
    "shares": Observation(hooks.OBSERVE_SHARES, lambda window, nodes: (len(SHARES),)),
    "spars": Observation(hooks.OBSERVE_SPARS, lambda window, nodes: (6,), high=MOST),
    "levels": Observation(hooks.OBSERVE_LEVELS, lambda window, nodes: (window, len(LEVEL))),
    "nodes": Observation(
        hooks.OBSERVE_NODES, lambda window, nodes: (len(SHARES) + nodes * len(NODE),)
    ),
}
"""By name: ``shares`` are `SHARES`; ``levels`` is `LEVEL` of each level; ``nodes`` has besides `NODE` of each
node; ``spars`` its six numbers as they are: jobs that wait, jobs that came per second, their walltimes in sum
(s), their nodes in sum, idle nodes, sleeping nodes."""

REWARDS = {
    "shares": rewards.REWARD_SHARES,
    "spars": rewards.REWARD_SPARS,
    "jobs": rewards.REWARD_JOBS,
}
"""By name, of a step: ``spars`` is minus alpha × waste (J) / 64, minus beta × the mean wait (s) of jobs
that waited in it; with
``shares`` waste is over the most that could be, and the wait is the share of the step that they waited.
``jobs`` is minus alpha × waste (kWh), minus beta × waits (h) in the step, over the jobs of the episode:
of an episode, what is wasted for a job and the mean wait."""

PRESETS: dict[str, dict[str, Any]] = {
    "spars": {"action": "share-spars", "observation": "spars", "reward": "spars"},
    "nodes": {"action": "nodes", "observation": "nodes", "reward": "shares"},
}
"""By name: ``spars`` is SPARS as it is meant; ``nodes`` decides of each node, with masks."""


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
    """What `PowerManagement` is made of; arguments and errors as there."""
    cluster, ruled = source.cluster, make_policy(policy)
    if not cluster.has_power or not cluster.depths:
        raise ConfigError(
            f"{cluster.name}: what its nodes draw and how they sleep is not known; PowerManagement needs a "
            "machine with power and sleep states (docs/energy.md)"
        )
    if ruled.power.control is not None or not ruled.power.switches:
        raise ConfigError(
            f"under policy {ruled.name!r} no agent can switch nodes; take power policy 'orders', as in "
            "fcfs+easy~orders"
        )
    if every_s is not None and not every_s >= 0.001:
        raise ConfigError(f"every_s is {every_s:g}, it must be above 0, or None for each instant")
    if levels is not None and levels < 2:
        raise ConfigError(f"levels is {levels}, it must be 2 or more")
    act = by_name("action", action, ACTIONS)
    seen = by_name("observation", observation, OBSERVATIONS)
    earned = by_name("reward", reward, REWARDS)
    nodes = cluster.node_count
    by_node = act is hooks.SWITCH_EACH
    if (seen is OBSERVATIONS["nodes"]) != by_node and seen in OBSERVATIONS.values():
        raise ConfigError("action 'nodes' goes with observation 'nodes', and with no other")
    if seen is OBSERVATIONS["levels"] and levels is None:
        raise ConfigError("observation 'levels' is of levels; give so many, such as levels=17")

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
    )


def _most_wasted(simulation: Simulation) -> float:
    """What all nodes would draw at most without computing, W."""
    from hpctwin.energy.power.states import node_watts

    watts = node_watts(simulation.cluster)
    return float(np.delete(watts, 1, axis=0).max(axis=0).sum())


def _sleepers(simulation: Simulation) -> Any:
    """Whether the nodes of each pool have a sleep state, as 1 or 0 [pools]."""
    from hpctwin.energy.power.states import group_of_node

    asleep = np.array([bool(group.sleep) for group in group_of_node(simulation.cluster)])
    found = np.zeros(simulation.state.pools)
    found[simulation.state["pool_of"]] = asleep
    return found


class PowerManagement(Environment):
    """Choose how many nodes are on, or which.

    A step goes to the next multiple of ``every_s``, or over the next instant; the first decision comes
    before all else.
    What is decided is done at once, and a scheduling pass sees it. Only nodes without a job are switched
    off, the lowest
    numbers first; the lowest sleeping numbers are woken. If jobs wait for ten days with nothing left to
    happen, the episode is cut off.

    Args:
        workload: the jobs, the path of a trace, or episodes.
        cluster: the machine, or the path of its file; not with episodes.
        jobs: of an episode.
        preset: a name of `PRESETS`, for action, observation and reward together.
        policy: under which jobs start; its power policy is ``orders``, or one that switches nodes beside
            the agent.
        every_s: seconds between decisions; None for one after each instant.
        action: a name of `ACTIONS`, or a function of one's own.
        levels: so many shares from 0 to 1 to choose from; None for any.
        observation: a name of `OBSERVATIONS`, or an `Observation` of one's own.
        reward: a name of `REWARDS`, or a function of one's own.
        alpha: weight of waste.
        beta: weight of waits.
        max_steps: steps of an episode at most; None for no limit.

    Raises:
        ConfigError: there are too few jobs, the machine has no power or sleep states, or the parts do
            not go together.
        UnknownNameError: no preset, action, observation or reward has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        preset: str | None = None,
        max_steps: int | None = None,
        **options: Any,
    ) -> None:
        source = episodes_of("PowerManagement", workload, cluster, jobs)
        if preset is not None:
            options = {**by_name("preset", preset, PRESETS), **options}
        super().__init__(power_management(source, **options), source, max_steps)
