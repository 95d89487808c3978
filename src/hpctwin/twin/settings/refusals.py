"""Checks for everything that a twin of a live cluster does not support.

All of these rejections are here. A twin simulates any power policy without a control function. It
switches no nodes: the cluster does that by its own power policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpctwin.engine.state.layout import ONLY_ACTIVE
from hpctwin.errors import ConfigError
from hpctwin.policies import Policy
from hpctwin.rms.records.records import NodeRecord
from hpctwin.twin.what_if.objective import Objective

__all__ = ["check_acting", "check_live", "check_told"]


def check_live(policy: Policy) -> None:
    """Check that a live cluster can be simulated under a policy.

    Raises:
        ConfigError: The policy chooses nodes, which is up to the cluster, or its power policy has
            a control function.
    """
    if policy.placement.needs_nodes and policy.on_whole_nodes is policy.scheduling:
        raise ConfigError(
            f"policy {policy.name}: placement {policy.placement.name!r} is not supported, "
            "because the cluster chooses the nodes; use first-fit or best-fit"
        )
    if policy.power.control is not None or policy.power.kind == "orders":
        raise ConfigError(
            f"policy {policy.name}: power control functions are not supported, because the "
            "twin switches no nodes; use the one of psus, psas-auto or psas-ipm that is "
            "nearest to the cluster"
        )


def check_acting(pool: Sequence[Policy]) -> None:
    """Check that an acting twin can choose among policies.

    Raises:
        ConfigError: A policy wakes nodes for pending jobs, or the policies differ in how nodes are
            switched.
    """
    for policy in pool:
        if policy.power.switches and policy.power.power_pass.shown == ONLY_ACTIVE:
            raise ConfigError(
                f"policy {policy.name}: power policy {policy.power.kind!r} wakes nodes for "
                "pending jobs, but the twin switches no nodes; use psus or psas-auto, or "
                "mode observe or advise"
            )
        if policy.power.name != pool[0].power.name:
            raise ConfigError(
                f"policies {pool[0].name} and {policy.name} have different power policies, "
                "but the cluster switches its nodes and the twin cannot change that; give "
                "all policies of the pool the cluster's power policy, or use mode observe "
                "or advise"
            )


def check_told(
    policies: Sequence[Policy], objective: Objective, cluster: str, nodes: Iterable[NodeRecord]
) -> None:
    """Check that a cluster reports the power states that policies and objective need.

    Args:
        policies: Policies that the cluster is simulated under.
        objective: Objective that the policies are compared by.
        cluster: Name of the cluster.
        nodes: Nodes as the cluster reports them.

    Raises:
        ConfigError: No node has a power state, but a policy or the objective needs it.
    """
    asks = [f"policy {policy.name} switches nodes" for policy in policies if policy.power.switches]
    if objective.function is None and objective.weights.get("total_energy_j"):
        asks.append("the objective uses total_energy_j")
    if asks and all(node.power is None for node in nodes):
        raise ConfigError(
            f"{asks[0]}, but cluster {cluster!r} does not report which nodes are switched "
            "on; add the power draw and sleep states of its nodes: for Slurm under "
            "manager.power, for an emulated cluster in the cluster file ('modes' and "
            "'sleep')"
        )
