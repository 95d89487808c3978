"""Requests that a simulation cannot fulfill: forecasts, a start with running jobs."""

from __future__ import annotations

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.simulation.lowering.preemption import suspends
from hpctwin.simulation.refusals.refusal import Refusal, not_interrupted, refuse

__all__ = ["check_forecasts", "check_present"]

_NO_FORECAST = (
    Refusal(
        lambda c, p: p.backfill == "pushdown",
        lambda c, p: (
            f"cluster {c.name!r}: there are no forecasts under backfill {p.backfill!r}, whose queues a "
            "forecast would have to hold in full; take any other"
        ),
    ),
    Refusal(
        lambda c, p: p.power.control is not None or (c.cap is not None and c.cap.lower_modes),
        lambda c, p: (
            f"cluster {c.name!r}: there are no forecasts where a function switches nodes or a cap "
            "lowers modes, which is done between instants; take psus, psas-auto or psas-ipm"
        ),
    ),
)


def check_forecasts(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Check that forecasts can be made for jobs on a cluster under a policy.

    Raises:
        ConfigError: They cannot.
    """
    not_interrupted(cluster, workload, "there are no forecasts")
    refuse(_NO_FORECAST, cluster, policy)


def check_present(cluster: Cluster) -> None:
    """Check whether a simulation can begin with jobs that run already.

    Raises:
        ConfigError: It cannot.
    """
    if suspends(cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: a simulation cannot begin with running jobs where jobs are suspended "
            "for others (preemption: mode suspend); take requeue or cancel"
        )
