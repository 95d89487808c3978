"""Operations on nodes with power states for other packages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.creation import index_nodes
from hpctwin.engine.operations.transfer import started_ms
from hpctwin.engine.state.array_allocation import speed_columns
from hpctwin.engine.state.layout import (
    COMPLETED,
    COMPUTING,
    DEPTH_STATES,
    FAILED,
    IDLE,
    NOT_SWITCHING_OFF,
    ONLY_ACTIVE,
    RUNNING,
    SWITCHING_OFF,
    WALLTIME,
)
from hpctwin.engine.state.sim import Sim
from hpctwin.model.text import exact

__all__ = [
    "NodePowers",
    "Work",
    "WorkLeft",
    "change_speed",
    "hide_nodes",
    "node_powers",
    "nodes_of_job",
    "past_states",
    "spent_ms",
    "spent_since_end_ms",
    "state_rows",
]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NodePowers:
    """Power states of nodes at one time [nodes].

    Args:
        power: ``IDLE``, ``ASLEEP``, ``SWITCHING_OFF`` or ``SWITCHING_ON`` of `layout`. Computing
            nodes are ``IDLE``: their job shows that they compute.
        depth: Sleep depth of nodes that are not on.
        since_ms: Time at which each node entered its state.
        ready_ms: End of the transition of switching nodes.
    """

    power: IntArray
    depth: IntArray
    since_ms: IntArray
    ready_ms: IntArray


class WorkLeft(NamedTuple):
    """Work left of a job when the speed of its nodes last changed.

    Args:
        start_ms: Start of the job.
        ran_ms: How long it had run, without the time for which it was suspended.
        work: Work left, in ms at the speed of its runtime.
    """

    start_ms: int
    ran_ms: int
    work: Fraction


Work = Mapping[int, WorkLeft]
"""Work left of jobs [job]."""


def state_rows(sim: Sim) -> IntArray:
    """Return the row of each node's power state [nodes]."""
    state, depth = (sim["node"][name].astype(np.int64) for name in ("power", "depth"))
    rows: IntArray = np.where(state <= COMPUTING, state, state + DEPTH_STATES * depth)
    return rows


def spent_ms(sim: Sim) -> IntArray:
    """Return the time of each node in each power state up to now [states, nodes]."""
    spent: IntArray = sim["spent"].T.copy()
    spent[state_rows(sim), np.arange(spent.shape[1])] += sim["clock"]["now"] - sim["node"]["since"]
    return spent


def spent_since_end_ms(sim: Sim) -> IntArray:
    """Return the part of `spent_ms` after the last job end [states, nodes]."""
    ended, now = int(sim.clock.ended), int(sim.clock.now)
    booked = sim["tail"].T
    spent: IntArray = booked[:-1] * (booked[-1] == ended)
    rows = state_rows(sim), np.arange(spent.shape[1])
    spent[rows] += now - np.maximum(sim["node"]["since"], min(ended, now))
    return spent


def node_powers(sim: Sim) -> NodePowers:
    """Return the power states of all nodes; computing nodes count as idle."""
    node = sim["node"]
    power = node["power"].astype(np.int64)
    return NodePowers(
        np.where(power == COMPUTING, IDLE, power),
        node["depth"].astype(np.int64),
        node["since"].copy(),
        node["ready"].copy(),
    )


def nodes_of_job(sim: Sim, row: int) -> list[int]:
    """Return the nodes of a running job, sorted by number."""
    found = []
    node = int(sim["state"]["first_node"][row])
    while node >= 0:
        found.append(node)
        node = int(sim["node"]["next"][node])
    return sorted(found)


def past_states(sim: Sim) -> IntArray:
    """Return all past power states, if they are recorded [4, …].

    The rows are node, state row, start and end in ms; the present states are included up to now.
    """
    table = _recorded(sim)
    nodes = np.arange(len(sim["node"]))
    since = sim["node"]["since"]
    now = np.full(len(nodes), sim.clock.now)
    present = np.stack([nodes, state_rows(sim), since, now])
    return np.concatenate([table, present[:, since < now]], axis=1)


def settled_states(sim: Sim) -> IntArray:
    """Return the past power states that ended by the last end of a job; rows as in `past_states`.

    Later states count only if another job ends after them.
    """
    past = _recorded(sim)
    return past[:, past[3] <= sim.clock.ended]


def drop_settled_states(sim: Sim) -> None:
    """Drop the past power states that `settled_states` returns."""
    past = sim["log"][: sim.clock.logged]
    left = past[past["end"] > sim.clock.ended]
    sim["log"][: len(left)] = left
    sim.clock.logged = len(left)


def _recorded(sim: Sim) -> IntArray:
    past = sim["log"][: sim.clock.logged]
    return np.stack([past[name] for name in ("node", "state", "start", "end")])


