"""Environment for backfilling, after RLBackfilling (PMBS'23).

The agent chooses which job may pass the first one.
"""

from __future__ import annotations

import os
from typing import Any

from hpctwin.engine.agents import jobs as hooks
from hpctwin.learn.environments.environment import Environment
from hpctwin.learn.environments.episodes import Source, episodes_of
from hpctwin.learn.environments.job_selection import job_task
from hpctwin.learn.environments.task import Observation, Task
from hpctwin.model import Cluster, Workload

__all__ = ["Backfilling", "backfilling"]


def backfilling(
    source: Source,
    *,
    order: str = "fcfs",
    strict: bool = True,
    window: int = 128,
    observation: str | Observation = "features",
    reward: Any = "bounded-slowdown",
) -> Task:
    """Make the task of `Backfilling`; arguments and errors as for it."""
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


class Backfilling(Environment):
    """Choose which job may pass the first job in order, which does not fit.

    An action is a place in the window, whose job starts now. The action after the last place starts
    no job until the next event. `action_masks` shows which jobs may pass. Starting no job each time
    is no backfilling. Always starting the first allowed job is EASY.

    Args:
        workload: The jobs, the path of a trace, or episodes.
        cluster: The cluster, a number of equal nodes, or the path of a cluster file; not with
            episodes.
        jobs: Number of jobs in an episode.
        order: Order of the queue, which must not change while jobs wait.
        strict: Whether only jobs may pass that do not delay the first job beyond its reservation.
        window: Number of places.
        observation: Name in `job_selection.OBSERVATIONS`, or a custom `Observation`.
        reward: Name in `job_selection.REWARDS`, or a custom function.
        max_steps: Largest number of steps of an episode; None for no limit.

    Raises:
        ConfigError: There are too few jobs, the window has no place, or the order changes.
        UnknownNameError: No order, observation or reward has that name.
    """

    def __init__(
        self,
        workload: Workload | Source | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        order: str = "fcfs",
        strict: bool = True,
        window: int = 128,
        observation: str | Observation = "features",
        reward: Any = "bounded-slowdown",
        max_steps: int | None = None,
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
        super().__init__(task, source, max_steps)
        self.window = window
