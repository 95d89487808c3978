"""Jobs start in order; who may pass the first that does not fit, is decided from outside.

An agent stands behind it (`engine.agents`). Those that it may admit are the jobs that fit now; with
``strict`` only those that leave the first its reservation, as with EASY.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Kept", "Own", "admission", "place_of"]


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
def admit(head: int, following: int, size: int, sim: Arrays) -> None:
    """Start the job that was admitted, and note which of the others could follow.

    Args:
        head: First job that does not fit.
        following: Place in order after it.
        size: Jobs in order.
        sim: Simulation.
    """
    own = admission(sim.own)[0]
    if settings(sim.numbers)[0].strict != 0:
        capacity.reserve(head, ZERO, sim)
    j = own.admitted
    if j >= 0 and sim.state[j].phase == WAITING and not capacity.is_skipped(j, sim):
        if capacity.may_fit(j, sim):
            capacity.start(j, sim)
    places = place_of(sim.kept)
    for i in range(following, size):
        j = capacity.job_at(i, size, sim)
        if j == own.admitted or not capacity.may_fit(j, sim) or capacity.is_skipped(j, sim):
            continue
        if capacity.fits(j, sim):
            places[j].place = own.found
            own.found += 1


def pass_admitted(sim: Arrays) -> None:
    """Start jobs in order until one does not fit, then the job that was admitted."""
    own = admission(sim.own)[0]
    own.found = 0
    for j in range(len(sim.kept)):
        place_of(sim.kept)[j].place = -1
    capacity.begin_pass(sim)
    size = capacity.order_jobs(sim) if capacity.any_may_start(sim) else ZERO
    for i in range(size):
        j = capacity.job_at(i, size, sim)
        if capacity.is_skipped(j, sim):
            continue
        if not (capacity.may_fit(j, sim) and capacity.start(j, sim)):
            admit(j, i + 1, size, sim)
            break
    own.admitted = -1


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nobody is admitted yet."""
    own["admitted"] = -1
    own["found"] = 0
    kept["place"] = -1


PASS = Pass(
    pass_admitted,
    numbers=Numbers,
    own=Own,
    kept=Kept,
    begin=begin,
    reservations=lambda numbers, partitions: 1,
)
