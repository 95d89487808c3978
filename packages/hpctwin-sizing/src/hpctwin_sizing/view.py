"""Jobs as a sizing sees them, and the sizes that it orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model.workload.malleable import Speedup

__all__ = ["SizeRule", "SizeView", "SizedJob", "Sizes"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SizedJob:
    """A pending, running or suspended job; its true runtime is not included.

    Args:
        job_id: Id of the job.
        submit_s: Submit time, in seconds.
        nodes: Number of nodes the job asks for.
        min_nodes, max_nodes: Smallest and largest number of nodes the job runs on, as its request
            and the cluster's limits, power cap and cleanup allow.
        size: Number of nodes it has now, on or being switched on for it; 0 for none.
        left_s: Expected remaining runtime on the nodes it asks for, in seconds; 0 or less if it has
            run longer than expected.
        expected_s: Expected total runtime on the nodes it asks for, in seconds.
        resize_s: Time without work whenever it resumes or changes its nodes, in seconds.
        begun: Whether it has run or has nodes.
        suspendable: Whether it may be suspended.
        speedup: Speed as a function of the number of nodes.
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
        """Speed on 0, 1, … ``max_nodes`` nodes: 1 on its nodes, 0 below ``min_nodes``."""
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
    """View of a sizing.

    Args:
        now_s: Present event time, in seconds.
        nodes: Number of nodes of the cluster that have not failed, and are neither in maintenance nor
            being cleaned up.
        free_nodes: Number of nodes without jobs.
        jobs: Pending, running and suspended jobs, by submit time, then id. Jobs that a limit holds
            back forever are omitted, and jobs whose nodes are being cleaned up.
    """

    now_s: float
    nodes: int
    free_nodes: int
    jobs: tuple[SizedJob, ...]


@dataclass(frozen=True)
class Sizes:
    """Orders of a sizing.

    Args:
        nodes: Number of nodes from now on by job id, 0 for none, in the order in which jobs are
            served. Omitted jobs do not change.
        next_call_s: Latest time of the next call, in seconds; None for only after the next event.
    """

    nodes: Mapping[Any, int] = field(default_factory=dict)
    next_call_s: float | None = None


SizeRule = Callable[[SizeView], Sizes | None]
"""Function that decides which jobs run, and on how many nodes, from a view."""
