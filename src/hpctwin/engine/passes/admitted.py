"""Jobs start in order; an agent admits jobs past the first that does not fit.

See `engine.agents`. The agent may admit jobs that fit now; with ``strict``, only jobs that do not
delay the first job's reservation, as with EASY.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Kept", "Own", "admission", "place_of"]


class Numbers:
    """Settings of the backfill."""

    strict: Int = 1  # 0: jobs that delay the first may be admitted too


class Own:
    """State that lasts from one pass to the next."""

    admitted: Int  # the job that may pass in the next pass; -1: none
    found: Int  # number of jobs that could have passed in the last pass


class Kept:
    """State of each job that lasts from one pass to the next."""

    place: Int  # its place, in order, among the jobs that could pass; -1: it could not


settings, admission, place_of = view(Numbers), view(Own), view(Kept)


@jit
def admit(head: int, following: int, size: int, sim: Arrays) -> None:
    """Start the admitted job, and record which of the others could be next.

    Args:
        head: First job that does not fit.
        following: Place in order after it.
        size: Number of jobs in order.
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
    """Start jobs in order until one does not fit, then the admitted job."""
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
        tries = capacity.may_fit(j, sim) or capacity.may_preempt(j, sim)
        if not (tries and capacity.start_or_preempt(j, sim)):
            admit(j, i + 1, size, sim)
            break
    own.admitted = -1


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Set the initial state: no job is admitted."""
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
