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
from hpctwin.model.demand.gpu_types import as_features
from hpctwin.model.demand.requested_totals import in_whole_nodes
from hpctwin.model.input.arguments import check_arguments
from hpctwin.simulation.lowering.outages import recorded_outages
from hpctwin.simulation.lowering.shared_nodes import amounts_asked, amounts_of_pools
from hpctwin.simulation.lowering.workload import lower
from hpctwin.simulation.refusals import check_usage
from hpctwin.simulation.replays.allocations import Held, energy_of, held_nodes
from hpctwin.simulation.replays.shared_allocations import (
    Shared,
    held_parts,
    shared_energy,
    tasks_asked,
)
from hpctwin.simulation.result.capacity import capacity_over_time
from hpctwin.simulation.result.job_history import Course
from hpctwin.simulation.result.result import Result, no_lost
from hpctwin.simulation.state.arguments import as_cluster, as_workload

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
            ``free``; by time. Where jobs share nodes, ``cores``, ``memory_gb`` and ``gpus`` of all nodes in
            the place of ``nodes``, and ``room``: of the tasks asked only so many found any on a node, as
            jobs lie on the lowest with room.
        without_start: jobs of which no start is recorded; they stay pending.
    """

    result: Result
    conflicts: pl.DataFrame
    without_start: int


@check_arguments("workload", "cluster")
def replay(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str],
    *,
    from_s: float | None = None,
    until_s: float | None = None,
) -> Replay:
    """Start every job when it really started, and report each conflict with the cluster.

    Jobs run their runtime from there, however much the cluster has; walltimes do not end them. Where it is
    known what nodes draw, they draw it on the nodes that are recorded, else on the lowest that were free;
    a node that another job has is not taken again. Of jobs that share nodes it is always told where they lay.

    Args:
        workload: the trace.
        cluster: the machine.
        from_s: Energy counts from this time on, in seconds; default the first submission, which also
            counts if it comes before.
        until_s: nothing after this time counts, seconds; what runs then is still running.

    Raises:
        WorkloadError: no job has a recorded start.
        ConfigError: the workload asks for a resource the cluster does not have, or says what nodes drew that
            jobs share.
    """
    workload = as_workload(workload)
    cluster = as_cluster(cluster).at(workload.start_epoch_s, workload.name)
    workload = as_features(in_whole_nodes(workload, cluster), cluster)
    start = workload.recorded_start_ms
    known = start >= 0
    if not known.any():
        raise WorkloadError(
            f"workload {workload.name!r} has no recorded start times, so there is nothing to replay"
        )
    without_start = int((~known).sum())
    shares = workload.shares_nodes
    check_usage(cluster, workload)
    lowered = lower(workload, cluster, tracked=shares or bool(cluster.failures.outages))
    cut = _LATEST if until_s is None else round(until_s * MS_PER_S)
    known = known & (start < cut)
    start = np.where(known, start, -1)
    end = np.where(known, start + workload.runtime_ms, -1)
    over = known & (end <= cut)
    failed = over & (False if workload.fails is None else workload.fails)
    states = [State.FAILED, State.COMPLETED, State.RUNNING]
    state = np.select([failed, over, known], states, State.PENDING)
    submit = _submitted(workload, start, end)
    course = Course(
        workload,
        submit=submit,
        eligible=np.where(known, submit, -1),
        start=start,
        end=np.where(over, end, -1),
        state=state.astype(np.int8),
    )
    frame = course.table
    capacity = capacity_over_time(lowered, recorded_outages(cluster))
    energy, node_map, shared, taken = None, None, None, []
    left = np.minimum(end, cut)
    total = int(left.max()) if until_s is None else cut
    first = min(int(workload.submit_ms.min()), int(start[known].min(initial=cut)))
    if from_s is not None:
        first = min(first, round(from_s * MS_PER_S))
    covered = first, total
    if shares:
        shared = held_parts(workload, cluster, lowered, start, left, over)
        taken = _without_room(workload, start, shared)
        if cluster.has_power:
            energy = shared_energy(frame, workload, cluster, shared, left, covered)
    elif cluster.has_power:
        held = held_nodes(workload, start, left, cluster.node_count, recorded_outages(cluster))
        energy, node_map = energy_of(frame, workload, cluster, held, left, covered)
        taken = _taken(workload, start, held)
    result = Result(
        course=course,
        lost=no_lost(frame),
        capacity=capacity,
        node_map=node_map,
        workload=workload,
        cluster=cluster,
        policy="replay",
        engine_s=0.0,
        instants=0,
        energy=energy,
        placements=None if shared is None else shared.placements,
        capacity_cores=None
        if shared is None
        else capacity_over_time(
            lowered, recorded_outages(cluster), amounts_of_pools(shared.known)["cores"]
        ),
    )
    if shared is None:
        tables = [_capacity(frame, cluster.node_count, capacity, "nodes")]
    else:
        tables = _amounts(frame, workload, cluster, shared)
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


def _amounts(
    frame: pl.DataFrame, workload: Workload, cluster: Cluster, shared: Shared
) -> list[pl.DataFrame]:
    """Where jobs ask for more cores, memory or GPUs together than all nodes that are up have."""
    worth, asked = amounts_of_pools(shared.known), amounts_asked(workload)
    found = []
    pool = shared.known["pool_of"]
    for name, each in worth.items():
        if any(getattr(group, name) is not None for group in cluster.nodes):
            there = capacity_over_time(shared.known, recorded_outages(cluster), each)
            jobs = frame.with_columns(pl.Series("nodes", asked[name])).filter(pl.col("nodes") > 0)
            over = _capacity(jobs, int(each[pool].sum()), there, name)
            unit = 1024 if name == "memory_gb" else 1000
            found.append(over.with_columns(pl.col("asked", "free") / unit))
    return found


def _without_room(workload: Workload, start: IntArray, shared: Shared) -> list[pl.DataFrame]:
    """Jobs whose tasks did not all find room on nodes."""
    rows = np.array(list(shared.found), np.int64)
    tasks = tasks_asked(shared.known)[rows]
    what = np.where(shared.recorded[rows], "recorded nodes", "room")
    return [
        _times(workload, rows, start[rows], "room", start[rows]).with_columns(
            what=pl.Series(what, dtype=pl.String),
            asked=pl.Series(tasks.astype(np.float64)),
            free=pl.Series([float(shared.found[row]) for row in rows.tolist()], dtype=pl.Float64),
        )
    ]


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


def _submitted(workload: Workload, start: IntArray, end: IntArray) -> IntArray:
    """When jobs were submitted: those with a think time when it was over, if they had not started by then."""
    edges, submit = workload.dependencies, workload.submit_ms.copy()
    some = (edges.kind == DependencyKind.THINK) & (end[edges.on] >= 0) & (start[edges.job] >= 0)
    job, over = edges.job[some], end[edges.on[some]] + edges.delay_ms[some]
    np.maximum.at(submit, job, np.minimum(over, start[job]))
    return submit


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
