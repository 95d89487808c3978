"""Learning weighted sums of the observation by CMA-ES: the highest sum is chosen.

Compiled code plays thousands of episodes a minute; all candidates of a round play the same ones.
The best mean over all these episodes is kept if it is better than the initial weights on other
episodes.

Covariance matrix adaptation (CMA-ES) with candidates in opposite pairs.

Source: Hansen 2016, arXiv 1604.00772.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.agents.delays import LONG
from hpctwin.errors import ConfigError
from hpctwin.learn.environments.episodes import Drawn
from hpctwin.learn.environments.job_selection import DELAYS
from hpctwin.learn.environments.task import by_name
from hpctwin.learn.environments.vector import STEPS, Batch
from hpctwin.learn.training.trial import Learnt
from hpctwin.metrics import mean_interval

if TYPE_CHECKING:
    from hpctwin.learn.environments.episodes import Source
    from hpctwin.learn.environments.task import Task
    from hpctwin.learn.training.trial import Plan
    from hpctwin.model import Workload

__all__ = ["NAME", "VERSIONS", "Adaptation", "fit", "ordering_as_sum"]

FloatArray = npt.NDArray[np.float64]


class Adaptation:
    """Normal distribution that moves to where costs are low, in the paper's notation.

    Args:
        mean: Initial mean.
        spread: Initial standard deviation of each number.
        candidates: Number of candidates in a round, even.
        rng: Random number generator.
    """

    def __init__(
        self, mean: FloatArray, spread: float, candidates: int, rng: np.random.Generator
    ) -> None:
        n = len(mean)
        self.mean, self.sigma, self.candidates, self._rng = mean, spread, candidates, rng
        ranks = np.arange(1, candidates // 2 + 1)
        self.weights = np.log(ranks[-1] + 0.5) - np.log(ranks)
        self.weights /= self.weights.sum()
        mu = self.mu = float(1 / (self.weights**2).sum())
        self.cc = (4 + mu / n) / (n + 4 + 2 * mu / n)
        self.cs = (mu + 2) / (n + mu + 5)
        self.c1 = 2 / ((n + 1.3) ** 2 + mu)
        self.cmu = min(1 - self.c1, 2 * (mu - 2 + 1 / mu) / ((n + 2) ** 2 + mu))
        self.damping = 1 + 2 * max(0.0, np.sqrt((mu - 1) / (n + 1)) - 1) + self.cs
        self.expected = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self.covariance, self.pc, self.ps = np.eye(n), np.zeros(n), np.zeros(n)
        self.rounds = 0

    def ask(self) -> FloatArray:
        """Return candidates [candidates, numbers]."""
        values, self._axes = np.linalg.eigh(self.covariance)
        self._lengths = np.sqrt(np.maximum(values, 1e-20))
        half = self._rng.standard_normal((self.candidates // 2, len(self.mean)))
        self._away = (np.concatenate([half, -half]) * self._lengths) @ self._axes.T
        found: FloatArray = self.mean + self.sigma * self._away
        return found

    def tell(self, costs: FloatArray) -> None:
        """Adapt to the costs of the last candidates [candidates]."""
        self.rounds += 1
        best = self._away[np.argsort(costs, kind="stable")[: len(self.weights)]]
        step = self.weights @ best
        self.mean = self.mean + self.sigma * step
        white = self._axes @ (self._axes.T @ step / self._lengths)
        self.ps = (1 - self.cs) * self.ps + np.sqrt(self.cs * (2 - self.cs) * self.mu) * white
        length = float(np.linalg.norm(self.ps))
        settled = np.sqrt(1 - (1 - self.cs) ** (2 * self.rounds))
        goes_on = length / settled < (1.4 + 2 / (len(self.mean) + 1)) * self.expected
        self.pc = (1 - self.cc) * self.pc
        if goes_on:
            self.pc += np.sqrt(self.cc * (2 - self.cc) * self.mu) * step
        self.covariance = (
            (1 - self.c1 - self.cmu) * self.covariance
            + self.c1 * np.outer(self.pc, self.pc)
            + self.cmu * (best.T * self.weights) @ best
        )
        self.sigma *= float(np.exp(self.cs / self.damping * (length / self.expected - 1)))


NAME = "CMA-ES"
VERSIONS = {"numpy": np.__version__}

CANDIDATES, EPISODES = 16, 16
"""Number of candidates in a round, and of episodes each of them plays."""
POOL = 256
"""Number of episodes from which those of a round are drawn."""
TRIES = 5
"""Number of times the mean is tried on the whole pool; the best is compared."""
SPREAD = 0.3
"""Initial spread of each weight, relative to the largest initial weight."""
COMPARED = 1 << 32
"""Offset of seeds, so that results are compared on other episodes."""
ATTEMPTS = 4
"""Largest number of attempts to improve on the initial weights."""

ORDERINGS: dict[str, Callable[[int], Mapping[str, float]]] = {
    "fcfs": lambda nodes: {"wait": 1.0},
    "sjf": lambda nodes: {"walltime": -1.0},
    "smallest": lambda nodes: {"nodes": -1.0},
    "smallest-area": lambda nodes: {"walltime": -1.0, "nodes": -math.log(max(nodes, 2)) / LONG},
}
"""Orderings that are sums of `DELAYS`: weights, given the cluster's nodes.

