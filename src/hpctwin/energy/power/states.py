"""Power states and DVFS modes of a cluster's nodes: names, power, and time in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.job_power import ramp
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import Cluster, NodeGroup

__all__ = [
    "ModeChange",
    "folded",
    "group_of_node",
    "mode_row",
    "mode_rows",
    "node_watts",
    "nodes_of_group",
    "row_of_mode",
    "slowest",
    "split_log",
    "state_names",
    "time_by_mode",
    "watts_by_mode",
]


def state_names(cluster: Cluster) -> list[str]:
    """Return the row names of `node_watts`: sleeping and switching once per depth."""
    names = ["idle", "computing"]
    for depth in range(cluster.depths):
        own = {g.sleep[depth].name for g in cluster.nodes if len(g.sleep) > depth}
        label = own.pop() if len(own) == 1 else f"depth {depth + 1}"
        names += [f"switching_off:{label}", f"sleeping:{label}", f"switching_on:{label}"]
    return names


def node_watts(cluster: Cluster) -> npt.NDArray[np.float64]:
    """Return each node's power in each state, in its first mode, in W [states, nodes]."""
    columns = []
    for group in cluster.nodes:
        column = [group.initial.idle, group.initial.power_w]
        for depth in range(cluster.depths):
            if depth < len(group.sleep):
                state = group.sleep[depth]
                column += [state.switch_off.power_w, state.power_w, state.switch_on.power_w]
            else:
                column += [0.0, 0.0, 0.0]
        columns.append(np.repeat(np.array(column)[:, None], group.count, axis=1))
    return np.concatenate(columns, axis=1)


def slowest(cluster: Cluster) -> Cluster:
    """Return the cluster with each group in the mode with the lowest power."""
    groups = tuple(
        group.model_copy(update={"mode": group.by_power()[-1]}) for group in cluster.nodes
    )
    return cluster.model_copy(update={"nodes": groups})


def group_of_node(cluster: Cluster) -> Iterator[NodeGroup]:
    """Yield the group of each node."""
    for group in cluster.nodes:
        for _ in range(group.count):
            yield group


def nodes_of_group(cluster: Cluster, group: int) -> slice:
    """Return the numbers of a group's nodes."""
    first = sum(one.count for one in cluster.nodes[:group])
    return slice(first, first + cluster.nodes[group].count)


IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ModeChange:
    """Change of a node group to another mode.

    Args:
        time_ms: Time of the change, in ms.
        group: Number of the node group.
        mode: New mode.
        spent_ms: Time that each node has been idle and computing so far, in ms [2, nodes].
    """

    time_ms: int
    group: int
    mode: str
    spent_ms: IntArray


def mode_rows(cluster: Cluster, changes: Sequence[ModeChange]) -> dict[str, int]:
    """Return the first of two rows (idle, computing) of each further mode.

    They follow the rows of the cluster's states.
    """
    first = len(state_names(cluster))
    names = dict.fromkeys(
        change.mode
        for change in changes
        if change.mode != cluster.nodes[change.group].by_power()[0]
    )
    return {name: first + 2 * number for number, name in enumerate(names)}


def row_of_mode(cluster: Cluster, changes: Sequence[ModeChange], change: ModeChange) -> int:
    """Return the row of idle nodes in the group's new mode; computing is the next."""
    return mode_row(cluster, mode_rows(cluster, changes), change.group, change.mode)


def mode_row(cluster: Cluster, rows: Mapping[str, int], group: int, mode: str) -> int:
    """Return the row of idle nodes of a group in a mode; computing is the next."""
    return 0 if mode == cluster.nodes[group].by_power()[0] else rows[mode]


def watts_by_mode(cluster: Cluster, changes: Sequence[ModeChange]) -> npt.NDArray[np.float64]:
    """Return each node's power in each state and further mode, in W [states, nodes]."""
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
    """Return times in states, with idle and computing time divided among the modes.

    Args:
        cluster: The cluster.
        changes: Mode changes so far.
        spent_ms: Time of each node in each of the cluster's states [states, nodes].

    Returns:
        Time in each state and further mode [states, nodes].
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
                row = mode_row(cluster, rows, number, change.mode)
                before = change.spent_ms[:, nodes]
        found[row : row + 2, nodes] += total[:, nodes] - before
    return found


def folded(
    cluster: Cluster, changes: Sequence[ModeChange], until_ms: int
) -> tuple[ModeChange, ...]:
    """Return mode changes with at most one per mode and group up to a time, and one more.

    The times in modes stay the same, and so does the order in which modes first occur.

    Args:
        cluster: The cluster.
        changes: Mode changes so far, by time.
        until_ms: Time up to which it does not matter when modes changed, in ms.
    """
    past = [change for change in changes if change.time_ms <= until_ms]
    first = {one.group: cluster.nodes[one.group].first_mode for one in past}
    spent: dict[tuple[int, str], Any] = {}
    now = dict(first)
    since: dict[int, Any] = dict.fromkeys(first, 0)
    for change in past:
        key = change.group, now[change.group]
        spent[key] = spent.get(key, 0) + change.spent_ms - since[change.group]
        now[change.group], since[change.group] = change.mode, change.spent_ms
    found = []
    mode = dict(first)
    total = {one[0]: spent.pop(one, 0) for one in first.items()}
    for number, name in (*dict.fromkeys((one.group, one.mode) for one in past), *now.items()):
        if name != mode[number]:
            found.append(ModeChange(past[-1].time_ms, number, name, total[number]))
            mode[number] = name
            total[number] = total[number] + spent.pop((number, name), 0)
    return (*found, *changes[len(past) :])


def split_log(cluster: Cluster, changes: Sequence[ModeChange], log: IntArray) -> IntArray:
    """Return the log with idle and computing spans cut at mode changes.

    Their rows become those of the modes.
    """
    rows = mode_rows(cluster, changes)
    parts = []
    for number in range(len(cluster.nodes)):
        nodes = nodes_of_group(cluster, number)
        mine = log[:, (log[0] >= nodes.start) & (log[0] < nodes.stop)]
        own = [change for change in changes if change.group == number]
        times = np.array([change.time_ms for change in own], np.int64)
        row = np.array([0, *(mode_row(cluster, rows, number, change.mode) for change in own)])
        awake = mine[1] <= COMPUTING
        parts.append(mine[:, ~awake])
        mine = mine[:, awake]
        # Each span covers the modes from the one at its start to the one just before its end.
        first = np.searchsorted(times, mine[2], side="right")
        pieces = np.searchsorted(times, mine[3], side="left") - first + 1
        which = np.repeat(first, pieces) + ramp(pieces)
        mine = np.repeat(mine, pieces, axis=1)
        edges = np.concatenate([[0], times, [np.iinfo(np.int64).max]])
        mine[2] = np.maximum(mine[2], edges[which])
        mine[3] = np.minimum(mine[3], edges[which + 1])
        mine[1] += row[which]
        parts.append(mine[:, mine[2] < mine[3]])  # of two changes at one time the last counts
    return np.concatenate(parts, axis=1)
