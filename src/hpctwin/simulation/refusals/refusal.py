"""One combination that is refused, and how it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.simulation.lowering.preemption import is_interrupted

__all__ = ["Refusal", "not_interrupted", "refuse"]


@dataclass(frozen=True)
class Refusal:
    """A combination that is not simulated.

    Args:
        holds: whether it is there.
        why: it cannot be, and what would be right.
    """

    holds: Callable[[Cluster, Policy], bool]
    why: Callable[[Cluster, Policy], str]


def refuse(refusals: Iterable[Refusal], cluster: Cluster, policy: Policy) -> None:
    """Refuse what is there.

    Raises:
        ConfigError: the first of the combinations that is.
    """
    for refusal in refusals:
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))


def not_interrupted(cluster: Cluster, workload: Workload, what: str) -> None:
    """Whether nothing is asked that does not go with preemption.

    Args:
        cluster: the machine.
        workload: the jobs.
        what: cannot be done.

    Raises:
        ConfigError: it is.
    """
    if is_interrupted(workload, cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: {what} where jobs preempt others or go on from checkpoints; leave "
            "preemption and checkpoints out"
        )
