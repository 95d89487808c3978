"""What is counted of a stream whose jobs share nodes: cores, memory and GPUs, from window to window."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.state.sim import Sim
from hpctwin.metrics.summary.running import RunningSummary
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.simulation.lowering.shared_nodes import amounts_of_pools
from hpctwin.simulation.result.capacity import capacity_over_time
from hpctwin.simulation.result.job_history import course_so_far
from hpctwin.simulation.result.result import lost_so_far
from hpctwin.simulation.result.shared_allocations import placements
from hpctwin.simulation.result.shared_figures import (
    MILLI,
    HeldOverTime,
    cores_asked,
    of_shared_nodes,
    there,
)
from hpctwin.simulation.state.base import SimulationBase
from hpctwin.simulation.streaming.energy import SharedJoules

__all__ = ["SharedSums"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class SharedSums:
    """Figures of a stream on shared nodes.

    Args:
        cluster: the machine.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held = HeldOverTime(cluster)
        self._joules = SharedJoules(cluster) if cluster.has_power else None
        # As how much each job that is there counted in the window before; -1 for those that are new.
        self._counted = np.zeros(0, np.int64)
        self._reached_s = -math.inf

    @property
    def size(self) -> int:
        """Of the machine, in thousandths of cores."""
        return round(there(self._cluster, "cores") * MILLI)

    def window(
        self,
        simulation: SimulationBase,
        gone: npt.NDArray[np.bool_],
        summary: RunningSummary,
        until_s: float,
    ) -> dict[str, pl.DataFrame]:
        """Sum up a window, and give the tables of the jobs that are done with.

        A job counts with the cores that it holds; as long as it has not started, with those that it asks for,
        which is put right in the summary when it has.

        Args:
            simulation: the jobs that are there.
            gone: which of them are done with [jobs].
            summary: in thousandths of cores; told of all windows before.
            until_s: the time reached, as `RunningSummary.passed` has it.

        Returns:
            ``jobs``, ``lost`` and ``placements``, as of a result; ``jobs`` with ``energy_j`` if it is known
            what nodes draw.
        """
        workload, sim = simulation.workload, simulation.state
        asked = np.rint(cores_asked(workload, self._cluster) * MILLI).astype(np.int64)
        counted, lost = _cores_held(sim, asked)
        if len(self._counted):
            # The clock is no measure: before the first event it shows 0.
            eligible = sim["state"]["eligible"]
            waited = (
                (self._counted >= 0) & (eligible >= 0) & (eligible / MS_PER_S <= self._reached_s)
            )
            changed = np.flatnonzero(waited & (counted != self._counted))
            summary.resized(eligible[changed], (counted - self._counted)[changed])
        self._counted = counted
        self._reached_s = until_s
        course, attempts = course_so_far(workload, sim), lost_so_far(workload, sim)
        jobs = course.table
        in_cores = dataclasses.replace(course.source, nodes=counted)
        summary.passed(
            in_cores,
            attempts.with_columns(nodes=pl.Series(lost, dtype=pl.Int64)),
            capacity_over_time(sim, simulation.outages_so_far(), amounts_of_pools(sim)["cores"]),
            until_s,
        )
        summary.ended(in_cores.take(gone))
        placed = placements(workload, self._cluster, sim, of=gone)
        self._held.add(placed)
        if self._joules is not None:
            jobs = jobs.with_columns(energy_j=self._joules.window(simulation, jobs))
        return {
            "jobs": jobs.filter(gone),
            "lost": attempts.filter(gone[sim["lost"]["job"][: sim.clock.lost]]),
            "placements": placed,
        }

    def go_on(self, rows: IntArray, to: IntArray, size: int) -> None:
        """Some jobs stay, among others.

        Args:
            rows: those that stay.
            to: their rows from now on.
            size: how many jobs are there then.
        """
        counted = np.full(size, -1)
        counted[to] = self._counted[rows]
        self._counted = counted
        if self._joules is not None:
            self._joules.go_on(rows, to, size)

    def figures(self, counted: Mapping[str, Any]) -> dict[str, Any]:
        """The figures of the run, from those that were counted in thousandths of cores."""
        return of_shared_nodes(counted, self._cluster, self._held.totals())

    def drawn(self, simulation: SimulationBase) -> dict[str, Any]:
        """Energies of the run; none if it is not known what nodes draw.

        Args:
            simulation: at its end.
        """
        return {} if self._joules is None else self._joules.figures(simulation)


def _cores_held(sim: Sim, asked: IntArray) -> tuple[IntArray, IntArray]:
    """Thousandths of cores that each job holds or held, and each attempt that a failure cut off.

    Args:
        sim: the simulation.
        asked: what jobs that have not started ask for [jobs].
    """
    part = sim["part"][: int(sim["sharing"]["parts"][0])]
    part = part[part["tasks"] > 0]
    kind, node = part["kind"], part["node"]
    cores = np.where(
        sim["shape"]["exclusive"][kind] != 0,
        sim["whole"][node, 0],
        part["tasks"] * sim["needs"][kind, 0],
    )
    start = sim["state"]["start"]
    last = part["start"] == start[part["job"]]
    held = np.zeros(sim.jobs, np.int64)
    np.add.at(held, part["job"][last], cores[last])
    counted = np.where(start >= 0, held, asked)
    before: dict[tuple[int, int], int] = {}
    for job, begin, amount in zip(
        part["job"][~last].tolist(),
        part["start"][~last].tolist(),
        cores[~last].tolist(),
        strict=True,
    ):
        before[job, begin] = before.get((job, begin), 0) + amount
    lost = sim["lost"][: sim.clock.lost]
    of_lost = [
        before[job, begin] if (job, begin) in before else int(held[job])
        for job, begin in zip(lost["job"].tolist(), lost["start"].tolist(), strict=True)
    ]
    return counted, np.array(of_lost, np.int64)
