"""First fit on shared nodes: everyone that fits starts, in order; no one is protected."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.passes.common import (
    any_may_fit,
    begin_anew,
    jobs_in_order,
    nth,
    start_if_it_fits,
)
from hpctwin.engine.state.layout import Arrays

__all__ = ["PASS"]


def shared_first_fit(sim: Arrays) -> None:
    """Everyone that fits starts, in order."""
    begin_anew(sim)
    if not any_may_fit(sim):
        return
    for i in range(jobs_in_order(sim)):
        j = nth(i, sim)
        if may_fit(sim.job[j].kind, sim) and not is_skipped_shared(j, sim):
            if start_if_it_fits(j, sim) and not any_may_fit(sim):
                return


PASS = SharedPass(
    Kernel(shared_first_fit, types.void(SIM)),
    promises=lambda numbers, partitions: 0,
)
