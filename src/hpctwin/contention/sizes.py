"""Effects of the number of nodes on jobs on a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.model import MS_PER_S
from hpctwin.model.workload.malleable import Malleable

__all__ = ["Sizes"]


@dataclass(frozen=True, eq=False)
class Sizes:
    """Effects of the number of nodes on each job.

    Args:
        nodes: Nodes that each job asks for [jobs].
        malleable: Columns of malleable jobs; None if there are none.
    """

    nodes: npt.NDArray[np.int64]
    malleable: Malleable | None

    def rate(self, row: int, nodes: int) -> float:
        """Return the speed of a job on a number of nodes, relative to those it asks for."""
        if self.malleable is None:
            return 1.0
        speedup = self.malleable.speedup_of(row)
        return float(speedup.at(nodes) / speedup.at(int(self.nodes[row])))

    def resize_s(self, row: int) -> float:
        """Return the time for which a job that continues does nothing, in seconds."""
        return 0.0 if self.malleable is None else int(self.malleable.resize_ms[row]) / MS_PER_S
