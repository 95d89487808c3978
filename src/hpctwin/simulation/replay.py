"""Replaying a trace: jobs start when they did in reality."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.metrics import capacity_conflicts
from hpctwin.model import MS_PER_S, Cluster, DependencyKind, State, Workload
from hpctwin.simulation.capacity import capacity_over_time
from hpctwin.simulation.given import as_cluster, as_workload
from hpctwin.simulation.lower import lower
from hpctwin.simulation.outages import recorded_outages
from hpctwin.simulation.replayed import Held, energy_of, held_nodes
from hpctwin.simulation.result import Result, job_frame, no_lost

__all__ = ["Replay", "replay"]

IntArray = npt.NDArray[np.int64]

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Replay:
    """A replayed trace.

    Args:
        result: as of a simulation.
        conflicts: what could not have been so on this cluster: ``time_s``, ``job_id``, ``what`` (``nodes``, a
            resource, ``submit``, ``dependency``, or ``recorded nodes`` that another job had), ``asked``,
            ``free``; by time.
        without_start: jobs of which no start is recorded; they stay pending.
    """

    result: Result
    conflicts: pl.DataFrame
    without_start: int


def replay(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str],
    *,
    until_s: float | None = None,
) -> Replay:
    """Start every job when it really started, and report each conflict with the cluster.

    Jobs run their runtime from there, however much the cluster has; walltimes do not end them. Where it is
    known what nodes draw, they draw it on the nodes that are recorded, else on the lowest that were free;
    a node that another job has is not taken again.

    Args:
        workload: the trace.
        cluster: the machine.
        until_s: nothing after this time counts, seconds; what runs then is still running.

    Raises:
        WorkloadError: no job has a recorded start.
        ConfigError: the workload asks for a resource the cluster does not have.
    """
    workload, cluster = as_workload(workload), as_cluster(cluster)
    start = workload.recorded_start_ms
    known = start >= 0
    if not known.any():
        raise WorkloadError(
            f"workload {workload.name!r} has no recorded start times, so there is nothing to replay"
        )
    without_start = int((~known).sum())
    lowered = lower(workload, cluster, tracked=bool(cluster.failures.outages))
    cut = _LATEST if until_s is None else round(until_s * MS_PER_S)
    known = known & (start < cut)
    start = np.where(known, start, -1)
    end = np.where(known, start + workload.runtime_ms, -1)
    over = known & (end <= cut)
    state = np.select([over, known], [State.COMPLETED, State.RUNNING], State.PENDING)
    frame = job_frame(
        workload,
        eligible=np.where(known, workload.submit_ms, -1),
        start=start,
        end=np.where(over, end, -1),
        state=state,
        requeues=np.zeros(len(workload), np.int64),
    )
    capacity = capacity_over_time(lowered, recorded_outages(cluster))
    energy, node_map, taken = None, None, []
    if cluster.has_power and not workload.shares_nodes:
        left = np.minimum(end, cut)
        held = held_nodes(workload, start, left, cluster.node_count)
        total = int(left.max()) if until_s is None else cut
        energy, node_map = energy_of(frame, workload, cluster, held, left, total)
        taken = _taken(workload, start, held)
    result = Result(
        jobs=frame,
        lost=no_lost(frame),
        capacity=capacity,
        node_map=node_map,
        workload=workload,
        cluster=cluster,
        policy="replay",
        engine_s=0.0,
        instants=0,
        energy=energy,
    )
    tables = [_capacity(frame, cluster.node_count, capacity, "nodes")]
    tables += [
        _capacity(
            frame.with_columns(pl.Series("nodes", workload.resources[name])).filter(
                pl.col("nodes") > 0
            ),
            amount,
            None,
            name,
        )
        for name, amount in cluster.resources.items()
        if name in workload.resources
    ]
    tables += [
        _too_early(workload, start, known),
        _broken_dependencies(workload, start, end),
        *taken,
    ]
    return Replay(result, pl.concat(tables).sort("time_s", maintain_order=True), without_start)


def _capacity(
    frame: pl.DataFrame, amount: int, capacity: pl.DataFrame | None, what: str
) -> pl.DataFrame:
    found = capacity_conflicts(frame, amount, capacity)
    return found.select(
        "time_s",
        "job_id",
        pl.lit(what).alias("what"),
        pl.col("nodes").cast(pl.Float64).alias("asked"),
        pl.col("free_nodes").cast(pl.Float64).alias("free"),
    )


def _taken(workload: Workload, start: IntArray, held: Held) -> list[pl.DataFrame]:
    """Jobs whose recorded nodes another one had."""
    if workload.recorded_nodes is None:
        return []
    rows = np.array([r for r in held.short if workload.recorded_nodes[r] is not None], np.int64)
    found = _times(workload, rows, start[rows], "recorded nodes", start[rows]).with_columns(
        asked=pl.Series(workload.nodes[rows].astype(np.float64)),
        free=pl.Series([float(held.short[row]) for row in rows.tolist()], dtype=pl.Float64),
    )
    return [found]


def _too_early(workload: Workload, start: IntArray, known: npt.NDArray[np.bool_]) -> pl.DataFrame:
    rows = np.flatnonzero(known & (start < workload.submit_ms))
    return _times(workload, rows, start[rows], "submit", workload.submit_ms[rows])


def _broken_dependencies(workload: Workload, start: IntArray, end: IntArray) -> pl.DataFrame:
    edges = workload.dependencies
    reference = np.where(edges.kind == DependencyKind.AFTER, start[edges.on], end[edges.on])
    allowed = np.where(reference >= 0, reference + edges.delay_ms, -1)
    broken = (start[edges.job] >= 0) & (allowed > start[edges.job])
    rows = edges.job[broken]
    return _times(workload, rows, start[rows], "dependency", allowed[broken])


def _times(
    workload: Workload, rows: IntArray, start: IntArray, what: str, allowed: IntArray
) -> pl.DataFrame:
    """Conflicts in time: asked is the recorded start, free the earliest possible one."""
    return pl.DataFrame(
        {
            "time_s": start / MS_PER_S,
            "job_id": workload.job_id[rows],
            "what": pl.Series([what] * len(rows), dtype=pl.String),
            "asked": start / MS_PER_S,
            "free": allowed / MS_PER_S,
        }
    )
