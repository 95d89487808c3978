"""Learning without gradients: noisy cross-entropy method (Szita and Lőrincz 2006).

In each round, candidate weights are drawn around a mean in opposite pairs, and all play the same
episodes. Mean and spread of the weights then move towards those of the best, which are weighted as
in CMA-ES (Hansen 2016). Only the total reward of an episode counts, so rewards need not be assigned
to choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.errors import ConfigError, PolicyError
from hpctwin.learn.training.trial import Best, Learnt, kept_on_error
from hpctwin.model.files import write_atomically

if TYPE_CHECKING:
    from hpctwin.learn.training.trial import Plan, Trial
    from hpctwin.model import Workload

__all__ = ["NAME", "VERSIONS", "Shape", "fit"]

FloatArray = npt.NDArray[np.float32]

NAME = "cross-entropy method"
VERSIONS = {"numpy": np.__version__}

EPISODES = 4
"""Number of episodes that all candidates of a round play."""
KEPT = 4
"""One in KEPT candidates is among the best."""
SPREAD, LEAST_SPREAD = 0.4, 0.02
"""Initial spread of each weight; and spread added per round, to keep it above 0."""
TOWARDS = 0.7
"""Fraction of a round's mean in the new mean; SPREADS is the same for the spread."""
SPREADS = 0.3
TRIES = 10
LAST = "evolution.npz"
STANDS = ("mean", "spread", "steps", "rounds", "seed", "candidates")


