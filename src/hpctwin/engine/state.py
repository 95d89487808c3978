"""Making, growing and copying the state of a simulation."""

from __future__ import annotations

import numpy as np

from hpctwin.engine import layout
from hpctwin.engine.layout import I64, Jobs, Machine, Sim, Work

__all__ = ["fork_sim", "more_outages", "more_room", "new_sim", "new_work", "prepared"]


def new_sim(jobs: Jobs, machine: Machine, *, seed: int, backfill: int) -> Sim:
    """The state before anything has happened."""
    size = jobs.fixed.shape[1]
    pools = len(machine.speed)
    tracked = machine.node.shape[1]
    labels = len(machine.share)
    nodes = int(machine.amount[:pools].sum())
    waits = jobs.edges.shape[1] > 0
    limited = bool((machine.user_limit > 0).any())
    users = int(jobs.fixed[layout.USER].max(initial=0)) + 1 if limited else 0
    count = np.zeros(layout.COUNTS, np.int64)
    count[layout.ALIVE] = size
    count[layout.ARRIVAL_END] = size
    count[layout.RNG] = seed
    count[[layout.TIMER, layout.OLDEST]] = layout.NEVER
    minus_one = (layout.STOP_JOB, layout.BAD_JOB, layout.ONLY_OUTAGES_SINCE, layout.CYCLE_AT)
    count[list(minus_one)] = -1
    flag = np.zeros((4, size), np.int8)
    flag[layout.STATE] = layout.UNSUBMITTED
    number = np.zeros((5, size), np.int64)
    number[layout.OPEN] = np.bincount(jobs.edges[layout.EDGE_JOB], minlength=size)
    number[layout.FIRST_NODE] = -1
    node = np.full((3, tracked), -1, np.int64)
    node[layout.NODE_DOWN] = 0
    sim = Sim(
        count=count,
        time=np.full((5 if waits else 3, size), -1, np.int64),
        flag=flag,
        number=number,
        key=np.zeros(size),
        take=np.zeros((size if pools > 1 else 0, pools), np.int64),
        running=np.zeros((4, min(size, nodes)), np.int64),
        releases=np.zeros((2, size if waits else 0), np.int64),
        amount=np.stack([machine.amount, np.zeros_like(machine.amount)]),
        user_running=np.zeros((len(machine.user_limit), users), np.int64),
        usage=np.zeros((3, labels + 1)),
        node=node,
        outage=np.zeros((3, 0), np.int64),
        lost=np.zeros((3, 0), np.int64),
        segment=np.zeros((4, 0), np.int64),
        push=np.zeros((layout.PUSH_ROWS, 0), np.int64),
    )
    return prepared(sim, backfill)


def prepared(sim: Sim, backfill: int) -> Sim:
    """The state with room for what a kind of pass keeps, and nothing kept yet."""
    sim = sim._replace(push=np.zeros((layout.PUSH_ROWS, 0), np.int64))
    if backfill == layout.BACKFILL_CONSERVATIVE:
        return with_reservations(sim)
    return with_pushdown(sim) if backfill == layout.BACKFILL_PUSHDOWN else sim


def with_pushdown(sim: Sim) -> Sim:
    """The state with empty lists of pushdown."""
    size = sim.time.shape[1]
    push = np.full((layout.PUSH_ROWS, size + layout.LISTS), -1, np.int64)
    push[[layout.PUSHED, layout.RISEN]] = 0
    ends = np.arange(size, size + layout.LISTS)
    push[layout.NEXT, ends] = push[layout.PREVIOUS, ends] = ends
    push[layout.SLOT, ends] = push[layout.SLOTTED, ends] = 0
    count = sim.count.copy()
    count[layout.TOLD] = 0
    count[layout.CYCLE_AT] = -1
    return sim._replace(push=push, count=count)


def with_reservations(sim: Sim) -> Sim:
    """The state with room for reservations that last, and none made yet."""
    time = sim.time
    if len(time) <= layout.HELD:
        time = np.concatenate([time, np.full((1, time.shape[1]), -1, np.int64)])
    time[layout.HELD] = -1
    return sim._replace(time=time)


def fork_sim(sim: Sim) -> Sim:
    """A copy that shares nothing with its parent."""
    return Sim(*(array.copy() for array in sim))


def more_room(sim: Sim) -> Sim:
    """Room for the records of lost attempts and of node use, doubled where it gets short."""
    nodes = sim.node.shape[1]
    if nodes == 0:
        return sim

    def grown(table: I64, used: int) -> I64:
        if used + nodes <= table.shape[1]:
            return table
        wider = np.zeros((len(table), 2 * table.shape[1] + 2 * nodes), np.int64)
        wider[:, :used] = table[:, :used]
        return wider

    return sim._replace(
        lost=grown(sim.lost, int(sim.count[layout.LOST])),
        segment=grown(sim.segment, int(sim.count[layout.SEGMENTS])),
    )


def more_outages(sim: Sim, node: I64, start: I64, end: I64) -> Sim:
    """Add outages; all must lie at or after the present instant.

    Args:
        sim: the state.
        node: node numbers.
        start: when each fails, ms.
        end: when each is back, ms.
    """
    fails = np.stack([start, node, np.full(len(node), -1)])
    returns = np.stack([end, node, np.ones(len(node), np.int64)])
    coming = sim.outage[:, sim.count[layout.OUTAGES_DONE] :]
    table = np.concatenate([coming, fails, returns], axis=1)
    order = np.lexsort(
        (table[layout.OUTAGE_NODE], table[layout.OUTAGE_SIGN], table[layout.OUTAGE_TIME])
    )
    count = sim.count.copy()
    count[layout.OUTAGES_DONE] = 0
    return sim._replace(count=count, outage=np.ascontiguousarray(table[:, order]))


def new_work(jobs: Jobs, machine: Machine, sim: Sim) -> Work:
    """Scratch memory for a run, with twice the rows that a plan needs at present."""
    size = jobs.fixed.shape[1]
    width = sim.amount.shape[1]
    busy = int(sim.count[layout.RUN] + sim.count[layout.QUEUED])
    rows = 8 * busy + 2 * machine.windows.shape[1] + 256
    return Work(
        size=np.zeros(1, np.int64),
        time=np.empty(rows, np.int64),
        amount=np.empty((rows, width), np.int64),
        low=np.empty(width, np.int64),
        take=np.empty(len(machine.speed), np.int64),
        blocked=np.empty(width, np.int8),
        handed_out=np.empty(len(machine.user_limit), np.int64),
        job=np.empty((3, size + jobs.edges.shape[1]), np.int64),
        score=np.empty(size),
        share=np.empty((2, sim.usage.shape[1])),
    )
