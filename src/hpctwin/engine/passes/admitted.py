"""Jobs start in order; who may pass the first that does not fit, is decided from outside.

An agent stands behind it (`engine.agents`). Those that it may admit are the jobs that fit now; with
``strict`` only those that leave the first its reservation, as with EASY.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hpctwin.engine.capacity.plan import fits_at_once, fits_plan, plan_build, reserve
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import WAITING, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Kept", "Own", "admission", "pass_admitted", "place_of"]


class Numbers:
    """What a policy may set."""

    strict: Int = 1  # 0: also jobs that delay the first


class Own:
    """What is kept."""

    admitted: Int  # the job that may pass in the next pass; -1
    found: Int  # so many could, in the last pass


class Kept:
    """What is kept of each job."""

    place: Int  # among those that could pass, in order; -1 for the others


settings, admission, place_of = view(Numbers), view(Own), view(Kept)


@jit
def admit(head: int, left: int, sim: Arrays) -> None:
    """The one that was admitted starts; who of the others could follow is noted."""
    own = admission(sim.own)[0]
    strict = settings(sim.numbers)[0].strict
    if strict != 0:
        reserve(head, sim)
    j = own.admitted
    if j >= 0 and sim.state[j].phase == WAITING and fits_plan(j, sim) and not is_skipped(j, sim):
        start_now(j, sim)
    places = place_of(sim.kept)
    for n in range(left, 0, -1):
        j = pop_order(n, sim)
        if j == own.admitted or is_skipped(j, sim):
            continue
        if fits_at_once(j, sim) and fits_plan(j, sim):
            places[j].place = own.found
            own.found += 1


@jit
def pass_admitted(sim: Arrays) -> None:
    """In order, until one does not fit; then who was admitted."""
    own = admission(sim.own)[0]
    own.found = 0
    for j in range(len(sim.kept)):
        place_of(sim.kept)[j].place = -1
    if may_start(sim):
        reckon_fairshare(sim)
        plan_build(sim)
        for left in range(order_queue(sim), 0, -1):
            j = pop_order(left, sim)
            if is_skipped(j, sim):
                continue
            if not fits_plan(j, sim):
                admit(j, left - 1, sim)
                break
            start_now(j, sim)
    own.admitted = -1


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nobody is admitted yet."""
    own["admitted"] = -1
    own["found"] = 0
    kept["place"] = -1


PASS = Pass(
    Kernel(pass_admitted, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    kept=Kept,
    begin=begin,
    shared="hpctwin.engine.shared.passes.admitted",
)
