"""Trials of networks and orderings on training episodes.

The best network so far.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.learn.environments.episodes import Curriculum

__all__ = ["Best", "Learnt", "Trial"]


class Learnt(NamedTuple):
    """Network that chooses.

    Args:
        layers: Weights and biases.
        rowless: Scores of choices that are not rows; see `Network.rowless`.
    """

    layers: list[tuple[Any, Any]]
    rowless: Any


class Best:
    """The best network tried so far, with its reward."""

    def __init__(self) -> None:
        self.earned = -np.inf
        self.learnt: Learnt | None = None

    def offer(self, earned: float, learnt: Learnt) -> None:
        """Keep a network if it is better."""
        if earned > self.earned:
            self.earned, self.learnt = earned, learnt

    def arrays(self) -> dict[str, Any]:
        """Return the arrays to save."""
        found = {"best": np.array(self.earned)}
        if self.learnt is not None:
            flat = [array for layer in self.learnt.layers for array in layer]
            found |= {f"layer{number}": array for number, array in enumerate(flat)}
            found["rowless"] = self.learnt.rowless
        return found

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore the best network from saved arrays."""
        self.earned = float(kept["best"])
        flat = [kept[f"layer{number}"] for number in range(sum("layer" in name for name in kept))]
        if flat:
            self.learnt = Learnt(list(zip(flat[::2], flat[1::2], strict=True)), kept["rowless"])


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
