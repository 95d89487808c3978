"""DVFS modes that change while jobs run: remaining work is rescaled, and time is kept by mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hpctwin.energy.platform import Platform
from hpctwin.engine import layout
from hpctwin.engine.layout import Jobs, Machine, Sim
from hpctwin.engine.power_layout import COMPUTING, DEPTH_STATES, IDLE

__all__ = [
    "ModeChange",
    "Work",
    "mode_rows",
    "nodes_of_group",
    "rescale",
    "spent_so_far",
    "split_log",
    "state_rows",
    "time_by_mode",
    "watts_by_mode",
]

IntArray = npt.NDArray[np.int64]
Work = Mapping[int, tuple[int, Fraction]]
"""By job: what was left to do at a time (ms), in ms on the machine the runtimes were measured on."""


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


def rescale(
    pools: IntArray,
    speed: npt.NDArray[np.float64],
    work: Work,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    *,
    terminate: bool,
) -> dict[int, tuple[int, Fraction]]:
    """Let running jobs go on at other speeds: what is left of each takes as much longer or shorter.

    Args:
        pools: whose speed changes.
        speed: of all pools from now on; the machine has those so far.
        work: what was left of jobs when their speed changed last.
        jobs: of the engine.
        machine: of the engine.
        sim: of the engine; ends of running jobs are changed.
        terminate: whether walltimes end jobs.

    Returns:
        What is left of each job whose speed changed.
    """
    now = int(sim.count[layout.NOW])
    left: dict[int, tuple[int, Fraction]] = {}
    for j in sim.running[layout.RUNS, : sim.count[layout.RUN]].tolist():
        used = np.flatnonzero(sim.take[j] > 0) if len(machine.speed) > 1 else np.array([0])
        if not np.isin(used, pools).any():
            continue
        start = int(sim.time[layout.START, j])
        since, todo = work.get(j, (start, Fraction(int(jobs.fixed[layout.RUNTIME, j]))))
        at = max(now, start)
        done = (at - since) * _exact(machine.speed[used].min())
        todo = max(Fraction(0), todo - done)
        left[j] = (at, todo)
        end = at + math.ceil(todo / _exact(speed[used].min()))
        limit = start + int(jobs.fixed[layout.LIMIT, j])
        cut = terminate and end > limit
        ends_well = layout.FAILED if jobs.fixed[layout.FAILS, j] else layout.COMPLETED
        sim.flag[layout.OUTCOME, j] = layout.WALLTIME if cut else ends_well
        sim.time[layout.END, j] = limit if cut else end
    heap = sim.running[:2, : sim.count[layout.ENDS]]
    heap[0] = sim.time[layout.END, heap[1]]
    # A sorted table is a heap.
    heap[:] = heap[:, np.lexsort((heap[1], heap[0]))]
    return left


def _exact(speed: float) -> Fraction:
    """A speed as its decimals say: 0.7 is seven tenths, not the nearest binary number."""
    return Fraction(float(speed)).limit_denominator(10**9)


def mode_rows(platform: Platform, changes: Sequence[ModeChange]) -> dict[str, int]:
    """The first row of a mode's own two (idle, computing) after those of the platform's states."""
    first = len(platform.state_names())
    names = dict.fromkeys(
        change.mode
        for change in changes
        if change.mode != platform.nodes[change.group].by_power()[0]
    )
    return {name: first + 2 * number for number, name in enumerate(names)}


def _row(platform: Platform, rows: Mapping[str, int], group: int, mode: str) -> int:
    return 0 if mode == platform.nodes[group].by_power()[0] else rows[mode]


def nodes_of_group(platform: Platform, group: int) -> slice:
    """The numbers of a group's nodes."""
    first = sum(one.count for one in platform.nodes[:group])
    return slice(first, first + platform.nodes[group].count)


def watts_by_mode(platform: Platform, changes: Sequence[ModeChange]) -> npt.NDArray[np.float64]:
    """What each node draws in each state, and idle and computing in each further mode [states, nodes]."""
    rows = mode_rows(platform, changes)
    watts = np.concatenate([platform.watts(), np.zeros((2 * len(rows), platform.node_count))])
    for name, row in rows.items():
        for number, group in enumerate(platform.nodes):
            if name in group.modes:
                mode = group.modes[name]
                watts[row, nodes_of_group(platform, number)] = mode.idle
                watts[row + 1, nodes_of_group(platform, number)] = mode.power_w
    return watts


def time_by_mode(platform: Platform, changes: Sequence[ModeChange], spent_ms: IntArray) -> IntArray:
    """Times in states with those idle and computing divided among the modes [states, nodes].

    Args:
        platform: the nodes.
        changes: so far.
        spent_ms: time of each node in each of the platform's states [states, nodes].
    """
    rows = mode_rows(platform, changes)
    total = spent_ms[: COMPUTING + 1].copy()
    found = np.concatenate([spent_ms, np.zeros((2 * len(rows), spent_ms.shape[1]), np.int64)])
    found[: COMPUTING + 1] = 0
    for number in range(len(platform.nodes)):
        nodes = nodes_of_group(platform, number)
        row, before = 0, np.zeros_like(total[:, nodes])
        for change in changes:
            if change.group == number:
                found[row : row + 2, nodes] += change.spent_ms[:, nodes] - before
                row = _row(platform, rows, number, change.mode)
                before = change.spent_ms[:, nodes]
        found[row : row + 2, nodes] += total[:, nodes] - before
    return found


def split_log(platform: Platform, changes: Sequence[ModeChange], log: IntArray) -> IntArray:
    """The log of states with those idle and computing cut where the mode changed, and named by mode."""
    rows = mode_rows(platform, changes)
    parts = []
    for number in range(len(platform.nodes)):
        nodes = nodes_of_group(platform, number)
        mine = log[:, (log[0] >= nodes.start) & (log[0] < nodes.stop)]
        own = [change for change in changes if change.group == number]
        times = np.array([change.time_ms for change in own], np.int64)
        row = np.array([0, *(_row(platform, rows, number, change.mode) for change in own)])
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


def spent_so_far(sim: Sim) -> IntArray:
    """Time that each node has been idle and computing, up to now [2, nodes]."""
    spent = sim.node[layout.POWER_SPENT : layout.POWER_SPENT + COMPUTING + 1].copy()
    for state in (IDLE, COMPUTING):
        mine = sim.node[layout.NODE_POWER] == state
        spent[state, mine] += sim.count[layout.NOW] - sim.node[layout.NODE_SINCE, mine]
    return spent


def state_rows(sim: Sim) -> IntArray:
    """The row of the state that each node is in [nodes]."""
    state = sim.node[layout.NODE_POWER]
    depth = sim.node[layout.NODE_DEPTH]
    rows: IntArray = np.where(state <= COMPUTING, state, state + DEPTH_STATES * depth)
    return rows
