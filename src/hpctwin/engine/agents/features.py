"""Job features for agents and orderings, so that a learned agent can sort a queue."""

from __future__ import annotations

import math

from hpctwin.engine.compile.jit import jit, part_of_score

__all__ = ["JOB_FEATURES", "seen_by_orderings", "seen_of_job"]

JOB_FEATURES = 6
HOUR_S = 3600.0
LONG = 14.0  # about the logarithm of two weeks, s


@jit
def seen_of_job(
    wait: float, walltime: float, nodes: float, machine: float
) -> tuple[float, float, float, float, float]:
    """Return the features of a pending job, all from 0 to 1.

    See `learn.environments.job_selection.OBSERVATIONS`.

    Args:
        wait: Wait so far, s.
        walltime: Requested limit, s.
        nodes: Nodes requested.
        machine: Nodes of the cluster.
    """
    return (
        wait / (wait + HOUR_S),
        min(math.log(1.0 + walltime) / LONG, 1.0),
        nodes / machine,
        math.log(1.0 + nodes) / math.log(1.0 + machine),
        wait / (wait + walltime + 1.0),
    )


seen_by_orderings = part_of_score(seen_of_job)
"""The same features, for orderings."""
