"""One Gymnasium environment of a simulation, and many of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from hpctwin.engine.agents.agent_record import CUT, ENDED, GOES_ON
from hpctwin.errors import SimulationError
from hpctwin.learn.environments.episodes import Source, asked_for
from hpctwin.learn.environments.scheduling_env import InvalidAction, SchedulingEnv
from hpctwin.learn.environments.task import Task
from hpctwin.learn.environments.vector import ACTION, EARNED, OVER, SHARE, UNAVAILABLE, Batch
from hpctwin.learn.environments.vector_base import INVALID, AgentVectorEnv, FloatArray
from hpctwin.model import Workload
from hpctwin.simulation import Simulation

__all__ = ["SimulationEnv", "SimulationVectorEnv"]

BoolArray = npt.NDArray[np.bool_]


class SimulationEnv(SchedulingEnv[Any]):
    """One simulation with an agent.

    Args:
        task: Decisions, observations and rewards.
        source: Source of episodes.
        max_steps: Number of steps after which an episode is truncated; None for no limit.
        invalid_action: Treatment of actions that are not available; see `InvalidAction`.
        render_mode: As for `SchedulingEnv`.
    """

    def __init__(
        self,
        task: Task,
        source: Source,
        max_steps: int | None = None,
        invalid_action: InvalidAction = "ignore",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode, invalid_action)
        self.task, self.episodes, self.max_steps = task, source, max_steps
        self.observation_space: Any = task.observation_space
        self.action_space = task.action_space
        self._by_node, self._by_place = task.chosen == "nodes", task.chosen == "place"
        strict = invalid_action == "raise"
        self.batch = Batch(task, source, limit=max_steps, strict=strict)
        self._seen: FloatArray = self.batch.seen[self.batch.side, 0]
        self._mask: BoolArray = self.batch.masks[self.batch.side, 0]
        batch = self.batch
        chosen = {
            "place": batch.whole[0, ACTION : ACTION + 1].reshape(()),
            "share": batch.real[0, SHARE : SHARE + 1].reshape(()),
            "nodes": batch.nodes[0],
        }
        self._actions = Actions(task, chosen[task.chosen])

    def clusters(self) -> dict[str, Simulation]:
        """Return the simulation by the name of its cluster."""
        return {self.episodes.cluster.name: self.simulation}

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
        self.begun = True
        return self._seen.copy(), {}

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Apply an action, and advance to the next decision.

        An action that is not available has no effect, and ``info["invalid_action"]`` is True.

        Args:
            action: Element of the action space.

        Raises:
            SimulationError: The action is not in the action space; or it is not available, and
                ``invalid_action`` is ``raise``.
        """
        batch = self.batch
        self._actions.put(action)
        invalid = self._by_node and bool(unavailable(self.task, self._mask, action))
        if invalid and self.invalid_action == "raise":
            raise SimulationError(self.task.why_not(self.simulation, 0))
        batch.step_alone()
        over = batch.whole[0, OVER]
        told = {} if over == GOES_ON else batch.told(0)
        if invalid or (self._by_place and batch.whole[0, UNAVAILABLE]):
            batch.check_range([0])
            told[INVALID] = True
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
        return SimulationVectorEnv(
            self.task, self.episodes, count, self.max_steps, threads, self.invalid_action
        )

    def close(self) -> None:
        """Release the batch."""
        self.batch.close()


