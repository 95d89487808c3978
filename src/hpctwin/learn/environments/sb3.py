"""Many environments as Stable-Baselines3 and sb3-contrib need them, with masks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from hpctwin.learn.environments.environment import SimulationVectorEnv
from hpctwin.learn.environments.vector_base import INVALID, SequentialVectorEnv

__all__ = ["Sb3VecEnv"]


class Sb3VecEnv(VecEnv):
    """`SimulationVectorEnv` as a ``VecEnv``.

    Observations are not copied; they are valid until the step after the next.
    """

    def __init__(
        self, environments: SimulationVectorEnv | SequentialVectorEnv, seed: int | None = None
    ) -> None:
        self.environments = environments
        self._chosen: Any = None
        super().__init__(
            environments.num_envs,
            environments.single_observation_space,
            environments.single_action_space,
        )
        if seed is not None:
            self.seed(seed)

    def reset(self) -> Any:
        """Begin an episode in each environment.

        The first seed of `seed` is the seed of all further random numbers.

        Raises:
            ConfigError: `set_options` gave options.
        """
        seen, _ = self.environments.reset(
            seed=self._seeds[0], options=next(filter(None, self._options), None)
        )
        self._reset_seeds()
        self._reset_options()
        return seen

    def step_async(self, actions: Any) -> None:
        """Store the actions."""
        self._chosen = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Step each environment.

        Infos of an ended episode hold ``terminal_observation`` and its results.
        """
        seen, earned, ended, cut, told = self.environments.step(self._chosen)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        done = ended | cut
        for number in np.flatnonzero(done).tolist():
            infos[number] = {
                "terminal_observation": told["final_obs"][number],
                "TimeLimit.truncated": bool(cut[number]),
                **told["final_info"][number],
            }
        for number in np.flatnonzero(told.get(INVALID, ())).tolist():
            infos[number][INVALID] = True
        return seen, earned.astype(np.float32), done, infos

    def close(self) -> None:
        """End the threads."""
        self.environments.close()

    def action_masks(self) -> Any:
        """Return which choices each environment allows [num_envs, choices]."""
        return self.environments.action_masks()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute for each environment; it is the same for all."""
        if attr_name == "action_masks":
            return list(self.action_masks()[list(self._rows(indices))])
        return [getattr(self.environments, attr_name)] * len(self._rows(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise an error: no attribute can be set.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"{attr_name} of these environments cannot be set")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the masks; no other method exists.

        Raises:
            AttributeError: Another method is requested.
        """
        if method_name != "action_masks":
            raise AttributeError(f"these environments have no method {method_name!r}")
        return self.get_attr("action_masks", indices)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False] * len(self._rows(indices))

    def _rows(self, indices: Any) -> Sequence[int]:
        if indices is None:
            return range(self.num_envs)
        return list(indices) if isinstance(indices, Iterable) else [int(indices)]
