"""First fit on shared nodes, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.jit import Kernel
from hpctwin.engine.layout import ZERO, Arrays
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.preempting.later import FITS_LATER
from hpctwin.engine.preempting.on_shared import any_may_start, begin_interrupted, starts_or_preempts
from hpctwin.engine.preempting.order import by_level
from hpctwin.engine.rows import SIM
from hpctwin.engine.shared.promises import reserve_shared
from hpctwin.engine.shared.room import is_skipped_shared
from hpctwin.engine.shared.suspended import WAKE_SHARED

__all__ = ["PASS"]


def preempting_first_fit(sim: Arrays) -> None:
    """Everyone that fits starts, in order, or makes room for itself, which is then kept for it."""
    begin_interrupted(sim)
    if not any_may_start(sim):
        return
    for i in range(by_level(sim)):
        j = sim.later[i]
        if is_skipped_shared(j, sim) or starts_or_preempts(j, sim):
            continue
        if sim.cut[j].waits > sim.clock.now:
            reserve_shared(j, ZERO, sim)


PASS = SharedPass(
    Kernel(preempting_first_fit, types.void(SIM)), fits_later=FITS_LATER, wake=WAKE_SHARED
)
