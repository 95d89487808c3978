"""Policies for which forecasts cannot be made."""

from __future__ import annotations

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster
from hpctwin.policies import Policy

__all__ = ["check_forecasts"]


def check_forecasts(cluster: Cluster, policy: Policy) -> None:
    """Check that forecasts can be made for jobs on a cluster under a policy.

    Raises:
        ConfigError: They cannot: a control function may keep state, which calls about
            possible futures would change.
    """
    if policy.power.control is not None:
        raise ConfigError(
            f"cluster {cluster.name!r}: forecasts are not supported with a power control function, "
            "because its own state would follow futures that may not happen; use power policy "
            "psus, psas-auto or psas-ipm, or write a compiled one"
        )
