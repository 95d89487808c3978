"""What many environments have in common, however they are stepped."""

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

    An episode that is over is followed by another in the same step (`AutoresetMode.SAME_STEP`): what is seen
    is of the new one, ``infos["final_obs"]`` holds the last of the old, ``infos["final_info"]`` what is told
    of it.

    Args:
        seen: what one of them sees.
        chosen: what is chosen in one.
        source: where episodes come from.
        num_envs: how many.
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
        """Begin an episode in each.

        Args:
            seed: of all that is drawn from now on; drawing goes on if left out.
            options: none.

        Raises:
            ConfigError: there are options.
        """
        if options:
            raise ConfigError(f"many environments take no options at reset, not {options!r}")
        super().reset(seed=seed)
        return self._begin_all(seed)

    @abstractmethod
    def _begin_all(self, seed: int | None) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode in each; what they see, and what is told besides."""
