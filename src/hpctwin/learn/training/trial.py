"""Trying what was learnt so far on episodes of training, and what orderings do there, to be imitated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.learn.environments.episodes import Curriculum

__all__ = ["Trial"]

SEED = 7919
"""Of the episodes, the same for every agent."""

Choose = Callable[[Any, Any], npt.NDArray[np.int64]]


class Trial:
    """Some episodes of a source, always the same.

    Args:
        one: the environment; of a curriculum its last stage counts.
        count: how many.
    """

    def __init__(self, one: Any, count: int) -> None:
        if isinstance(one.episodes, Curriculum):
            one = copy.copy(one)
            one.episodes = one.episodes.stages[-1][1]
        self.environments = one.many(count, threads=1)

    def play(self, choose: Choose, watch: Callable[[Any, Any, Any], None] | None = None) -> float:
        """What is earned in an episode, in the mean.

        Args:
            choose: a choice for each, given what all see and which choices there are.
            watch: called before each step with both, and which episodes go on.
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
        """End its threads."""
        self.environments.close()


def first_in_order(seen: Any, masks: Any) -> npt.NDArray[np.int64]:
    """What an ordering chooses where its order is that of the window."""
    return np.zeros(len(seen), np.int64)
