"""One environment, after Gymnasium, and many of them."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt

from hpctwin.engine.agents.agent_record import CUT, ENDED, GOES_ON
from hpctwin.learn.environments.episodes import Source, asked_for
from hpctwin.learn.environments.task import Task
from hpctwin.learn.environments.vector.base import FloatArray, Vector
from hpctwin.learn.environments.vector.batch import ACTION, EARNED, OVER, SHARE, Batch
from hpctwin.model import Workload
from hpctwin.simulation import Simulation

__all__ = ["Environment", "Environments"]

BoolArray = npt.NDArray[np.bool_]


class Environment(gymnasium.Env[FloatArray, Any]):
    """One simulation with an agent.

    Args:
        task: what is decided, seen and earned.
        source: where episodes come from.
        max_steps: steps of an episode at most; it is cut off then. None for no limit.
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
        """The simulation; to be looked at."""
        return self.batch.simulation(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of which one is drawn.
            options: ``first`` for the one that begins with that job of the trace; ``jobs`` for one of
                given jobs.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.episodes.restart()
        self.batch.rng = self.np_random
        self.batch.begin(0, asked_for(self.episodes, options))
        return self._seen.copy(), {}

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Do what was chosen, and go on to the next decision.

        Args:
            action: of the action space.

        Raises:
            SimulationError: what was chosen is not there.
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
        """Which choices there are, as maskable agents of sb3-contrib ask."""
        return self._mask.copy()

    def many(self, count: int, threads: int | None = None) -> Environments:
        """So many like this one; see `Environments`."""
        return Environments(self.task, self.episodes, count, self.max_steps, threads)

    def close(self) -> None:
        """Nothing is left open."""
        self.batch.close()


def choose(task: Task, places: Any, shares: Any, nodes: Any, rows: Any, actions: Any) -> None:
    """Tell the engine what was chosen, for one or for many.

    Args:
        task: what is decided.
        places: where it is told by a number [agents].
        shares: … by a share [agents].
        nodes: … by a byte for each node [agents, nodes].
        rows: of the agents that it was chosen for.
        actions: what was chosen.
    """
    if task.chosen == "place":
        places[rows] = actions
    elif task.chosen == "nodes":
        nodes[rows] = actions
    elif isinstance(task.action_space, gymnasium.spaces.Discrete):
        shares[rows] = actions / (task.action_space.n - 1)
    else:
        shares[rows] = np.asarray(actions)[..., 0]


class Environments(Vector):
    """Many simulations, each with an agent, stepped in one compiled call over threads; see `Vector`.

    What is seen lies in memory that is written again in the step after the next; copy what is to be kept.

    Args:
        task: what is decided, seen and earned.
        source: where episodes come from.
        num_envs: how many.
        max_steps: steps of an episode at most; None for no limit.
        threads: that step them; None for as many as the machine has cores.
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
        """Step each.

        Args:
            actions: one for each [num_envs, …].

        Raises:
            SimulationError: what was chosen is not there.
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
        """Begin an episode of given jobs in one of them."""
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
        """What each sees [num_envs, …]."""
        seen: FloatArray = self.batch.seen[self.batch.side]
        return seen

    def action_masks(self) -> BoolArray:
        """Which choices each has [num_envs, choices]."""
        masks: BoolArray = self.batch.masks[self.batch.side]
        return masks

    def _infos(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks()} if self.task.masked else {}

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self.batch.close()
