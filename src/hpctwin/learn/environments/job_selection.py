"""The environment in which an agent says which job starts next.

After RLScheduler (Zhang et al., SC20): a window of the queue, some numbers of each job, and a reward at the
end of the episode. A job that is chosen and does not fit yet keeps the others waiting until it does.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.engine.agents import jobs as hooks
from hpctwin.engine.agents.agent_record import GOES_ON
from hpctwin.engine.agents.delays import DELAY_FEATURES, OBSERVE_DELAYS
from hpctwin.engine.agents.features import JOB_FEATURES
from hpctwin.errors import ConfigError
from hpctwin.learn.environments.environment import Environment
from hpctwin.learn.environments.episodes import Source, episodes_of
from hpctwin.learn.environments.task import Observation, Task, as_hook, by_name, watts_of
from hpctwin.learn.environments.vector.batch import ACTION, EARNED, OVER, Batch
from hpctwin.model import Cluster, Workload
from hpctwin.policies import find_ordering, make_policy
from hpctwin.simulation import Simulation

__all__ = [
    "DELAYS", "FEATURES", "OBSERVATIONS", "PASSING", "REWARDS", "JobSelection", "job_selection",
]  # fmt: skip

LEAST_SLOWDOWN = 0.1
"""Where hardly anybody waits, episodes do not weigh more than that."""

FEATURES = (
    "there", "wait", "walltime", "nodes", "fits", "free", "running", "behind",
)  # fmt: skip
"""Of each job in the window, all from 0 to 1: whether a job is there; its wait w as w / (w + an hour); its
walltime over a day, at most 1; its nodes over all nodes; whether it fits now; free nodes over all; the share
of nodes that are back within its walltime; jobs beyond the window, n / (n + size of the window)."""

DELAYS = (
    "there", "wait in logs", "wait", "share of wait", "walltime", "nodes", "share of nodes", "size", "area",
    "square of walltime", "fits", "delay", "share of delay",
)  # fmt: skip
"""Of each job in the window, all from 0 to 1: whether a job is there; its wait w as log(1 + w) / 14 (s),
over ten days, and as w / (w + t + 1 s); its walltime t as log(1 + t) / 14; its nodes n as log n / log N of
all N, and over N; the last, and the one before, times what is seen of t; the square of that; whether the
job fits now; and in how long d it does, if running jobs take their walltimes, as log(1 + d) / 14 and as
d / (d + t + 1 s)."""


def most_of_each(workload: Workload, cluster: Cluster) -> npt.NDArray[np.float64]:
    """What RLScheduler divides by: longest walltime (ms), most memory, largest numbers of users, accounts."""
    simulation = Simulation(workload, cluster)
    simulation.know_facts()
    fact = simulation.state["fact"]
    longest = float(workload.walltime_ms.max(initial=1))
    return np.array([longest, *(fact[name].max() for name in ("memory_gb", "user", "account"))])


def _windowed(window: int, nodes: int) -> tuple[int, ...]:
    return window, len(FEATURES)


OBSERVATIONS = {
    "features": Observation(hooks.OBSERVE_FEATURES, _windowed),
    "job": Observation(hooks.OBSERVE_JOB, lambda window, nodes: (window, JOB_FEATURES)),
    "delays": Observation(OBSERVE_DELAYS, lambda window, nodes: (window, DELAY_FEATURES)),
    "rlscheduler": Observation(
        hooks.OBSERVE_RLSCHEDULER, _windowed, facts=True, amounts=most_of_each
    ),
}
"""By name: ``features`` are `FEATURES`, ``delays`` are `DELAYS`. ``job`` is what orderings see, too, so that
an agent can be one: whether a job is
there; its wait w as w / (w + an hour); its walltime t as log(1 + t) / 14 (s), at most 1; its nodes n
over all N; log(1 + n) /
log(1 + N); w / (w + t + 1 s). ``rlscheduler`` has its eight: wait over 12 h; walltime, nodes,
memory, user and
account over the largest there is; 1 in the place of the executable; whether the job fits.
Where jobs share nodes, a job's nodes are as many as it counts for by the largest of its shares of the
machine's cores, memory and GPUs, in thousandths where logarithms are taken, and free nodes are the share of
cores that is free; but ``job`` has what orderings see as nodes: those that it must have at
least."""

REWARDS = {
    "bounded-slowdown": hooks.REWARD_SLOWDOWN,
    "wait": hooks.REWARD_WAIT,
    "slowdown": hooks.REWARD_LATELY,
    "relative": hooks.REWARD_LATELY,
}
"""By name: at the end, minus the mean bounded slowdown, or minus the mean wait in hours; ``slowdown``
gives at each step
minus what its waits add to the mean of wait over run time (10 s at least), which is learned from sooner;
``relative`` is that over what it is if the shortest job is always chosen, so that all episodes weigh
alike."""


PASSING = {"false": 0, "true": 1, "easy": 1, "rlscheduler": 2}
"""Who may pass the chosen job, by name: ``easy`` whoever does not delay its reservation; ``rlscheduler``
whose walltime is over before the job could begin by what was planned when it was chosen."""


def job_selection(
    source: Source,
    *,
    window: int = 128,
    observation: str | Observation = "features",
    reward: Any = "bounded-slowdown",
    backfilling: bool | str = False,
    order: str = "fcfs",
) -> Task:
    """What `JobSelection` is made of; arguments as there.

    Raises:
        ConfigError: the window has no place, or the order changes.
        UnknownNameError: no observation, reward or backfilling has that name.
    """
    passing = by_name("backfilling", str(backfilling).lower(), PASSING)
    backfill = f"selected:passing={passing}" if passing else "selected"
    return job_task(
        source,
        order,
        backfill,
        window=window,
        observation=observation,
        reward=reward,
        hooks=(hooks.SELECT, hooks.TO_SELECTION),
        nobody=False,
    )


def job_task(
    source: Source,
    order: str,
    backfill: str,
    *,
    window: int,
    observation: str | Observation,
    reward: Any,
    hooks: tuple[Any, Any],
    nobody: bool,
) -> Task:
    """A task of choosing from a window of the queue.

    Args:
        source: where episodes come from.
        order: the order of the queue.
        backfill: what starts jobs.
        window: places.
        observation: by name, or one's own.
        reward: by name, or one's own.
        hooks: act and go.
        nobody: whether nobody may be chosen, too.
    """
    if window < 1:
        raise ConfigError(f"the window has {window} places, it must have 1 or more")
    if find_ordering(order).changes:
        raise ConfigError(
            f"ordering {order!r} changes while jobs wait, so places in the queue would; take one that does "
            "not, such as fcfs or sjf"
        )
    jobs = source.all_jobs()
    seen = by_name("observation", observation, OBSERVATIONS)
    earned = by_name("reward", reward, REWARDS)
    cluster, policy = source.cluster, make_policy(order, backfill)

    def make(jobs: Workload) -> Simulation:
        simulation = Simulation(jobs, cluster, policy)
        if seen.facts:
            simulation.know_facts()
        return simulation

    shortest = None
    if reward == "relative":
        shortest = _Shortest(
            job_task(
                source,
                "sjf",
                backfill,
                window=window,
                observation=observation,
                reward="slowdown",
                hooks=hooks,
                nobody=nobody,
            ),
            source,
        )
    width = window + nobody
    return Task(
        make,
        (*hooks, as_hook(seen.function, "observation"), as_hook(earned, "reward")),
        seen.space(window, cluster.node_count),
        spaces.Discrete(width),
        width,
        "place",
        masked=True,
        nodes=cluster.node_count,
        numbers={"window": window},
        watts=watts_of(make(jobs.take(np.arange(1)))),
        facts=None if seen.amounts is None else seen.amounts(jobs, cluster),
        why_not=partial(_why_not, window),
        scale=shortest,
    )


class _Shortest:
    """What is earned if always the shortest job is chosen that can be.

    Args:
        task: in which jobs are sorted so.
        source: that it is of.
    """

    def __init__(self, task: Task, source: Source) -> None:
        self.task, self.source = task, source
        self._batch: Batch | None = None

    def __call__(self, jobs: Workload) -> float:
        """One over it, without its sign; where hardly anybody waits, `LEAST_SLOWDOWN`."""
        if self._batch is None:
            self._batch = Batch(self.task, self.source)
        batch, total = self._batch, 0.0
        batch.begin(0, jobs)
        whole, real = batch.whole[0], batch.real[0]
        while whole[OVER] == GOES_ON:
            whole[ACTION] = batch.masks[batch.side, 0].argmax()
            batch.step_alone()
            total -= real[EARNED]
        return 1.0 / max(float(total), LEAST_SLOWDOWN)


def _why_not(window: int, simulation: Simulation, place: int) -> str:
    waiting = min(int(simulation.state.clock.queued), window)
    if 0 <= place < waiting:
        return f"the job at place {place} may not pass; take one that action_masks() allows"
    return f"place {place} is empty: {waiting} jobs wait; take one that action_masks() allows"


class JobSelection(Environment):
    """Choose which of the first jobs in the queue starts next.

    An action is a place in the window, 0 the job that was submitted first; `action_masks` tells which
    places have a job, and a place without one is an error. The step ends when the next choice is to be
    made: the job has started, and another one waits.

    Args:
        workload: the jobs, the path of a trace, or episodes.
        cluster: the machine, a number of equal nodes, or the path of a machine's file; not with episodes.
        jobs: of an episode.
        window: places.
        observation: a name of `OBSERVATIONS`, or an `Observation` of one's own.
        reward: a name of `REWARDS`, or a function of one's own.
        backfilling: whether others may pass the chosen job while it waits, as with EASY; or a name of
            `PASSING`.
        order: of the window, and in which others pass; one that does not change while jobs wait.
        max_steps: steps of an episode at most; None for no limit.

    Raises:
        ConfigError: there are too few jobs, the window has no place, or the order changes.
        UnknownNameError: no order, observation, reward or backfilling has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        window: int = 128,
        observation: str | Observation = "features",
        reward: Any = "bounded-slowdown",
        backfilling: bool | str = False,
        order: str = "fcfs",
        max_steps: int | None = None,
    ) -> None:
        source = episodes_of("JobSelection", workload, cluster, jobs)
        task = job_selection(
            source,
            window=window,
            observation=observation,
            reward=reward,
            backfilling=backfilling,
            order=order,
        )
        super().__init__(task, source, max_steps)
        self.window = window
