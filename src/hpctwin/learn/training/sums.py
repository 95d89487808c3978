"""Learning weights of what is seen by CMA-ES: the choice with the highest sum is taken.

Episodes are played in compiled code, some thousands a minute, all candidates of a round the same. Of the
means that candidates were drawn about, the best on all these episodes is kept if it is better than what it
began with on others.
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
from hpctwin.learn.environments.vector.batch import STEPS, Batch
from hpctwin.learn.training.best import Learnt
from hpctwin.learn.training.cma import Adaptation
from hpctwin.metrics import mean_interval

if TYPE_CHECKING:
    from hpctwin.learn.environments.episodes import Source
    from hpctwin.learn.environments.task import Task
    from hpctwin.learn.training.plan import Plan
    from hpctwin.model import Workload

__all__ = ["NAME", "VERSIONS", "fit", "ordering_as_sum"]

FloatArray = npt.NDArray[np.float64]

NAME = "CMA-ES"
VERSIONS = {"numpy": np.__version__}

CANDIDATES, EPISODES = 16, 16
"""Of a round, and what each of them plays."""
POOL = 256
"""Episodes that those of rounds are drawn from."""
TRIES = 5
"""So often the mean is tried on all of these; the best goes on to be compared."""
SPREAD = 0.3
"""Of each weight at the beginning; the largest of what it begins with is 1."""
COMPARED = 1 << 32
"""Of seeds: episodes on which what was learnt is compared are drawn with other seeds."""
ATTEMPTS = 4
"""Where what was learnt is not better than what it began with, it is learnt anew: so often in all at most."""

ORDERINGS: dict[str, Callable[[int], Mapping[str, float]]] = {
    "fcfs": lambda nodes: {"wait": 1.0},
    "sjf": lambda nodes: {"walltime": -1.0},
    "smallest": lambda nodes: {"nodes": -1.0},
    "smallest-area": lambda nodes: {"walltime": -1.0, "nodes": -math.log(max(nodes, 2)) / LONG},
}
"""Orderings that are sums of `DELAYS`: weights, given the nodes of the machine. Of areas, walltimes are a
second longer."""


def ordering_as_sum(name: str, observation: Any, nodes: int) -> FloatArray:
    """Weights of what is seen of a job, with which the highest sum comes first as it does in an ordering.

    Args:
        name: of the ordering.
        observation: what is seen.
        nodes: of the machine.

    Raises:
        ConfigError: of what is seen, no ordering is a sum.
        UnknownNameError: that ordering is none.
    """
    if observation != "delays":
        raise ConfigError("orderings are sums of observation 'delays' alone; take that")
    weights = by_name("ordering that is a sum", name, ORDERINGS)(nodes)
    return np.array([weights.get(feature, 0.0) for feature in DELAYS])


class _Player:
    """What rows of weights earn in episodes.

    Args:
        task: what is decided, seen and earned.
        source: where episodes come from.
        limit: steps of an episode at most; None for no limit.
    """

    def __init__(self, task: Task, source: Source, limit: int | None) -> None:
        self._batch, self.steps = Batch(task, source, limit=limit), 0

    def play(self, rows: FloatArray, episodes: Mapping[int, Drawn]) -> FloatArray:
        """What each row earns in each episode [rows, episodes]."""
        batch = self._batch
        earned = np.empty((len(rows), len(episodes)))
        for number, drawn in enumerate(episodes.values()):
            for row, weights in enumerate(rows):
                batch.begin_drawn(0, drawn)
                earned[row, number] = batch.play(weights)
                self.steps += int(batch.whole[0, STEPS])
        return earned


def _drawn(source: Source, count: int, *seed: int) -> dict[int, Drawn]:
    """Episodes; those that will not come again are made once, and are known by a number."""
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
    """Train; what chooses, how many steps that took in all, and what the card says of it.

    Args:
        task: what is decided, seen and earned.
        source: where episodes come from.
        plan: how.
        by_row: whether rows are scored each by itself.
        limit: steps of an episode at most; None for no limit.
        starts: weights to begin with; of several, those that earn most. None for all 0.
        progress: as of `training.train`.

    Raises:
        ConfigError: the plan asks for what others have, or what is chosen is no row.
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
        # Another attempt begins with the next of the orderings.
        begin = ranked[attempt % len(ranked)]
        rng = np.random.default_rng((plan.seed, 1 + attempt))
        # What the orderings have played counts as of the first.
        until = plan.steps + (player.steps if attempt else 0)
        last = _search(
            rows[begin], float(tried[begin]), pool, player, plan.steps, until, rng, progress
        )
        if not plan.trials:
            break
        # Each on episodes of its own: what is better by chance on those before is not on these.
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
    # Scores are compared with each other only, and none is so large that its digits are lost.
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
    """The best weights that are found.

    Args:
        first: where it begins.
        most: what these earn on all episodes, in the mean.
        pool: the episodes.
        player: plays them.
        steps: so many are played,
        until: … till the player has come to so many.
        rng: what is drawn from.
        progress: as of `training.train`.
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
        raise ConfigError("learner cma scores rows of what is seen, as of jobs; take another here")
    if plan.layers:
        raise ConfigError("learner cma learns sums of what is seen alone: layers=()")
    for name in ("tensorboard", "checkpoints"):
        if getattr(plan, name) is not None:
            raise ConfigError(f"learner cma has no {name}; leave it out")
