"""Putting a new simulation into the middle of things."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.creation import index_nodes, more_room
from hpctwin.engine.operations.power_control import NodePowers, state_rows
from hpctwin.engine.queue.limits import begin_used, count_held
from hpctwin.engine.state.layout import (
    ASLEEP,
    COMPUTING,
    SWITCHING_OFF,
)
from hpctwin.engine.state.sim import Sim, records

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = [
    "NodePowers",
    "Running",
    "another_future",
    "begin_at",
    "fill_heap",
    "hold_until",
    "start_clock",
]

IntArray = npt.NDArray[np.int64]

_NO_NODES = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Running:
    """The jobs that run at the beginning (R of them).

    Args:
        rows: their rows in the workload [R].
        start_ms: when each started, or will as soon as all its nodes are on [R].
        end_ms: when each will end in this simulation, after the beginning [R].
        nodes: the node numbers that each holds.
        amounts: where nodes are shared, what it holds of each, in the engine's units [nodes, amounts].
    """

    rows: IntArray
    start_ms: IntArray
    end_ms: IntArray
    nodes: tuple[IntArray, ...]
    amounts: tuple[IntArray, ...] = ()


def begin_at(
    sim: Sim,
    now_ms: int,
    running: Running,
    pool: IntArray,
    away: IntArray,
    leaving: IntArray,
    powers: NodePowers | None = None,
    cleanup_ms: int = 0,
) -> None:
    """Put a new simulation, in which nothing has happened yet, into the middle of things.

    Jobs submitted up to now wait, unless they run; the first scheduling pass is due now. The queue is
    in no order. Usage for fair share is counted from what the running jobs have used. The time that nodes
    spend in each power state is counted from now on.

    Args:
        sim: a new one, whose table of jobs nobody else has, as it is written: a job gives back only the nodes
            that do not leave. Nodes are tracked at least where they are shared or have power states.
        now_ms: the present.
        running: the jobs that run.
        pool: of each node [nodes].
        away: numbers of the nodes that are down or drained and idle; they do not come back.
        leaving: numbers of the drained nodes that are still in use; they do not come back
            when their jobs end.
        powers: the power states of the nodes, where they have any.
        cleanup_ms: their nodes are free so long after jobs have ended.
    """
    rows, clock = running.rows, sim["clock"]
    clock["now"] = now_ms
    clock["pass_due"] = 1
    arrived = int(sim["job"]["submit"].searchsorted(now_ms, side="right"))
    clock["resets_done"] = sim["reset"].searchsorted(now_ms, side="right")
    clock["submitted"] = clock["arrived"] = arrived
    _begin_maintenance(now_ms, sim)
    if shared := sim.size("share") > 0:
        _begin_parts(running, pool, away, leaving, sim)
        charged = sim["shape"]["charge"][sim["job"]["kind"][rows]].astype(np.int64)
    else:
        charged = np.zeros(len(rows), np.int64)
    _put_underway(running, pool, away, leaving, charged, cleanup_ms, sim)
    _begin_chains(arrived, sim)
    count_held(sim)
    begin_used(now_ms, sim)
    tracked = sim.size("node") > 0
    if tracked and not shared:
        _begin_holding(running, np.concatenate([away, leaving]), sim)
    if powers is not None:
        _begin_powers(now_ms, running, powers, sim)
    if tracked and not shared:
        index_nodes(sim)
        # The first pass comes before the loop would have looked.
        more_room(sim)


@cache
def _underway() -> Kernel:
    """The kernel; only who puts a simulation into the middle of things waits for the compiler."""
    from hpctwin.engine.operations.initial_jobs import PUT_UNDERWAY
    from hpctwin.engine.operations.loading import prepare

    prepare([PUT_UNDERWAY])
    return PUT_UNDERWAY


def _put_underway(
    running: Running,
    pool: IntArray,
    away: IntArray,
    leaving: IntArray,
    charged: IntArray,
    cleanup_ms: int,
    sim: Sim,
) -> None:
    """Have the kernel of `underway` put the jobs where they belong."""
    if len(leaving):
        pool = pool.copy()
        pool[leaving] = -1 - pool[leaving]
    first = np.zeros(len(running.rows) + 1, np.int64)
    first[1:] = np.fromiter(map(len, running.nodes), np.int64, len(running.rows)).cumsum()
    planned = running.start_ms + sim["job"]["expected"][running.rows]
    _underway()(
        sim.bare_address,
        cleanup_ms,
        running.rows,
        running.start_ms,
        running.end_ms,
        np.lexsort((running.rows, planned)),
        first,
        np.concatenate([_NO_NODES, *running.nodes]),
        pool,
        away,
        charged,
    )


def _begin_parts(
    running: Running, pool: IntArray, away: IntArray, leaving: IntArray, sim: Sim
) -> None:
    """Put running jobs on shared nodes, each part as a single task that asks for just what it holds."""
    number = np.repeat(np.arange(len(running.rows)), [len(nodes) for nodes in running.nodes])
    node = np.concatenate([np.zeros(0, np.int64), *running.nodes])
    held = np.concatenate([np.zeros((0, sim["whole"].shape[1]), np.int64), *running.amounts])
    own = sim["job"]["kind"][running.rows][number]
    # A kind of its own for whatever is held: what a job asked for need not be what it got.
    found, kind = np.unique(np.column_stack([own, held]), axis=0, return_inverse=True)
    kinds, base = len(sim["shape"]), found[:, 0]
    shape = records("shape", len(found), tasks=1, nodes=1, most=1, more=-1, among=-1, parts=1)
    shape["of"] = kinds + np.arange(len(found))
    for name in ("charge", "shared_with", "user", "account"):
        shape[name] = sim["shape"][name][base]
    sim.know(
        shape=np.concatenate([sim["shape"], shape]),
        needs=np.concatenate([sim["needs"], found[:, 1:]]),
        eligible=np.concatenate([sim["eligible"], sim["eligible"][base]]),
        partition=np.concatenate([sim["partition"], sim["partition"][base]]),
    )
    tried = records("tried", len(sim["shape"]), faults=-1)
    rows = np.arange(len(node))
    part = records("part", len(node), node=node, tasks=1, kind=kinds + kind.ravel())
    part["job"] = running.rows[number]
    part["start"] = running.start_ms[number]
    part["planned"] = part["start"] + sim["job"]["expected"][part["job"]]
    # Parts of one job follow each other; those of one node do in another order.
    part["next"] = np.where(np.diff(number, append=-1) == 0, rows + 1, -1)
    part["after"] = part["before"] = -1
    by_node = np.argsort(node, kind="stable")
    same = np.diff(node[by_node]) == 0
    part["after"][by_node[:-1][same]] = by_node[1:][same]
    part["before"][by_node[1:][same]] = by_node[:-1][same]
    sim.reshape(part=part, tried=tried)
    sim["sharing"]["parts"] = len(part)
    here, first = np.unique(node, return_index=True)
    state, share, nodes = sim["state"], sim["share"], sim["node"]
    jobs, begins = np.unique(number, return_index=True)
    state["first_node"][running.rows[jobs]] = begins
    share["part"][here] = first
    share["jobs"] = np.bincount(node, minlength=len(share))
    nodes["job"][here] = part["job"][first]
    np.subtract.at(sim["left"], node, held)
    gone = np.concatenate([away, leaving])
    nodes["down"][gone] = 1
    lost = np.bincount(pool[gone], minlength=sim.pools)
    sim["stock"]["free"][: sim.pools] -= np.bincount(pool[here], minlength=sim.pools) + lost
    sim["stock"]["down"][: sim.pools] += lost


def another_future(
    sim: Sim,
    runtime_ms: IntArray,
    running: IntArray,
    end_ms: IntArray,
    arrivals: IntArray,
    cleanup_ms: int = 0,
) -> None:
    """Let jobs run otherwise, and others arrive, in a fork of a simulation put into the middle of things.

    Args:
        sim: the fork, in which nothing has happened yet.
        runtime_ms: how long jobs run [jobs].
        running: rows of the jobs that run [running].
        end_ms: when these end, after the beginning [running].
        arrivals: rows of the jobs that arrive after the beginning, rising; the others never do.
        cleanup_ms: their nodes are free so long after jobs have ended.
    """
    sim.own("job", "by_submit")
    sim["job"]["runtime"] = runtime_ms
    sim["state"]["end"][running] = end_ms
    fill_heap(sim["ends"], end_ms + cleanup_ms, running)
    clock = sim["clock"]
    arrived, last = int(clock["arrived"][0]), int(clock["arrival_end"][0])
    clock["arrival_end"] = arrived + len(arrivals)
    clock["alive"] -= last - arrived - len(arrivals)
    sim["by_submit"][arrived : arrived + len(arrivals)] = arrivals


def hold_until(sim: Sim, begin_ms: IntArray) -> None:
    """Hold jobs until they may begin, as by a dependency that comes true then.

    Args:
        sim: a new one, made with ``waits=True``.
        begin_ms: when each may [jobs].
    """
    state = sim["state"]
    state["release"] = np.maximum(state["release"], begin_ms)


def start_clock(sim: Sim, now_ms: int) -> None:
    """Let a new simulation of nodes with power states begin at a time, with all nodes on and idle.

    What happens at that time is still to come. Maintenance and resets before it have happened.

    Args:
        sim: a new one, in which nothing has happened yet.
        now_ms: the time.
    """
    sim.clock.now = now_ms
    sim["node"]["since"] = now_ms
    sim.clock.resets_done = sim["reset"].searchsorted(now_ms)
    _begin_maintenance(now_ms - 1, sim)
    index_nodes(sim)


def _begin_maintenance(now_ms: int, sim: Sim) -> None:
    if not len(sim["change"]):
        return
    done = sim["change"][sim["change"]["time"] <= now_ms]
    sim["clock"]["changes_done"] = len(done)
    np.add.at(sim["stock"]["free"], done["pool"], done["sign"] * done["amount"])


def _begin_holding(running: Running, down: IntArray, sim: Sim) -> None:
    """Who has which node, and which are not there."""
    node, state = sim["node"], sim["state"]
    node["down"][down] = 1
    for row, numbers in zip(running.rows.tolist(), running.nodes, strict=True):
        if len(numbers):
            chain = np.sort(numbers)
            node["job"][chain] = row
            node["next"][chain[1:]] = chain[:-1]
            state["first_node"][row] = chain[-1]


def _begin_powers(now_ms: int, running: Running, powers: NodePowers, sim: Sim) -> None:
    """How it is with each node."""
    node, state, clock = sim["node"], sim["state"], sim["clock"]
    # What happened at this instant has happened.
    clock["instants"] = 1
    for name in ("power", "depth"):
        node[name] = getattr(powers, name)
    node["since"] = powers.since_ms
    computing = []
    for start_ms, numbers in zip(running.start_ms.tolist(), running.nodes, strict=True):
        if start_ms <= now_ms:
            computing.append(numbers)
            node["since"][numbers] = start_ms
    at_work = np.concatenate([*computing, np.zeros(0, np.int64)])
    node["power"][at_work] = COMPUTING
    switching = np.flatnonzero((node["power"] > COMPUTING) & (node["power"] != ASLEEP))
    node["ready"][switching] = powers.ready_ms[switching]
    off = np.isin(node["power"], (ASLEEP, SWITCHING_OFF))
    depths = sim["spent"].shape[1] // 3
    sleep = sim["sleep"][sim["pool_of"][off] * depths + node["depth"][off]]
    node["boot"][off] = sleep["on_time"]
    spent = sim["spent"]
    spent[np.arange(len(node)), state_rows(sim)] = node["since"] - now_ms
    fill_heap(sim["switching"], node["ready"][switching], switching)
    clock["switching"] = len(switching)
    late = running.start_ms > now_ms
    fill_heap(sim["begins"], running.start_ms[late], running.rows[late])
    clock["begins"] = int(late.sum())
    state["started"][running.rows[late]] = 0
    job = sim["job"][running.rows[late]]
    told = job["tells_to"] > job["tells_from"]
    fill_heap(sim["releases"], running.start_ms[late][told], -1 - running.rows[late][told])
    clock["releases"] = int(told.sum())


def fill_heap(heap: npt.NDArray[Any], time_ms: IntArray, who: IntArray) -> None:
    """Make a heap of what happens to whom when: a sorted table is one."""
    order = np.lexsort((who, time_ms))
    heap["time"][: len(who)] = time_ms[order]
    heap["job"][: len(who)] = who[order]


def _begin_chains(arrived: int, sim: Sim) -> None:
    """How long the chains are that wait for each job, among those submitted."""
    if not len(sim["waits"]):
        return
    job, chain = sim["job"], sim["state"]["chain"]
    waiting = np.flatnonzero(job["waits_to"][:arrived] > job["waits_from"][:arrived])
    # By level, so that a job's own chain is known before it is handed on.
    for row in waiting[np.argsort(job["level"][waiting], kind="stable")].tolist():
        for on in sim["waits"][job["waits_from"][row] : job["waits_to"][row]].tolist():
            chain[on] = max(chain[on], chain[row] + job["expected"][row])
