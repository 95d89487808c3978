"""Combinations that exclude jobs in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.simulation.refusals.together import Refusal, refuse

__all__ = ["check_streamed"]

_KEEPS_NO_ROWS = ("none", "first-fit", "easy", "conservative", "pack", "slurm", "pbs")
"""Built-in backfills whose data contain no rows of jobs."""

_NO_STREAM = (
    Refusal(
        lambda c, p: p.placement.name == "fragmentation",
        lambda c, p: (
            "placement 'fragmentation' needs the kinds of all jobs in advance and does not "
            "support streams; use best-fit, or simulate the whole workload"
        ),
    ),
    Refusal(
        lambda c, p: (
            p.backfill not in _KEEPS_NO_ROWS
            and p.scheduling.move is None
            and bool(p.scheduling.own or p.scheduling.kept)
        ),
        lambda c, p: (
            f"backfill {p.backfill!r} keeps data per job and does not support streams; use "
            f"{', '.join(_KEEPS_NO_ROWS)}"
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
            "sizing: streams are not supported, because a sizing function needs all "
            "pending and running jobs; simulate the whole workload"
        )
    scores = policy.order, policy.candidates, policy.placement.score
    for score in () if labelled else filter(None, scores):
        from hpctwin.model.workload.joining import LABELS

        if asked := score.reads() & {"fairshare", "usage", *LABELS}:
            raise ConfigError(
                f"{score.label} reads {', '.join(sorted(asked))}, but the future users, "
                "accounts, partitions and QOS of this stream are unknown; give a Parquet "
                "file or a whole workload, which lists them in advance"
            )
    refuse(_NO_STREAM, cluster, policy)
