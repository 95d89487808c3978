"""Energy that jobs spare: what their nodes draw less than with all cores in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import nodes_of_group
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
        modes: Names of the modes of all nodes.
        of_nodes: Energy that each node has spared in each mode, in J [modes, nodes].
        runs: Row of the job, start and end (ms), and spared energy (J) of each run; one that
            continues in another mode is two.
    """

    def __init__(self, cluster: Cluster, platform: Platform) -> None:
        self._cluster = cluster
        self.modes = sorted({name for group in cluster.nodes for name in group.modes})
        # Mode of each node, and what it draws: idle, at the smallest load, at full load.
        self._mode = np.zeros(cluster.node_count, np.int64)
        self._watts = np.zeros((3, cluster.node_count))
        for number, group in enumerate(cluster.nodes):
            self._put(number, group.first_mode)
        hosts = platform.hosts_of("compute_node")
        self._capacity = platform.host_cores[hosts] * platform.host_speed[hosts]
        self.of_nodes = np.zeros((len(self.modes), cluster.node_count))
        self.runs: list[tuple[int, int, int, float]] = []

    def _put(self, number: int, name: str) -> slice:
        nodes, mode = nodes_of_group(self._cluster, number), self._cluster.nodes[number].modes[name]
        self._mode[nodes] = self.modes.index(name)
        self._watts[:, nodes] = [[mode.idle], [mode.at_min_load], [mode.power_w]]
        return nodes

    def set_mode(self, number: int, name: str, factor: float) -> None:
        """Put a node group into another mode; runs up to now have been added.

        Args:
            number: Number of the group.
            name: Name of the mode.
            factor: New speed as a multiple of the present one.
        """
        self._mode, self._watts = self._mode.copy(), self._watts.copy()
        self._capacity = self._capacity.copy()
        self._capacity[self._put(number, name)] *= factor

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
        idle, least, full = self._watts[:, nodes]
        capacity = np.maximum(self._capacity[nodes], 1e-300)  # a node without speed has no flops
        above = (least - idle) * busy_s + (full - least) * flops / capacity
        spared = (full - idle) * ((end_ms - start_ms) / MS_PER_S) - above
        self.of_nodes[self._mode[nodes], nodes] += spared
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
        return {
            "spared_of_nodes": self.of_nodes,
            "spared_runs": runs,
            "spared_j": spared,
            "spared_mode": self._mode,
            "spared_watts": self._watts,
            "spared_capacity": self._capacity,
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the result of `state`."""
        self.of_nodes = state["spared_of_nodes"].copy()
        self._mode, self._watts = state["spared_mode"], state["spared_watts"]
        self._capacity = state["spared_capacity"]
        columns = [*state["spared_runs"].T.tolist(), state["spared_j"].tolist()]
        self.runs = list(zip(*columns, strict=True))
