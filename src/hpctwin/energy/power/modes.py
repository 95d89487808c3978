"""DVFS modes that change while jobs run: remaining work is rescaled, and time is kept by mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import node_watts, nodes_of_group, state_names
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import Cluster

__all__ = [
    "ModeChange",
    "mode_rows",
    "row_of_mode",
    "split_log",
    "time_by_mode",
    "watts_by_mode",
]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ModeChange:
    """A node group goes to another mode.

    Args:
        time_ms: when.
        group: which, by number.
        mode: to which.
        spent_ms: time that each node has been idle and computing so far [2, nodes].
    """

    time_ms: int
    group: int
    mode: str
    spent_ms: IntArray


def mode_rows(cluster: Cluster, changes: Sequence[ModeChange]) -> dict[str, int]:
    """The first row of a mode's own two (idle, computing) after those of the cluster's states."""
    first = len(state_names(cluster))
    names = dict.fromkeys(
        change.mode
        for change in changes
        if change.mode != cluster.nodes[change.group].by_power()[0]
    )
    return {name: first + 2 * number for number, name in enumerate(names)}


def row_of_mode(cluster: Cluster, changes: Sequence[ModeChange], change: ModeChange) -> int:
    """The row of nodes that are idle in the mode that a group goes to; computing is the next."""
    return _row(cluster, mode_rows(cluster, changes), change.group, change.mode)


def _row(cluster: Cluster, rows: Mapping[str, int], group: int, mode: str) -> int:
    return 0 if mode == cluster.nodes[group].by_power()[0] else rows[mode]


def watts_by_mode(cluster: Cluster, changes: Sequence[ModeChange]) -> npt.NDArray[np.float64]:
    """What each node draws in each state, and idle and computing in each further mode [states, nodes]."""
    rows = mode_rows(cluster, changes)
    drawn = np.concatenate([node_watts(cluster), np.zeros((2 * len(rows), cluster.node_count))])
    for name, row in rows.items():
        for number, group in enumerate(cluster.nodes):
            if name in group.modes:
                mode = group.modes[name]
                drawn[row, nodes_of_group(cluster, number)] = mode.idle
                drawn[row + 1, nodes_of_group(cluster, number)] = mode.power_w
    return drawn


def time_by_mode(cluster: Cluster, changes: Sequence[ModeChange], spent_ms: IntArray) -> IntArray:
    """Times in states with those idle and computing divided among the modes [states, nodes].

    Args:
        cluster: the nodes.
        changes: so far.
        spent_ms: time of each node in each of the cluster's states [states, nodes].
    """
    rows = mode_rows(cluster, changes)
    total = spent_ms[: COMPUTING + 1].copy()
    found = np.concatenate([spent_ms, np.zeros((2 * len(rows), spent_ms.shape[1]), np.int64)])
    found[: COMPUTING + 1] = 0
    for number in range(len(cluster.nodes)):
        nodes = nodes_of_group(cluster, number)
        row, before = 0, np.zeros_like(total[:, nodes])
        for change in changes:
            if change.group == number:
                found[row : row + 2, nodes] += change.spent_ms[:, nodes] - before
                row = _row(cluster, rows, number, change.mode)
                before = change.spent_ms[:, nodes]
        found[row : row + 2, nodes] += total[:, nodes] - before
    return found


def split_log(cluster: Cluster, changes: Sequence[ModeChange], log: IntArray) -> IntArray:
    """The log of states with those idle and computing cut where the mode changed, and named by mode."""
    rows = mode_rows(cluster, changes)
    parts = []
    for number in range(len(cluster.nodes)):
        nodes = nodes_of_group(cluster, number)
        mine = log[:, (log[0] >= nodes.start) & (log[0] < nodes.stop)]
        own = [change for change in changes if change.group == number]
        times = np.array([change.time_ms for change in own], np.int64)
        row = np.array([0, *(_row(cluster, rows, number, change.mode) for change in own)])
        awake = mine[1] <= COMPUTING
        parts.append(mine[:, ~awake])
        mine = mine[:, awake]
        # Each span is in the modes from that at its start to that just before its end.
        first = np.searchsorted(times, mine[2], side="right")
        pieces = np.searchsorted(times, mine[3], side="left") - first + 1
        which = np.repeat(first, pieces) + _count_up(pieces)
        mine = np.repeat(mine, pieces, axis=1)
        edges = np.concatenate([[0], times, [np.iinfo(np.int64).max]])
        mine[2] = np.maximum(mine[2], edges[which])
        mine[3] = np.minimum(mine[3], edges[which + 1])
        mine[1] += row[which]
        parts.append(mine[:, mine[2] < mine[3]])  # of two changes at one time the last one counts
    return np.concatenate(parts, axis=1)


def _count_up(sizes: IntArray) -> IntArray:
    """0, 1, … for each size, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
