"""Where the jobs of a replayed trace ran on nodes that they share, and what they drew there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounting import Energy
from hpctwin.energy.shared_energy import SharedComponentEnergy, SharedEnergy
from hpctwin.engine.layout import AMOUNTS, COMPUTING
from hpctwin.engine.sim import records
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.simulation.refusals import check_one_kind
from hpctwin.simulation.replayed import numbers_of
from hpctwin.simulation.sharing import placement_table, shared_known, shares_held

__all__ = ["Shared", "held_parts", "shared_energy"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shared:
    """Which parts of nodes jobs had.

    Args:
        known: what the engine knows of jobs and nodes.
        placements: as of a result.
        found: how many tasks of each job found room, where not all did, by row.
        recorded: of which jobs the nodes are recorded [jobs].
        busy_ms: how long any job was on each node [nodes].
    """

    known: Mapping[str, npt.NDArray[Any]]
    placements: pl.DataFrame
    found: dict[int, int]
    recorded: npt.NDArray[np.bool_]
    busy_ms: IntArray


class _Nodes:
    """What is free of each node, and since when it is in use."""

    def __init__(self, known: Mapping[str, npt.NDArray[Any]]) -> None:
        self.known = known
        self.left = known["whole"].copy()
        self.jobs = np.zeros(len(self.left), np.int64)
        self.since = np.zeros(len(self.left), np.int64)
        self.busy = np.zeros(len(self.left), np.int64)

    def room(self, kind: int) -> IntArray:
        """For how many tasks of a kind of job there is room on each node that it may use."""
        needs, shape = self.known["needs"][kind], self.known["shape"][kind]
        asked = needs > 0
        room: IntArray = (np.maximum(self.left[:, asked], 0) // needs[asked]).min(axis=1)
        if shape["exclusive"]:
            room[self.jobs > 0] = 0
        eligible = self.known["eligible"][kind][self.known["pool_of"]] != 0
        return np.where(eligible, np.minimum(room, shape["most"]), 0)

    def change(self, kind: int, nodes: IntArray, tasks: IntArray, time: int, sign: int) -> None:
        """A job comes to nodes (sign 1) or leaves them (-1)."""
        needs, shape = self.known["needs"][kind], self.known["shape"][kind]
        held = tasks[:, None] * needs
        held[:, AMOUNTS - 1] = needs[AMOUNTS - 1]
        self.left[nodes] -= sign * (self.known["whole"][nodes] if shape["exclusive"] else held)
        if sign > 0:
            self.since[nodes[self.jobs[nodes] == 0]] = time
        self.jobs[nodes] += sign
        if sign < 0:
            idle = nodes[self.jobs[nodes] == 0]
            self.busy[idle] += time - self.since[idle]


def held_parts(
    workload: Workload,
    cluster: Cluster,
    lowered: Mapping[str, npt.NDArray[Any]],
    start: IntArray,
    end: IntArray,
    over: npt.NDArray[np.bool_],
) -> Shared:
    """Which parts of nodes each job had: of those recorded, else of the lowest with room.

    Args:
        workload: the jobs, with the nodes recorded.
        cluster: the machine.
        lowered: what the engine knows otherwise, nodes tracked.
        start: when each started, ms; -1 where it did not [jobs].
        end: when each ended, or the replay was cut off, ms [jobs].
        over: whether it ended [jobs].

    Raises:
        ConfigError: tasks of a job are of several kinds.
    """
    check_one_kind(workload, "which parts of nodes jobs had is not replayed")
    known = shared_known(lowered, workload, cluster)
    kind, shape = known["job"]["kind"], known["shape"]
    numbers = numbers_of(workload.recorded_nodes, cluster.node_count) or [None] * len(workload)
    nodes = _Nodes(known)
    had: dict[int, tuple[IntArray, IntArray]] = {}
    found: dict[int, int] = {}
    ran = np.flatnonzero((start >= 0) & (end > start))
    # Of one instant, ends come first.
    moments = np.concatenate([end[ran], start[ran]])
    begins = np.repeat([0, 1], len(ran))
    rows = np.tile(ran, 2)
    for place in np.lexsort((rows, begins, moments)).tolist():
        row, time = int(rows[place]), int(moments[place])
        if not begins[place]:
            nodes.change(int(kind[row]), *had[row], time, -1)
            continue
        own = shape[kind[row]]
        had[row] = _chosen(nodes.room(int(kind[row])), numbers[row], own)
        nodes.change(int(kind[row]), *had[row], time, 1)
        tasks = int(had[row][1].sum())
        if tasks < own["tasks"]:
            found[row] = tasks
    counts = [len(there) for there, _ in had.values()]
    job = np.repeat(np.array(list(had), np.int64), counts)
    part = records("part", len(job), job=job, start=start[job], kind=kind[job])
    for number, field in enumerate(("node", "tasks")):
        part[field] = np.concatenate(
            [np.zeros(0, np.int64), *(one[number] for one in had.values())]
        )
    table = placement_table(workload.job_id[job], part, np.where(over, end, -1)[job], known)
    recorded = np.array([own is not None for own in numbers])
    return Shared(known, table, found, recorded, nodes.busy)


def _chosen(room: IntArray, recorded: IntArray | None, shape: Any) -> tuple[IntArray, IntArray]:
    """Nodes, and tasks on each: all that are recorded, else as the placement ``first_fit`` has it."""
    there = np.flatnonzero(room > 0) if recorded is None else recorded[room[recorded] > 0]
    least = int(shape["nodes"]) if recorded is None else len(there)
    left = int(shape["tasks"])
    given = []
    for number, most in enumerate(room[there].tolist()):
        if left == 0:
            break
        given.append(min(most, max(1, left - max(0, least - number - 1)), left))
        left -= given[-1]
    return there[: len(given)], np.array(given, np.int64)


def shared_energy(
    jobs: pl.DataFrame,
    workload: Workload,
    cluster: Cluster,
    shared: Shared,
    end: IntArray,
    total: int,
) -> Energy:
    """The accounts of a machine whose nodes were idle or computing.

    Args:
        jobs: as of a result.
        workload: the jobs.
        cluster: the machine.
        shared: which parts of nodes jobs had.
        end: when each ended or the replay was cut off, ms [jobs].
        total: the time that is covered, ms.
    """
    at = dict(zip(workload.job_id.tolist(), (end / MS_PER_S).tolist(), strict=True))
    ended = pl.Series([at[job] for job in shared.placements["job_id"].to_list()], dtype=pl.Float64)
    node_map = shares_held(workload, cluster, shared.placements.with_columns(end_s=ended))
    spent = np.zeros((2 + 3 * cluster.depths, cluster.node_count), np.int64)
    spent[COMPUTING] = shared.busy_ms
    spent[0] = total - shared.busy_ms
    about = (jobs, node_map, cluster, spent, None, (), workload.start_epoch_s)
    if all(group.components for group in cluster.nodes):
        return SharedComponentEnergy(*about)
    return SharedEnergy(*about)
