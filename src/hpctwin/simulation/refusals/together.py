"""Combinations of cluster, policy and workload that are rejected, and input that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpctwin.engine.capacity_models import PREEMPTING_WHOLE, SHARED_NODES, CapacityModel
from hpctwin.engine.passes import PASSES
from hpctwin.engine.state.layout import ONLY_ACTIVE
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.model.workload.jobs import NODE_W
from hpctwin.policies import Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.lowering.preemption import is_interrupted, suspends, writes_checkpoints

if TYPE_CHECKING:
    from hpctwin.network.profiles import Profile

__all__ = ["Refusal", "check_contended", "check_together", "check_usage", "refuse"]


@dataclass(frozen=True)
class Refusal:
    """A combination that is not simulated, or an input that is missing.

    Args:
        holds: Function that says whether the row applies.
        why: Function that returns the reason, and what to use instead.
    """

    holds: Callable[[Cluster, Policy], bool]
    why: Callable[[Cluster, Policy], str]


def refuse(refusals: Iterable[Refusal], cluster: Cluster, policy: Policy) -> None:
    """Raise the error of the first row that applies.

    Raises:
        ConfigError: A row applies.
    """
    for refusal in refusals:
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))


MISSING = (
    Refusal(
        lambda c, p: p.power.switches and not c.has_power,
        lambda c, p: (
            f"power policy {p.power.kind!r}: cluster {c.name!r} has no power model; add "
            "'modes' and 'sleep' to each node group"
        ),
    ),
    Refusal(
        lambda c, p: p.power.switches and p.power.timeout_s is not None and c.depths == 0,
        lambda c, p: (
            f"cluster {c.name!r}: no node group has a sleep state for power policy "
            f"{p.power.kind!r} to use; add one under 'sleep:'"
        ),
    ),
    Refusal(
        lambda c, p: p.placement.needs_switches and not (c.switches or c.is_connected),
        lambda c, p: (
            f"placement {p.placement.name!r}: cluster {c.name!r} has no network topology; "
            "add 'switches', such as [{name: s0, nodes: 0-15}, {name: s1, nodes: 16-31}, "
            "{name: top, switches: [s0, s1]}], or a 'network'"
        ),
    ),
)
"""Input that a policy needs of the cluster."""


MISSING_SHARED = (
    Refusal(
        lambda c, p: not c.may_share_nodes,
        lambda c, p: (
            f"cluster {c.name!r}: no node group has 'cores', but jobs request tasks; add "
            "'cores' to each node group"
        ),
    ),
)
"""Input that jobs with tasks need of the cluster."""


REFUSALS = (
    Refusal(
        lambda c, p: p.backfill == "pushdown" and p.power.kind == "psas-ipm",
        lambda c, p: (
            "power policy 'psas-ipm' plans in the order of one queue and does not work "
            "with backfill 'pushdown', which has several; use psus or psas-auto"
        ),
    ),
    Refusal(
        lambda c, p: (
            c.cap is not None
            and bool(c.cap.windows)
            and p.power.switches
            and p.power.power_pass.shown != ONLY_ACTIVE
        ),
        lambda c, p: (
            f"power policy {p.power.kind!r} does not work with a power cap by time of day, "
            "because its plan has no start times; use psas-ipm"
        ),
    ),
    Refusal(
        lambda c, p: c.cap is not None and c.cap.lower_modes and p.power.control is not None,
        lambda c, p: (
            "power cap that lowers modes does not work with a power control function; remove "
            "one of them"
        ),
    ),
)
"""Combinations that are always rejected, in the order of the check."""


def _backfills_on(model: CapacityModel) -> str:
    """List the backfills that work with a capacity model, the simplest first."""
    found = {name: PASSES.find(name) for name in PASSES.own()}
    those = [name for name, one in found.items() if one.works_on(model)]
    return ", ".join(
        sorted(those, key=lambda name: (found[name].others is None, found[name].others or 0))
    )


SHARED = (
    Refusal(
        lambda c, p: not PASSES.find(p.backfill).works_on(SHARED_NODES),
        lambda c, p: (
            f"backfill {p.backfill!r} plans exclusive nodes and does not support "
            + (f"placement {p.placement.name!r}" if p.placement.shared_only else "jobs with tasks")
            + f"; use {_backfills_on(SHARED_NODES)}"
        ),
    ),
)
"""Combinations rejected if nodes are planned as shared nodes."""


INTERRUPTED = (
    Refusal(
        lambda c, p: not PASSES.find(p.backfill).works_on(PREEMPTING_WHOLE),
        lambda c, p: (
            f"cluster {c.name!r}: backfill {p.backfill!r} does not support preemption or "
            f"checkpoints; use {_backfills_on(PREEMPTING_WHOLE)} (without a sizing, which needs "
            f"{OUTSIDE!r}), or remove preemption and checkpoints"
        ),
    ),
)
"""Combinations rejected if jobs preempt others, or continue from checkpoints."""


MOST_KEPT = 64
_TOGETHER: dict[tuple[int, int, bool, bool], tuple[Cluster, Policy]] = {}
"""Compatible combinations by id: a twin checks the same one at each decision.

