"""No backfilling: jobs start in order."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import fits_plan, plan_build
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import NOBODY_PASSES, Arrays

__all__ = ["PASS", "pass_none"]


@jit
def is_blocked(j: int, sim: Arrays) -> bool:
    """Whether a job before this one blocks what it asks for."""
    pools = sim.rules.pools
    kind = sim.job[j].kind
    for p in range(pools):
        if sim.eligible[kind, p] != 0 and sim.blocked[p] != 0:
            return True
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0 and sim.blocked[pools + c] != 0:
            return True
    return False


@jit
def block(j: int, sim: Arrays) -> bool:
    """A job that does not fit blocks what it asks for; whether any pool is left to others."""
    pools = sim.rules.pools
    kind = sim.job[j].kind
    for p in range(pools):
        if sim.eligible[kind, p] != 0:
            sim.blocked[p] = 1
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            sim.blocked[pools + c] = 1
    for p in range(pools):
        if sim.blocked[p] == 0:
            return True
    return False


@jit
def pass_planned(sim: Arrays) -> None:
    """The pass over a plan: several pools, resources, maintenance."""
    plan_build(sim)
    for c in range(len(sim.blocked)):
        sim.blocked[c] = 0
    for n in range(order_queue(sim), 0, -1):
        j = pop_order(n, sim)
        if is_skipped(j, sim):
            continue
        if not is_blocked(j, sim) and fits_plan(j, sim):
            start_now(j, sim)
        elif not block(j, sim):
            return


@jit
def pass_none(sim: Arrays) -> None:
    """Jobs in order; one that does not fit blocks what it asks for."""
    if may_start(sim):
        reckon_fairshare(sim)
        pass_planned(sim)


PASS = Pass(
    Kernel(pass_none, types.void(SIM)),
    in_order=True,
    others=NOBODY_PASSES,
    keeps="a job before it does not fit, and nobody passes",
    shared="hpctwin.engine.shared.passes.none",
)
