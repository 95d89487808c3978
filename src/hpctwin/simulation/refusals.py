"""What has no meaning, or cannot be done, together: each refused here, by name, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hpctwin.engine.layout import LOWEST, ONLY_ACTIVE, SOONEST
from hpctwin.engine.passes import PASSES
from hpctwin.engine.preempting import PREEMPTING_PASSES
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.model.joining import LABELS
from hpctwin.policies import PLACEMENTS, Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.claims import is_interrupted

__all__ = [
    "REFUSALS",
    "Refusal",
    "check_explained",
    "check_forecasts",
    "check_present",
    "check_sized",
    "check_streamed",
    "check_together",
]


@dataclass(frozen=True)
class Refusal:
    """A combination that is not simulated.

    Args:
        what: it is, in a word or two.
        holds: whether it is there.
        why: it cannot be, and what would be right.
    """

    what: str
    holds: Callable[[Cluster, Policy], bool]
    why: Callable[[Cluster, Policy], str]


REFUSALS = (
    Refusal(
        "power policy without power",
        lambda c, p: p.power.switches and not c.has_power,
        lambda c, p: (
            f"power policy {p.power.kind!r}: of cluster {c.name!r} it is not known what its nodes "
            "draw; give 'modes' and 'sleep' of each node group"
        ),
    ),
    Refusal(
        "timeout without sleep states",
        lambda c, p: p.power.switches and p.power.timeout_s is not None and c.depths == 0,
        lambda c, p: (
            f"cluster {c.name!r}: no node group has a sleep state, so power policy "
            f"{p.power.kind!r} has nothing to do; give one under 'sleep:'"
        ),
    ),
    Refusal(
        "pushdown with a manager",
        lambda c, p: p.backfill == "pushdown" and p.power.kind == "psas-ipm",
        lambda c, p: (
            "power policy 'psas-ipm' wakes nodes for a plan in the ordering's order, and backfill "
            "'pushdown' has queues of its own; take psus or psas-auto"
        ),
    ),
    Refusal(
        "what the power policy does not go with",
        lambda c, p: bool(p.power.power_pass.refuses(c, p)),
        lambda c, p: f"power policy {p.power.kind!r}: {p.power.power_pass.refuses(c, p)}",
    ),
    Refusal(
        "cap by the time of day without a plan",
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
        "cleaning up with power states",
        lambda c, p: c.cleanup > 0 and c.has_power,
        lambda c, p: (
            f"cluster {c.name!r}: nodes are cleaned up after jobs ('cleanup'), which is not simulated "
            "together with what nodes draw; leave out 'cleanup', or 'modes' of the node groups"
        ),
    ),
    Refusal(
        "cleaning up with a scheduler outside",
        lambda c, p: c.cleanup > 0 and p.backfill == OUTSIDE,
        lambda c, p: (
            f"cluster {c.name!r}: nodes are cleaned up after jobs ('cleanup'), of which a scheduler outside "
            "is not told; leave 'cleanup' out"
        ),
    ),
    Refusal(
        "lowered modes with a control function",
        lambda c, p: c.cap is not None and c.cap.lower_modes and p.power.control is not None,
        lambda c, p: "a cap that lowers modes does not go with a control function",
    ),
)
"""In the order in which they are told."""


def _sharing_backfills() -> list[str]:
    """Those that go with shared nodes, the simplest first."""
    found = {name: PASSES.find(name) for name in PASSES.own()}
    shared = [name for name, one in found.items() if one.shared is not None]
    return sorted(shared, key=lambda name: (found[name].others is None, found[name].others or 0))


SHARED = (
    Refusal(
        "shared nodes under a backfill that plans whole ones",
        lambda c, p: PASSES.find(p.backfill).shared is None,
        lambda c, p: (
            f"jobs that ask for tasks share nodes, and backfill {p.backfill!r} plans whole ones; "
            f"take {', '.join(_sharing_backfills())}"
        ),
    ),
    Refusal(
        "shared nodes under a placement of whole ones",
        lambda c, p: p.placement.shared_name not in SHARED_PLACEMENTS.own(),
        lambda c, p: (
            f"jobs that ask for tasks share nodes, and placement {p.placement.name!r} is one of whole nodes; "
            f"take {', '.join(name for name in PLACEMENTS if name in SHARED_PLACEMENTS.own())}"
        ),
    ),
    Refusal(
        "shared nodes under a power policy that gives jobs whole ones",
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
        "switches that are not known",
        lambda c, p: p.placement.name == "fewest-switches" and not c.switches,
        lambda c, p: (
            f"placement 'fewest-switches': of cluster {c.name!r} it is not known how nodes are connected; "
            "give 'switches', such as [{name: s0, nodes: 0-15}, {name: s1, nodes: 16-31}, {name: top, "
            "switches: [s0, s1]}]"
        ),
    ),
    Refusal(
        "shared nodes of unknown size",
        lambda c, p: all(group.cores is None for group in c.nodes),
        lambda c, p: (
            f"jobs ask for tasks, and no node group of cluster {c.name!r} says how many cores its nodes "
            "have; give 'cores' of each group"
        ),
    ),
)
"""Where any job asks for tasks."""


WHOLE = (
    Refusal(
        "whole nodes under a placement of shared ones",
        lambda c, p: not p.placement.whole,
        lambda c, p: (
            f"placement {p.placement.name!r} is one of shared nodes, and all jobs ask for whole ones; take "
            f"{', '.join(name for name in PLACEMENTS if PLACEMENTS.find(name).make().whole)}"
        ),
    ),
)
"""Where none does."""


INTERRUPTED = (
    Refusal(
        "preemption under a backfill that knows none",
        lambda c, p: p.backfill not in PREEMPTING_PASSES,
        lambda c, p: (
            f"cluster {c.name!r}: jobs preempt others or go on from checkpoints, which backfill "
            f"{p.backfill!r} does not know; take {', '.join(PREEMPTING_PASSES)}, or leave preemption and "
            "checkpoints out"
        ),
    ),
    Refusal(
        "preemption with cleaning up",
        lambda c, p: c.cleanup > 0,
        lambda c, p: (
            f"cluster {c.name!r}: jobs preempt others or go on from checkpoints, which is not simulated "
            "together with nodes that are cleaned up after jobs; leave 'cleanup' out, or preemption and "
            "checkpoints"
        ),
    ),
    Refusal(
        "preemption with power states",
        lambda c, p: c.has_power,
        lambda c, p: (
            f"cluster {c.name!r}: jobs preempt others or go on from checkpoints, which is not simulated "
            "together with what nodes draw; leave 'modes' of the node groups out, or preemption and "
            "checkpoints"
        ),
    ),
)
"""Where jobs preempt others, or go on from checkpoints."""


def check_together(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Whether a machine, a policy and a workload go together.

    Raises:
        ConfigError: they do not.
    """
    for refusal in (*REFUSALS, *(SHARED if workload.shares_nodes else WHOLE)):
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))
    if is_interrupted(workload, cluster):
        _check_interrupted(cluster, policy, workload)
    if (
        workload.shares_nodes
        and workload.usage
        and any(group.components for group in cluster.nodes)
    ):
        raise ConfigError(
            f"workload {workload.name!r} says what jobs used of components ({', '.join(workload.usage)}), "
            "which is reckoned for whole nodes only, and jobs ask for tasks: leave the usage out, or the "
            "components"
        )


