"""One combination that is rejected, and its error message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster
from hpctwin.policies import Policy

__all__ = ["Refusal", "refuse"]


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
