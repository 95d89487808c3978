"""Replay of a trace: jobs start at their recorded times."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.errors import WorkloadError
from hpctwin.metrics import TAU_S
from hpctwin.model import MS_PER_S, Cluster, DependencyKind, State, Workload
from hpctwin.model.arguments import check_arguments
from hpctwin.model.demand import as_features, in_whole_nodes
from hpctwin.simulation.lowering.capacity import known_of
from hpctwin.simulation.lowering.cluster import recorded_outages
from hpctwin.simulation.refusals import check_usage
from hpctwin.simulation.replays.held_nodes import (
    Held,
    Recorded,
    conflicts_of,
    held_nodes,
    held_parts,
    over_capacity,
)
from hpctwin.simulation.result.history import Course, capacity_over_time
from hpctwin.simulation.result.result import Result, no_lost
from hpctwin.simulation.state.arguments import as_cluster, as_workload

if TYPE_CHECKING:
    from hpctwin.energy import Energy

__all__ = ["Replay", "replay"]

IntArray = npt.NDArray[np.int64]

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Replay:
    """A replayed trace.

    Args:
        result: Result in the form of a simulation's.
        conflicts: Impossibilities on this cluster, by time: ``time_s``, ``job_id``, ``what``
            (``nodes``, a resource, ``submit``, ``dependency``, or ``recorded nodes`` that another
            job had), ``asked``, ``free``. If jobs share nodes, ``cores``, ``memory_gb`` and
            ``gpus`` of all nodes replace ``nodes``. ``room`` says how many of the requested tasks
            fit any node, if jobs take the lowest nodes that they fit.
        without_start: Number of jobs without a recorded start; they stay pending.
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
    """Start every job at its recorded start, and report conflicts with the cluster.

    Jobs run for their runtime, however much the cluster has; walltimes do not end them. If nodes
    have a power model, jobs use their recorded nodes, else the lowest free ones; a node that
    another job holds is not taken again. For jobs that share nodes the result always has their
    placements.

    Args:
        workload: The trace.
        cluster: The cluster.
        from_s: Energy counts from this time on, in seconds; default the first submission, which
            also counts if it comes before.
        until_s: Nothing after this time counts, in seconds; jobs that run at this time are still
            running.

    Raises:
        WorkloadError: No job has a recorded start.
        ConfigError: The workload requests a resource that the cluster does not have, or has the
            power draw of nodes that jobs share.
    """
    workload = as_workload(workload)
    cluster = as_cluster(cluster).at(workload.start_epoch_s, workload.name)
    workload = as_features(in_whole_nodes(workload, cluster), cluster)
    start = workload.recorded_start_ms
    known = start >= 0
    if not known.any():
        raise WorkloadError(
            f"workload {workload.name!r} has no recorded start times to replay; use `simulate`"
        )
    without_start = int((~known).sum())
    shares = workload.shares_nodes
    check_usage(cluster, workload)
    lowered = known_of(workload, cluster, tracked=bool(cluster.failures.outages))
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
    left = np.minimum(end, cut)
    total = int(left.max()) if until_s is None else cut
    first = min(int(workload.submit_ms.min()), int(start[known].min(initial=cut)))
    if from_s is not None:
        first = min(first, round(from_s * MS_PER_S))
    away = recorded_outages(cluster)
    trace = Recorded(workload, cluster, lowered, frame, start, left, over, away)
    held = held_parts(trace) if shares else held_nodes(trace)
    result = Result(
        course=course,
        lost=no_lost(frame),
        capacity=capacity_over_time(lowered, away),
        workload=workload,
        cluster=cluster,
        policy="replay",
        engine_s=0.0,
        instants=0,
        link_use=None,
        tau_s=TAU_S,
        energy=None if held.node_map is None else _energy(trace, held, first, total),
        **held.tables,
    )
    resources = [
        over_capacity(
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
    conflicts = [
        *held.too_much,
        *resources,
        _too_early(workload, start, known),
        _broken_dependencies(workload, start, end),
        *held.not_found,
    ]
    by_time = pl.concat(conflicts).sort("time_s", maintain_order=True)
    return Replay(result, by_time, without_start)


def _energy(trace: Recorded, held: Held, begin: int, until: int) -> Energy:
    """Return the energy of nodes that were idle or computing, between two times in ms."""
    from hpctwin.energy.accounts.shared_energy import energy_of

    assert held.node_map is not None
    cluster = trace.cluster
    spent = np.zeros((2 + 3 * cluster.depths, cluster.node_count), np.int64)
    spent[COMPUTING] = held.busy_ms
    spent[IDLE] = until - begin - held.busy_ms
    return energy_of(
        trace.workload, cluster, trace.jobs, held.node_map, spent, begin_s=begin / MS_PER_S
    )


def _submitted(workload: Workload, start: IntArray, end: IntArray) -> IntArray:
    """Return submit times of jobs, which follow think times if jobs have them.

    A job with a think time is submitted when it ends, or at its start if it started earlier.
    """
    edges, submit = workload.dependencies, workload.submit_ms.copy()
    some = (edges.kind == DependencyKind.THINK) & (end[edges.on] >= 0) & (start[edges.job] >= 0)
    job, over = edges.job[some], end[edges.on[some]] + edges.delay_ms[some]
    np.maximum.at(submit, job, np.minimum(over, start[job]))
    return submit


def _too_early(workload: Workload, start: IntArray, known: npt.NDArray[np.bool_]) -> pl.DataFrame:
    rows = np.flatnonzero(known & (start < workload.submit_ms))
    return conflicts_of(workload, rows, start[rows], "submit", workload.submit_ms[rows])


def _broken_dependencies(workload: Workload, start: IntArray, end: IntArray) -> pl.DataFrame:
    edges = workload.dependencies
    reference = np.where(edges.kind == DependencyKind.AFTER, start[edges.on], end[edges.on])
    allowed = np.where(reference >= 0, reference + edges.delay_ms, -1)
    broken = (start[edges.job] >= 0) & (allowed > start[edges.job])
    rows = edges.job[broken]
    return conflicts_of(workload, rows, start[rows], "dependency", allowed[broken])
