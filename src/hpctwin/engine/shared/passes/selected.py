"""On shared nodes: the job that was selected from outside starts next; see `passes.selected`."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.selected import (
    AS_IN_RLSCHEDULER,
    Numbers,
    Own,
    begin,
    selection,
    settings,
)
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.node_reservations import earliest, reserve_shared
from hpctwin.engine.shared.passes.common import (
    begin_anew,
    jobs_in_order,
    nth,
    start_if_it_fits,
)
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays

__all__ = ["PASS"]


@jit
def let_pass_shared(selected: int, longest: int, sim: Arrays) -> None:
    """The others, in order, start if they fit what is not promised, and their walltimes are shorter."""
    for i in range(jobs_in_order(sim)):
        j = nth(i, sim)
        if j == selected or sim.job[j].limit >= longest:
            continue
        if may_fit(sim.job[j].kind, sim) and not is_skipped_shared(j, sim):
            start_if_it_fits(j, sim)


@jit
def before_it_begins(selected: int, sim: Arrays) -> int:
    """How long until the selected job could begin by what was planned when it was selected, less cleanup."""
    own = selection(sim.own)[0]
    if own.awaited != selected:
        own.awaited = selected
        own.begin = earliest(selected, ZERO, sim)
    return own.begin - sim.clock.now - sim.rules.cleanup


def shared_selected(sim: Arrays) -> None:
    """The selected job starts if it fits; else others pass it, where they may."""
    own = selection(sim.own)[0]
    j = own.job
    if j < 0 or sim.state[j].phase != WAITING:
        return
    begin_anew(sim)
    if is_skipped_shared(j, sim):
        return
    if may_fit(sim.job[j].kind, sim) and start_if_it_fits(j, sim):
        own.job = own.awaited = -1
        return
    passing = settings(sim.numbers)[0].passing
    if passing == AS_IN_RLSCHEDULER:
        let_pass_shared(j, before_it_begins(j, sim), sim)
    elif passing != 0:
        reserve_shared(j, ZERO, sim)
        let_pass_shared(j, NEVER, sim)


PASS = SharedPass(
    Kernel(shared_selected, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    promises=lambda numbers, partitions: 1,
)
