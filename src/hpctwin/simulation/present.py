"""A simulation that begins in the middle: some jobs run already, others wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.engine import layout
from hpctwin.engine.layout import Sim
from hpctwin.simulation.lower import pool_of_nodes
from hpctwin.simulation.simulation import Simulation

__all__ = ["Running", "begin_at"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Running:
    """The jobs that run at the beginning (R of them).

    Args:
        rows: their rows in the workload [R].
        start_ms: when each started [R].
        end_ms: when each will end in this simulation, after the beginning [R].
        nodes: the node numbers that each holds.
    """

    rows: IntArray
    start_ms: IntArray
    end_ms: IntArray
    nodes: tuple[IntArray, ...]


def begin_at(
    simulation: Simulation, now_ms: int, running: Running, away: IntArray, leaving: IntArray
) -> None:
    """Put a new simulation, in which nothing has happened yet, into the middle of things.

    Jobs submitted up to now wait, unless they run; the first scheduling pass is due now. The queue is
    in no order: the simulation must be forked under a policy to be run. Usage for fair share is counted
    from what the running jobs have used. Nodes are only counted.

    Args:
        simulation: a new one, without tracked nodes.
        now_ms: the present.
        running: the jobs that run.
        away: numbers of the nodes that are down or drained and idle; they do not come back.
        leaving: numbers of the drained nodes that are still in use; they do not come back
            when their jobs end.
    """
    jobs, machine, sim = simulation.arrays
    pools = len(machine.speed)
    pool = pool_of_nodes(simulation.cluster)
    rows = running.rows
    leaves = np.zeros(len(pool), bool)
    leaves[leaving] = True
    take = np.zeros((len(rows), pools), np.int64)
    gone = np.zeros(pools, np.int64)
    for i, nodes in enumerate(running.nodes):
        stays = ~leaves[nodes]
        take[i] = np.bincount(pool[nodes[stays]], minlength=pools)
        gone += np.bincount(pool[nodes[~stays]], minlength=pools)
    gone += np.bincount(pool[away], minlength=pools)
    # A job gives back only the nodes that do not leave.
    jobs.fixed[layout.NODES, rows] = take.sum(axis=1)

    count = sim.count
    count[layout.NOW] = now_ms
    count[layout.PASS_DUE] = 1
    arrived = int(np.searchsorted(jobs.fixed[layout.SUBMIT], now_ms, side="right"))
    count[layout.ARRIVED] = arrived
    _begin_maintenance(now_ms, machine.maint, machine.amount, sim)
    _begin_running(running, take, jobs, sim)
    resources = jobs.resources[rows].sum(axis=0)
    sim.amount[layout.FREE] -= np.concatenate([take.sum(axis=0) + gone, resources])
    sim.amount[layout.DOWN, :pools] += gone
    partition = machine.partition[jobs.fixed[layout.KIND, rows]]
    if sim.user_running.shape[1]:
        np.add.at(sim.user_running, (partition, jobs.fixed[layout.USER, rows]), 1)
    _begin_usage(now_ms, running, take.sum(axis=1), jobs.fixed[layout.SHARE, rows], sim)
    _begin_waiting(arrived, jobs, sim)


def _begin_maintenance(now_ms: int, maint: IntArray, amount: IntArray, sim: Sim) -> None:
    done = maint[layout.MAINT_TIME] <= now_ms
    sim.count[layout.MAINT_DONE] = int(done.sum())
    pools = maint[layout.MAINT_POOL, done]
    np.add.at(sim.amount[layout.FREE], pools, maint[layout.MAINT_SIGN, done] * amount[pools])


def _begin_running(running: Running, take: IntArray, jobs: layout.Jobs, sim: Sim) -> None:
    rows = running.rows
    sim.flag[layout.STATE, rows] = layout.RUNNING
    sim.flag[layout.OUTCOME, rows] = layout.COMPLETED
    sim.flag[layout.STARTED, rows] = 1
    sim.time[layout.ELIGIBLE, rows] = jobs.fixed[layout.SUBMIT, rows]
    sim.time[layout.START, rows] = running.start_ms
    sim.time[layout.END, rows] = running.end_ms
    if sim.take.shape[0]:
        sim.take[rows] = take
    size = len(rows)
    # A sorted table is a heap.
    by_end = np.lexsort((rows, running.end_ms))
    sim.running[0, :size] = running.end_ms[by_end]
    sim.running[1, :size] = rows[by_end]
    planned = running.start_ms + jobs.fixed[layout.EXPECTED, rows]
    by_plan = np.lexsort((rows, planned))
    sim.running[layout.PLANNED, :size] = planned[by_plan]
    sim.running[layout.RUNS, :size] = rows[by_plan]
    sim.count[layout.ENDS] = size
    sim.count[layout.RUN] = size


def _begin_usage(now_ms: int, running: Running, nodes: IntArray, label: IntArray, sim: Sim) -> None:
    used = (nodes * (now_ms - running.start_ms)).astype(np.float64)
    for target, values in ((layout.USED, used), (layout.USED_NODES, nodes)):
        np.add.at(sim.usage[target], label, values)
        sim.usage[target, -1] = values.sum()
    sim.usage[layout.USED_AT] = now_ms


def _begin_waiting(arrived: int, jobs: layout.Jobs, sim: Sim) -> None:
    """Queue the jobs that were submitted and do not run; those that wait for others are pending."""
    state = sim.flag[layout.STATE]
    there = np.arange(arrived)
    there = there[state[there] != layout.RUNNING]
    rejected = there[jobs.fixed[layout.REJECT, there] != 0]
    state[rejected] = layout.REJECTED
    sim.count[layout.ALIVE] -= len(rejected)
    there = there[jobs.fixed[layout.REJECT, there] == 0]
    depends = sim.number[layout.OPEN, there] > 0
    state[there[depends]] = layout.PENDING
    waiting = there[~depends]
    state[waiting] = layout.WAITING
    sim.time[layout.ELIGIBLE, waiting] = jobs.fixed[layout.SUBMIT, waiting]
    sim.number[layout.QUEUE, : len(waiting)] = waiting
    sim.count[layout.QUEUED] = len(waiting)
    if len(waiting):
        sim.count[layout.OLDEST] = jobs.fixed[layout.SUBMIT, waiting].min()
    _begin_chains(arrived, jobs, sim)


def _begin_chains(arrived: int, jobs: layout.Jobs, sim: Sim) -> None:
    """How long the chains are that wait for each job, among those submitted."""
    by_level = np.argsort(jobs.fixed[layout.LEVEL, :arrived], kind="stable")
    chain = sim.number[layout.CHAIN]
    for job in by_level.tolist():
        waits = slice(jobs.fixed[layout.WAITS_FROM, job], jobs.fixed[layout.WAITS_TO, job])
        for on in jobs.edges[layout.WAITS_ON, waits].tolist():
            chain[on] = max(chain[on], chain[job] + jobs.fixed[layout.EXPECTED, job])
