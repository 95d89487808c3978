"""Where the jobs of a replayed trace ran, and what they drew there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.cluster.node_numbers import numbers_of

__all__ = ["Held", "energy_of", "held_nodes", "starts_and_ends"]

IntArray = npt.NDArray[np.int64]


class Held:
    """Which nodes each job had: those recorded, else the lowest that were free.

    Args:
        nodes: of each job, by rising number; none if it never started [jobs].
        short: of jobs that could not have all that they asked for, as others had them: how many they had,
            by row.
    """

    def __init__(self, jobs: int) -> None:
        self.nodes: list[IntArray] = [np.zeros(0, np.int64)] * jobs
        self.short: dict[int, int] = {}


def starts_and_ends(start: IntArray, end: IntArray) -> Iterator[tuple[int, int, bool]]:
    """Row, time and whether it starts, of each start and end of jobs that ran; of one instant, ends first.

    Args:
        start: when each started, ms; -1 where it did not [jobs].
        end: when each ended, ms [jobs].
    """
    ran = np.flatnonzero((start >= 0) & (end > start))
    rows, begins = np.tile(ran, 2), np.repeat([False, True], len(ran))
    moments = np.concatenate([end[ran], start[ran]])
    order = np.lexsort((rows, begins, moments))
    yield from zip(*(each[order].tolist() for each in (rows, moments, begins)), strict=True)


def held_nodes(
    workload: Workload,
    start: IntArray,
    end: IntArray,
    count: int,
    away: tuple[IntArray, IntArray, IntArray] | None = None,
) -> Held:
    """Which nodes each job had.

    Args:
        workload: the jobs, with the nodes recorded.
        start: when each started, ms; -1 where it did not [jobs].
        end: when each ended, ms [jobs].
        count: nodes of the machine.
        away: node, start and end (ms) of each outage; a job whose nodes are not recorded gets none of those
            that are away when it starts, as far as there are others.
    """
    out, changes = np.zeros(count, np.int64), _changes(away)
    held = Held(len(workload))
    recorded = numbers_of(workload.recorded_nodes, count) or [None] * len(workload)
    free = np.ones(count, bool)
    for row, now, begins in starts_and_ends(start, end):
        if not begins:
            free[held.nodes[row]] = True
            continue
        while changes and changes[-1][0] <= now:
            _, sign, node = changes.pop()
            out[node] += sign
        own, wanted = recorded[row], int(workload.nodes[row])
        taken = _lowest(free, out, wanted) if own is None else own[free[own]]
        if len(taken) < (wanted if own is None else len(own)):
            held.short[row] = len(taken)
        held.nodes[row] = taken
        free[taken] = False
    return held


def _changes(away: tuple[IntArray, IntArray, IntArray] | None) -> list[tuple[int, int, int]]:
    """Time, change and node of each beginning and end of an outage, the last first."""
    if away is None:
        return []
    spans = list(zip(*(each.tolist() for each in away), strict=True))
    found = [(begins, 1, node) for node, begins, _ in spans]
    return sorted(found + [(ends, -1, node) for node, _, ends in spans], reverse=True)


def _lowest(free: npt.NDArray[np.bool_], out: IntArray, wanted: int) -> IntArray:
    """The lowest of the free nodes, those that are away last."""
    found: IntArray = np.flatnonzero(free)
    up: IntArray = found[out[found] == 0][:wanted]
    if len(up) == wanted:
        return up
    both: IntArray = np.union1d(up, found[out[found] > 0][: wanted - len(up)])
    return both


def energy_of(
    jobs: pl.DataFrame,
    workload: Workload,
    cluster: Cluster,
    held: Held,
    end: IntArray,
    covered: tuple[int, int],
) -> tuple[Energy, pl.DataFrame]:
    """The accounts of a machine whose nodes were idle or computing, and the map of who ran where.

    Args:
        jobs: as of a result.
        workload: the jobs.
        cluster: the machine.
        held: which nodes jobs had.
        end: when each ended or the replay was cut off, ms [jobs].
        covered: Beginning and end of the time that counts, in ms.
    """
    start = np.where(end >= 0, workload.recorded_start_ms, 0)
    first, counts, rows = [], [], []
    for row, nodes in enumerate(held.nodes):
        cuts = np.flatnonzero(np.diff(nodes) > 1) + 1
        for part in np.split(nodes, cuts) if len(nodes) else ():
            first.append(int(part[0]))
            counts.append(len(part))
            rows.append(row)
    of = np.array(rows, np.int64)
    low, size = np.array(first, np.int64), np.array(counts, np.int64)
    node_map = pl.DataFrame(
        {
            "job_id": workload.job_id[of],
            "start_s": start[of] / MS_PER_S,
            "end_s": end[of] / MS_PER_S,
            "first_node": low,
            "count": size,
        }
    )
    length = (end - start)[of]
    change = np.bincount(low, length, cluster.node_count + 1)
    change -= np.bincount(low + size, length, cluster.node_count + 1)
    computing = np.rint(np.cumsum(change)[:-1]).astype(np.int64)
    spent = np.zeros((2 + 3 * cluster.depths, cluster.node_count), np.int64)
    spent[COMPUTING] = computing
    begin, until = covered
    spent[0] = until - begin - computing
    about = (
        jobs, node_map, cluster, spent, None, (), workload.start_epoch_s, begin / MS_PER_S
    )  # fmt: skip
    if all(group.components for group in cluster.nodes):
        return ComponentEnergy(*about, usage=workload.usage), node_map
    return Energy(*about), node_map
