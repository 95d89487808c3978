"""On shared nodes: who may pass the first, is decided from outside; see `passes.admitted`."""

from __future__ import annotations

from numba import types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.passes.admitted import (
    Kept,
    Numbers,
    Own,
    admission,
    begin,
    place_of,
    settings,
)
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.node_reservations import reserve_shared
from hpctwin.engine.shared.passes.common import (
    any_may_fit,
    begin_anew,
    fits_plan_now,
    jobs_in_order,
    nth,
    start_if_it_fits,
)
from hpctwin.engine.state.layout import WAITING, ZERO, Arrays

__all__ = ["PASS"]


@jit
def can_start(j: int, sim: Arrays) -> bool:
    """Whether a job need be looked at."""
    return may_fit(sim.job[j].kind, sim) and not is_skipped_shared(j, sim)


@jit
def admit_shared(head: int, following: int, size: int, sim: Arrays) -> None:
    """The one that was admitted starts; who of the others could follow is noted.

    Args:
        head: the first that does not fit.
        following: the place in order after it.
        size: jobs that are in order.
        sim: the simulation.
    """
    own = admission(sim.own)[0]
    if settings(sim.numbers)[0].strict != 0:
        reserve_shared(head, ZERO, sim)
    j = own.admitted
    if j >= 0 and sim.state[j].phase == WAITING and can_start(j, sim):
        start_if_it_fits(j, sim)
    places = place_of(sim.kept)
    for i in range(following, size):
        j = nth(i, sim)
        if j != own.admitted and can_start(j, sim) and fits_plan_now(j, sim):
            places[j].place = own.found
            own.found += 1


def shared_admitted(sim: Arrays) -> None:
    """In order, until one does not fit; then who was admitted."""
    own = admission(sim.own)[0]
    own.found = 0
    for j in range(len(sim.kept)):
        place_of(sim.kept)[j].place = -1
    begin_anew(sim)
    size = jobs_in_order(sim) if any_may_fit(sim) else ZERO
    for i in range(size):
        j = nth(i, sim)
        if is_skipped_shared(j, sim):
            continue
        if not may_fit(sim.job[j].kind, sim) or not start_if_it_fits(j, sim):
            admit_shared(j, i + 1, size, sim)
            break
    own.admitted = -1


PASS = SharedPass(
    Kernel(shared_admitted, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    kept=Kept,
    begin=begin,
    promises=lambda numbers, partitions: 1,
)
