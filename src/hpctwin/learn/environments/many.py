"""Many environments of one kind."""

from __future__ import annotations

from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.learn.environments.environment import Environment, Environments

__all__ = ["many"]


def many(
    kind: type[Environment],
    workload: Any,
    cluster: Any = None,
    *,
    num_envs: int = 1,
    threads: int | None = None,
    **options: Any,
) -> Environments:
    """Many environments of one kind, stepped in one compiled call over threads.

    Args:
        kind: such as `JobSelection`.
        workload: as of the kind.
        cluster: as of the kind.
        num_envs: how many.
        threads: that step them; None for as many as the machine has cores.
        options: further arguments of the kind.

    Raises:
        ConfigError: there are none of that kind, or as the kind tells.
    """
    if not (isinstance(kind, type) and issubclass(kind, Environment)):
        raise ConfigError(
            f"{kind!r} is not stepped in one call; take JobSelection, Backfilling or PowerManagement"
        )
    one = kind(workload, cluster, **options)
    return Environments(one.task, one.episodes, num_envs, one.max_steps, threads)
