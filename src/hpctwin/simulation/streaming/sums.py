"""Sums of a stream from window to window, in whole nodes or parts of nodes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.accounts.outputs import node_log, power_changes
from hpctwin.energy.accounts.summed_energy import EnergySums
from hpctwin.energy.power.states import split_log
from hpctwin.engine.operations.job_history import submitted_ms
from hpctwin.engine.operations.power_control import settled_states
from hpctwin.engine.operations.transfer import cut_off, started_ms
from hpctwin.engine.state.sim import Sim
from hpctwin.metrics.levels import floor_ms
from hpctwin.metrics.sources import JobSource, JobTable
from hpctwin.metrics.summary import RunningSummary
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.model.demand import cores_asked
from hpctwin.simulation.lowering.preemption import suspends
from hpctwin.simulation.lowering.shared_nodes import amounts_of_pools
from hpctwin.simulation.result.counts import (
    MILLI,
    HeldOverTime,
    PreemptionSums,
    of_shared_nodes,
    there,
)
from hpctwin.simulation.result.energy import energy_so_far
from hpctwin.simulation.result.history import (
    StretchSums,
    attempts_of,
    capacity_over_time,
    stretches_of,
)
from hpctwin.simulation.result.placements import placements, shares_held
from hpctwin.simulation.result.result import course_of_jobs, lost_so_far
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["CoreSums", "NodeSums"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Tables = dict[str, pl.DataFrame]


class NodeSums:
    """Sums of a stream whose jobs have whole nodes.

    Args:
        cluster: The cluster.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    def __init__(self, cluster: Cluster, tau_s: float) -> None:
        self._cluster = cluster
        self._summary = RunningSummary(self._size(), exact=False, tau_s=tau_s)
        self._preemption = None if cluster.preemption is None else PreemptionSums()
        self._stretches = StretchSums() if suspends(cluster) else None
        self._energy = EnergySums(cluster) if cluster.has_power else None
        self._power_end: pl.DataFrame | None = None  # the last power, at the end of its window

    def _size(self) -> int:
        """Return the size of the cluster, in the counted unit."""
        return self._cluster.node_count

    def window(self, simulation: Simulation, gone: BoolArray, until_s: float) -> Tables:
        """Add a window, and return the tables of the jobs that are finished.

        Args:
            simulation: Simulation of the present jobs.
            gone: Whether each of them is finished [jobs].
            until_s: The time reached, as in `RunningSummary.passed`.

        Returns:
            Tables ``jobs``, ``lost``, ``stretches`` if jobs are suspended, and ``node_map`` or
            ``placements`` of a result; ``jobs`` with ``energy_j`` if nodes have a power model; and
            the next rows of ``node_log`` and ``power`` if they are known.
        """
        result = simulation.result()
        source = result.course.source
        first_s = _first_submit_s(simulation)
        tables = {
            "jobs": result.jobs.filter(gone),
            "lost": result.lost.filter(_of_attempts(simulation.state, gone)),
        }
        if result.stretches is None:
            self._summary.passed(source, result.lost, result.capacity, until_s, first_s)
        else:
            stretches = stretches_of(simulation.workload, simulation.state, floor_ms(until_s))
            last, before = attempts_of(result.jobs, stretches, result.lost)
            self._summary.passed(JobTable(last), before, result.capacity, until_s, first_s)
            tables["stretches"] = self._stretched(stretches, result.lost, tables["jobs"])
        self._ended(source.take(gone), tables["jobs"])
        if result.node_map is None:
            return tables
        tables["node_map"] = _of_jobs(result.node_map, tables["jobs"])
        if (energy := result.energy) is not None:
            own: dict[str, Any] = {"table": tables["jobs"], "node_map": tables["node_map"]}
            if isinstance(energy, ComponentEnergy):
                rows = np.flatnonzero(gone)
                own["usage"] = {name: one.take(rows) for name, one in energy.usage.items()}
            tables["jobs"] = dataclasses.replace(energy, **own).jobs
            if simulation.log or isinstance(energy, ComponentEnergy):
                _, more = self._drawn(simulation, result.jobs, result.node_map, until_s)
                tables |= more
        return tables

    def _drawn(
        self, simulation: Simulation, jobs: pl.DataFrame, node_map: pl.DataFrame, until_s: float
    ) -> tuple[Energy | None, Tables]:
        """Add the energy since the previous window, up to the last end of a job.

        Args:
            simulation: Simulation of the present jobs.
            jobs: Table of its jobs.
            node_map: Their nodes, as for `energy_so_far`.
            until_s: As for `window`.

        Returns:
            Energy of that time, None if there is none; and the next rows of ``node_log`` and
            ``power``. If jobs share the network, the power over time is known at the end only.
        """
        assert self._energy is not None
        last = math.isinf(until_s)
        if simulation.state.clock.ended < 0 and not last:
            return None, {}
        energy = energy_so_far(simulation, jobs, node_map, settled=True)
        found = self._energy.window(energy)
        tables: Tables = {}
        if simulation.log:
            log = energy.log
            if not last:
                log = settled_states(simulation.state)
                if energy.changes:
                    log = split_log(self._cluster, energy.changes, log)
            tables["node_log"] = node_log(dataclasses.replace(energy, log=log))
        if found is not None and simulation.network is None:
            power = power_changes(found)
            if power is not None:
                # The next window begins with the power at the end of this one.
                ends = pl.col("time_s") >= found.now_s
                tables["power"], self._power_end = power.filter(~ends), power.filter(ends)
        if last and self._power_end is not None:
            before = [tables["power"]] if "power" in tables else []
            tables["power"] = pl.concat([*before, self._power_end])
        return found, tables

    def keep(self, rows: IntArray, to: IntArray, size: int) -> None:
        """Keep the sums of jobs that stay when other jobs come.

        Args:
            rows: The jobs that stay.
            to: Their new rows.
            size: New number of jobs.
        """

    def figures(self, simulation: Simulation) -> dict[str, Any]:
        """Return the metrics of the run; see `hpctwin.Result.summary`.

        Args:
            simulation: Simulation at the end of the last window.
        """
        energy = self.energy(simulation)
        return self._job_figures() | ({} if energy is None else energy.figures())

    def energy(self, simulation: Simulation) -> Energy | None:
        """Return the energy of the run; None if nodes have no power model.

        Args:
            simulation: Simulation at the end of the last window.
        """
        energy = simulation.result().energy
        return energy if self._energy is None or energy is None else self._energy.total(energy)

    def _job_figures(self) -> dict[str, Any]:
        """Return the metrics of the jobs."""
        figures = self._summary.figures()
        for sums in (self._stretches, self._preemption):
            figures |= {} if sums is None else sums.figures()
        return figures

    def _stretched(
        self, stretches: pl.DataFrame, lost: pl.DataFrame, jobs: pl.DataFrame
    ) -> pl.DataFrame:
        """Add the stretches of finished jobs, and return them.

        Args:
            stretches: Stretches of all present jobs.
            lost: Their attempts that were cut off.
            jobs: The finished jobs.
        """
        assert self._stretches is not None
        found = _of_jobs(stretches, jobs)
        self._stretches.add(found, lost)
        return found

    def _ended(self, source: JobSource, jobs: pl.DataFrame) -> None:
        """Add jobs that are finished.

        Args:
            source: The jobs.
            jobs: Their table.
        """
        self._summary.ended(source)
        if self._preemption is not None:
            self._preemption.add(jobs)


