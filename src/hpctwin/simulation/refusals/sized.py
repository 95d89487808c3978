"""Combinations that exclude sizes of jobs that are decided while they run."""

from __future__ import annotations

from hpctwin.engine.state.layout import ONLY_ACTIVE
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.lowering.preemption import is_interrupted
from hpctwin.simulation.refusals.refusal import Refusal, refuse

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
            f"policy {p.name!r}: a sizing decides who starts, and backfill {p.backfill!r} does too; take "
            f"backfill {OUTSIDE!r}"
        ),
    ),
    Refusal(
        lambda c, p: p.power.switches and not _gives_any_node(p),
        lambda c, p: (
            f"power policy {p.power.kind!r}: a sizing gives jobs nodes whether they are on or not, and that "
            "policy plans by its own order which are on; take none, psus or psas-auto"
        ),
    ),
    Refusal(
        lambda c, p: c.cleanup > 0,
        lambda c, p: (
            f"cluster {c.name!r}: the sizes of jobs are not decided where nodes are cleaned up after them; "
            "leave 'cleanup' out"
        ),
    ),
    Refusal(
        lambda c, p: c.cap is not None,
        lambda c, p: (
            f"cluster {c.name!r}: the sizes of jobs are not decided under a power cap; leave 'cap' out"
        ),
    ),
    Refusal(
        lambda c, p: bool(c.limits) or any(one.max_jobs_per_user for one in c.partitions),
        lambda c, p: (
            f"cluster {c.name!r}: what is counted under limits is what jobs ask for, and their sizes change; "
            "leave the limits out"
        ),
    ),
    Refusal(
        lambda c, p: bool(c.reservations),
        lambda c, p: (
            f"cluster {c.name!r}: the sizes of jobs are decided where no node is in maintenance; leave "
            "'reservations' out"
        ),
    ),
    Refusal(
        lambda c, p: bool(_odd_speeds(c)),
        lambda c, p: (
            f"cluster {c.name!r}: work is counted on nodes of speed 1, and node group "
            f"{_odd_speeds(c)[0]!r} has others; leave 'speed' out"
        ),
    ),
)
"""Combinations rejected if the sizes of jobs are decided while they run."""


def check_sized(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Check that the sizes of jobs can be decided while they run.

    Raises:
        ConfigError: They cannot.
    """
    if is_interrupted(workload, cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: a sizing suspends jobs by itself, so the sizes of jobs cannot be "
            "decided where jobs preempt others or go on from checkpoints; leave preemption and "
            "checkpoints out"
        )
    if workload.shares_nodes:
        raise ConfigError(
            f"jobs of {workload.name!r} ask for tasks: their sizes are decided where all ask for whole nodes"
        )
    if workload.usage:
        raise ConfigError(
            f"workload {workload.name!r} says what jobs used of their nodes ({', '.join(workload.usage)}), "
            "which is of the nodes they had; leave it out where their sizes are decided"
        )
    if any(amounts.any() for amounts in workload.resources.values()):
        raise ConfigError(
            f"jobs of {workload.name!r} ask for cluster-wide resources, of which it is not known how they "
            "change with the nodes; leave them out where sizes are decided"
        )
    refuse(SIZED, cluster, policy)
