"""No backfilling on shared nodes: jobs start in order."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.none import block, is_blocked
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.passes.common import (
    begin_anew,
    jobs_in_order,
    nth,
    start_if_it_fits,
)
from hpctwin.engine.state.layout import Arrays

__all__ = ["PASS"]


def shared_none(sim: Arrays) -> None:
    """Jobs in order; one that does not fit blocks what it asks for."""
    begin_anew(sim)
    for i in range(jobs_in_order(sim)):
        j = nth(i, sim)
        if is_skipped_shared(j, sim):
            continue
        starts = (
            not is_blocked(j, sim) and may_fit(sim.job[j].kind, sim) and start_if_it_fits(j, sim)
        )
        if not starts and not block(j, sim):
            return


PASS = SharedPass(
    Kernel(shared_none, types.void(SIM)),
    in_order=True,
    promises=lambda numbers, partitions: 0,
)
