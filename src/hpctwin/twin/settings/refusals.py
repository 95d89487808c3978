"""What a twin of a live cluster cannot do: each refused here, by name, and nowhere else.

A twin looks ahead under any power policy that has no control function. It switches no nodes: the cluster
does, by its own power policy.
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
    """Whether a live cluster can be run ahead under a policy.

    Raises:
        ConfigError: it cannot.
    """
    if policy.placement.needs_nodes and policy.on_whole_nodes is policy.scheduling:
        raise ConfigError(
            f"policy {policy.name}: which nodes a job gets is the cluster's to say, so there is no placement "
            f"{policy.placement.name!r}; take first-fit or best-fit"
        )
    if policy.power.control is not None or policy.power.kind == "orders":
        raise ConfigError(
            f"policy {policy.name}: a control function orders nodes on and off, and a twin switches none; "
            "take psus, psas-auto or psas-ipm, whichever is nearest to what the cluster does"
        )


def check_acting(pool: Sequence[Policy]) -> None:
    """Whether a twin that acts may choose among policies.

    Raises:
        ConfigError: it may not.
    """
    for policy in pool:
        if policy.power.switches and policy.power.power_pass.shown == ONLY_ACTIVE:
            raise ConfigError(
                f"policy {policy.name}: power policy {policy.power.kind!r} wakes nodes for jobs that wait, "
                "and a twin switches none; take psus or psas-auto, or mode observe or advise"
            )
        if policy.power.name != pool[0].power.name:
            raise ConfigError(
                f"policies {pool[0].name} and {policy.name} differ in how nodes are switched, which the "
                "cluster does and a twin that acts cannot change: give all of the pool the cluster's own "
                "power policy, or take mode observe or advise"
            )


def check_told(
    policies: Sequence[Policy], objective: Objective, cluster: str, nodes: Iterable[NodeRecord]
) -> None:
    """Whether a cluster tells what its policies and its objective need to know.

    Args:
        policies: those that it is to be run ahead under.
        objective: what counts.
        cluster: its name.
        nodes: as it tells of them.

    Raises:
        ConfigError: it does not.
    """
    asks = [f"policy {policy.name} switches nodes" for policy in policies if policy.power.switches]
    if objective.function is None and objective.weights.get("total_energy_j"):
        asks.append("the objective asks for total_energy_j")
    if asks and all(node.power is None for node in nodes):
        raise ConfigError(
            f"{asks[0]}, and cluster {cluster!r} does not tell which of its nodes are switched on: say what "
            "they draw and how they sleep, for Slurm under manager.power, for an emulated cluster in its "
            "machine's file ('modes' and 'sleep')"
        )
