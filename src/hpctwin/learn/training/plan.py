"""Training plans."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Learner", "Plan"]

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
