"""Where the jobs of a replayed trace ran on nodes that they share, and what they drew there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.accounts.shared_energy import SharedComponentEnergy, SharedEnergy
from hpctwin.engine.state.layout import AMOUNTS, COMPUTING
from hpctwin.engine.state.sim import records
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.cluster.node_numbers import numbers_of
from hpctwin.model.requests.chunks import spread_over
from hpctwin.simulation.lowering.shared_nodes import shared_known
from hpctwin.simulation.replays.allocations import starts_and_ends
from hpctwin.simulation.result.shared_allocations import placement_table, shares_held

__all__ = ["Shared", "held_parts", "shared_energy", "tasks_asked"]

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


class _Part(NamedTuple):
    """Tasks of a kind of a job: so many on each of some nodes."""

    kind: int
    nodes: IntArray
    tasks: IntArray


class _Nodes:
    """What is free of each node, and since when it is in use."""

    def __init__(self, known: Mapping[str, npt.NDArray[Any]]) -> None:
        self.known = known
        self.left = known["whole"].copy()
        self.jobs = np.zeros(len(self.left), np.int64)
        self.since = np.zeros(len(self.left), np.int64)
        self.busy = np.zeros(len(self.left), np.int64)

    def choose(self, kind: int, recorded: IntArray | None) -> list[_Part]:
        """Where tasks lie: on the recorded nodes, else on the lowest, of the first set where all can."""
        among = self.known["shape"]["among"]
        first = int(among[kind])
        while recorded is None and first >= 0:
            found = self._along(first, recorded)
            if sum(part.tasks.sum() for part in found) == tasks_asked_by(self.known)[kind]:
                return found
            first = int(among[first])
        return self._along(kind, recorded)

    def _along(self, first: int, recorded: IntArray | None) -> list[_Part]:
        """One kind of tasks after the other."""
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
            # All recorded nodes were used, and each holds a task at least.
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
        """For how many tasks of a kind there is room on each node that the job may use."""
        needs, shape = self.known["needs"][kind], self.known["shape"][kind]
        asked = needs > 0
        room: IntArray = (np.maximum(left[:, asked], 0) // needs[asked]).min(axis=1)
        if shape["exclusive"]:
            room[self.jobs > 0] = 0
        eligible = self.known["eligible"][kind][self.known["pool_of"]] != 0
        return np.where(eligible, np.minimum(room, np.maximum(shape["most"] - seated, 0)), 0)

    def change(self, parts: Sequence[_Part], time: int, sign: int) -> None:
        """A job comes to nodes (sign 1) or leaves them (-1)."""
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
    """
    known = shared_known(lowered, workload, cluster)
    kind, asked = known["job"]["kind"], tasks_asked(known)
    numbers = numbers_of(workload.recorded_nodes, cluster.node_count) or [None] * len(workload)
    nodes = _Nodes(known)
    had: dict[int, list[_Part]] = {}
    found: dict[int, int] = {}
    for row, time, begins in starts_and_ends(start, end):
        if not begins:
            nodes.change(had[row], time, -1)
            continue
        had[row] = nodes.choose(int(kind[row]), numbers[row])
        nodes.change(had[row], time, 1)
        tasks = int(sum(part.tasks.sum() for part in had[row]))
        if tasks < asked[row]:
            found[row] = tasks
    whole = [(row, part) for row, parts in had.items() for part in parts]
    counts = [len(part.nodes) for _, part in whole]
    job = np.repeat(np.array([row for row, _ in whole], np.int64), counts)
    part = records("part", len(job), job=job, start=start[job])
    part["kind"] = np.repeat(np.array([part.kind for _, part in whole], np.int64), counts)
    for field in ("nodes", "tasks"):
        own = (getattr(one, field) for _, one in whole)
        part[field.replace("nodes", "node")] = np.concatenate([np.zeros(0, np.int64), *own])
    table = placement_table(
        workload.job_id[job], part, np.where(over, end, -1)[job], known, cluster
    )
    recorded = np.array([own is not None for own in numbers])
    return Shared(known, table, found, recorded, nodes.busy)


def tasks_asked(known: Mapping[str, npt.NDArray[Any]]) -> IntArray:
    """How many tasks each job has, of all kinds [jobs]."""
    found: IntArray = tasks_asked_by(known)[known["job"]["kind"]]
    return found


def tasks_asked_by(known: Mapping[str, npt.NDArray[Any]]) -> IntArray:
    """The same of kinds of jobs [kinds]."""
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
    """Nodes, of those recorded or all, and tasks on each, by number and on so many nodes at least."""
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


def shared_energy(
    jobs: pl.DataFrame,
    workload: Workload,
    cluster: Cluster,
    shared: Shared,
    end: IntArray,
    covered: tuple[int, int],
) -> Energy:
    """The accounts of a machine whose nodes were idle or computing.

    Args:
        jobs: as of a result.
        workload: the jobs.
        cluster: the machine.
        shared: which parts of nodes jobs had.
        end: when each ended or the replay was cut off, ms [jobs].
        covered: Beginning and end of the time that counts, in ms.
    """
    at = dict(zip(workload.job_id.tolist(), (end / MS_PER_S).tolist(), strict=True))
    ended = pl.Series([at[job] for job in shared.placements["job_id"].to_list()], dtype=pl.Float64)
    node_map = shares_held(workload, cluster, shared.placements.with_columns(end_s=ended))
    spent = np.zeros((2 + 3 * cluster.depths, cluster.node_count), np.int64)
    spent[COMPUTING] = shared.busy_ms
    begin, until = covered
    spent[0] = until - begin - shared.busy_ms
    about = (
        jobs, node_map, cluster, spent, None, (), workload.start_epoch_s, begin / MS_PER_S
    )  # fmt: skip
    if all(group.components for group in cluster.nodes):
        return SharedComponentEnergy(*about, usage=workload.usage)
    return SharedEnergy(*about)
