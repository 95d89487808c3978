"""Combinations that exclude sizes of jobs that are decided while they run."""

from __future__ import annotations

from hpctwin.engine.state.layout import ONLY_ACTIVE
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.refusals.together import Refusal, refuse

__all__ = ["check_sized"]


def _odd_speeds(cluster: Cluster) -> list[str]:
    """Return the node groups whose speed differs from that of the measured runtimes."""
    return [
        group.name
        for group in cluster.nodes
        if group.speed != 1 or any(mode.speed != 1 for mode in group.modes.values())
    ]


def _gives_any_node(policy: Policy) -> bool:
    """Return whether jobs get sleeping nodes too, which only wake for them."""
    power = policy.power
    own = power.power_pass
    return power.control is None and own.shown != ONLY_ACTIVE and own.scheduling is None


SIZED = (
    Refusal(
        lambda c, p: p.backfill != OUTSIDE,
        lambda c, p: (
            f"policy {p.name!r}: backfill {p.backfill!r} and a sizing both decide which jobs start; "
            f"take backfill {OUTSIDE!r}"
        ),
    ),
    Refusal(
        lambda c, p: p.power.switches and not _gives_any_node(p),
        lambda c, p: (
            f"power policy {p.power.kind!r}: it plans which nodes are on, and a sizing uses any node; "
            "take none, psus or psas-auto"
        ),
    ),
    Refusal(
        lambda c, p: bool(_odd_speeds(c)),
        lambda c, p: (
            f"cluster {c.name!r}: a sizing counts work on nodes of speed 1, and node group "
            f"{_odd_speeds(c)[0]!r} has another speed; remove 'speed'"
        ),
    ),
    Refusal(
        lambda c, p: c.cap is not None and c.cap.lower_modes,
        lambda c, p: (
            f"cluster {c.name!r}: a sizing counts work at one speed, and a power cap with "
            "'lower_modes' changes it; remove 'lower_modes'"
        ),
    ),
)
"""Combinations rejected if the sizes of jobs are decided while they run."""


def check_sized(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Check that the sizes of jobs can be decided while they run.

    Raises:
        ConfigError: They cannot.
    """
    if workload.shares_nodes:
        raise ConfigError(
            f"workload {workload.name!r}: its jobs request tasks, but a sizing needs jobs on "
            "exclusive nodes; remove the column tasks"
        )
    if workload.usage:
        raise ConfigError(
            f"workload {workload.name!r}: a sizing is incompatible with recorded use of nodes "
            f"({', '.join(workload.usage)}); remove these columns"
        )
    refuse(SIZED, cluster, policy)
