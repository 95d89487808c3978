"""Many environments of one kind, stepped in one compiled call."""

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
    """Make many environments of one kind, stepped in one compiled call over threads.

    Args:
        kind: Class such as `JobSelection`.
        workload: As for the class.
        cluster: As for the class.
        num_envs: Number of environments.
        threads: Number of threads; None for the number of cores.
        options: Further arguments of the class.

    Raises:
        ConfigError: The class is not compiled, or rejects its arguments.
    """
    if not (isinstance(kind, type) and issubclass(kind, Environment)):
        raise ConfigError(
            f"{kind!r} is not stepped in one call; take JobSelection, Backfilling or PowerManagement"
        )
    one = kind(workload, cluster, **options)
    return Environments(one.task, one.episodes, num_envs, one.max_steps, threads)
