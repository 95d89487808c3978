"""One combination that is rejected, and its error message."""

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
        holds: Function that says whether the combination is present.
        why: Function that returns the reason, and what to use instead.
    """

    holds: Callable[[Cluster, Policy], bool]
    why: Callable[[Cluster, Policy], str]


def refuse(refusals: Iterable[Refusal], cluster: Cluster, policy: Policy) -> None:
    """Raise the error of the first combination that is present.

    Raises:
        ConfigError: A combination is present.
    """
    for refusal in refusals:
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))


def not_interrupted(cluster: Cluster, workload: Workload, what: str) -> None:
    """Check that nothing is requested that is incompatible with preemption.

    Args:
        cluster: The cluster.
        workload: The jobs.
        what: The request, for the message.

    Raises:
        ConfigError: Jobs preempt others or continue from checkpoints.
    """
    if is_interrupted(workload, cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: {what} where jobs preempt others or go on from checkpoints; leave "
            "preemption and checkpoints out"
        )
