"""Policies that decide on how many nodes each job runs: what such a function sees, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model.workload.speedup import Speedup

__all__ = ["SizeView", "SizedJob", "Sizes", "Sizing"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SizedJob:
    """A job that waits, runs or is suspended; nothing of what it will really run.

    Args:
        job_id: its id.
        submit_s: when it was submitted, seconds.
        nodes: it asks for so many.
        min_nodes, max_nodes: it runs on so many at least, and at most.
        size: it has so many now, on or being switched on for it; 0 if it has none.
        left_s: it is expected to run so long still, were it on its nodes, seconds; 0 or less if it has run
            longer than expected.
        expected_s: so long in all.
        resize_s: whenever it goes on, or changes its nodes, it does nothing for so long, seconds.
        begun: whether it has run, or has nodes.
        suspendable: whether it may be suspended.
        speedup: how much faster it is on more nodes.
    """

    job_id: Any
    submit_s: float
    nodes: int
    min_nodes: int
    max_nodes: int
    size: int
    left_s: float
    expected_s: float
    resize_s: float
    begun: bool
    suspendable: bool
    speedup: Speedup

    @property
    def speeds(self) -> FloatArray:
        """Its speed on 0, 1, … ``max_nodes`` nodes, on its nodes 1; 0 on fewer than it may have."""
        return _speeds(self.speedup, self.nodes, self.min_nodes, self.max_nodes)

    @property
    def must_run(self) -> bool:
        """Whether it has nodes and may not be suspended."""
        return self.size > 0 and not self.suspendable


@lru_cache(maxsize=4096)
def _speeds(speedup: Speedup, nodes: int, least: int, most: int) -> FloatArray:
    found = np.zeros(most + 1)
    found[least:] = [float(speedup.at(n) / speedup.at(nodes)) for n in range(least, most + 1)]
    found.flags.writeable = False
    return found


@dataclass(frozen=True)
class SizeView:
    """What a sizing sees.

    Args:
        now_s: the present instant, seconds.
        nodes: of the machine, that have not failed.
        free_nodes: that no job has.
        jobs: that wait, run or are suspended, by submit time, then id.
    """

    now_s: float
    nodes: int
    free_nodes: int
    jobs: tuple[SizedJob, ...]


@dataclass(frozen=True)
class Sizes:
    """What a sizing wants.

    Args:
        nodes: by job id, in the order in which they are served: so many nodes from now on, 0 for none. Jobs
            that are left out stay as they are.
        again_s: when to be asked again at the latest, seconds; None if only after the next event.
    """

    nodes: Mapping[Any, int] = field(default_factory=dict)
    again_s: float | None = None


Sizing = Callable[[SizeView], Sizes | None]
"""Who runs, and on how many nodes, given what is."""
