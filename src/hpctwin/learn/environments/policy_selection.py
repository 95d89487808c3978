"""Environment for policy selection: the agent makes SchedTwin's choice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.errors import ConfigError
from hpctwin.learn.environments.episodes import Source, episodes_of, jobs_of_reset
from hpctwin.learn.environments.scheduling_env import InvalidAction, SchedulingEnv
from hpctwin.learn.environments.task import (
    Observation,
    by_name,
    earned_by,
    observation_of,
    observed,
    served,
)
from hpctwin.learn.environments.vector_base import SequentialVectorEnv
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.policies import make_policy
from hpctwin.simulation import Simulation

__all__ = ["FEATURES", "OBSERVATIONS", "PolicySelectionEnv"]


FloatArray = npt.NDArray[np.float32]

FEATURES = (
    "waiting", "nodes asked", "free", "mean wait", "longest wait", "mean walltime", "widest",
)  # fmt: skip
"""Numbers for the agent, all from 0 to 1:

- pending jobs, n / (n + 100)
- the nodes they ask for, over these and all nodes
- free nodes over all nodes
- their mean and longest wait w, each as w / (w + an hour)
- their mean walltime over a day, at most 1
- the nodes of the widest over all nodes
"""

_HOUR_S, _DAY_S = 3600.0, 86400.0

OBSERVATIONS = {
    "features": Observation(
        lambda environment: environment.features(), lambda window, nodes: (len(FEATURES),)
    )
}
"""Observations by name."""


class PolicySelectionEnv(SchedulingEnv[np.int64]):
    """Choose the policy of the cluster for the next interval.

    The reward of a step is minus the job-hours waited in it, divided by the jobs of the episode.
    The rewards of an episode sum to minus the mean wait in hours. Jobs that are canceled before
    they start count with their wait until then.

    Args:
        workload: The jobs, the path of a trace, or episodes; None for generated jobs.
        cluster: The cluster, a number of equal nodes, or the path of a cluster file; not with
            episodes. If both are omitted, it has 64 nodes.
        policies: Policies to choose from, in the order of actions.
        jobs: Number of jobs in an episode.
        every_s: How long a choice holds, in seconds.
        observation: Name in `OBSERVATIONS`, or a custom `Observation`.
        reward: ``wait``, or a custom function ``(simulation, since_s) -> float``, called after each
            step, which began at ``since_s``.
        invalid_action: As for all environments; here each policy is always available.
        render_mode: ``ansi`` or ``rgb_array``; None for no rendering.

    Raises:
        ConfigError: There are too few jobs or policies, or ``every_s`` is not above 0.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str] | None = None,
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        policies: Sequence[str] = ("fcfs+easy", "sjf+easy", "wfp+easy"),
        jobs: int = 256,
        every_s: float = 600.0,
        observation: str | Observation = "features",
        reward: Any = "wait",
        invalid_action: InvalidAction = "ignore",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode, invalid_action)
        self.episodes = episodes_of("PolicySelection", workload, cluster, jobs)
        if not policies:
            raise ConfigError(
                "policies to choose from are missing; give at least one, such as 'fcfs+easy'"
            )
        if not every_s > 0:
            raise ConfigError(f"a choice holds for {every_s:g} s; it must be above 0")
        self.policies = tuple(make_policy(policy) for policy in policies)
        self.every_s = every_s
        self.reward = by_name("reward", reward, {"wait": None})
        seen = observation_of(observation, OBSERVATIONS)
        known = seen in OBSERVATIONS.values()
        self.observe: Any = seen.function if known else partial(observed, seen.function)
        self.observation_space: Any = seen.space(
            len(self.policies), self.episodes.cluster.node_count
        )
        self.action_space = spaces.Discrete(len(self.policies))

    def clusters(self) -> dict[str, Simulation]:
        """Return the simulation by the name of its cluster."""
        return {self.episodes.cluster.name: self.simulation}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode; arguments as for `SimulationEnv.reset`."""
        super().reset(seed=seed)
        jobs = jobs_of_reset(self.episodes, self.np_random, seed, options)
        self.rules = 0
        self.simulation = Simulation(jobs, self.episodes.cluster, self.policies[0])
        self._until_s, self._waited_s = 0.0, 0.0
        self.begun = True
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Use a policy until the next choice.

        Args:
            action: Index of the policy.

        Raises:
            SimulationError: There is no such policy, or no episode has begun.
        """
        choice = self.choice_of(action)
        if choice != self.rules:
            self.rules = choice
            self.simulation = self.simulation.fork(self.policies[self.rules])
        since_s, self._until_s = self._until_s, self._until_s + self.every_s
        over = self.simulation.advance(self._until_s) == "done"
        before, self._waited_s = self._waited_s, self._waited()
        earned = -(self._waited_s - before) / _HOUR_S / len(self.simulation.workload)
        if self.reward is not None:
            earned = earned_by(self.reward, self.simulation, since_s)
        return self._seen(), earned, over, False, self._told() if over else {}

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return which policies can be chosen: all [policies]."""
        return np.ones(len(self.policies), np.bool_)

    def many(self, count: int, threads: int | None = None) -> SequentialVectorEnv:
        """Return ``count`` environments like this one, stepped in turn.

        ``threads`` is ignored.
        """
        return SequentialVectorEnv(self, count)

    def _told(self) -> dict[str, Any]:
        result = self.simulation.result()
        energy = {} if result.energy is None else {"energy_j": result.energy.total_j}
        return {**served(result.jobs), **energy}

    def _waited(self) -> float:
        """Return the job-seconds waited so far."""
        simulation = self.simulation
        start, end = simulation.column("start"), simulation.column("end")
        now_ms = round(min(self._until_s, simulation.now_s) * MS_PER_S)
        # A job that was canceled before its start waited until its end.
        until = np.where(start >= 0, start, np.where(end >= 0, end, now_ms))
        waited = np.maximum(np.minimum(until, now_ms) - simulation.submit_ms, 0).sum() / MS_PER_S
        return float(waited)

    def _seen(self) -> FloatArray:
        seen: FloatArray = self.observe(self)
        return seen

    def features(self) -> FloatArray:
        """Return `FEATURES`."""
        simulation = self.simulation
        workload, clock = simulation.workload, simulation.state.clock
        total = self.episodes.cluster.node_count
        rows = simulation.state["queue"][: clock.queued]
        seen = np.zeros(len(FEATURES), np.float32)
        seen[2] = simulation.free_nodes() / total
        if len(rows):
            nodes = workload.nodes[rows]
            wait_s = simulation.now_s - simulation.submit_ms[rows] / MS_PER_S
            longest, mean = float(wait_s.max()), float(wait_s.mean())
            asked = int(nodes.sum())
            seen[0] = len(rows) / (len(rows) + 100)
            seen[1] = asked / (asked + total)
            seen[3] = mean / (mean + _HOUR_S)
            seen[4] = longest / (longest + _HOUR_S)
            seen[5] = min(float(workload.walltime_ms[rows].mean()) / MS_PER_S / _DAY_S, 1.0)
            seen[6] = nodes.max() / total
        return seen