class Actions:
    """Actions, checked and written where the engine reads them, for one agent or many.

    Args:
        task: Decisions of the task.
        into: View of the array that the engine reads actions of this form from [agents, …];
            without the first dimension for one agent.
    """

    def __init__(self, task: Task, into: Any) -> None:
        self._space, self._into = task.action_space, into
        self._boxed = isinstance(task.action_space, gymnasium.spaces.Box)
        counted = isinstance(task.action_space, gymnasium.spaces.Discrete)
        self._kinds = "iub" if counted else "iubf"
        self._shape = (*into.shape, 1) if self._boxed else into.shape
        # The engine checks the range of places.
        self._bounded, self._whole = task.chosen != "place", task.chosen == "nodes"
        self._most = int(getattr(task.action_space, "n", 2)) - 1 if counted else 1

    def put(self, actions: Any) -> None:
        """Write actions.

        Raises:
            SimulationError: An action is not in the action space.
        """
        given = np.asarray(actions)
        if given.shape != self._shape or given.dtype.kind not in self._kinds:
            raise self._outside(actions)
        if not self._bounded:
            self._into[...] = given
        elif self._whole:
            self._into[...] = given != 0
            if given.dtype.kind != "b" and not np.array_equal(self._into, given):
                raise self._outside(actions)
        elif given.size == 1:
            number = given.item() / self._most
            if not 0 <= number <= 1:  # or NaN
                raise self._outside(actions)
            self._into[...] = number
        else:
            if not (given.min() >= 0 and given.max() <= self._most):  # or NaN
                raise self._outside(actions)
            self._into[...] = given[..., 0] if self._boxed else given / self._most

    def _outside(self, actions: Any) -> SimulationError:
        return SimulationError(
            f"action is {actions!r:.60}; it must be in the action space {self._space} of each "
            "environment"
        )


def unavailable(task: Task, masks: Any, actions: Any) -> Any:
    """Return whether a part of an action is not available [agents].

    Actions with one part are checked by the engine, and False is returned.

    Args:
        task: Decisions of the task.
        masks: Available choices before the action [agents, choices].
        actions: The actions.
    """
    if task.chosen != "nodes":
        return False
    off_on = masks.reshape(*masks.shape[:-1], -1, 2)
    there = np.where(np.asarray(actions, np.bool_), off_on[..., 1], off_on[..., 0])
    return ~there.all(axis=-1)


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
        invalid_action: Treatment of actions that are not available; see `InvalidAction`.
    """

    def __init__(
        self,
        task: Task,
        source: Source,
        num_envs: int,
        max_steps: int | None = None,
        threads: int | None = None,
        invalid_action: InvalidAction = "ignore",
    ) -> None:
        super().__init__(task.observation_space, task.action_space, source, num_envs)
        self.task = task
        self.strict = invalid_action == "raise"
        self.batch = batch = Batch(
            task, source, num_envs, threads=threads, limit=max_steps, strict=self.strict
        )
        self._unavailable = batch.whole[:, UNAVAILABLE]
        chosen = {
            "place": batch.choices["action"],
            "share": batch.choices["share"],
            "nodes": batch.nodes,
        }
        self._actions = Actions(task, chosen[task.chosen])
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
            SimulationError: An action is not in the action space; or it is not available, and
                ``invalid_action`` is ``raise``.
        """
        batch = self.batch
        self._actions.put(actions)
        invalid = unavailable(self.task, self.action_masks(), actions)
        if self.strict and np.any(invalid):
            raise SimulationError(self.task.why_not(batch.simulation(int(np.argmax(invalid))), 0))
        noted = batch.step()
        earned = self._earned * batch.scales
        if noted:
            invalid = invalid | (self._unavailable > 0)
        infos = {}
        if invalid is not False and invalid.any():
            batch.check_range(np.flatnonzero(invalid).tolist())
            infos = {INVALID: invalid, f"_{INVALID}": invalid}
        if not noted:
            never = np.zeros((2, self.num_envs), np.bool_)
            return self.seen, earned, never[0], never[1], infos | self._infos()
        ended, cut = self._over == ENDED, self._over == CUT
        done = ended | cut
        if done.any():
            infos |= self._begin_again(done, invalid)
        return self.seen, earned, ended, cut, infos | self._infos()

    def begin(self, number: int, jobs: Workload) -> None:
        """Begin an episode of given jobs in one environment."""
        self.batch.begin(number, jobs)

    def _begin_again(self, done: BoolArray, invalid: Any) -> dict[str, Any]:
        batch = self.batch
        seen = np.full(self.num_envs, None, object)
        told = np.full(self.num_envs, None, object)
        for number in np.flatnonzero(done).tolist():
            seen[number] = self.seen[number].copy()
            told[number] = batch.told(number)
            if np.ndim(invalid) and invalid[number]:
                told[number][INVALID] = True
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