The objects are kept so that no others get their ids.
"""


def check_together(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Check that a cluster, a policy and a workload are compatible.

    Raises:
        ConfigError: They are not.
    """
    asks, interrupted = workload.shares_nodes, is_interrupted(workload, cluster)
    about = id(cluster), id(policy), asks, interrupted
    if about not in _TOGETHER:
        shares = asks or policy.placement.shared_only
        refuse((*MISSING, *(MISSING_SHARED if asks else ())), cluster, policy)
        check_power_policy(cluster, policy, shares=shares, interrupted=interrupted)
        refuse((*REFUSALS, *(SHARED if shares else ())), cluster, policy)
        if interrupted:
            refuse(INTERRUPTED, cluster, policy)
        if len(_TOGETHER) >= MOST_KEPT:
            _TOGETHER.clear()
        _TOGETHER[about] = cluster, policy
    check_usage(cluster, workload)
    check_kept(cluster, workload)
    check_modes(cluster, workload)


def check_power_policy(
    cluster: Cluster, policy: Policy, *, shares: bool, interrupted: bool
) -> None:
    """Check that the power policy works with the cluster, the rest of the policy and the jobs.

    Raises:
        ConfigError: It does not.
    """
    power = policy.power.power_pass
    if why := power.why_not(cluster, policy, shares=shares, interrupted=interrupted):
        raise ConfigError(f"power policy {policy.power.kind!r}: {why}")


def check_modes(cluster: Cluster, workload: Workload) -> None:
    """Check that no mode changes while jobs run that write checkpoints.

    Raises:
        ConfigError: A cap lowers modes, and jobs write checkpoints.
    """
    lowers = cluster.cap is not None and cluster.cap.lower_modes
    if lowers and writes_checkpoints(workload, cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: a power cap that lowers modes ('lower_modes') does "
            "not work with checkpoints, whose kept work is computed at one speed; remove "
            "'lower_modes', or checkpoints"
        )


def check_contended(
    cluster: Cluster, workload: Workload, profiles: Sequence[Profile | None], *, sized: bool
) -> None:
    """Check that the network and walltimes alone decide when jobs end, and that sizes may change.

    Args:
        cluster: The cluster.
        workload: Jobs; some share the network.
        profiles: What each job does; None for a job that does not use the network.
        sized: Whether a sizing decides the sizes of jobs.

    Raises:
        ConfigError: Something else does; or a job's amounts are those of each of its ranks.
    """
    malleable = workload.malleable
    if not sized or malleable is None:
        return
    changes = malleable.suspendable | (malleable.min_nodes < malleable.max_nodes)
    for row in np.flatnonzero(changes).tolist():
        profile = profiles[row]
        if profile is not None and not profile.is_total:
            raise ConfigError(
                f"job {workload.job_id[row]}: a sizing cannot change its nodes, because its profile "
                "has amounts of each rank; remove min_nodes, max_nodes and suspendable, or give "
                "totals, such as flops and comm_bytes"
            )


def check_kept(cluster: Cluster, workload: Workload) -> None:
    """Check that the amounts that each job keeps while suspended are known.

    Raises:
        ConfigError: They are not.
    """
    if not suspends(cluster) or not workload.shares_nodes:
        return
    if ((workload.more_tasks.codes >= 0) & (workload.chunks["exclusive"] > 0)).any():
        raise ConfigError(
            f"cluster {cluster.name!r}: preemption mode 'suspend' does not support "
            "exclusive jobs with tasks of several kinds; use mode requeue or cancel"
        )


def check_usage(cluster: Cluster, workload: Workload) -> None:
    """Check that the recorded use of nodes can be applied to the jobs.

    Raises:
        ConfigError: It cannot.
    """
    if (
        workload.shares_nodes
        and NODE_W in workload.usage
        and any(group.components for group in cluster.nodes)
    ):
        raise ConfigError(
            f"workload {workload.name!r}: column {NODE_W} gives the node power of each "
            "job, which is ambiguous because jobs share nodes; remove it, or give the use "
            "of components (use_cpu, …)"
        )
