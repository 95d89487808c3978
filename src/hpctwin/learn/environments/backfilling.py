"""The environment in which an agent says who may pass the first job, after RLBackfilling (PMBS'23)."""

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
    """What `Backfilling` is made of; arguments and errors as there."""
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
    """Choose who may pass the first job in order, which does not fit.

    An action is a place in the window, whose job starts now, or, past the last place, nobody until something
    happens. `action_masks` tells who may. Always nobody is no backfilling; always the first who may is EASY.

    Args:
        workload: the jobs, the path of a trace, or episodes.
        cluster: the machine, a number of equal nodes, or the path of a machine's file; not with episodes.
        jobs: of an episode.
        order: of the queue; one that does not change while jobs wait.
        strict: whether only those may pass who do not delay the first job beyond its reservation.
        window: places.
        observation: a name of `job_selection.OBSERVATIONS`, or an `Observation` of your own.
        reward: a name of `job_selection.REWARDS`, or a function of your own.
        max_steps: steps of an episode at most; None for no limit.

    Raises:
        ConfigError: there are too few jobs, the window has no place, or the order changes.
        UnknownNameError: no order, observation or reward has that name.
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
