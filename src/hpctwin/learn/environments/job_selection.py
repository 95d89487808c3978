"""Environments in which the agent chooses which job starts next, or may pass the first.

Job selection follows RLScheduler (Zhang et al., SC20): a window of the queue, some numbers per job,
and a reward at the end of the episode. A chosen job that does not fit yet keeps the others waiting
until it does. Backfilling follows RLBackfilling (PMBS'23).
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
from hpctwin.engine.agents.jobs import ALLOW_PLACES
from hpctwin.engine.agents.parallel_steps import JOB_FEATURES
from hpctwin.errors import ConfigError
from hpctwin.learn.environments.environment import SimulationEnv
from hpctwin.learn.environments.episodes import Source, episodes_of
from hpctwin.learn.environments.scheduling_env import InvalidAction
from hpctwin.learn.environments.task import (
    Observation,
    Task,
    as_hook,
    by_name,
    observation_of,
    watts_of,
)
from hpctwin.learn.environments.vector import ACTION, EARNED, OVER, Batch
from hpctwin.model import Cluster, Workload
from hpctwin.policies import find_ordering, make_policy
from hpctwin.simulation import Simulation

__all__ = [
    "DELAYS",
    "FEATURES",
    "OBSERVATIONS",
    "PASSING",
    "REWARDS",
    "BackfillingEnv",
    "JobSelectionEnv",
    "backfilling",
    "job_selection",
]

LEAST_SLOWDOWN = 0.1
"""Lower bound of the slowdown that rewards are relative to.

It limits the weight of episodes in which hardly any job waits.
"""

FEATURES = (
    "there", "wait", "walltime", "nodes", "fits", "free", "running", "behind",
)  # fmt: skip
"""Numbers for each job in the window, all from 0 to 1:

- whether the place has a job
- its wait w as w / (w + an hour)
- its walltime over a day, at most 1
- its nodes over all nodes
- whether it fits now
- free nodes over all nodes
- the fraction of nodes that become free within its walltime
- jobs beyond the window, n / (n + size of the window)
"""

DELAYS = (
    "there", "wait in logs", "wait", "share of wait", "walltime", "nodes", "share of nodes", "size", "area",
    "square of walltime", "fits", "delay", "share of delay",
)  # fmt: skip
"""Numbers for each job in the window, all from 0 to 1:

- whether the place has a job
- its wait w as log(1 + w) / 14 (s), over ten days, and as w / (w + t + 1 s)
- its walltime t as log(1 + t) / 14
- its nodes n as log n / log N of all N, and over N
- ``size`` and ``area``: n / N, and log n / log N, each times log(1 + t) / 14
- the square of log(1 + t) / 14
- whether the job fits now
- the time d until it fits, if running jobs take their walltimes, as log(1 + d) / 14 and as
  d / (d + t + 1 s)
"""


def most_of_each(workload: Workload, cluster: Cluster) -> npt.NDArray[np.float64]:
    """Return RLScheduler's divisors: largest walltime (ms), memory, user, account.

    User and account are the largest numbers of each.
    """
    simulation = Simulation(workload, cluster)
    simulation.load_job_facts()
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
"""Observations by name.

- ``features`` are `FEATURES`.
- ``delays`` are `DELAYS`.
- ``job`` is what orderings see, so that an agent can be one: whether the place has a job; its wait
  w as w / (w + an hour); its walltime t as log(1 + t) / 14 (s), at most 1; its nodes n over all N;
  log(1 + n) / log(1 + N); w / (w + t + 1 s).
- ``rlscheduler`` has its eight numbers: wait over 12 h; walltime, nodes, memory, user and account
  over the largest value; 1 for the executable; whether the job fits.

Where jobs share nodes, the nodes of a job are the number it counts for, by the largest of its
shares of the cluster's cores, memory and GPUs. Logarithms take it in thousandths. Free nodes are
the fraction of free cores. Only ``job`` has the nodes that orderings see: the smallest number the
job needs.
"""

REWARDS = {
    "bounded-slowdown": hooks.REWARD_SLOWDOWN,
    "wait": hooks.REWARD_WAIT,
    "slowdown": hooks.REWARD_LATELY,
    "relative": hooks.REWARD_LATELY,
}
"""Rewards by name.

- ``bounded-slowdown``: at the end, minus the mean bounded slowdown.
- ``wait``: at the end, minus the mean wait in hours.
- ``slowdown``: at each step, minus what its waits add to the mean of wait over runtime (10 s at
  least). Agents learn faster from it.
- ``relative``: ``slowdown`` over its value if the shortest job is always chosen, so that all
  episodes have equal weight.
"""


PASSING = {"false": 0, "true": 1, "easy": 1, "rlscheduler": 2}
"""Jobs that may pass the chosen job, by name.