In areas, walltimes are one second longer.
"""


def ordering_as_sum(name: str, observation: Any, nodes: int) -> FloatArray:
    """Return weights of the observation that reproduce an ordering.

    The job with the highest weighted sum is the first of the ordering.

    Raises:
        ConfigError: No ordering is a sum of this observation.
        UnknownNameError: The ordering is not such a sum.
    """
    if observation != "delays":
        raise ConfigError("sum orderings work only with observation 'delays'")
    weights = by_name("ordering that is a sum", name, ORDERINGS)(nodes)
    return np.array([weights.get(feature, 0.0) for feature in DELAYS])


class _Player:
    """Rewards of rows of weights in episodes.

    Args:
        task: Decisions, observations and rewards.
        source: Source of episodes.
        limit: Largest number of steps of an episode; None for no limit.
    """

    def __init__(self, task: Task, source: Source, limit: int | None) -> None:
        self._batch, self.steps = Batch(task, source, limit=limit), 0

    def play(self, rows: FloatArray, episodes: Mapping[int, Drawn]) -> FloatArray:
        """Return the reward of each row in each episode [rows, episodes]."""
        batch = self._batch
        earned = np.empty((len(rows), len(episodes)))
        for number, drawn in enumerate(episodes.values()):
            for row, weights in enumerate(rows):
                batch.begin_drawn(0, drawn)
                earned[row, number] = batch.play(weights)
                self.steps += int(batch.whole[0, STEPS])
        return earned


def _drawn(source: Source, count: int, *seed: int) -> dict[int, Drawn]:
    """Return drawn episodes by number.

    Episodes that do not recur are made once, and get a key from seed and number.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        key, make = source.draw(rng)
        if key is None:
            key, make = (*seed, number), partial(_same, make())
        found[number] = Drawn(key, make)
    return found


def _same(jobs: Workload) -> Workload:
    return jobs


