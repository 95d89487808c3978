"""Common part of many environments, however they are stepped."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from hpctwin.errors import ConfigError
from hpctwin.learn.environments.episodes import Source

__all__ = ["Vector"]

FloatArray = npt.NDArray[np.float32]


class Vector(VectorEnv[FloatArray, Any, Any]):
    """Many environments, each with an agent.

    An ended episode is followed by another one in the same step (`AutoresetMode.SAME_STEP`). The
    observation is that of the new episode. ``infos["final_obs"]`` holds the last observation of the
    old one, and ``infos["final_info"]`` its results.

    Args:
        seen: Observation space of one environment.
        chosen: Action space of one environment.
        source: Source of episodes.
        num_envs: Number of environments.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # type: ignore[misc]

    def __init__(
        self, seen: spaces.Space[Any], chosen: spaces.Space[Any], source: Source, num_envs: int
    ) -> None:
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