With ``easy``, a job may pass if it does not delay the reservation of the chosen job. With
``rlscheduler``, its walltime must end before the chosen job could start, as planned when that was
chosen.
"""


def job_selection(
    source: Source,
    *,
    window: int = 128,
    observation: str | Observation = "features",
    reward: Any = "bounded-slowdown",
    backfilling: bool | str = False,
    order: str = "fcfs",
) -> Task:
    """Make the task of `JobSelectionEnv`; arguments as for it.

    Raises:
        ConfigError: The window has no place, or the order changes.
        UnknownNameError: No observation, reward or backfilling has that name.
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
    """Make a task of choosing from a window of the queue.

    Args:
        source: Source of episodes.
        order: Order of the queue.
        backfill: Pass that starts jobs.
        window: Number of places.
        observation: Name, or a custom observation.
        reward: Name, or a custom function.
        hooks: Hooks to act and to advance.
        nobody: Whether starting no job is a choice too.
    """
    if window < 1:
        raise ConfigError(f"window has {window} places; it must have 1 or more")
    if find_ordering(order).changes:
        raise ConfigError(
            f"ordering {order!r} changes while jobs are pending, which would move jobs "
            "between places; use a fixed one, such as fcfs or sjf"
        )
    jobs = source.all_jobs()
    seen = observation_of(observation, OBSERVATIONS)
    earned = by_name("reward", reward, REWARDS)
    cluster, policy = source.cluster, make_policy(order, backfill)

    def make(jobs: Workload) -> Simulation:
        simulation = Simulation(jobs, cluster, policy)
        if seen.facts:
            simulation.load_job_facts()
        return simulation

    shortest = None
    if reward == "relative":
        shortest = _Shortest(
            job_task(
                source,
                "sjf",
                backfill,
                window=window,
                observation="job",  # any: only the rewards count
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
        allow=None if seen in OBSERVATIONS.values() else ALLOW_PLACES,
    )


class _Shortest:
    """Reward if the shortest job that can start is always chosen.

    Args:
        task: Task whose queue is sorted by walltime.
        source: Source of its episodes.
    """

    def __init__(self, task: Task, source: Source) -> None:
        self.task, self.source = task, source
        self._batch: Batch | None = None

    def __call__(self, jobs: Workload) -> float:
        """Return 1 over the reward's size; the size is at least `LEAST_SLOWDOWN`."""
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
        return f"job at place {place} may not start now; choose one that action_masks() allows"
    return (
        f"place {place} is empty, because {waiting} jobs are pending; choose one that "
        "action_masks() allows"
    )


class JobSelectionEnv(SimulationEnv):
    """Choose which of the first jobs in the queue starts next.

    An action is a place in the window; place 0 has the job that was submitted first. `action_masks`
    shows which places have a job. The step ends at the next
    choice: the job has started, and another one is pending.

    Args:
        workload: The jobs, the path of a trace, or episodes; None for generated jobs.
        cluster: The cluster, a number of equal nodes, or the path of a cluster file; not with
            episodes. If both are omitted, it has 64 nodes.
        jobs: Number of jobs in an episode.
        window: Number of places.
        observation: Name in `OBSERVATIONS`, or a custom `Observation`.
        reward: Name in `REWARDS`, or a custom function.
        backfilling: Whether other jobs may pass the chosen job while it waits, as with EASY; or a
            name in `PASSING`.
        order: Order of the window and of passing jobs, which must not change while jobs wait.
        max_steps: Largest number of steps of an episode; None for no limit.
        invalid_action: Treatment of places without a job that may start: ``ignore`` or ``raise``.
        render_mode: ``ansi`` or ``rgb_array``; None for no rendering.

    Raises:
        ConfigError: There are too few jobs, the window has no place, or the order changes.
        UnknownNameError: No order, observation, reward or backfilling has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str] | None = None,
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        window: int = 128,
        observation: str | Observation = "features",
        reward: Any = "bounded-slowdown",
        backfilling: bool | str = False,
        order: str = "fcfs",
        max_steps: int | None = None,
        invalid_action: InvalidAction = "ignore",
        render_mode: str | None = None,
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
        super().__init__(task, source, max_steps, invalid_action, render_mode)
        self.window = window
        self.options = {"window": window, "backfilling": backfilling}


def backfilling(
    source: Source,
    *,
    order: str = "fcfs",
    strict: bool = True,
    window: int = 128,
    observation: str | Observation = "features",
    reward: Any = "bounded-slowdown",
) -> Task:
    """Make the task of `BackfillingEnv`; arguments and errors as for it."""
    return job_task(
        source,
        order,
        f"admitted:strict={int(strict)}",
        window=window,
        observation=observation,
        reward=reward,
        hooks=(hooks.ADMIT, hooks.TO_ADMISSION),
        nobody=True,
    )


class BackfillingEnv(SimulationEnv):
    """Choose which job may pass the first job in order, which does not fit.

    An action is a place in the window, whose job starts now. The action after the last place starts
    no job until the next event. `action_masks` shows which jobs may pass. Starting no job each time
    is no backfilling. Always starting the first allowed job is EASY.

    Args:
        workload: The jobs, the path of a trace, or episodes; None for generated jobs.
        cluster: The cluster, a number of equal nodes, or the path of a cluster file; not with
            episodes. If both are omitted, it has 64 nodes.
        jobs: Number of jobs in an episode.
        order: Order of the queue, which must not change while jobs wait.
        strict: Whether only jobs may pass that do not delay the first job beyond its reservation.
        window: Number of places.
        observation: Name in `job_selection.OBSERVATIONS`, or a custom `Observation`.
        reward: Name in `job_selection.REWARDS`, or a custom function.
        max_steps: Largest number of steps of an episode; None for no limit.
        invalid_action: Treatment of places without a job that may start: ``ignore`` or ``raise``.
        render_mode: ``ansi`` or ``rgb_array``; None for no rendering.

    Raises:
        ConfigError: There are too few jobs, the window has no place, or the order changes.
        UnknownNameError: No order, observation or reward has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str] | None = None,
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        order: str = "fcfs",
        strict: bool = True,
        window: int = 128,
        observation: str | Observation = "features",
        reward: Any = "bounded-slowdown",
        max_steps: int | None = None,
        invalid_action: InvalidAction = "ignore",
        render_mode: str | None = None,
    ) -> None:
        source = episodes_of("Backfilling", workload, cluster, jobs)
        task = backfilling(
            source,
            order=order,
            strict=strict,
            window=window,
            observation=observation,
            reward=reward,
        )
        super().__init__(task, source, max_steps, invalid_action, render_mode)
        self.window = window
