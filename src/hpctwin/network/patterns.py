"""Patterns of communication: which ranks of a job send to which others.

All flows of a pattern carry the same number of bytes.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Flows", "Pattern", "most_cubic"]

IntArray = npt.NDArray[np.int64]


class Flows(NamedTuple):
    """Bytes between ranks.

    Args:
        sources, targets: Ranks that send and receive [flows].
        amounts: Bytes of each flow [flows]; or one number, [1], for each of them.
    """

    sources: IntArray
    targets: IntArray
    amounts: npt.NDArray[np.float64]


class Pattern(StrEnum):
    """The ranks that send, and the ranks to which they send.

    - ``all-to-all``: each rank to each other one.
    - ``ring``: rank *i* to rank *i* + 1, and the last one to rank 0.
    - ``neighbor-2d``, ``neighbor-3d``: each rank to the next ones in each direction of a grid that
      does not wrap around. The grid is `most_cubic`; the last coordinate varies fastest.
    - ``gather``: each other rank to rank 0.
    - ``broadcast``: rank 0 to each other rank.
    """

    ALL_TO_ALL = "all-to-all"
    RING = "ring"
    NEIGHBOR_2D = "neighbor-2d"
    NEIGHBOR_3D = "neighbor-3d"
    GATHER = "gather"
    BROADCAST = "broadcast"

    def pairs(self, ranks: int) -> tuple[IntArray, IntArray]:
        """Return the ranks that send, and the rank to which each one sends [flows]."""
        if self is Pattern.ALL_TO_ALL:
            sources, targets = np.nonzero(~np.eye(ranks, dtype=bool))
            return sources, targets
        others, root = np.arange(1, ranks), np.zeros(ranks - 1, np.int64)
        match self:
            case Pattern.GATHER:
                return others, root
            case Pattern.BROADCAST:
                return root, others
            case Pattern.RING:
                every = np.arange(ranks if ranks > 1 else 0)
                return every, np.roll(every, -1)
        grid = np.arange(ranks).reshape(most_cubic(ranks, 2 if self is Pattern.NEIGHBOR_2D else 3))
        lower = [np.moveaxis(grid, axis, 0)[:-1].ravel() for axis in range(grid.ndim)]
        upper = [np.moveaxis(grid, axis, 0)[1:].ravel() for axis in range(grid.ndim)]
        return np.concatenate([*lower, *upper]), np.concatenate([*upper, *lower])

    def busiest(self, ranks: int) -> float:
        """Return the share of the bytes that the busiest rank sends, or receives if that is more.

        Args:
            ranks: Number of ranks, 2 or more.
        """
        if self is Pattern.ALL_TO_ALL:
            return 1.0 / ranks
        ends = self.pairs(ranks)
        return max(int(np.bincount(one).max()) for one in ends) / len(ends[0])

    def flows(self, ranks: int, volume: float) -> Flows:
        """Return the flows of a number of ranks that send a number of bytes together."""
        sources, targets = self.pairs(ranks)
        return Flows(sources, targets, np.array([volume / max(len(sources), 1)]))


@lru_cache(maxsize=4096)
def most_cubic(ranks: int, dimensions: int) -> tuple[int, ...]:
    """Return the sides of a grid of all ranks, largest first, with the smallest sum of sides."""
    if dimensions == 1:
        return (ranks,)
    grids = [
        tuple(sorted((side, *most_cubic(ranks // side, dimensions - 1)), reverse=True))
        for side in range(1, round(ranks ** (1 / dimensions)) + 1)
        if ranks % side == 0
    ]
    return min(grids, key=lambda grid: (sum(grid), grid))
