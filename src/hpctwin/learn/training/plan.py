"""How an agent is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Learner", "Plan"]

Learner = Literal["ppo", "evolution", "cma"]
"""Maskable PPO, by gradients; or, by trying weights, the cross-entropy method, and CMA-ES of sums of what is
seen."""


@dataclass(frozen=True)
class Plan:
    """How an agent is trained.

    Args:
        steps: decisions in all.
        seed: of episodes, first weights and choices.
        environments: that are stepped at once.
        horizon: steps of each between two updates.
        epochs: over what was gathered, at each update.
        rate: learning rate.
        entropy: weight of the entropy of choices.
        discount: of what is earned later; left out, 1 where it is earned at the end, else 0.99.
        layers: sizes of the hidden layers; none for scores that are sums of what is seen.
        threads: of the environments; None for as many as there are cores.
        checkpoints: a folder that holds where training stands, so that it can go on; None for none.
        every: steps between two of them.
        trials: episodes of the same source on which what was learnt so far is tried five times, so that the
            best of it is kept; 0 to keep the last. With ``cma`` the last is tried on them once, and kept
            if it is better than what it began with.
        imitate: orderings; the one that does best is imitated before anything is learnt, or begun with if it
            is a sum of what is seen. Empty for none.
        tensorboard: a folder for its logs; None for none.
        learner: how it learns. Of the numbers above, ``evolution`` has no horizon, epochs, rate, entropy
            and discount; it takes a multiple of the steps, and neither PyTorch nor Stable-Baselines3. So
            does ``cma``, which has no environments, layers, checkpoints and tensorboard either, and one
            thread.
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