class CoreSums(NodeSums):
    """Sums of a stream whose jobs share nodes, in thousandths of cores.

    A job counts with the cores that it holds. Before it has started it counts with its requested
    cores; the summary is corrected when it has started.

    Args:
        cluster: The cluster.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    def __init__(self, cluster: Cluster, tau_s: float) -> None:
        super().__init__(cluster, tau_s)
        self._held = HeldOverTime(cluster)
        self._used_j = np.zeros(0)  # of the present jobs
        # Amount that each present job counted with in the previous window; -1 for new jobs.
        self._counted = np.zeros(0, np.int64)
        self._reached_s = -math.inf

    def _size(self) -> int:
        return round(there(self._cluster, "cores") * MILLI)

    def window(self, simulation: Simulation, gone: BoolArray, until_s: float) -> Tables:
        """See `NodeSums`."""
        workload, sim = simulation.workload, simulation.state
        first_s = _first_submit_s(simulation)
        asked = np.rint(cores_asked(workload, self._cluster) * MILLI).astype(np.int64)
        counted, lost = _cores_held(sim, asked)
        if len(self._counted):
            # The clock cannot be used: before the first event it shows 0.
            eligible = sim["state"]["eligible"]
            waited = (
                (self._counted >= 0) & (eligible >= 0) & (eligible / MS_PER_S <= self._reached_s)
            )
            changed = np.flatnonzero(waited & (counted != self._counted))
            self._summary.resized(eligible[changed], (counted - self._counted)[changed])
        self._counted = counted
        self._reached_s = until_s
        course, attempts = course_of_jobs(simulation), lost_so_far(workload, sim)
        jobs = course.table
        in_cores: JobSource = dataclasses.replace(course.source, nodes=counted)
        capacity = capacity_over_time(
            sim, simulation.outages_so_far(), amounts_of_pools(sim)["cores"]
        )
        before = attempts.with_columns(nodes=pl.Series(lost, dtype=pl.Int64))
        placed = placements(workload, self._cluster, sim, of=gone)
        self._held.add(placed)
        drawn: Tables = {}
        if self._energy is not None:
            ran = shares_held(
                workload, self._cluster, placements(workload, self._cluster, sim, ran=True)
            )
            energy, drawn = self._drawn(simulation, jobs, ran, until_s)
            if not len(self._used_j):
                self._used_j = np.zeros(len(jobs))
            if energy is not None:
                self._used_j = self._used_j + energy.jobs["energy_j"].to_numpy()
            jobs = jobs.with_columns(energy_j=self._used_j)
        tables = {
            "jobs": jobs.filter(gone),
            "lost": attempts.filter(_of_attempts(sim, gone)),
            "placements": placed,
            **drawn,
        }
        passed = in_cores
        if self._stretches is not None:
            sized = jobs.with_columns(nodes=counted)
            stretches = stretches_of(workload, sim, floor_ms(until_s))
            of_job = stretches.drop("nodes").join(
                sized.select("job_id", "nodes"), on="job_id", maintain_order="left"
            )
            self._stretched(of_job, before, tables["jobs"])
            last, before = attempts_of(sized, of_job, before)
            passed = JobTable(last)
            tables["stretches"] = _of_jobs(stretches, tables["jobs"])
        self._summary.passed(passed, before, capacity, until_s, first_s)
        self._ended(in_cores.take(gone), tables["jobs"])
        return tables

    def keep(self, rows: IntArray, to: IntArray, size: int) -> None:
        """See `NodeSums`."""
        counted = np.full(size, -1)
        counted[to] = self._counted[rows]
        self._counted = counted
        used_j = np.zeros(size)
        if self._energy is not None:
            used_j[to] = self._used_j[rows]
        self._used_j = used_j

    def _job_figures(self) -> dict[str, Any]:
        """See `NodeSums`."""
        return of_shared_nodes(super()._job_figures(), self._cluster, self._held.totals())

    def energy(self, simulation: Simulation) -> Energy | None:
        """See `NodeSums`."""
        if self._energy is None:
            return None
        nobody = placements(simulation.workload, self._cluster, simulation.state).clear()
        held = shares_held(simulation.workload, self._cluster, nobody)
        return self._energy.total(energy_so_far(simulation, nobody, held))


def _first_submit_s(simulation: Simulation) -> float:
    """Return the first submission, in seconds; infinity as long as users think before all of them."""
    sim = simulation.state
    waits = (sim["job"]["thinks"] != 0) & (sim["state"]["eligible"] < 0)
    known = submitted_ms(sim, simulation.workload.submit_ms)[~waits]
    return int(known.min()) / MS_PER_S if len(known) else math.inf


def _of_jobs(table: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a table that belong to some jobs."""
    return table.filter(pl.col("job_id").is_in(jobs["job_id"].implode()))


def _of_attempts(sim: Sim, of_jobs: BoolArray) -> BoolArray:
    """Return a value of each job for each attempt that was cut off [attempts]."""
    found: BoolArray = of_jobs[cut_off(sim)["job"]]
    return found


def _cores_held(sim: Sim, asked: IntArray) -> tuple[IntArray, IntArray]:
    """Return the thousandths of cores of each job, and of each attempt cut off.

    Args:
        sim: The simulation.
        asked: Requested cores, for jobs that have not started [jobs].
    """
    part = sim["part"][: int(sim["sharing"]["parts"][0])]
    part = part[part["tasks"] > 0]
    kind, node = part["kind"], part["node"]
    cores = np.where(
        sim["shape"]["exclusive"][kind] != 0,
        sim["whole"][node, 0],
        part["tasks"] * sim["needs"][kind, 0],
    )
    start = started_ms(sim)
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
    lost = cut_off(sim)
    of_lost = [
        before[job, begin] if (job, begin) in before else int(held[job])
        for job, begin in zip(lost["job"].tolist(), lost["start"].tolist(), strict=True)
    ]
    return counted, np.array(of_lost, np.int64)
