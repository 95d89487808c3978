"""Parts of shared nodes that the jobs of a replayed trace held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.state.layout import AMOUNTS
from hpctwin.engine.state.sim import records
from hpctwin.model import MS_PER_S
from hpctwin.model.cluster.node_group import numbers_of
from hpctwin.model.requests.chunks import spread_over
from hpctwin.simulation.lowering.shared_nodes import amounts_asked, amounts_of_pools
from hpctwin.simulation.replays.held import (
    Held,
    Recorded,
    conflicts_of,
    over_capacity,
    starts_and_ends,
)
from hpctwin.simulation.result.capacity import capacity_over_time
from hpctwin.simulation.result.placements import placement_table, shares_held

__all__ = ["held_parts"]

IntArray = npt.NDArray[np.int64]


class _Part(NamedTuple):
    """Tasks of one kind of a job, and their number on each of some nodes."""

    kind: int
    nodes: IntArray
    tasks: IntArray


class _Nodes:
    """Free amounts of each node, and the time since which it is in use."""

    def __init__(self, known: Mapping[str, npt.NDArray[Any]]) -> None:
        self.known = known
        self.left = known["whole"].copy()
        self.jobs = np.zeros(len(self.left), np.int64)
        self.since = np.zeros(len(self.left), np.int64)
        self.busy = np.zeros(len(self.left), np.int64)

    def choose(self, kind: int, recorded: IntArray | None) -> list[_Part]:
        """Return the nodes of tasks: the recorded ones, else the lowest that they fit.

        With several sets of nodes, it is the first set that all tasks fit.
        """
        among = self.known["shape"]["among"]
        first = int(among[kind])
        while recorded is None and first >= 0:
            found = self._along(first, recorded)
            if sum(part.tasks.sum() for part in found) == _tasks_asked(self.known)[kind]:
                return found
            first = int(among[first])
        return self._along(kind, recorded)

    def _along(self, first: int, recorded: IntArray | None) -> list[_Part]:
        """Place one kind of tasks after the other."""
        shape = self.known["shape"]
        left, seated = self.left, np.zeros(len(self.left), np.int64)
        kinds = [first]
        while (more := int(shape["more"][kinds[-1]])) >= 0:
            kinds.append(more)
        later = int(shape["tasks"][kinds].sum())
        found: list[_Part] = []
        for kind in kinds:
            later -= int(shape["tasks"][kind])
            room = self._room(kind, left, seated)
            # All recorded nodes were used, and each holds at least one task.
            least = int(shape["nodes"][kind])
            if recorded is not None:
                least = max(1, int((seated[recorded] == 0).sum()) - later)
            wanted = int(shape["tasks"][kind])
            if recorded is None and shape["spread"][kind] and room.sum() >= wanted:
                tasks = np.array(spread_over(room[room > 0].tolist(), wanted), np.int64)
                nodes = np.flatnonzero(room)[: len(tasks)]
            else:
                nodes, tasks = _chosen(room, recorded, wanted, least)
            found.append(_Part(kind, nodes, tasks))
            if len(kinds) > 1:
                left = left.copy()
                left[nodes] -= tasks[:, None] * self.known["needs"][kind]
                seated[nodes] += tasks
        if len(kinds) == 1 or not shape["exclusive"][first]:
            return found
        nodes = np.flatnonzero(seated)
        return [_Part(first, nodes, seated[nodes])]

    def _room(self, kind: int, left: IntArray, seated: IntArray) -> IntArray:
        """Return how many tasks of a kind fit each node that the job may use [nodes]."""
        needs, shape = self.known["needs"][kind], self.known["shape"][kind]
        asked = needs > 0
        room: IntArray = (np.maximum(left[:, asked], 0) // needs[asked]).min(axis=1)
        if shape["exclusive"]:
            room[self.jobs > 0] = 0
        eligible = self.known["eligible"][kind][self.known["pool_of"]] != 0
        return np.where(eligible, np.minimum(room, np.maximum(shape["most"] - seated, 0)), 0)

    def change(self, parts: Sequence[_Part], time: int, sign: int) -> None:
        """Add a job to nodes (sign 1) or remove it from them (-1)."""
        for part in parts:
            self._change(part, time, sign)

    def _change(self, part: _Part, time: int, sign: int) -> None:
        kind, nodes = part.kind, part.nodes
        needs, shape = self.known["needs"][kind], self.known["shape"][kind]
        held = part.tasks[:, None] * needs
        held[:, AMOUNTS - 1] = needs[AMOUNTS - 1]
        self.left[nodes] -= sign * (self.known["whole"][nodes] if shape["exclusive"] else held)
        if sign > 0:
            self.since[nodes[self.jobs[nodes] == 0]] = time
        self.jobs[nodes] += sign
        if sign < 0:
            idle = nodes[self.jobs[nodes] == 0]
            self.busy[idle] += time - self.since[idle]


def held_parts(trace: Recorded) -> Held:
    """Return held parts of nodes: of the recorded ones, else of the lowest that fit."""
    workload, cluster, start = trace.workload, trace.cluster, trace.start
    known = trace.known
    kind, asked = known["job"]["kind"], _tasks_asked(known)[known["job"]["kind"]]
    numbers = numbers_of(workload.recorded_nodes, cluster.node_count) or [None] * len(workload)
    nodes = _Nodes(known)
    had: dict[int, list[_Part]] = {}
    found: dict[int, int] = {}
    for row, time, begins in starts_and_ends(start, trace.end):
        if not begins:
            nodes.change(had[row], time, -1)
            continue
        had[row] = nodes.choose(int(kind[row]), numbers[row])
        nodes.change(had[row], time, 1)
        tasks = int(sum(part.tasks.sum() for part in had[row]))
        if tasks < asked[row]:
            found[row] = tasks
    placed = _placements(trace, known, had)
    rows = np.array(list(found), np.int64)
    recorded = np.array([numbers[row] is not None for row in found], bool)
    not_found = conflicts_of(workload, rows, start[rows], "room", start[rows]).with_columns(
        what=pl.Series(np.where(recorded, "recorded nodes", "room"), dtype=pl.String),
        asked=pl.Series(asked[rows].astype(np.float64)),
        free=pl.Series([float(tasks) for tasks in found.values()], dtype=pl.Float64),
    )
    cores = capacity_over_time(trace.known, trace.away, amounts_of_pools(known)["cores"])
    return Held(
        {"placements": placed, "capacity_cores": cores},
        _too_much(trace, known),
        _where_jobs_ran(trace, placed) if cluster.has_power else None,
        nodes.busy,
        [not_found],
    )


def _placements(
    trace: Recorded, known: Mapping[str, npt.NDArray[Any]], had: dict[int, list[_Part]]
) -> pl.DataFrame:
    """Return a result's ``placements`` for the parts of nodes that jobs had, by row."""
    whole = [(row, part) for row, parts in had.items() for part in parts]
    counts = [len(part.nodes) for _, part in whole]
    job = np.repeat(np.array([row for row, _ in whole], np.int64), counts)
    part = records("part", len(job), job=job, start=trace.start[job])
    part["kind"] = np.repeat(np.array([part.kind for _, part in whole], np.int64), counts)
    for field in ("nodes", "tasks"):
        own = (getattr(one, field) for _, one in whole)
        part[field.replace("nodes", "node")] = np.concatenate([np.zeros(0, np.int64), *own])
    end = np.where(trace.over, trace.end, -1)[job]
    return placement_table(trace.workload.job_id[job], part, end, known, trace.cluster)


