"""Environment for placement: the agent chooses the cluster for a job."""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.engine.agents.agent_record import MAX_INVALID
from hpctwin.errors import SimulationError
from hpctwin.facility import Facility, FacilityCluster, FacilityResult, FacilitySimulation
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
from hpctwin.learn.environments.vector_base import INVALID, SequentialVectorEnv
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.simulation import Simulation

__all__ = ["EXAMPLE_FACILITY", "FEATURES", "OBSERVATIONS", "REWARDS", "PlacementEnv", "largest_of"]

FloatArray = npt.NDArray[np.float32]

FEATURES = ("allowed", "work ahead", "waiting", "free", "nodes", "walltime", "staging")
"""Numbers for each cluster, all from 0 to 1:

- whether the job may go there
- the work ahead s on all its nodes, with the job's own, by walltimes, as s / (s + an hour), in
  seconds
- its pending jobs, n / (n + 100)
- free nodes over all nodes
- the nodes the job counts as there, over all nodes
- the job's walltime there over a day, at most 1
- the time s to transfer the job's data there, s / (s + an hour)
"""

_HOUR_S, _DAY_S = 3600.0, 86400.0

REWARDS = {
    "bounded-slowdown": ("bounded_slowdown", 1.0),
    "wait": ("wait_s", _HOUR_S),
    "turnaround": ("turnaround_s", _HOUR_S),
}
"""Columns and units of rewards by name.

The reward comes at the end: minus the mean over the jobs that ran, with times in hours; 0 if no
job ran.
"""


OBSERVATIONS = {
    "features": Observation(
        lambda environment: environment.features(), lambda window, nodes: (window, len(FEATURES))
    )
}
"""Observations by name."""

EXAMPLE_FACILITY = Facility(
    name="hall",
    clusters=(
        FacilityCluster(name="old", nodes=96, factor=1.5),
        FacilityCluster(name="new", nodes=64),
    ),
)
"""Facility of environments that are made without arguments."""


def largest_of(facility: Facility) -> Cluster:
    """Return the cluster with the most nodes.

    Jobs that do not fit there are in no episode.
    """
    return max((one.cluster for one in facility.clusters), key=lambda one: one.node_count)


