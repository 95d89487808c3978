"""Pools and resources that a job keeps from later jobs of a pass, ``sim.blocked``."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO, Arrays


@jit
def block_nothing(sim: Arrays) -> None:
    """Let all jobs have all pools and resources."""
    for c in range(len(sim.blocked)):
        sim.blocked[c] = 0


@jit
def hold_blocked(sim: Arrays) -> None:
    """Leave nothing free in the plan of pools that are blocked."""
    for p in range(sim.rules.pools):
        if sim.blocked[p] == 1:
            for row in range(sim.plan_rows[0]):
                sim.plan_amount[row, p] = min(ZERO, sim.plan_amount[row, p])


@jit
def block(j: int, sim: Arrays) -> bool:
    """Keep a job's pools and resources from later jobs; return whether a pool is left."""
    pools = sim.rules.pools
    kind = sim.job[j].kind
    more = False
    left = False
    for p in range(pools):
        if sim.eligible[kind, p] != 0 and sim.blocked[p] == 0:
            sim.blocked[p] = 1
            more = True
        left = left or sim.blocked[p] == 0
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            sim.blocked[pools + c] = 1
    if more and left:
        hold_blocked(sim)
    return left


@jit
def is_blocked(j: int, sim: Arrays) -> bool:
    """Return whether a job uses a pool or resource that is blocked."""
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.blocked[sim.rules.pools + c] != 0:
            return True
    return meets_block(j, sim)


@jit
def meets_block(j: int, sim: Arrays) -> bool:
    """Return whether a job may use a pool that is blocked."""
    kind = sim.job[j].kind
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0 and sim.blocked[p] != 0:
            return True
    return False
