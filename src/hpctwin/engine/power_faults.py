"""EASY with one of the faults of SPARS's schedulers, to show what each alone moves."""

from __future__ import annotations

from numba import types

from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import SWITCHING_OFF, Arrays
from hpctwin.engine.order import drop_started
from hpctwin.engine.passes import Pass
from hpctwin.engine.passes.easy import Numbers, pass_easy
from hpctwin.engine.passes.first_fit import pass_first_fit
from hpctwin.engine.passes.none import pass_none
from hpctwin.engine.rows import SIM

__all__ = ["FAULTY"]


@jit
def start_in_order(sim: Arrays) -> bool:
    """Start those that come first in order, as long as they fit; whether any did."""
    started = sim.clock.starts
    pass_none(sim)
    if sim.clock.starts > started:
        drop_started(sim)
    return sim.clock.starts > started


@jit
def head_cannot_be_planned(sim: Arrays) -> bool:
    """Whether the first waiting job is wider than all nodes that are not switching off."""
    there = 0
    for node in range(len(sim.node)):
        if sim.node[node].power != SWITCHING_OFF:
            there += 1
    return sim.job[sim.queue[0]].nodes > there


def three_waiting(sim: Arrays) -> None:
    """Backfilling only with three jobs waiting."""
    start_in_order(sim)
    if sim.clock.queued > 2:
        pass_easy(sim)


def lost_reservation(sim: Arrays) -> None:
    """The head's reservation is lost if a job before it started in the same pass."""
    started = start_in_order(sim)
    if sim.clock.queued > 0:
        if started:
            pass_first_fit(sim)
        else:
            pass_easy(sim)


def stops_while_off(sim: Arrays) -> None:
    """No backfilling while the head is wider than what is not switching off."""
    start_in_order(sim)
    if sim.clock.queued > 0 and not head_cannot_be_planned(sim):
        pass_easy(sim)


FAULTY = {
    name: Pass(Kernel(function, types.void(SIM)), numbers=Numbers)
    for name, function in (
        ("three-waiting", three_waiting),
        ("lost-reservation", lost_reservation),
        ("stops-while-off", stops_while_off),
    )
}