def _check_interrupted(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Whether jobs may preempt others, or go on from checkpoints.

    Raises:
        ConfigError: they may not.
    """
    if workload.shares_nodes:
        raise ConfigError(
            f"cluster {cluster.name!r}: jobs preempt others or go on from checkpoints, and jobs of "
            f"{workload.name!r} ask for tasks: that is simulated where all ask for whole nodes"
        )
    for refusal in INTERRUPTED:
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))


def _odd_speeds(cluster: Cluster) -> list[str]:
    """Node groups whose nodes are of another speed than that on which runtimes were measured."""
    return [
        group.name
        for group in cluster.nodes
        if group.speed != 1 or any(mode.speed != 1 for mode in group.modes.values())
    ]


SIZED = (
    Refusal(
        "sizes under a backfill that starts jobs",
        lambda c, p: p.backfill != OUTSIDE,
        lambda c, p: (
            f"policy {p.name!r}: a sizing decides who starts, and backfill {p.backfill!r} does too; take "
            f"backfill {OUTSIDE!r}"
        ),
    ),
    Refusal(
        "sizes with nodes that are switched off",
        lambda c, p: p.power.switches,
        lambda c, p: (
            f"power policy {p.power.kind!r}: the sizes of jobs are decided where all nodes are on; take none"
        ),
    ),
    Refusal(
        "sizes with cleaning up",
        lambda c, p: c.cleanup > 0,
        lambda c, p: (
            f"cluster {c.name!r}: the sizes of jobs are not decided where nodes are cleaned up after them; "
            "leave 'cleanup' out"
        ),
    ),
    Refusal(
        "sizes under a power cap",
        lambda c, p: c.cap is not None,
        lambda c, p: (
            f"cluster {c.name!r}: the sizes of jobs are not decided under a power cap; leave 'cap' out"
        ),
    ),
    Refusal(
        "sizes with limits",
        lambda c, p: bool(c.limits) or any(one.max_jobs_per_user for one in c.partitions),
        lambda c, p: (
            f"cluster {c.name!r}: what is counted under limits is what jobs ask for, and their sizes change; "
            "leave the limits out"
        ),
    ),
    Refusal(
        "sizes where nodes fail or are maintained",
        lambda c, p: (
            bool(c.reservations) or bool(c.failures.outages) or c.failures.mtbf is not None
        ),
        lambda c, p: (
            f"cluster {c.name!r}: the sizes of jobs are decided where no node fails and none is in "
            "maintenance; leave 'failures' and 'reservations' out"
        ),
    ),
    Refusal(
        "sizes on nodes of other speeds",
        lambda c, p: bool(_odd_speeds(c)),
        lambda c, p: (
            f"cluster {c.name!r}: work is counted on nodes of speed 1, and node group "
            f"{_odd_speeds(c)[0]!r} has others; leave 'speed' out"
        ),
    ),
)
"""Where the sizes of jobs are decided while they run."""


def check_sized(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Whether the sizes of jobs can be decided while they run.

    Raises:
        ConfigError: they cannot.
    """
    _not_interrupted(cluster, workload, "the sizes of jobs cannot be decided")
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
    for refusal in SIZED:
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))


