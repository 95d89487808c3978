"""Node failures: recorded ones, and random ones drawn block by block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.model import NEVER_MS, Cluster, to_ms

__all__ = ["BLOCK_MS", "drawn_outages", "recorded_outages"]

BLOCK_MS = 30 * 86_400_000
"""Length of a block of drawn failures, in ms; each block has its own generator."""

Outages = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def recorded_outages(cluster: Cluster, begin_ms: int = 0) -> Outages:
    """Return node, start and end (ms) of the recorded failures.

    Args:
        cluster: The cluster.
        begin_ms: Time in ms; anything before it is cut off.
    """
    outages = cluster.failures.outages
    start = np.array([to_ms(o.start) for o in outages], np.int64)
    length = np.array([max(1, to_ms(o.duration)) for o in outages], np.int64)
    node, end = np.array([o.node for o in outages], np.int64), start + length
    last = end > begin_ms
    return node[last], np.maximum(start, begin_ms)[last], end[last]


def drawn_outages(cluster: Cluster, block: int, begin_ms: int = 0) -> tuple[Outages, int]:
    """Return node, start and end (ms) of a block's drawn failures, and its end.

    Failures of all nodes together are a Poisson process, repair times are exponential. A failure of
    a node that is already down extends its absence if it would last longer.

    Args:
        cluster: The cluster.
        block: Number of the block, from 0.
        begin_ms: Start of block 0, in ms: the first submission. A slice of a trace thus has the
            same failures as the same jobs shifted to time zero.
    """
    failures = cluster.failures
    if failures.mtbf is None or failures.mttr is None:
        empty = np.zeros(0, np.int64)
        return (empty, empty, empty), NEVER_MS
    rng = np.random.Generator(np.random.PCG64([failures.seed, block]))
    number = rng.poisson(cluster.node_count * BLOCK_MS / (failures.mtbf * 1000))
    start = np.sort(rng.integers(block * BLOCK_MS, (block + 1) * BLOCK_MS, number)) + begin_ms
    node = rng.integers(0, cluster.node_count, number).astype(np.int64)
    length = np.maximum(1, np.rint(rng.exponential(failures.mttr * 1000, number))).astype(np.int64)
    horizon = begin_ms + (block + 1) * BLOCK_MS
    return (node, start.astype(np.int64), start + length), horizon
