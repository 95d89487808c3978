"""First fit on shared nodes, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.preempting.fit_after_eviction import FITS_LATER
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.preempting.shared_start import (
    any_may_start,
    begin_interrupted,
    starts_or_preempts,
)
from hpctwin.engine.shared.fit import is_skipped_shared
from hpctwin.engine.shared.node_reservations import reserve_shared
from hpctwin.engine.shared.suspended_jobs import WAKE_SHARED
from hpctwin.engine.state.layout import ZERO, Arrays

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
