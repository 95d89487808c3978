"""One Gymnasium environment of a simulation, and many of them."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt

from hpctwin.engine.agents.agent_record import CUT, ENDED, GOES_ON
from hpctwin.learn.environments.episodes import Source, asked_for
from hpctwin.learn.environments.task import Task
from hpctwin.learn.environments.vector import ACTION, EARNED, OVER, SHARE, Batch
from hpctwin.learn.environments.vector_base import AgentVectorEnv, FloatArray
from hpctwin.model import Workload
from hpctwin.simulation import Simulation

__all__ = ["SimulationEnv", "SimulationVectorEnv"]

BoolArray = npt.NDArray[np.bool_]


class SimulationEnv(gymnasium.Env[FloatArray, Any]):
    """One simulation with an agent.

    Args:
        task: Decisions, observations and rewards.
        source: Source of episodes.
        max_steps: Number of steps after which an episode is truncated; None for no limit.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, task: Task, source: Source, max_steps: int | None = None) -> None:
        self.task, self.episodes, self.max_steps = task, source, max_steps
        self.observation_space: Any = task.observation_space
        self.action_space = task.action_space
        self.batch = Batch(task, source, limit=max_steps)
        self._seen: FloatArray = self.batch.seen[self.batch.side, 0]
        self._mask: BoolArray = self.batch.masks[self.batch.side, 0]
        batch = self.batch
        self._chosen = batch.whole[:, ACTION], batch.real[:, SHARE], batch.nodes

    @property
    def simulation(self) -> Simulation:
        """The simulation, for inspection."""
        return self.batch.simulation(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of the episodes drawn.
            options: ``first`` for the episode that begins with that job of the trace; ``jobs`` for
                an episode of given jobs.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.episodes.restart()
        self.batch.rng = self.np_random
        self.batch.begin(0, asked_for(self.episodes, options))
        return self._seen.copy(), {}

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Apply an action, and advance to the next decision.

        Args:
            action: Element of the action space.

        Raises:
            SimulationError: The action is not allowed.
        """
        batch = self.batch
        choose(self.task, *self._chosen, 0, action)
        batch.step_alone()
        over = batch.whole[0, OVER]
        told = {} if over == GOES_ON else batch.told(0)
        return (
            self._seen.copy(),
            float(batch.real[0, EARNED] * batch.scales[0]),
            bool(over == ENDED),
            bool(over == CUT),
            told,
        )

    def action_masks(self) -> BoolArray:
        """Return which choices are allowed, as maskable agents of sb3-contrib expect."""
        return self._mask.copy()

    def many(self, count: int, threads: int | None = None) -> SimulationVectorEnv:
        """Return ``count`` environments like this one; see `SimulationVectorEnv`."""
        return SimulationVectorEnv(self.task, self.episodes, count, self.max_steps, threads)

    def close(self) -> None:
        """Release the batch."""
        self.batch.close()


def choose(task: Task, places: Any, shares: Any, nodes: Any, rows: Any, actions: Any) -> None:
    """Write actions where the engine reads them, for one agent or many.

    Args:
        task: Decisions of the task.
        places: Array for actions that are numbers [agents].
        shares: Array for actions that are fractions [agents].
        nodes: Array for actions that are a byte per node [agents, nodes].
        rows: Agents that the actions are for.
        actions: The actions.
    """
    if task.chosen == "place":
        places[rows] = actions
    elif task.chosen == "nodes":
        nodes[rows] = actions
    elif isinstance(task.action_space, gymnasium.spaces.Discrete):
        shares[rows] = actions / (task.action_space.n - 1)
    else:
        shares[rows] = np.asarray(actions)[..., 0]


class SimulationVectorEnv(AgentVectorEnv):
    """Many simulations with agents, stepped in one compiled call; see `AgentVectorEnv`.

    Threads share the work. Observations are in memory that is overwritten in the step after the
    next; copy what you keep.

    Args:
        task: Decisions, observations and rewards.
        source: Source of episodes.
        num_envs: Number of environments.
        max_steps: Largest number of steps of an episode; None for no limit.
        threads: Number of threads; None for the number of cores.
    """

    def __init__(
        self,
        task: Task,
        source: Source,
        num_envs: int,
        max_steps: int | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__(task.observation_space, task.action_space, source, num_envs)
        self.task = task
        self.batch = batch = Batch(task, source, num_envs, threads=threads, limit=max_steps)
        self._chosen = batch.choices["action"], batch.choices["share"], batch.nodes
        self._over, self._earned = batch.outcomes["over"], batch.outcomes["earned"]

    def _begin_all(self, seed: int | None) -> tuple[FloatArray, dict[str, Any]]:
        self.batch.begin_all(seed)
        return self.seen, self._infos()

    def step(
        self, actions: Any
    ) -> tuple[FloatArray, npt.NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """Step each environment.

        Args:
            actions: One action for each [num_envs, …].

        Raises:
            SimulationError: An action is not allowed.
        """
        batch = self.batch
        choose(self.task, *self._chosen, slice(None), actions)
        noted = batch.step()
        earned = self._earned * batch.scales
        if not noted:
            never = np.zeros((2, self.num_envs), np.bool_)
            return self.seen, earned, never[0], never[1], self._infos()
        ended, cut = self._over == ENDED, self._over == CUT
        done = ended | cut
        infos = self._begin_again(done) if done.any() else {}
        infos.update(self._infos())
        return self.seen, earned, ended, cut, infos

    def begin(self, number: int, jobs: Workload) -> None:
        """Begin an episode of given jobs in one environment."""
        self.batch.begin(number, jobs)

    def _begin_again(self, done: BoolArray) -> dict[str, Any]:
        batch = self.batch
        seen = np.full(self.num_envs, None, object)
        told = np.full(self.num_envs, None, object)
        for number in np.flatnonzero(done).tolist():
            seen[number] = self.seen[number].copy()
            told[number] = batch.told(number)
            batch.begin(number)
        return {"final_obs": seen, "_final_obs": done, "final_info": told, "_final_info": done}

    @property
    def seen(self) -> FloatArray:
        """Observation of each environment [num_envs, …]."""
        seen: FloatArray = self.batch.seen[self.batch.side]
        return seen

    def action_masks(self) -> BoolArray:
        """Return which choices each environment allows [num_envs, choices]."""
        masks: BoolArray = self.batch.masks[self.batch.side]
        return masks

    def _infos(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks()} if self.task.masked else {}

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self.batch.close()