def hide_nodes(sim: Sim, shown: int) -> None:
    """Hide the nodes that a power policy does not show to jobs; a pass follows.

    Args:
        sim: Simulation.
        shown: `layout.ALL_NODES`, `NOT_SWITCHING_OFF` or `ONLY_ACTIVE`.
    """
    node = sim["node"]
    clock = sim["clock"]
    off = np.zeros(len(node), bool)
    if shown == ONLY_ACTIVE:
        off = np.maximum(node["ready"], clock["now"]) + node["boot"] > clock["now"]
    elif shown == NOT_SWITCHING_OFF:
        off = node["power"] == SWITCHING_OFF
    hidden = (off & (node["job"] < 0)).astype(np.int64)
    up = node["down"] == 0
    np.subtract.at(sim["stock"]["free"], sim["pool_of"][up], (hidden - node["hidden"])[up])
    node["hidden"] = hidden
    clock["unpowered"] = hidden.sum()
    clock["pass_due"] = clock["came_back"] = 1
    index_nodes(sim)


def _pools_of(sim: Sim, j: int) -> IntArray:
    """Return the pools of a running job's nodes."""
    if sim.pools == 1:
        return np.array([0])
    if not len(sim["share"]):
        if not len(sim["beneath"]):
            return np.flatnonzero(sim["taken"][j] > 0)
        lent = np.flatnonzero((sim["beneath"] == j).any(axis=1))
        return np.unique(sim["pool_of"][[*nodes_of_job(sim, j), *lent]])
    rows, part = [int(sim["state"]["first_node"][j])], sim["part"]
    while part["next"][rows[-1]] >= 0:
        rows.append(int(part["next"][rows[-1]]))
    return np.unique(sim["pool_of"][part["node"][rows]])


def _is_suspended(sim: Sim, j: int) -> bool:
    return len(sim["cut"]) > 0 and bool(sim["cut"]["suspended"][j])


def _ran_ms(sim: Sim, j: int) -> int:
    """Return how long a running job has run, without the time for which it was suspended, ms."""
    if _is_suspended(sim, j):
        return int(sim["cut"]["ran"][j])
    return max(int(sim.clock.now - sim["state"]["start"][j]), 0)


def _are_cleaned(sim: Sim) -> npt.NDArray[np.bool_]:
    """Return whether the nodes of each job are being cleaned up: it has ended [jobs]."""
    state = sim["state"]
    found: npt.NDArray[np.bool_] = (state["phase"] == RUNNING) & (state["end"] <= sim.clock.now)
    return found & (sim["rules"]["cleanup"] > 0)


def _put_length(sim: Sim, j: int, length: int, *, terminate: bool) -> None:
    """Set how long a running job runs in all, ms; its walltime or its grace may end it earlier."""
    state, job, cut = sim["state"], sim["job"], sim["cut"]
    too_long = terminate and length > job["limit"][j]
    ends_well = FAILED if job["fails"][j] else COMPLETED
    state["outcome"][j] = WALLTIME if too_long else ends_well
    length = int(job["limit"][j]) if too_long else length
    if _is_suspended(sim, j):
        cut["left"][j] = length - cut["ran"][j]
        return
    state["end"][j] = state["start"][j] + length
    leaves = int(cut["leaves"][j]) if len(cut) else 0
    stops = leaves - int(sim["rules"]["cleanup"][0])
    if leaves > 0 and stops < state["end"][j]:
        state["outcome"][j] = sim["yields"]["mode"][sim["claim"]["standing"][j]]
        state["end"][j] = stops


def change_speed(
    sim: Sim, pools: IntArray, speed: npt.NDArray[np.float64], work: Work, *, terminate: bool
) -> dict[int, WorkLeft]:
    """Change the speed of nodes, and with it the remaining time of their jobs.

    A suspended job will have the new speed when it resumes.

    Args:
        sim: Simulation; speeds of pools and ends of running jobs are changed.
        pools: Pools whose speed changes.
        speed: Speed of all pools from now on.
        work: Remaining work of jobs at their last change of speed.
        terminate: Whether walltimes end jobs.

    Returns:
        Remaining work of each job whose speed changed.
    """
    clock, state = sim.clock, sim["state"]
    before = sim["pool"]["speed"]
    left: dict[int, WorkLeft] = {}
    started = started_ms(sim)
    cleaned = _are_cleaned(sim)
    for j in sim.running["job"].tolist():
        used = _pools_of(sim, j)
        if cleaned[j] or not np.isin(used, pools).any():
            continue
        last = work.get(j)
        if last is None or last.start_ms != started[j]:  # it may have started again since
            last = WorkLeft(int(started[j]), 0, Fraction(int(sim["job"]["runtime"][j])))
        ran = _ran_ms(sim, j)
        todo = max(Fraction(0), last.work - (ran - last.ran_ms) * exact(before[used].min()))
        left[j] = WorkLeft(last.start_ms, ran, todo)
        _put_length(sim, j, ran + math.ceil(todo / exact(speed[used].min())), terminate=terminate)
    heap = sim["ends"][: clock.ends]
    heap["time"] = (state["end"] + np.where(cleaned, sim["rules"]["cleanup"], 0))[heap["job"]]
    # A sorted table is a valid heap.
    heap[:] = heap[np.lexsort((heap["job"], heap["time"]))]
    pool = sim["pool"].copy()
    for name, column in speed_columns(speed).items():
        pool[name] = column
    sim.know(pool=pool)
    return left