class Shape:
    """Networks as one row of numbers each."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, rowless: int) -> None:
        self.sizes, self.rowless = (inputs, *hidden, outputs), rowless
        self.count = sum((one + 1) * other for one, other in pairwise(self.sizes)) + rowless

    def first(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Return the initial weights; the last layer scores all choices equally."""
        parts = []
        for one, other in pairwise(self.sizes):
            parts += [rng.normal(0.0, one**-0.5, one * other), np.zeros(other)]
        parts[-2] = np.zeros_like(parts[-2])
        return np.concatenate([*parts, np.zeros(self.rowless)])

    def learnt(self, row: npt.NDArray[np.float64]) -> Learnt:
        """Return the network of a row."""
        layers, rowless = self._parts(row[None].astype(np.float32))
        found = [(weight[0].T.copy(), bias[0, 0].copy()) for weight, bias in layers]
        return Learnt(found, rowless[0].copy())

    def choose(self, rows: FloatArray, seen: FloatArray, masks: Any, by_row: bool) -> Any:
        """Return the choice of each network in each of its episodes [networks * episodes].

        Args:
            rows: Networks [networks, count].
            seen: Observations [networks * episodes, …].
            masks: Allowed choices [networks * episodes, choices].
            by_row: Whether each row of the observation is scored on its own.
        """
        layers, rowless = self._parts(rows)
        window = seen.shape[1] if by_row else 0
        there = np.flatnonzero(masks[:, :window].any(axis=0))
        # Places after the last job need no score.
        last = int(there[-1]) + 1 if len(there) else 0
        found = (seen[:, :last] if by_row else seen).reshape(len(rows), -1, self.sizes[0])
        for number, (weight, bias) in enumerate(layers):
            found = np.matmul(found, weight) + bias
            if number < len(layers) - 1:
                found = np.tanh(found)
        scores = found.reshape(len(masks), -1)
        if self.rowless:
            others = np.repeat(rowless, len(masks) // len(rows), axis=0)
            scores = np.concatenate([scores, others], axis=1)
        allowed = np.concatenate([masks[:, :last], masks[:, window:]], axis=1)
        best = np.where(allowed, scores, -np.inf).argmax(axis=1)
        return np.where(best < last, best, best + window - last)

    def _parts(self, rows: FloatArray) -> tuple[list[tuple[FloatArray, FloatArray]], FloatArray]:
        layers, at = [], 0
        for one, other in pairwise(self.sizes):
            weight = rows[:, at : at + one * other].reshape(len(rows), one, other)
            bias = rows[:, at + one * other : at + (one + 1) * other].reshape(len(rows), 1, other)
            layers.append((weight, bias))
            at += (one + 1) * other
        return layers, rows[:, at:]


class _Search:
    """Mean and spread of weights, and the environments that candidates play in.

    Args:
        one: Environment with discrete choices.
        plan: Training plan.
        by_row: Whether each row of the observation is scored on its own.
    """

    def __init__(self, one: Any, plan: Plan, *, by_row: bool) -> None:
        seen, choices = one.observation_space.shape, int(one.action_space.n)
        inputs = seen[-1] if by_row else int(np.prod(seen))
        outputs, rowless = (1, choices - seen[0]) if by_row else (choices, 0)
        self.shape = Shape(inputs, plan.layers, outputs, rowless)
        self.source, self.seed, self.by_row = one.episodes, plan.seed, by_row
        self.candidates = plan.environments // EPISODES // 2 * 2
        kept = np.arange(1, self.candidates // KEPT + 1)
        self.weights = np.log(kept[-1] + 0.5) - np.log(kept)
        self.weights /= self.weights.sum()
        self.mean = self.shape.first(np.random.default_rng(plan.seed))
        self.spread = np.full(self.shape.count, SPREAD)
        self.steps = self.rounds = 0
        self.many = one.many(self.candidates * EPISODES, plan.threads)

    def go_on(self) -> float:
        """Run a round; return the mean reward of its episodes."""
        # Each round has its own seed, so that resumed training continues as if it had not been
        # interrupted.
        rng = np.random.default_rng((self.seed, self.rounds))
        episodes = [self.source.draw(rng).make() for _ in range(EPISODES)]
        away = rng.standard_normal((self.candidates // 2, self.shape.count))
        drawn = self.mean + self.spread * np.concatenate([away, -away])
        earned = self._play(drawn.astype(np.float32), episodes)
        if not np.isfinite(earned).all():
            raise PolicyError("a reward is not a finite number; check the reward function")
        chosen = drawn[_merit(earned).argsort()[::-1][: len(self.weights)]]
        # The spread is measured around the previous mean, so that it grows in the direction of
        # movement.
        wide = self.weights @ (chosen - self.mean) ** 2
        self.mean = (1 - TOWARDS) * self.mean + TOWARDS * (self.weights @ chosen)
        self.spread = np.sqrt((1 - SPREADS) * self.spread**2 + SPREADS * wide + LEAST_SPREAD**2)
        self.rounds += 1
        return float(earned.mean())

    def _play(self, rows: FloatArray, episodes: Sequence[Workload]) -> npt.NDArray[np.float64]:
        """Return the reward of each candidate in each episode [candidates, episodes]."""
        many = self.many
        for number in range(many.num_envs):
            many.begin(number, episodes[number % EPISODES])
        earned = np.zeros(many.num_envs)
        going = np.ones(many.num_envs, np.bool_)
        while going.any():
            self.steps += int(going.sum())
            choices = self.shape.choose(rows, many.seen, many.action_masks(), self.by_row)
            _, lately, ended, cut, _ = many.step(choices)
            earned[going] += lately[going]
            going &= ~(ended | cut)
        return earned.reshape(self.candidates, EPISODES)

    def offer(self, best: Best, trial: Trial | None) -> None:
        """Try the present mean on the trial episodes, and keep it if it is the best."""
        if trial is not None:
            row = self.mean[None].astype(np.float32)
            earned = trial.play(
                lambda seen, masks: self.shape.choose(row, seen, masks, self.by_row)
            )
            best.offer(earned, self.shape.learnt(self.mean))

    def keep(self, path: Path, best: Best) -> None:
        """Write the state of training."""
        path.parent.mkdir(parents=True, exist_ok=True)
        stands = {name: getattr(self, name) for name in STANDS}
        with write_atomically(path) as file:
            np.savez(file, **stands, **best.arrays())

    def restore(self, path: Path, best: Best) -> None:
        """Continue from the state of an earlier training.

        Raises:
            ConfigError: The file is no such state, or has other weights, seed or candidates.
        """
        try:
            with np.load(path) as kept:
                found = {name: kept[name] for name in STANDS}
                best.restore(kept)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{path} contains no training ({error}); use another folder"
            ) from error
        same = (int(found["seed"]), int(found["candidates"])) == (self.seed, self.candidates)
        if not same or found["mean"].shape != self.mean.shape:
            raise ConfigError(
                f"{path} contains another training (other weights, seed or environments); "
                "use another folder"
            )
        self.mean, self.spread = found["mean"], found["spread"]
        self.steps, self.rounds = int(found["steps"]), int(found["rounds"])


def fit(
    one: Any,
    plan: Plan,
    *,
    by_row: bool,
    trial: Trial | None,
    progress: Callable[[float, float], None] | None,
) -> tuple[Learnt, int]:
    """Train; return the network and the number of steps.

    Args:
        one: The environment.
        plan: Training plan.
        by_row: Whether each row of the observation is scored on its own.
        trial: Episodes on which networks are tried; None to keep the last.
        progress: As for `training.train`.

    Raises:
        ConfigError: The plan has options of gradient methods, choices are not discrete, there are
            too few environments, or the saved state is of another training.
    """
    _check(one.action_space, plan)
    search, best = _Search(one, plan, by_row=by_row), Best()
    last = None if plan.checkpoints is None else plan.checkpoints / LAST
    try:
        if last is not None and last.is_file():
            search.restore(last, best)
        tried = search.steps
        with kept_on_error(plan.checkpoints, lambda folder: search.keep(folder / LAST, best)):
            while search.steps < plan.steps:
                earned = search.go_on()
                if progress is not None:
                    progress(min(search.steps / plan.steps, 1.0), earned)
                if search.steps - tried >= plan.steps / TRIES or search.steps >= plan.steps:
                    tried = search.steps
                    search.offer(best, trial)
                    if last is not None:
                        search.keep(last, best)
    finally:
        search.many.close()
    return best.learnt or search.shape.learnt(search.mean), search.steps


def _merit(earned: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the merit of each candidate [candidates]; all episodes have equal weight."""
    middle, width = earned.mean(axis=0), earned.std(axis=0)
    merit: npt.NDArray[np.float64] = ((earned - middle) / np.maximum(width, 1e-12)).mean(axis=1)
    return merit


def _check(chosen: spaces.Space[Any], plan: Plan) -> None:
    if plan.tensorboard is not None:
        raise ConfigError(
            "tensorboard works only with learner ppo; remove it for learner evolution"
        )
    if plan.imitate:
        raise ConfigError(
            "learner evolution cannot imitate an ordering; use ppo, or cma, which starts from one"
        )
    if not isinstance(chosen, spaces.Discrete):
        raise ConfigError(
            f"learner evolution needs discrete choices, not {type(chosen).__name__}; for "
            "PowerManagement give levels, such as 17"
        )
    least = 2 * KEPT * EPISODES
    if plan.environments < least:
        raise ConfigError(
            f"learner evolution has too few candidates with {plan.environments} "
            f"environments; give {least} or more, {EPISODES} per candidate"
        )