_NO_FORECAST = (
    Refusal(
        "forecast under pushdown",
        lambda c, p: p.backfill == "pushdown",
        lambda c, p: (
            f"cluster {c.name!r}: there are no forecasts under backfill {p.backfill!r}, whose queues a "
            "forecast would have to hold in full; take any other"
        ),
    ),
    Refusal(
        "forecast under a control function",
        lambda c, p: p.power.control is not None or (c.cap is not None and c.cap.lower_modes),
        lambda c, p: (
            f"cluster {c.name!r}: there are no forecasts where a function switches nodes or a cap "
            "lowers modes, which is done between instants; take psus, psas-auto or psas-ipm"
        ),
    ),
)


def check_explained(cluster: Cluster, workload: Workload) -> None:
    """Whether it can be told what a job waited for.

    Raises:
        ConfigError: it cannot.
    """
    _not_interrupted(cluster, workload, "it is not told what a job waited for")
    if workload.shares_nodes:
        raise ConfigError(
            f"cluster {cluster.name!r}: what a job waited for is told in whole nodes only, and jobs of "
            f"{workload.name!r} ask for tasks; the result's 'placements' say when and where it ran"
        )


def check_forecasts(cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Whether forecasts can be made for jobs on a machine under a policy.

    Raises:
        ConfigError: they cannot.
    """
    _not_interrupted(cluster, workload, "there are no forecasts")
    for refusal in _NO_FORECAST:
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))


def check_present(cluster: Cluster, workload: Workload) -> None:
    """Whether a simulation can begin with jobs that run already.

    Raises:
        ConfigError: it cannot.
    """
    _not_interrupted(cluster, workload, "a simulation cannot begin with jobs that run")


def _not_interrupted(cluster: Cluster, workload: Workload, what: str) -> None:
    """Whether nothing is asked that does not go with preemption.

    Args:
        cluster: the machine.
        workload: the jobs.
        what: cannot be done.

    Raises:
        ConfigError: it is.
    """
    if is_interrupted(workload, cluster):
        raise ConfigError(
            f"cluster {cluster.name!r}: {what} where jobs preempt others or go on from checkpoints; leave "
            "preemption and checkpoints out"
        )


_KEEPS_NO_ROWS = ("none", "first-fit", "easy", "conservative", "pack", "slurm", "pbs")

_NO_SHARED_STREAM = (
    Refusal(
        "stream on shared nodes under a placement that counts kinds of jobs",
        lambda c, p: p.placement.name == "fragmentation",
        lambda c, p: (
            "placement 'fragmentation' goes by which kinds of jobs are the most frequent of all, and a "
            "stream's jobs are never all there; take best-fit, or simulate the whole workload"
        ),
    ),
)
"""Where jobs share nodes, besides those below."""

_NO_STREAM = (
    Refusal(
        "stream with fair shares as a tree",
        lambda c, p: c.fairshare.kind == "tree" and p.order.fairshare,
        lambda c, p: (
            f"cluster {c.name!r}: in a tree all users are ranked, and of a stream it is not known which will "
            "come; take fair shares of kind classic"
        ),
    ),
    Refusal(
        "stream under a pass that keeps row numbers",
        lambda c, p: (
            p.backfill not in _KEEPS_NO_ROWS
            and any(
                one.own or one.kept for one in (p.scheduling, p.scheduling.on_shared_nodes()) if one
            )
        ),
        lambda c, p: (
            f"backfill {p.backfill!r} keeps lists of all jobs, and in a stream they are never all there; "
            f"take {', '.join(_KEEPS_NO_ROWS)}"
        ),
    ),
    Refusal(
        "stream under a control function",
        lambda c, p: p.power.control is not None or (c.cap is not None and c.cap.lower_modes),
        lambda c, p: (
            f"cluster {c.name!r}: there are no streams where a function switches nodes or a cap lowers "
            "modes, which look at all jobs between instants; take psus, psas-auto or psas-ipm"
        ),
    ),
    Refusal(
        "stream under a cap by the time of day",
        lambda c, p: c.cap is not None and bool(c.cap.windows),
        lambda c, p: (
            f"cluster {c.name!r}: its cap changes with the time of day until some days after the last "
            "submission, which a stream does not know beforehand; give one cap for all times"
        ),
    ),
    Refusal(
        "stream with power by component",
        lambda c, p: c.has_power and any(group.components for group in c.nodes),
        lambda c, p: (
            f"cluster {c.name!r}: what components of nodes draw goes by their use, which is held of all "
            "jobs; give what nodes draw, under 'modes'"
        ),
    ),
)


def check_streamed(
    cluster: Cluster,
    policy: Policy,
    workload: Workload,
    options: Mapping[str, Any],
    *,
    labelled: bool,
) -> None:
    """Whether jobs can come in batches.

    Args:
        cluster: the machine.
        policy: the policy.
        workload: the first jobs.
        options: of `Simulation`, as they were given.
        labelled: whether all labels that jobs will have are known.

    Raises:
        ConfigError: they cannot.
    """
    _not_interrupted(cluster, workload, "there are no streams")
    if options.get("sizing") is not None:
        raise ConfigError(
            "a stream's jobs are never all there, and a sizing sees all that wait or run"
        )
    for name in ("expected_s", "risk", "begin_s"):
        if options.get(name) is not None:
            raise ConfigError(
                f"{name} is one number for each job, and a stream's are never all there"
            )
    if options.get("log"):
        raise ConfigError("past power states are not kept of a stream; leave 'log' out")
    scores = policy.order, policy.candidates, policy.placement.score
    for score in () if labelled else filter(None, scores):
        if asked := score.reads() & {"fairshare", "usage", *LABELS}:
            raise ConfigError(
                f"{score.label} asks for {', '.join(sorted(asked))}: of this stream it is not known which "
                "users, accounts, partitions and qos will come; give a Parquet file or a whole workload, "
                "which say so beforehand"
            )
    for refusal in (*_NO_STREAM, *(_NO_SHARED_STREAM if workload.shares_nodes else ())):
        if refusal.holds(cluster, policy):
            raise ConfigError(refusal.why(cluster, policy))
