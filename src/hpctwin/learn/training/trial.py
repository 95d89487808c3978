"""Training plans, and trials of networks and orderings on training episodes.

A trial keeps the best network so far.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.learn.environments.episodes import Curriculum

__all__ = ["Best", "Learner", "Learnt", "Plan", "Trial", "kept_on_error"]

Learner = Literal["ppo", "evolution", "cma"]
"""Learning methods.

``ppo`` is maskable PPO, by gradients. The others try weights: ``evolution`` is the cross-entropy
method, and ``cma`` is CMA-ES of weighted sums of the observation.
"""


@dataclass(frozen=True)
class Plan:
    """Plan of an agent's training.

    ``evolution`` does not use ``horizon``, ``epochs``, ``rate``, ``entropy`` and ``discount``. It
    takes several times as many steps, and needs neither PyTorch nor Stable-Baselines3. The same
    holds for ``cma``, which also does not use ``environments``, ``layers``, ``checkpoints`` and
    ``tensorboard``, and has one thread.

    Args:
        steps: Number of decisions in total.
        seed: Seed of episodes, initial weights and choices.
        environments: Number of environments stepped at once.
        horizon: Steps of each environment between two updates.
        epochs: Passes over the collected steps at each update.
        rate: Learning rate.
        entropy: Weight of the entropy of choices.
        discount: Discount of later rewards; by default 1 if rewards come at the end, else 0.99.
        layers: Sizes of the hidden layers; empty for scores that are weighted sums of the
            observation.
        threads: Threads of the environments; None for the number of cores.
        checkpoints: Folder for the state of training, to resume it; None for none.
        every: Steps between two checkpoints.
        trials: Number of episodes of the same source on which the agent is tried five times, to
            keep the best; 0 to keep the last. With ``cma`` the last is tried on them once, and kept
            if it is better than the initial weights.
        imitate: Orderings; the best of them is imitated before training, or used as initial weights
            if it is a sum of the observation. Empty for none.
        tensorboard: Folder for TensorBoard's logs; None for none.
        learner: Learning method.
    """

    steps: int = 200_000
    seed: int = 0
    environments: int = 16
    horizon: int = 256
    epochs: int = 4
    rate: float = 1e-3
    entropy: float = 0.0
    discount: float | None = None
    layers: tuple[int, ...] = (32, 16)
    threads: int | None = None
    checkpoints: Path | None = None
    every: int = 50_000
    trials: int = 16
    imitate: tuple[str, ...] = ()
    tensorboard: Path | None = None
    learner: Learner = "ppo"


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


@contextmanager
def kept_on_error(folder: Path | None, keep: Callable[[Path], None]) -> Iterator[None]:
    """Write the state of training if an error, or an interrupt, ends this block.

    Args:
        folder: Folder of checkpoints; None for a new folder among the temporary ones.
        keep: Function that writes the state to a folder.
    """
    try:
        yield
    except BaseException as error:
        folder = folder or Path(tempfile.mkdtemp(prefix="hpctwin-training-"))
        keep(folder)
        error.add_note(f"training so far is in {folder}; give it as checkpoints to continue")
        raise


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
