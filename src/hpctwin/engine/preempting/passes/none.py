"""No backfilling, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.jobs.suspended_jobs import WAKE
from hpctwin.engine.passes import Pass
from hpctwin.engine.passes.none import block, is_blocked
from hpctwin.engine.preempting.eviction import build_plan, starts_or_preempts
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import reckon_fairshare
from hpctwin.engine.state.layout import Arrays

__all__ = ["PASS", "pass_none"]


@jit
def pass_none(sim: Arrays) -> None:
    """Jobs in order; one that neither fits nor may make room for itself blocks what it asks for."""
    reckon_fairshare(sim)
    build_plan(sim)
    for c in range(len(sim.blocked)):
        sim.blocked[c] = 0
    for i in range(by_level(sim)):
        j = sim.later[i]
        if is_skipped(j, sim):
            continue
        if is_blocked(j, sim) or not starts_or_preempts(j, sim):
            if not block(j, sim):
                return


PASS = Pass(
    Kernel(pass_none, types.void(SIM)),
    in_order=True,
    wake=WAKE,
    shared="hpctwin.engine.preempting.passes.shared_none",
)
