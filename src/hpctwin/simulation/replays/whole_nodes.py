"""Whole nodes that the jobs of a replayed trace held."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.model import MS_PER_S
from hpctwin.model.cluster.node_group import numbers_of
from hpctwin.simulation.replays.held import (
    Held,
    Recorded,
    conflicts_of,
    over_capacity,
    starts_and_ends,
)
from hpctwin.simulation.result.capacity import capacity_over_time

__all__ = ["held_nodes"]

IntArray = npt.NDArray[np.int64]


def held_nodes(trace: Recorded) -> Held:
    """Return the held nodes: the recorded ones, else the lowest that were free.

    Node numbers are part of the result if nodes have a power model. A job without recorded nodes
    gets nodes with an outage at its start only if there are not enough others.
    """
    cluster = trace.cluster
    capacity = capacity_over_time(trace.known, trace.away)
    too_much = [over_capacity(trace.jobs, cluster.node_count, capacity, "nodes")]
    if not cluster.has_power:
        return Held({}, too_much)
    nodes, short = _nodes_of_jobs(trace)
    node_map, busy_ms = _where_jobs_ran(trace, nodes)
    return Held({"node_map": node_map}, too_much, node_map, busy_ms, _taken(trace, short))


def _nodes_of_jobs(trace: Recorded) -> tuple[list[IntArray], dict[int, int]]:
    """Return the nodes of each job, ascending, and the count for jobs that lack some."""
    workload, count = trace.workload, trace.cluster.node_count
    out, changes = np.zeros(count, np.int64), _changes(trace.away)
    nodes: list[IntArray] = [np.zeros(0, np.int64)] * len(workload)
    short: dict[int, int] = {}
    recorded = numbers_of(workload.recorded_nodes, count) or [None] * len(workload)
    free = np.ones(count, bool)
    for row, now, begins in starts_and_ends(trace.start, trace.end):
        if not begins:
            free[nodes[row]] = True
            continue
        while changes and changes[-1][0] <= now:
            _, sign, node = changes.pop()
            out[node] += sign
        own, wanted = recorded[row], int(workload.nodes[row])
        taken = _lowest(free, out, wanted) if own is None else own[free[own]]
        if len(taken) < (wanted if own is None else len(own)):
            short[row] = len(taken)
        nodes[row] = taken
        free[taken] = False
    return nodes, short


def _changes(away: tuple[IntArray, IntArray, IntArray] | None) -> list[tuple[int, int, int]]:
    """Return time, change and node of each begin and end of an outage, the last first."""
    if away is None:
        return []
    spans = list(zip(*(each.tolist() for each in away), strict=True))
    found = [(begins, 1, node) for node, begins, _ in spans]
    return sorted(found + [(ends, -1, node) for node, _, ends in spans], reverse=True)


def _lowest(free: npt.NDArray[np.bool_], out: IntArray, wanted: int) -> IntArray:
    """Return the lowest free nodes; nodes with an outage come last."""
    found: IntArray = np.flatnonzero(free)
    up: IntArray = found[out[found] == 0][:wanted]
    if len(up) == wanted:
        return up
    both: IntArray = np.union1d(up, found[out[found] > 0][: wanted - len(up)])
    return both


def _where_jobs_ran(trace: Recorded, nodes: list[IntArray]) -> tuple[pl.DataFrame, IntArray]:
    """Return the node map, and the busy time of each node, ms [nodes]."""
    first, counts, rows = [], [], []
    for row, own in enumerate(nodes):
        cuts = np.flatnonzero(np.diff(own) > 1) + 1
        for part in np.split(own, cuts) if len(own) else ():
            first.append(int(part[0]))
            counts.append(len(part))
            rows.append(row)
    of = np.array(rows, np.int64)
    low, size = np.array(first, np.int64), np.array(counts, np.int64)
    node_map = pl.DataFrame(
        {
            "job_id": trace.workload.job_id[of],
            "start_s": trace.start[of] / MS_PER_S,
            "end_s": trace.end[of] / MS_PER_S,
            "first_node": low,
            "count": size,
        }
    )
    length, count = (trace.end - trace.start)[of], trace.cluster.node_count
    change = np.bincount(low, length, count + 1) - np.bincount(low + size, length, count + 1)
    return node_map, np.rint(np.cumsum(change)[:-1]).astype(np.int64)


def _taken(trace: Recorded, short: dict[int, int]) -> list[pl.DataFrame]:
    """Return conflicts of jobs whose recorded nodes another job had."""
    workload, start = trace.workload, trace.start
    if workload.recorded_nodes is None:
        return []
    rows = np.array([row for row in short if workload.recorded_nodes[row] is not None], np.int64)
    found = conflicts_of(workload, rows, start[rows], "recorded nodes", start[rows])
    return [
        found.with_columns(
            asked=pl.Series(workload.nodes[rows].astype(np.float64)),
            free=pl.Series([float(short[row]) for row in rows.tolist()], dtype=pl.Float64),
        )
    ]