def _where_jobs_ran(trace: Recorded, placed: pl.DataFrame) -> pl.DataFrame:
    """Return nodes and shares of jobs, until they ended or the replay was cut off."""
    ids, end_s = trace.workload.job_id.tolist(), (trace.end / MS_PER_S).tolist()
    at = dict(zip(ids, end_s, strict=True))
    ended = pl.Series([at[job] for job in placed["job_id"].to_list()], dtype=pl.Float64)
    return shares_held(trace.workload, trace.cluster, placed.with_columns(end_s=ended))


def _too_much(trace: Recorded, known: Mapping[str, npt.NDArray[Any]]) -> list[pl.DataFrame]:
    """Return conflicts of jobs that request more of an amount than all up nodes have."""
    worth, asked = amounts_of_pools(known), amounts_asked(trace.workload)
    found = []
    for name, each in worth.items():
        if any(getattr(group, name) is not None for group in trace.cluster.nodes):
            there = capacity_over_time(known, trace.away, each)
            jobs = trace.jobs.with_columns(pl.Series("nodes", asked[name])).filter(
                pl.col("nodes") > 0
            )
            over = over_capacity(jobs, int(each[known["pool_of"]].sum()), there, name)
            unit = 1024 if name == "memory_gb" else 1000
            found.append(over.with_columns(pl.col("asked", "free") / unit))
    return found


def _tasks_asked(known: Mapping[str, npt.NDArray[Any]]) -> IntArray:
    """Return the number of tasks of jobs of each kind, over all task kinds [kinds]."""
    shape = known["shape"]
    every: IntArray = shape["tasks"].astype(np.int64)
    more = shape["more"].astype(np.int64)
    while (more >= 0).any():
        every += np.where(more >= 0, shape["tasks"][more], 0)
        more = np.where(more >= 0, shape["more"][more], -1)
    return every


def _chosen(
    room: IntArray, recorded: IntArray | None, tasks: int, least: int
) -> tuple[IntArray, IntArray]:
    """Return nodes and the number of tasks on each, by node number.

    It uses the recorded nodes, or all, and at least ``least`` of them.
    """
    there = np.flatnonzero(room > 0) if recorded is None else recorded[room[recorded] > 0]
    if recorded is not None:
        least = min(least, len(there))
    left = tasks
    given = []
    for number, most in enumerate(room[there].tolist()):
        if left == 0:
            break
        given.append(min(most, max(1, left - max(0, least - number - 1)), left))
        left -= given[-1]
    return there[: len(given)], np.array(given, np.int64)
