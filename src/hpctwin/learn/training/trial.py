"""Trials of networks and orderings on training episodes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.learn.environments.episodes import Curriculum

__all__ = ["Trial"]

SEED = 7919
"""Seed of the trial episodes, the same for every agent."""

Choose = Callable[[Any, Any], npt.NDArray[np.int64]]


class Trial:
    """A fixed set of episodes of a source.

    Args:
        one: The environment; the last stage of a curriculum counts.
        count: Number of episodes.
    """

    def __init__(self, one: Any, count: int) -> None:
        if isinstance(one.episodes, Curriculum):
            one = copy.copy(one)
            one.episodes = one.episodes.stages[-1][1]
        self.environments = one.many(count, threads=1)

    def play(self, choose: Choose, watch: Callable[[Any, Any, Any], None] | None = None) -> float:
        """Return the mean reward of an episode.

        Args:
            choose: Function that returns a choice for each episode, from observations and masks.
            watch: Function called before each step with observations, masks, and which episodes are
                running.
        """
        many = self.environments
        many.reset(seed=SEED)
        total = np.zeros(many.num_envs)
        going = np.ones(many.num_envs, np.bool_)
        while going.any():
            seen, masks = many.seen, many.action_masks()
            if watch is not None:
                watch(seen, masks, going)
            _, earned, ended, cut, _ = many.step(choose(seen, masks))
            total[going] += earned[going]
            going &= ~(ended | cut)
        return float(total.mean())

    def close(self) -> None:
        """End the threads."""
        self.environments.close()


def first_in_order(seen: Any, masks: Any) -> npt.NDArray[np.int64]:
    """Return the choice of an ordering if the window is in its order."""
    return np.zeros(len(seen), np.int64)
