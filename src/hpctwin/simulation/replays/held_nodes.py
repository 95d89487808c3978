"""Nodes that the jobs of a replayed trace held, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.state.layout import AMOUNTS
from hpctwin.engine.state.sim import records
from hpctwin.metrics import capacity_conflicts
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.cluster.node_group import numbers_of
from hpctwin.model.requests.chunks import spread_over
from hpctwin.simulation.lowering.shared_nodes import amounts_asked, amounts_of_pools
from hpctwin.simulation.result.history import capacity_over_time
from hpctwin.simulation.result.placements import placement_table, shares_held

__all__ = [
    "Held",
    "Recorded",
    "conflicts_of",
    "held_nodes",
    "held_parts",
    "over_capacity",
    "starts_and_ends",
]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """A trace to replay.

    Args:
        workload: The jobs, with recorded nodes.
        cluster: The cluster.
        known: Jobs and cluster in the engine's form.
        jobs: Table ``jobs`` of the result.
        start: Start of each job, ms; -1 if it did not start [jobs].
        end: End of each job, or of the replay if earlier, ms [jobs].
        over: Whether it ended [jobs].
        away: Node, start and end (ms) of each outage.
    """

    workload: Workload
    cluster: Cluster
    known: Mapping[str, npt.NDArray[Any]]
    jobs: pl.DataFrame
    start: IntArray
    end: IntArray
    over: npt.NDArray[np.bool_]
    away: tuple[IntArray, IntArray, IntArray]


@dataclass(frozen=True, eq=False)
class Held:
    """Nodes held by jobs.

    Args:
        tables: Tables of the result that describe them.
        too_much: Conflicts where all jobs together held more than the cluster had.
        node_map: Nodes of the jobs, in the form that their energy needs; None without a power
            model.
        busy_ms: Time that any job was on each node [nodes]; empty without a power model.
        not_found: Conflicts of jobs that did not get all nodes or parts of nodes that they held.
    """

    tables: dict[str, pl.DataFrame]
    too_much: list[pl.DataFrame]
    node_map: pl.DataFrame | None = None
    busy_ms: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    not_found: list[pl.DataFrame] = field(default_factory=list)


def starts_and_ends(start: IntArray, end: IntArray) -> Iterator[tuple[int, int, bool]]:
    """Yield each start and end of jobs that ran: row, time, whether it is a start.

    Ends come before starts at the same time.

    Args:
        start: Start of each job, ms; -1 if it did not start [jobs].
        end: End of each job, ms [jobs].
    """
    ran = np.flatnonzero((start >= 0) & (end > start))
    rows, begins = np.tile(ran, 2), np.repeat([False, True], len(ran))
    moments = np.concatenate([end[ran], start[ran]])
    order = np.lexsort((rows, begins, moments))
    yield from zip(*(each[order].tolist() for each in (rows, moments, begins)), strict=True)


def over_capacity(
    frame: pl.DataFrame, amount: int, capacity: pl.DataFrame | None, what: str
) -> pl.DataFrame:
    """Return conflicts of jobs that together held more than the cluster had."""
    found = capacity_conflicts(frame, amount, capacity)
    return found.select(
        "time_s",
        "job_id",
        pl.lit(what).alias("what"),
        pl.col("nodes").cast(pl.Float64).alias("asked"),
        pl.col("free_nodes").cast(pl.Float64).alias("free"),
    )


def conflicts_of(
    workload: Workload, rows: IntArray, start: IntArray, what: str, allowed: IntArray
) -> pl.DataFrame:
    """Return conflicts in time: the recorded start, and the earliest possible one."""
    return pl.DataFrame(
        {
            "time_s": start / MS_PER_S,
            "job_id": workload.job_id[rows],
            "what": pl.Series([what] * len(rows), dtype=pl.String),
            "asked": start / MS_PER_S,
            "free": allowed / MS_PER_S,
        }
    )


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
        _shares_of_jobs(trace, placed) if cluster.has_power else None,
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
    for column in ("nodes", "tasks"):
        own = (getattr(one, column) for _, one in whole)
        part[column.replace("nodes", "node")] = np.concatenate([np.zeros(0, np.int64), *own])
    end = np.where(trace.over, trace.end, -1)[job]
    return placement_table(trace.workload.job_id[job], part, end, known, trace.cluster)


def _shares_of_jobs(trace: Recorded, placed: pl.DataFrame) -> pl.DataFrame:
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
