"""Clusters and policies for which forecasts cannot be made."""

from __future__ import annotations

from hpctwin.model import Cluster
from hpctwin.policies import Policy
from hpctwin.simulation.refusals.together import ACTS_BETWEEN_EVENTS, refuse

__all__ = ["check_forecasts"]


def check_forecasts(cluster: Cluster, policy: Policy) -> None:
    """Check that forecasts can be made for jobs on a cluster under a policy.

    Raises:
        ConfigError: They cannot.
    """
    refuse((ACTS_BETWEEN_EVENTS,), cluster, policy)
