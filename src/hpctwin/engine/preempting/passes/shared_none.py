"""No backfilling on shared nodes, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.none import block, is_blocked
from hpctwin.engine.preempting.fit_after_eviction import FITS_LATER
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.preempting.shared_start import begin_interrupted, starts_or_preempts
from hpctwin.engine.shared.fit import is_skipped_shared
from hpctwin.engine.shared.suspended_jobs import WAKE_SHARED
from hpctwin.engine.state.layout import Arrays

__all__ = ["PASS"]


def preempting_none(sim: Arrays) -> None:
    """Jobs in order; one that neither fits nor may make room for itself blocks what it asks for."""
    begin_interrupted(sim)
    for i in range(by_level(sim)):
        j = sim.later[i]
        if is_skipped_shared(j, sim):
            continue
        if is_blocked(j, sim) or not starts_or_preempts(j, sim):
            if not block(j, sim):
                return


PASS = SharedPass(
    Kernel(preempting_none, types.void(SIM)),
    in_order=True,
    promises=lambda numbers, partitions: 0,
    fits_later=FITS_LATER,
    wake=WAKE_SHARED,
)
