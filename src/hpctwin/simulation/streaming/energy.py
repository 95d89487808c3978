"""What shared nodes of a stream drew, and its jobs used, from window to window."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.accounts.shared_energy import SharedEnergy, SummedEnergy
from hpctwin.model import Cluster
from hpctwin.simulation.result.shared_allocations import placements, shares_held
from hpctwin.simulation.state.base import SimulationBase
from hpctwin.simulation.state.node_control import accounts

__all__ = ["SharedJoules"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class SharedJoules:
    """Sums of energy, J.

    Args:
        cluster: the machine, of which it is known what its nodes draw.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_nodes = np.zeros(cluster.node_count)  # while jobs were on them
        self._of_jobs: FloatArray | None = None  # of those that are there
        self._reached_s = 0.0

    def window(self, simulation: SimulationBase, jobs: pl.DataFrame) -> FloatArray:
        """Add what was drawn since the window before.

        Args:
            simulation: the jobs that are there.
            jobs: how they went.

        Returns:
            What each of them has used so far [jobs].
        """
        energy = self._since(simulation, jobs)
        assert isinstance(energy, SharedEnergy)
        self._of_nodes += energy.computing_j
        used = energy.jobs["energy_j"].to_numpy()
        self._of_jobs = used if self._of_jobs is None else self._of_jobs + used
        self._reached_s = energy.now_s
        return self._of_jobs

    def _since(self, simulation: SimulationBase, jobs: pl.DataFrame) -> Energy:
        """What was drawn by those that were on nodes after the time reached, each from then on."""
        workload = simulation.workload
        placed = placements(workload, self._cluster, simulation.state)
        later = pl.col("end_s").is_null() | (pl.col("end_s") > self._reached_s)
        placed = placed.filter(later).with_columns(
            pl.max_horizontal("start_s", pl.lit(self._reached_s)).alias("start_s")
        )
        return accounts(simulation, jobs, shares_held(workload, self._cluster, placed))

    def go_on(self, rows: IntArray, to: IntArray, size: int) -> None:
        """Some jobs stay, among others; see `streamed_shared.SharedSums.go_on`."""
        assert self._of_jobs is not None
        used = np.zeros(size)
        used[to] = self._of_jobs[rows]
        self._of_jobs = used

    def figures(self, simulation: SimulationBase) -> dict[str, Any]:
        """As of `Energy.figures`.

        Args:
            simulation: at the end of the last window.
        """
        nobody = placements(simulation.workload, self._cluster, simulation.state).clear()
        held = shares_held(simulation.workload, self._cluster, nobody)
        last = accounts(simulation, nobody, held)
        return SummedEnergy(
            last.table,
            held,
            self._cluster,
            last.spent_ms,
            None,
            begin_s=last.begin_s,
            computing_j=self._of_nodes,
        ).figures()
