"""Common part of many environments, however they are stepped.

Environments that are not compiled, stepped one after the other.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from hpctwin.errors import ConfigError
from hpctwin.learn.environments.episodes import Source
from hpctwin.model import Workload

__all__ = ["INVALID", "NOT_BEGUN", "AgentVectorEnv", "SequentialVectorEnv"]

FloatArray = npt.NDArray[np.float32]

NOT_BEGUN = "environment has no episode; call reset() first"
INVALID = "invalid_action"
"""Key in infos: whether an action was not available, and had no effect."""


class AgentVectorEnv(VectorEnv[FloatArray, Any, Any]):
    """Many environments, each with an agent.

    An ended episode is followed by another one in the same step (`AutoresetMode.SAME_STEP`). The
    observation is that of the new episode. ``infos["final_obs"]`` holds the last observation of the
    old one, and ``infos["final_info"]`` its results.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # type: ignore[misc]

    def __init__(
        self, seen: spaces.Space[Any], chosen: spaces.Space[Any], source: Source, num_envs: int
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs}; it must be 1 or more")
        self.num_envs, self.episodes = num_envs, source
        self.single_observation_space, self.single_action_space = seen, chosen
        self.observation_space = batch_space(seen, num_envs)
        self.action_space = batch_space(chosen, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode in each environment.

        Args:
            seed: Seed of all further random numbers; if omitted, the present generator continues.
            options: Not supported.

        Raises:
            ConfigError: Options are given.
        """
        if options:
            raise ConfigError(f"many environments take no options at reset, not {options!r}")
        super().reset(seed=seed)
        return self._begin_all(seed)

    @abstractmethod
    def _begin_all(self, seed: int | None) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode in each environment; return observations and infos."""


BoolArray = npt.NDArray[np.bool_]


class SequentialVectorEnv(AgentVectorEnv):
    """Copies of one environment, stepped one after the other; see `AgentVectorEnv`.

    Args:
        one: Environment to copy; it has ``action_masks``.
        num_envs: Number of copies.
    """

    def __init__(self, one: Any, num_envs: int) -> None:
        super().__init__(one.observation_space, one.action_space, one.episodes, num_envs)
        self._each = [copy.copy(one) for _ in range(num_envs)]
        self.seen = np.zeros((num_envs, *one.observation_space.shape), np.float32)
        self._masks = np.zeros((num_envs, int(one.action_space.n)), np.bool_)

    def _begin_all(self, seed: int | None) -> tuple[FloatArray, dict[str, Any]]:
        seeds = np.random.SeedSequence(seed).generate_state(self.num_envs).tolist()
        for number in range(self.num_envs):
            self._begin(number, seed=None if seed is None else seeds[number])
        return self.seen, {"action_mask": self._masks}

    def begin(self, number: int, jobs: Workload) -> None:
        """Begin an episode of given jobs in one environment."""
        self._begin(number, options={"jobs": jobs})

    def step(
        self, actions: Any
    ) -> tuple[FloatArray, npt.NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """Step each environment.

        Raises:
            SimulationError: As for a step of the environment.
        """
        # New arrays, so that the last observations and masks stay valid.
        self.seen, self._masks = self.seen.copy(), self._masks.copy()
        earned = np.zeros(self.num_envs)
        ended, cut = np.zeros((2, self.num_envs), np.bool_)
        last, told = np.full((2, self.num_envs), None, object)
        invalid = np.zeros(self.num_envs, np.bool_)
        for number, environment in enumerate(self._each):
            seen, earned[number], ended[number], cut[number], info = environment.step(
                actions[number]
            )
            invalid[number] = INVALID in info
            if ended[number] or cut[number]:
                last[number], told[number] = seen, info
                self._begin(number)
            else:
                self._note(number, seen)
        infos: dict[str, Any] = {"action_mask": self._masks}
        if invalid.any():
            infos |= {INVALID: invalid, f"_{INVALID}": invalid}
        done = ended | cut
        if done.any():
            infos |= {"final_obs": last, "_final_obs": done}
            infos |= {"final_info": told, "_final_info": done}
        return self.seen, earned, ended, cut, infos

    def action_masks(self) -> BoolArray:
        """Return which choices each environment allows [num_envs, choices]."""
        return self._masks

    def _begin(self, number: int, **how: Any) -> None:
        seen, _ = self._each[number].reset(**how)
        self._note(number, seen)

    def _note(self, number: int, seen: FloatArray) -> None:
        self.seen[number] = seen
        self._masks[number] = self._each[number].action_masks()