class PlacementEnv(SchedulingEnv[np.int64]):
    """Choose the cluster that a job goes to, one job after the other.

    Only jobs that may go to two or more clusters need a choice; `action_masks` shows to which.

    Args:
        workload: The jobs, the path of a trace, or episodes; None for generated jobs.
        facility: The clusters, or the path of their file; by default two clusters, of 96 and 64
            nodes.
        jobs: Number of jobs in an episode.
        observation: Name in `OBSERVATIONS`, or a custom `Observation`.
        reward: Name in `REWARDS`, or a custom function ``(result) -> float`` of the
            `FacilityResult`, called at the end.
        seed: Seed of random numbers in the facility.
        invalid_action: Treatment of clusters that the job may not go to: ``ignore`` or ``raise``.
        render_mode: ``ansi`` or ``rgb_array``; None for no rendering.

    Raises:
        ConfigError: There are too few jobs.
        UnknownNameError: No reward has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str] | None = None,
        facility: Facility | str | os.PathLike[str] = EXAMPLE_FACILITY,
        *,
        jobs: int = 256,
        observation: str | Observation = "features",
        reward: Any = "bounded-slowdown",
        seed: int = 0,
        invalid_action: InvalidAction = "ignore",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode, invalid_action)
        self.facility = (
            facility if isinstance(facility, Facility) else Facility.from_yaml(os.fspath(facility))
        )
        self.episodes = episodes_of("Placement", workload, largest_of(self.facility), jobs)
        self.reward = by_name("reward", reward, REWARDS)
        self.seed = seed
        clusters = len(self.facility.clusters)
        seen = observation_of(observation, OBSERVATIONS)
        known = seen in OBSERVATIONS.values()
        self.observe: Any = seen.function if known else partial(observed, seen.function)
        self.observation_space: Any = seen.space(clusters, self.episodes.cluster.node_count)
        self.action_space = spaces.Discrete(clusters)
        self._row, self._options, self._invalid = -1, [0], 0

    def clusters(self) -> dict[str, Simulation]:
        """Return the simulation of each cluster by name."""
        each = (cluster.simulation for cluster in self.simulation.state.clusters)
        return dict(zip(self.facility.names, each, strict=True))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode; arguments as for `SimulationEnv.reset`."""
        super().reset(seed=seed)
        jobs = jobs_of_reset(self.episodes, self.np_random, seed, options)
        self.simulation = FacilitySimulation(self.facility, jobs, "round-robin", seed=self.seed)
        self._invalid = 0
        self.begun = True
        self.result: FacilityResult | None = None
        self._asked = self._questions()
        self._next(None)
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Send the job to a cluster.

        Args:
            action: Number of the cluster.

        Raises:
            SimulationError: There is no such cluster; no episode has begun; or the job may not go there, and
                ``invalid_action`` is ``raise``.
        """
        choice = self.choice_of(action)
        if self._row >= 0 and choice not in self._options:
            if self.invalid_action == "raise":
                raise SimulationError(
                    f"job may not go to cluster {choice}; choose one that action_masks() allows"
                )
            self._invalid += 1
            return self._seen(), 0.0, False, bool(self._invalid >= MAX_INVALID), {INVALID: True}
        self._invalid = 0
        over = self._next(choice)
        if not over:
            return self._seen(), 0.0, False, False, {}
        self.result = self.simulation.result()
        told = served(self.result.jobs)
        if callable(self.reward):
            return self._seen(), earned_by(self.reward, self.result), True, False, told
        column, unit = self.reward
        mean = told[f"mean_{column}"] or 0.0  # None if no job ran
        return self._seen(), -float(mean) / unit, True, False, told

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return to which clusters the job may go [clusters]."""
        return np.isin(np.arange(len(self.facility.clusters)), self._options)

    def many(self, count: int, threads: int | None = None) -> SequentialVectorEnv:
        """Return ``count`` environments like this one, stepped in turn.

        ``threads`` is ignored.
        """
        return SequentialVectorEnv(self, count)

    def _questions(self) -> Generator[tuple[int, list[int]], int, None]:
        """Yield each job that has several clusters to choose from; send the choice back."""
        state = self.simulation.state
        for rows in self.simulation.placements():
            for row in rows:
                options = state.options(row)
                if not options:
                    state.hold(row)
                elif len(options) == 1:
                    state.place(row, options[0])
                else:
                    choice = yield row, options
                    state.place(row, choice)

    def _next(self, choice: int | None) -> bool:
        """Advance to the next job that needs a choice; return whether there is none."""
        try:
            if choice is None or self._row < 0:
                self._row, self._options = next(self._asked)
            else:
                self._row, self._options = self._asked.send(choice)
        except StopIteration:
            self._row, self._options = -1, [0]
            # An episode without choices still has one step.
            self._asked = self._nothing()
            return choice is not None
        return False

    def _nothing(self) -> Generator[tuple[int, list[int]], int, None]:
        return
        yield

    @property
    def job(self) -> int:
        """Row of the job to place; -1 at the end."""
        return self._row

    def _seen(self) -> FloatArray:
        if self._row >= 0:
            self.simulation.state.advance_all()
        seen: FloatArray = self.observe(self)
        return seen

    def features(self) -> FloatArray:
        """Return `FEATURES` of each cluster; zeros at the end."""
        seen = np.zeros((len(self.facility.clusters), len(FEATURES)), np.float32)
        row, state = self._row, self.simulation.state
        if row < 0:
            return seen
        for number in range(len(state.clusters)):
            queued = state.queued(number)
            work_s = state.load(number, row)
            staging_s = (state.arrival_ms(row, number) - state.now_ms) / MS_PER_S
            walltime_s = int(state.jobs.on[number].walltime_ms[row]) / MS_PER_S
            seen[number] = (
                number in self._options,
                work_s / (work_s + _HOUR_S),
                queued / (queued + 100),
                state.free_share(number),
                min(float(state.jobs.counted[number, row]) / float(state.nodes[number]), 1.0),
                min(walltime_s / _DAY_S, 1.0),
                staging_s / (staging_s + _HOUR_S),
            )
        return seen
