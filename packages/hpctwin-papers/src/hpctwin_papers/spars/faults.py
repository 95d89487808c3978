"""One fault of SPARS's schedulers each, to show what it alone moves: of EASY's, and of Auto On's.

EASY backfills only with three jobs waiting; the head's reservation is lost if a job before it started in
the same pass; no backfilling while the head is wider than what is not switching off. Auto On takes sleeping
nodes before idle ones as soon as one is needed; nodes that are switching off are not counted as nodes a job
could wait for.
"""

from __future__ import annotations

from dataclasses import replace

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import PASSES, made_of
from hpctwin.engine.passes.easy import Numbers, pass_easy
from hpctwin.engine.passes.first_fit import pass_first_fit
from hpctwin.engine.passes.none import pass_none
from hpctwin.engine.power.policy_hooks import UNAWARE
from hpctwin.engine.powers import POWER_PASSES, PowerPass
from hpctwin.engine.queue.order import drop_started
from hpctwin.engine.state.layout import (
    LEAST_DRAW,
    NOT_SWITCHING_OFF,
    SOONEST,
    SWITCHING_OFF,
    Arrays,
)

__all__ = ["FAULTY_BACKFILLS", "FAULTY_POWERS"]


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


FAULTY_BACKFILLS = {
    name: f"easy-{name}" for name in ("three-waiting", "lost-reservation", "stops-while-off")
}
"""By fault the name of an EASY that has it."""
for _function in (three_waiting, lost_reservation, stops_while_off):
    _name = FAULTY_BACKFILLS[_function.__name__.replace("_", "-")]
    PASSES.register(_name, replace(made_of(_function), numbers=Numbers))

FAULTY_POWERS = {name: f"psas-auto-{name}" for name in ("sleepers-first", "hides-switching-off")}
"""By fault the name of a ``psas-auto`` that has it."""
POWER_PASSES.register(
    FAULTY_POWERS["sleepers-first"], PowerPass(UNAWARE, preferred=int(LEAST_DRAW), timeouts=True)
)
POWER_PASSES.register(
    FAULTY_POWERS["hides-switching-off"],
    PowerPass(UNAWARE, shown=int(NOT_SWITCHING_OFF), preferred=int(SOONEST), timeouts=True),
)
