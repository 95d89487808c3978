"""Clusters and policies for which forecasts cannot be made."""

from __future__ import annotations

from hpctwin.model import Cluster
from hpctwin.policies import Policy
from hpctwin.simulation.refusals.together import Refusal, refuse

__all__ = ["check_forecasts"]

_NO_FORECAST = (
    Refusal(
        lambda c, p: p.power.control is not None or (c.cap is not None and c.cap.lower_modes),
        lambda c, p: (
            f"cluster {c.name!r}: forecasts are not supported with a power control "
            "function or with a power cap that lowers modes; use power policy psus, "
            "psas-auto or psas-ipm"
        ),
    ),
)


def check_forecasts(cluster: Cluster, policy: Policy) -> None:
    """Check that forecasts can be made for jobs on a cluster under a policy.

    Raises:
        ConfigError: They cannot.
    """
    refuse(_NO_FORECAST, cluster, policy)
