"""Which waiting jobs a pass need not look at."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    DOWN,
    FREE,
    KIND,
    NODES,
    QUEUE,
    QUEUED,
    USER,
    Jobs,
    Machine,
    Sim,
)


@jit()
def is_skipped(j: int, jobs: Jobs, machine: Machine, sim: Sim) -> bool:
    """Whether the pass goes by a job: more nodes than are up, or its user's limit is reached."""
    kind = jobs.fixed[KIND, j]
    up = 0
    for p in range(machine.speed.shape[0]):
        if machine.eligible[kind, p] != 0:
            up += machine.amount[p] - sim.amount[DOWN, p]
    if up < jobs.fixed[NODES, j]:
        return True
    if sim.user_running.shape[1] > 0:
        partition = machine.partition[kind]
        limit = machine.user_limit[partition]
        user = jobs.fixed[USER, j]
        return limit > 0 and user > 0 and sim.user_running[partition, user] >= limit
    return False


@jit(inline=True)
def may_start(jobs: Jobs, machine: Machine, sim: Sim) -> bool:
    """Whether any waiting job is narrow enough for what is free now."""
    free = 0
    for p in range(machine.speed.shape[0]):
        if sim.amount[FREE, p] > 0:
            free += sim.amount[FREE, p]
    if free == 0:
        return False
    for i in range(sim.count[QUEUED]):
        if jobs.fixed[NODES, sim.number[QUEUE, i]] <= free:
            return True
    return False
