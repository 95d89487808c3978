"""Where the jobs of a replayed trace ran, and what they drew there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounting import Energy
from hpctwin.energy.component_energy import ComponentEnergy
from hpctwin.engine.layout import COMPUTING
from hpctwin.errors import FormatError
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.hostlist import MOST, expand

__all__ = ["Held", "energy_of", "held_nodes", "numbers_of", "starts_and_ends"]

IntArray = npt.NDArray[np.int64]

_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


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


def numbers_of(recorded: Sequence[str | None] | None, count: int) -> list[IntArray | None]:
    """The numbers of recorded nodes, by job; None where they are not known, or are none of the machine's.

    Names that are numbers count from 0, or from 1 if one is as large as the machine. Other names get
    numbers in their order, if there are no more of them than nodes.

    Args:
        recorded: texts such as ``3,4,5``, ``3-5``, ``n17+n18`` or Slurm's ``n[17-18]`` [jobs].
        count: nodes of the machine.
    """
    if recorded is None:
        return []
    names = [_names(text or "") for text in recorded]
    distinct = sorted({name for one in names for name in one}, key=_by_number)
    if len(distinct) > count:
        return [None] * len(names)
    if all(name.isdigit() for name in distinct):
        own = {name: int(name) for name in distinct}
        base = int(max(own.values(), default=0) >= count)
        number = {name: value - base for name, value in own.items()}
    else:
        number = {name: i for i, name in enumerate(distinct)}
    found = [np.unique(np.array([number[name] for name in one], np.int64)) for one in names]
    return [one if len(one) and one[0] >= 0 and one[-1] < count else None for one in found]


def _names(text: str) -> list[str]:
    """The names of nodes that a text lists; none if it cannot be read."""
    text = text.strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
    found: list[str] = []
    for part in re.findall(r"[^\s+;'\"]+", text):
        try:
            found += expand(part) if "[" in part else filter(None, part.split(","))
        except FormatError:
            return []
    return [name for one in found for name in _range(one)]


def _range(name: str) -> list[str]:
    """The numbers of ``3-5``; any other name as it is."""
    ends = _RANGE.fullmatch(name)
    if ends is None or int(ends[2]) - int(ends[1]) > MOST:
        return [name]
    return [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]


def _by_number(name: str) -> list[int | str]:
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


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


def held_nodes(workload: Workload, start: IntArray, end: IntArray, count: int) -> Held:
    """Which nodes each job had.

    Args:
        workload: the jobs, with the nodes recorded.
        start: when each started, ms; -1 where it did not [jobs].
        end: when each ended, ms [jobs].
        count: nodes of the machine.
    """
    held = Held(len(workload))
    recorded = numbers_of(workload.recorded_nodes, count) or [None] * len(workload)
    free = np.ones(count, bool)
    for row, _, begins in starts_and_ends(start, end):
        if not begins:
            free[held.nodes[row]] = True
            continue
        own, wanted = recorded[row], int(workload.nodes[row])
        taken = np.flatnonzero(free)[:wanted] if own is None else own[free[own]]
        if len(taken) < (wanted if own is None else len(own)):
            held.short[row] = len(taken)
        held.nodes[row] = taken
        free[taken] = False
    return held


def energy_of(
    jobs: pl.DataFrame, workload: Workload, cluster: Cluster, held: Held, end: IntArray, total: int
) -> tuple[Energy, pl.DataFrame]:
    """The accounts of a machine whose nodes were idle or computing, and the map of who ran where.

    Args:
        jobs: as of a result.
        workload: the jobs.
        cluster: the machine.
        held: which nodes jobs had.
        end: when each ended or the replay was cut off, ms [jobs].
        total: the time that is covered, ms.
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
    spent[0] = total - computing
    about = (jobs, node_map, cluster, spent, None, (), workload.start_epoch_s)
    if all(group.components for group in cluster.nodes):
        return ComponentEnergy(*about, usage=workload.usage), node_map
    return Energy(*about), node_map