def fit(
    task: Task,
    source: Source,
    plan: Plan,
    *,
    by_row: bool,
    limit: int | None,
    starts: Mapping[str, FloatArray],
    progress: Callable[[float, float], None] | None,
) -> tuple[Learnt, int, dict[str, Any]]:
    """Train; return the network, the number of steps, and entries for the card.

    Args:
        task: Decisions, observations and rewards.
        source: Source of episodes.
        plan: Training plan.
        by_row: Whether each row of the observation is scored on its own.
        limit: Largest number of steps of an episode; None for no limit.
        starts: Candidate initial weights; those with the highest reward are used. If empty, all are
            0.
        progress: As for `training.train`.

    Raises:
        ConfigError: The plan has options of other methods, or a choice is not a row.
    """
    _check(plan, by_row)
    seen = task.observation_space.shape
    inputs, rowless = seen[-1], task.width - seen[0]
    player = _Player(task, source, limit)
    pool = _drawn(source, POOL, plan.seed)

    rows, began = np.zeros((1, inputs + rowless)), [""]
    if starts:
        rows = np.array([np.concatenate([row, np.zeros(rowless)]) for row in starts.values()])
        rows /= np.abs(rows).max(axis=1, keepdims=True)
        began = list(starts)
    tried = player.play(rows, pool).mean(axis=1)
    ranked = np.argsort(-tried, kind="stable").tolist()
    first = last = rows[ranked[0]]

    told: dict[str, Any] = {"began_with": began[ranked[0]]} if starts else {}
    for attempt in range(ATTEMPTS):
        # Each further attempt begins with the next ordering.
        begin = ranked[attempt % len(ranked)]
        rng = np.random.default_rng((plan.seed, 1 + attempt))
        # Steps of the initial orderings count towards the first attempt.
        until = plan.steps + (player.steps if attempt else 0)
        last = _search(
            rows[begin], float(tried[begin]), pool, player, plan.steps, until, rng, progress
        )
        if not plan.trials:
            break
        # Each attempt is compared on new episodes, where a result that was better by chance is not
        # better again.
        compared = _drawn(source, plan.trials, plan.seed, COMPARED + attempt)
        before, after = player.play(np.array([first, last]), compared)
        more = mean_interval(after - before)
        better = more.low is not None and more.low > 0
        told["compared"] = {
            "episodes": len(compared), "before": float(before.mean()), "after": float(after.mean()),
            "more": more.mean, "low": more.low, "high": more.high, "kept": better,
            "attempt": attempt + 1,
        }  # fmt: skip
        if better:
            break
        last = first
    # Only differences of scores matter; scaling keeps their digits.
    last = (last / max(float(np.abs(last).max()), 1e-9)).astype(np.float32)
    weights = [(last[None, :inputs], np.zeros(1, np.float32))]
    return Learnt(weights, last[inputs:]), player.steps, told


def _search(
    first: FloatArray,
    most: float,
    pool: Mapping[int, Drawn],
    player: _Player,
    steps: int,
    until: int,
    rng: np.random.Generator,
    progress: Callable[[float, float], None] | None,
) -> FloatArray:
    """Return the best weights found.

    Args:
        first: Initial weights.
        most: Mean reward of these on all episodes.
        pool: The episodes.
        player: Player of the episodes.
        steps: Number of steps of this search.
        until: Total number of the player's steps at which it ends.
        rng: Random number generator.
        progress: As for `training.train`.
    """
    last = first
    search = Adaptation(first, SPREAD, CANDIDATES, rng)
    tries, begun = 0, until - steps
    while player.steps < until:
        chosen = rng.choice(len(pool), EPISODES, replace=False)
        earned = player.play(search.ask(), {number: pool[number] for number in chosen.tolist()})
        search.tell(-earned.mean(axis=1))
        done = player.steps - begun
        if done * TRIES >= (tries + 1) * steps:
            tries += 1
            (lately,) = player.play(search.mean[None], pool).mean(axis=1).tolist()
            if lately > most:
                most, last = lately, search.mean
        if progress is not None:
            progress(min(done / steps, 1.0), float(earned.mean()))
    return last


def _check(plan: Plan, by_row: bool) -> None:
    if not by_row:
        raise ConfigError("learner cma needs one row of observations per job; use another learner")
    if plan.layers:
        raise ConfigError("learner cma learns only sums of observations; give layers=()")
    for name in ("tensorboard", "checkpoints"):
        if getattr(plan, name) is not None:
            raise ConfigError(f"learner cma does not support {name}; remove it")
