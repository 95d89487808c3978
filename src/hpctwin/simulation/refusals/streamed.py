"""Combinations that exclude jobs in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.simulation.lowering.preemption import suspends
from hpctwin.simulation.refusals.together import Refusal, refuse

__all__ = ["check_streamed"]

_KEEPS_NO_ROWS = ("none", "first-fit", "easy", "conservative", "pack", "slurm", "pbs")
"""Built-in backfills whose data contain no rows of jobs."""

_NO_SHARED_STREAM = (
    Refusal(
        lambda c, p: p.placement.name == "fragmentation",
        lambda c, p: (
            "placement 'fragmentation' goes by which kinds of jobs are the most frequent of all, and a "
            "stream's jobs are never all there; take best-fit, or simulate the whole workload"
        ),
    ),
)
"""Combinations rejected if jobs share nodes, in addition to `_NO_STREAM`."""

_NO_STREAM = (
    Refusal(
        lambda c, p: suspends(c),
        lambda c, p: (
            f"cluster {c.name!r}: the metrics of suspended jobs are computed from all times at which "
            "they ran, and a stream does not keep these; take mode requeue or cancel"
        ),
    ),
    Refusal(
        lambda c, p: c.fairshare.kind == "tree" and p.order.fairshare,
        lambda c, p: (
            f"cluster {c.name!r}: in a tree all users are ranked, and of a stream it is not known which will "
            "come; take fair shares of kind classic"
        ),
    ),
    Refusal(
        lambda c, p: (
            p.backfill not in _KEEPS_NO_ROWS
            and p.scheduling.move is None
            and bool(p.scheduling.own or p.scheduling.kept)
        ),
        lambda c, p: (
            f"backfill {p.backfill!r} keeps data of jobs, and does not say how they change when other "
            f"jobs come; take {', '.join(_KEEPS_NO_ROWS)}"
        ),
    ),
    Refusal(
        lambda c, p: p.power.control is not None or (c.cap is not None and c.cap.lower_modes),
        lambda c, p: (
            f"cluster {c.name!r}: there are no streams where a function switches nodes or a cap lowers "
            "modes, which look at all jobs between instants; take psus, psas-auto or psas-ipm"
        ),
    ),
    Refusal(
        lambda c, p: c.cap is not None and bool(c.cap.windows),
        lambda c, p: (
            f"cluster {c.name!r}: its cap changes with the time of day until some days after the last "
            "submission, which a stream does not know beforehand; give one cap for all times"
        ),
    ),
    Refusal(
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
    """Check that jobs can come in batches.

    Args:
        cluster: The cluster.
        policy: The policy.
        workload: The first jobs.
        options: Given options of `Simulation`.
        labelled: Whether all labels of future jobs are known.

    Raises:
        ConfigError: They cannot.
    """
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
        from hpctwin.model.workload.joining import LABELS

        if asked := score.reads() & {"fairshare", "usage", *LABELS}:
            raise ConfigError(
                f"{score.label} asks for {', '.join(sorted(asked))}: of this stream it is not known which "
                "users, accounts, partitions and qos will come; give a Parquet file or a whole workload, "
                "which say so beforehand"
            )
    refuse((*_NO_STREAM, *(_NO_SHARED_STREAM if workload.shares_nodes else ())), cluster, policy)
