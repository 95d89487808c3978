"""Energy that jobs spare: what their nodes draw less than with all cores in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpctwin.model import MS_PER_S, Cluster
from hpctwin.network.platform import Platform

__all__ = ["SparedEnergy"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class SparedEnergy:
    """Energy that jobs on a network have spared.

    A node that computes draws from ``min_load_w`` to ``power_w``, in proportion to its load. While
    no rank computes on it, it draws ``idle_w``.

    Args:
        cluster: The cluster; its nodes have a power model.
        platform: Its hosts; node *i* is the *i*-th host that computes.

    Attributes:
        of_nodes: Energy that each node has spared, in J [nodes].
        runs: Row of the job, start and end (ms), and spared energy (J) of each run.
    """

    def __init__(self, cluster: Cluster, platform: Platform) -> None:
        modes = [group.initial for group in cluster.nodes for _ in range(group.count)]
        self._idle_w = np.array([mode.idle for mode in modes])
        self._least_w = np.array([mode.at_min_load for mode in modes])
        self._full_w = np.array([mode.power_w for mode in modes])
        hosts = platform.hosts_of("compute_node")
        self._capacity = platform.host_cores[hosts] * platform.host_speed[hosts]
        self.of_nodes = np.zeros(len(modes))
        self.runs: list[tuple[int, int, int, float]] = []

    def add(
        self,
        start: tuple[int, int],
        end_ms: int,
        nodes: IntArray,
        flops: FloatArray,
        busy_s: FloatArray,
    ) -> None:
        """Add a run of a job.

        Args:
            start: Row of the job, and its start in ms.
            end_ms: End of the run, in ms.
            nodes: Its nodes.
            flops: Computation on each of them.
            busy_s: Time for which ranks computed on each of them, in seconds.
        """
        row, start_ms = start
        if end_ms <= start_ms:
            return
        idle, least, full = (one[nodes] for one in (self._idle_w, self._least_w, self._full_w))
        above = (least - idle) * busy_s + (full - least) * flops / self._capacity[nodes]
        spared = (full - idle) * ((end_ms - start_ms) / MS_PER_S) - above
        self.of_nodes[nodes] += spared
        self.runs.append((row, start_ms, end_ms, float(spared.sum())))

    def fork(self) -> Self:
        """Return a copy."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.of_nodes, twin.runs = self.of_nodes.copy(), self.runs.copy()
        return twin

    def rename(self, place: IntArray) -> None:
        """Give jobs other rows, and forget runs of jobs that have none.

        Args:
            place: New row of each job by its row; -1 for none.
        """
        self.runs = [(int(place[run[0]]), *run[1:]) for run in self.runs if place[run[0]] >= 0]

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that changes over time, as arrays."""
        runs = np.array([run[:3] for run in self.runs], np.int64).reshape(-1, 3)
        spared = np.array([run[3] for run in self.runs], np.float64)
        return {"spared_of_nodes": self.of_nodes, "spared_runs": runs, "spared_j": spared}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the result of `state`."""
        self.of_nodes = state["spared_of_nodes"].copy()
        columns = [*state["spared_runs"].T.tolist(), state["spared_j"].tolist()]
        self.runs = list(zip(*columns, strict=True))
