"""Start of a simulation in the middle of operation."""

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
        rows: Rows in the workload [R].
        start_ms: Start of each; in the future if not all of its nodes are on yet [R].
        end_ms: End of each in this simulation, after the beginning [R].
        nodes: Numbers of the nodes that each holds.
        amounts: For shared nodes, the amounts that each holds of its nodes, in the engine's units
            [nodes, amounts].
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
    """Move a new simulation, without past events, into the middle of operation.

    Jobs submitted up to now are pending, unless they run; the first scheduling pass is due now. The
    queue is unsorted. Fair-share usage starts with the usage of the running jobs. The time in power
    states counts from now on.

    Args:
        sim: New simulation that is the only owner of its table of jobs. The table is changed: a job
            returns only nodes that do not leave. Nodes must be tracked if they are shared or have
            power states.
        now_ms: Present time.
        running: Running jobs.
        pool: Pool of each node [nodes].
        away: Numbers of nodes that are down, or drained and idle; they do not return.
        leaving: Numbers of drained nodes that are still in use; they do not return when their jobs
            end.
        powers: Power states of the nodes, if they have any.
        cleanup_ms: Cleanup time of nodes after a job's end.
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
        # The first pass comes before the loop would grow the arrays.
        more_room(sim)


@cache
def _underway() -> Kernel:
    """Return the kernel; only simulations that need it wait for the compiler."""
    from hpctwin.engine.compile.jit import prepare
    from hpctwin.engine.operations.initial_jobs import PUT_UNDERWAY

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
    """Run the kernel of `initial_jobs` for the running and pending jobs."""
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
    """Place running jobs on shared nodes.

    Each part is a single task that requests exactly what it holds.
    """
    number = np.repeat(np.arange(len(running.rows)), [len(nodes) for nodes in running.nodes])
    node = np.concatenate([np.zeros(0, np.int64), *running.nodes])
    held = np.concatenate([np.zeros((0, sim["whole"].shape[1]), np.int64), *running.amounts])
    own = sim["job"]["kind"][running.rows][number]
    # A separate kind for each held amount: a job may hold other amounts than it requested.
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
    # Parts of one job are linked in row order; parts of one node are linked by a stable sort.
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
    """Change runtimes and arrivals in a fork of a simulation that began in operation.

    Args:
        sim: Fork, in which nothing has happened yet.
        runtime_ms: Runtime of each job [jobs].
        running: Rows of the running jobs [running].
        end_ms: Their ends, after the beginning [running].
        arrivals: Rows of the jobs that arrive after the beginning, sorted; other jobs never arrive.
        cleanup_ms: Cleanup time of nodes after a job's end.
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
    """Hold jobs until their begin times, like a dependency that is satisfied then.

    Args:
        sim: New simulation, made with ``waits=True``.
        begin_ms: Begin time of each job [jobs].
    """
    state = sim["state"]
    state["release"] = np.maximum(state["release"], begin_ms)


def start_clock(sim: Sim, now_ms: int) -> None:
    """Start a new simulation with power states at a time, with all nodes on and idle.

    Events at that time are still to come. Earlier maintenance and resets have happened.

    Args:
        sim: New simulation, in which nothing has happened.
        now_ms: The time.
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
    """Assign nodes to running jobs, and mark unavailable nodes as down."""
    node, state = sim["node"], sim["state"]
    node["down"][down] = 1
    for row, numbers in zip(running.rows.tolist(), running.nodes, strict=True):
        if len(numbers):
            chain = np.sort(numbers)
            node["job"][chain] = row
            node["next"][chain[1:]] = chain[:-1]
            state["first_node"][row] = chain[-1]


def _begin_powers(now_ms: int, running: Running, powers: NodePowers, sim: Sim) -> None:
    """Set the power state of each node."""
    node, state, clock = sim["node"], sim["state"], sim["clock"]
    # Events at this time have already happened.
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
    """Fill a heap with (time, job) entries; a sorted table is a valid heap."""
    order = np.lexsort((who, time_ms))
    heap["time"][: len(who)] = time_ms[order]
    heap["job"][: len(who)] = who[order]


def _begin_chains(arrived: int, sim: Sim) -> None:
    """Compute the length of the chains of submitted jobs that wait for each job."""
    if not len(sim["waits"]):
        return
    job, chain = sim["job"], sim["state"]["chain"]
    waiting = np.flatnonzero(job["waits_to"][:arrived] > job["waits_from"][:arrived])
    # By level, so that a job's own chain is final before it lengthens others.
    for row in waiting[np.argsort(job["level"][waiting], kind="stable")].tolist():
        for on in sim["waits"][job["waits_from"][row] : job["waits_to"][row]].tolist():
            chain[on] = max(chain[on], chain[row] + job["expected"][row])
