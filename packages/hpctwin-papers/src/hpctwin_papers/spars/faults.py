"""Single faults of SPARS's EASY and Auto On, to show the effect of each alone.

EASY has three faults:

- It backfills only with three pending jobs.
- The head's reservation is lost if a job before it started in the same pass.
- It does not backfill while the head is wider than the nodes that are not switching off.

Auto On has two faults:

- It takes sleeping nodes before idle ones as soon as one is needed.
- It does not count nodes that are switching off as nodes a job could wait for.
"""

from __future__ import annotations

from dataclasses import replace

from hpctwin.engine.compile.entry_points import UNAWARE
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import PASSES, made_of
from hpctwin.engine.passes.easy import Numbers, pass_easy
from hpctwin.engine.passes.first_fit import pass_first_fit
from hpctwin.engine.passes.none import pass_none
from hpctwin.engine.powers import POWER_PASSES, PowerPass
from hpctwin.engine.queue.order import drop_started
from hpctwin.engine.state.layout import (
    LEAST_DRAW,
    NOT_SWITCHING_OFF,
    SOONEST,
    SWITCHING_OFF,
    Arrays,
)


@jit
def start_in_order(sim: Arrays) -> bool:
    """Start jobs in order as long as they fit; return whether any did."""
    started = sim.clock.starts
    pass_none(sim)
    if sim.clock.starts > started:
        drop_started(sim)
    return sim.clock.starts > started


@jit
def head_cannot_be_planned(sim: Arrays) -> bool:
    """Return whether the head is wider than all nodes that are not switching off."""
    there = 0
    for node in range(len(sim.node)):
        if sim.node[node].power != SWITCHING_OFF:
            there += 1
    return sim.job[sim.queue[0]].nodes > there


def three_waiting(sim: Arrays) -> None:
    """Backfill only with three pending jobs."""
    start_in_order(sim)
    if sim.clock.queued > 2:
        pass_easy(sim)


def lost_reservation(sim: Arrays) -> None:
    """Lose the head's reservation if a job before it started in the same pass."""
    started = start_in_order(sim)
    if sim.clock.queued > 0:
        if started:
            pass_first_fit(sim)
        else:
            pass_easy(sim)


def stops_while_off(sim: Arrays) -> None:
    """Do not backfill while the head is wider than the nodes that are not switching off."""
    start_in_order(sim)
    if sim.clock.queued > 0 and not head_cannot_be_planned(sim):
        pass_easy(sim)


FAULTY_BACKFILLS = {
    name: f"easy-{name}" for name in ("three-waiting", "lost-reservation", "stops-while-off")
}
"""Name of the EASY with each fault."""
for _function in (three_waiting, lost_reservation, stops_while_off):
    _name = FAULTY_BACKFILLS[_function.__name__.replace("_", "-")]
    PASSES.register(_name, replace(made_of(_function), numbers=Numbers))

FAULTY_POWERS = {name: f"psas-auto-{name}" for name in ("sleepers-first", "hides-switching-off")}
"""Name of the ``psas-auto`` with each fault."""
POWER_PASSES.register(
    FAULTY_POWERS["sleepers-first"], PowerPass(UNAWARE, preferred=int(LEAST_DRAW), timeouts=True)
)
POWER_PASSES.register(
    FAULTY_POWERS["hides-switching-off"],
    PowerPass(UNAWARE, shown=int(NOT_SWITCHING_OFF), preferred=int(SOONEST), timeouts=True),
)
