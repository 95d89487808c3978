"""First fit, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import reserve
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.jobs.suspended_jobs import WAKE
from hpctwin.engine.passes import Pass
from hpctwin.engine.preempting.eviction import build_plan, starts_or_preempts
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import reckon_fairshare
from hpctwin.engine.state.layout import Arrays

__all__ = ["PASS", "pass_first_fit"]


@jit
def pass_first_fit(sim: Arrays) -> None:
    """Everyone that fits starts, in order, or makes room for itself, which is then kept for it."""
    reckon_fairshare(sim)
    build_plan(sim)
    for i in range(by_level(sim)):
        j = sim.later[i]
        if is_skipped(j, sim) or starts_or_preempts(j, sim):
            continue
        if sim.cut[j].waits > sim.clock.now:
            reserve(j, sim)


PASS = Pass(
    Kernel(pass_first_fit, types.void(SIM)),
    wake=WAKE,
    shared="hpctwin.engine.preempting.passes.shared_first_fit",
)
