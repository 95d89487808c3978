"""Clusters, policies and workloads that are incompatible.

One combination that is rejected, and its error message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpctwin.engine.capacity_models import PREEMPTING_WHOLE, SHARED_NODES, CapacityModel
from hpctwin.engine.passes import PASSES
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.engine.state.layout import LOWEST, ONLY_ACTIVE, SOONEST
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.model.workload.jobs import NODE_W
from hpctwin.policies import PLACEMENTS, Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.lowering.preemption import is_interrupted, suspends, writes_checkpoints

__all__ = ["Refusal", "check_together", "check_usage", "refuse"]


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


REFUSALS = (
    Refusal(
        lambda c, p: p.power.switches and not c.has_power,
        lambda c, p: (
            f"power policy {p.power.kind!r}: of cluster {c.name!r} it is not known what its nodes "
            "draw; give 'modes' and 'sleep' of each node group"
        ),
    ),
    Refusal(
        lambda c, p: p.power.switches and p.power.timeout_s is not None and c.depths == 0,
        lambda c, p: (
            f"cluster {c.name!r}: no node group has a sleep state, so power policy "
            f"{p.power.kind!r} has nothing to do; give one under 'sleep:'"
        ),
    ),
    Refusal(
        lambda c, p: p.backfill == "pushdown" and p.power.kind == "psas-ipm",
        lambda c, p: (
            "power policy 'psas-ipm' wakes nodes for a plan in the ordering's order, and backfill "
            "'pushdown' has queues of its own; take psus or psas-auto"
        ),
    ),
    Refusal(
        lambda c, p: bool(p.power.power_pass.refuses(c, p)),
        lambda c, p: f"power policy {p.power.kind!r}: {p.power.power_pass.refuses(c, p)}",
    ),
    Refusal(
        lambda c, p: (
            c.cap is not None
            and bool(c.cap.windows)
            and p.power.switches
            and p.power.power_pass.shown != ONLY_ACTIVE
        ),
        lambda c, p: (
            f"a cap by time of day does not go with power policy {p.power.kind!r}, whose plan does "
            "not know when jobs begin; take psas-ipm"
        ),
    ),
    Refusal(
        lambda c, p: p.placement.name in ("fewest-switches", "whole-blocks") and not c.switches,
        lambda c, p: (
            f"placement {p.placement.name!r}: of cluster {c.name!r} it is not known how nodes are connected; "
            "give 'switches', such as [{name: s0, nodes: 0-15}, {name: s1, nodes: 16-31}, {name: top, "
            "switches: [s0, s1]}]"
        ),
    ),
    Refusal(
        lambda c, p: c.cleanup > 0 and c.has_power,
        lambda c, p: (
            f"cluster {c.name!r}: nodes are cleaned up after jobs ('cleanup'), which is not simulated "
            "together with what nodes draw; leave out 'cleanup', or 'modes' of the node groups"
        ),
    ),
    Refusal(
        lambda c, p: c.cleanup > 0 and p.backfill == OUTSIDE,
        lambda c, p: (
            f"cluster {c.name!r}: nodes are cleaned up after jobs ('cleanup'), of which a scheduler outside "
            "is not told; leave 'cleanup' out"
        ),
    ),
    Refusal(
        lambda c, p: c.cap is not None and c.cap.lower_modes and p.power.control is not None,
        lambda c, p: "a cap that lowers modes does not go with a control function",
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
            f"jobs that ask for tasks share nodes, and backfill {p.backfill!r} plans whole ones; "
            f"take {_backfills_on(SHARED_NODES)}"
        ),
    ),
    Refusal(
        lambda c, p: p.placement.shared_name not in SHARED_PLACEMENTS.own(),
        lambda c, p: (
            f"jobs that ask for tasks share nodes, and placement {p.placement.name!r} is one of whole nodes; "
            f"take {', '.join(name for name in PLACEMENTS if name in SHARED_PLACEMENTS.own())}"
        ),
    ),
    Refusal(
        lambda c, p: (
            p.power.power_pass.scheduling is not None
            or p.power.power_pass.preferred not in (LOWEST, SOONEST)
        ),
        lambda c, p: (
            f"jobs that ask for tasks share nodes, and power policy {p.power.kind!r} gives jobs whole ones; "
            "take none, psus, psas-auto or psas-ipm"
        ),
    ),
    Refusal(
        lambda c, p: all(group.cores is None for group in c.nodes),
        lambda c, p: (
            f"jobs ask for tasks, and no node group of cluster {c.name!r} says how many cores its nodes "
            "have; give 'cores' of each group"
        ),
    ),
)
"""Combinations rejected if any job requests tasks."""


WHOLE = (
    Refusal(
        lambda c, p: not p.placement.whole,
        lambda c, p: (
            f"placement {p.placement.name!r} is one of shared nodes, and all jobs ask for whole ones; take "
            f"{', '.join(name for name in PLACEMENTS if PLACEMENTS.find(name).make().whole)}"
        ),
    ),
)
"""Combinations rejected if no job requests tasks."""


INTERRUPTED = (
    Refusal(
        lambda c, p: not PASSES.find(p.backfill).works_on(PREEMPTING_WHOLE),
        lambda c, p: (
            f"cluster {c.name!r}: jobs preempt others or go on from checkpoints, which backfill "
            f"{p.backfill!r} does not know; take {_backfills_on(PREEMPTING_WHOLE)}, or leave preemption "
            "and checkpoints out"
        ),
    ),
    Refusal(
        lambda c, p: c.cleanup > 0,
        lambda c, p: (
            f"cluster {c.name!r}: jobs preempt others or go on from checkpoints, which is not simulated "
            "together with nodes that are cleaned up after jobs; leave 'cleanup' out, or preemption and "
            "checkpoints"
        ),
    ),
    Refusal(
        lambda c, p: p.power.power_pass.scheduling is not None,
        lambda c, p: (
            f"power policy {p.power.kind!r} starts jobs itself and preempts none; use psus, psas-auto or "
            f"psas-ipm, or remove preemption and checkpoints from cluster {c.name!r}"
        ),
    ),
)
"""Combinations rejected if jobs preempt others, or continue from checkpoints."""


SUSPENDED = (
    Refusal(
        lambda c, p: bool(c.failures.outages) or c.failures.mtbf is not None,
        lambda c, p: (
            f"cluster {c.name!r}: jobs are suspended for others (preemption: mode suspend), which is not "
            "simulated together with nodes that fail; leave 'failures' out, or take requeue or cancel"
        ),
    ),
    Refusal(
        lambda c, p: any(limit.is_timed for limit in c.limits),
        lambda c, p: (
            f"cluster {c.name!r} limits minutes that are left of walltimes, which is not simulated together "
            "with jobs that are suspended for others (preemption: mode suspend); leave 'minutes' and 'safe' "
            "of the limits out, or take requeue or cancel"
        ),
    ),
)
"""Combinations rejected if jobs are suspended for others."""


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
    shares, interrupted = workload.shares_nodes, is_interrupted(workload, cluster)
    about = id(cluster), id(policy), shares, interrupted
    if about not in _TOGETHER:
        refuse((*REFUSALS, *(SHARED if shares else WHOLE)), cluster, policy)
        if interrupted:
            refuse(INTERRUPTED, cluster, policy)
        if suspends(cluster):
            refuse(SUSPENDED, cluster, policy)
        if len(_TOGETHER) >= MOST_KEPT:
            _TOGETHER.clear()
        _TOGETHER[about] = cluster, policy
    check_usage(cluster, workload)
    check_kept(cluster, workload)
    check_modes(cluster, workload)


def check_modes(cluster: Cluster, workload: Workload) -> None:
    """Check that no mode changes while jobs run that write checkpoints.

    Raises:
        ConfigError: A cap lowers modes, and jobs write checkpoints.
    """
    lowers = cluster.cap is not None and cluster.cap.lower_modes
    if lowers and writes_checkpoints(workload, cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: the cap lowers modes while jobs run ('lower_modes'), and the work "
            "that a checkpoint keeps is known at one speed only; remove 'lower_modes', or checkpoints"
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
            f"cluster {cluster.name!r}: jobs are suspended for others (preemption: mode suspend), which is "
            "not simulated together with jobs that have tasks of several kinds and their nodes alone; take "
            "requeue or cancel"
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
            f"workload {workload.name!r} says what a node of each job drew ({NODE_W}), and jobs share nodes: "
            "whose that was is not known. Leave it out, or tell how much jobs used of components (use_cpu, …)"
        )
