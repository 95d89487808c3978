"""Learning without gradients: the noisy cross-entropy method over weights (Szita and Lőrincz 2006).

In each round candidates are drawn about a mean, in pairs that lie opposite, all play the same episodes, and
the mean and the spread of the weights go towards those of the best, which are weighed as in CMA-ES (Hansen
2016). What counts is what an episode earns in all, so nothing has to be told which choice it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.errors import ConfigError
from hpctwin.learn.training.best import Best, Learnt
from hpctwin.model.files.files import write_atomically

if TYPE_CHECKING:
    from hpctwin.learn.training.plan import Plan
    from hpctwin.learn.training.trial import Trial
    from hpctwin.model import Workload

__all__ = ["NAME", "VERSIONS", "Shape", "fit"]

FloatArray = npt.NDArray[np.float32]

NAME = "cross-entropy method"
VERSIONS = {"numpy": np.__version__}

EPISODES = 4
"""That all candidates of a round play."""
KEPT = 4
"""One in so many candidates is among the best."""
SPREAD, LEAST_SPREAD = 0.4, 0.02
"""Of each weight at the beginning; and what is added in each round, so that it does not vanish."""
TOWARDS = 0.7
"""So much of a round's mean is taken, and the rest of the mean before; the same of the spread:"""
SPREADS = 0.3
TRIES = 10
LAST = "evolution.npz"
STANDS = ("mean", "spread", "steps", "rounds", "seed", "candidates")


class Shape:
    """Networks as one row of numbers each.

    Args:
        inputs: numbers that one is given.
        hidden: sizes of the layers between.
        outputs: its scores.
        rowless: scores of choices that are no row.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, rowless: int) -> None:
        self.sizes, self.rowless = (inputs, *hidden, outputs), rowless
        self.count = sum((one + 1) * other for one, other in pairwise(self.sizes)) + rowless

    def first(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Where learning begins: the last layer scores all alike."""
        parts = []
        for one, other in pairwise(self.sizes):
            parts += [rng.normal(0.0, one**-0.5, one * other), np.zeros(other)]
        parts[-2] = np.zeros_like(parts[-2])
        return np.concatenate([*parts, np.zeros(self.rowless)])

    def learnt(self, row: npt.NDArray[np.float64]) -> Learnt:
        """The network that a row is."""
        layers, rowless = self._parts(row[None].astype(np.float32))
        found = [(weight[0].T.copy(), bias[0, 0].copy()) for weight, bias in layers]
        return Learnt(found, rowless[0].copy())

    def choose(self, rows: FloatArray, seen: FloatArray, masks: Any, by_row: bool) -> Any:
        """What each network chooses in each of its episodes [networks * episodes].

        Args:
            rows: networks [networks, count].
            seen: what is seen [networks * episodes, …].
            masks: which choices there are [networks * episodes, choices].
            by_row: whether rows are scored each by itself.
        """
        layers, rowless = self._parts(rows)
        window = seen.shape[1] if by_row else 0
        there = np.flatnonzero(masks[:, :window].any(axis=0))
        # Past the last job there is nothing to be scored.
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
    """A mean and a spread of weights, and where candidates play.

    Args:
        one: the environment; what is chosen is counted.
        plan: how it learns.
        by_row: whether rows are scored each by itself.
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
        """A round; what was earned in its episodes, in the mean."""
        # Each round has a seed of its own, so that training which was interrupted goes on as it would have.
        rng = np.random.default_rng((self.seed, self.rounds))
        episodes = [self.source.draw(rng).make() for _ in range(EPISODES)]
        away = rng.standard_normal((self.candidates // 2, self.shape.count))
        drawn = self.mean + self.spread * np.concatenate([away, -away])
        earned = self._play(drawn.astype(np.float32), episodes)
        chosen = drawn[_merit(earned).argsort()[::-1][: len(self.weights)]]
        # About the mean before: along the way that it goes, the spread grows.
        wide = self.weights @ (chosen - self.mean) ** 2
        self.mean = (1 - TOWARDS) * self.mean + TOWARDS * (self.weights @ chosen)
        self.spread = np.sqrt((1 - SPREADS) * self.spread**2 + SPREADS * wide + LEAST_SPREAD**2)
        self.rounds += 1
        return float(earned.mean())

    def _play(self, rows: FloatArray, episodes: Sequence[Workload]) -> npt.NDArray[np.float64]:
        """What each candidate earns in each episode [candidates, episodes]."""
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
        """See how good the mean has become."""
        if trial is not None:
            row = self.mean[None].astype(np.float32)
            earned = trial.play(
                lambda seen, masks: self.shape.choose(row, seen, masks, self.by_row)
            )
            best.offer(earned, self.shape.learnt(self.mean))

    def keep(self, path: Path, best: Best) -> None:
        """Write where it stands."""
        path.parent.mkdir(parents=True, exist_ok=True)
        stands = {name: getattr(self, name) for name in STANDS}
        with write_atomically(path) as file:
            np.savez(file, **stands, **best.arrays())

    def restore(self, path: Path, best: Best) -> None:
        """Stand where an earlier training stood.

        Raises:
            ConfigError: it is none, or was of other weights, seed or candidates.
        """
        try:
            with np.load(path) as kept:
                found = {name: kept[name] for name in STANDS}
                best.restore(kept)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{path} holds no training ({error}); take another folder") from error
        same = (int(found["seed"]), int(found["candidates"])) == (self.seed, self.candidates)
        if not same or found["mean"].shape != self.mean.shape:
            raise ConfigError(
                f"{path} is of another training (other weights, seed or environments); take another "
                "folder"
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
    """Train; what chooses, and how many steps that took in all.

    Args:
        one: the environment.
        plan: how.
        by_row: whether rows are scored each by itself.
        trial: where what was learnt is tried; None to keep the last.
        progress: as of `training.train`.

    Raises:
        ConfigError: the plan asks for what gradients alone have, choices are not counted, there are too few
            environments, or what was kept of an earlier training is of others.
    """
    _check(one.action_space, plan)
    search, best = _Search(one, plan, by_row=by_row), Best()
    last = None if plan.checkpoints is None else plan.checkpoints / LAST
    try:
        if last is not None and last.is_file():
            search.restore(last, best)
        tried = search.steps
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
    """How good each candidate was [candidates]; all episodes weigh alike."""
    middle, width = earned.mean(axis=0), earned.std(axis=0)
    merit: npt.NDArray[np.float64] = ((earned - middle) / np.maximum(width, 1e-12)).mean(axis=1)
    return merit


def _check(chosen: spaces.Space[Any], plan: Plan) -> None:
    if plan.tensorboard is not None:
        raise ConfigError("tensorboard is of learner ppo; learner evolution has none")
    if plan.imitate:
        raise ConfigError(
            "learner evolution imitates no ordering; ppo does, and cma begins with one"
        )
    if not isinstance(chosen, spaces.Discrete):
        raise ConfigError(
            "learner evolution takes choices that are counted, not "
            f"{type(chosen).__name__}; for PowerManagement give levels, such as 17"
        )
    least = 2 * KEPT * EPISODES
    if plan.environments < least:
        raise ConfigError(
            f"learner evolution with {plan.environments} environments has too few candidates; give "
            f"{least} or more, {EPISODES} for each"
        )
