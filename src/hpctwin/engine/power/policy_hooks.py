"""What power policies do at each instant: hooks of the loop, before and after the pass."""

from __future__ import annotations

from typing import Any

from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, sim_at
from hpctwin.engine.power.node_states import (
    end_transitions,
    look_again,
    next_due,
    note_use,
    switch_off,
    switch_on,
)
from hpctwin.engine.power.switching_plan import manage, switch_off_due
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = ["BEFORE", "MANAGED", "UNAWARE", "give_orders"]


@jit
def open_all(sim: Arrays) -> int:
    """Every node may be switched off; when the first one's time has come."""
    first = note_use(sim)
    sim.clock.wake_at = NEVER
    for p in range(sim.rules.pools):
        sim.spare[p].allowed = NEVER
    return first


@jit
def switch_and_look_again(first: int, deeper: bool, sim: Arrays) -> None:
    """Switch off whose time has come, and have the engine come back when there is more to do.

    Args:
        first: when the first one's time has come.
        deeper: whether sleeping nodes may go deeper.
        sim: the simulation.
    """
    at_once = False
    if first <= sim.clock.now:
        at_once = switch_off_due(deeper, sim)
    # Transitions that take no time are over at once.
    end_transitions(sim)
    note_use(sim)
    look_again(sim.clock.now if at_once else next_due(sim), sim)


def before_pass(sim: Arrays) -> None:
    """Transitions end."""
    end_transitions(sim)


def after_pass_unaware(sim: Arrays) -> None:
    """Nodes that have been idle for their timeout are switched off; those that jobs were given, on."""
    switch_and_look_again(open_all(sim), True, sim)


def after_pass_managed(sim: Arrays) -> None:
    """Nodes are woken in time for the plan, and left on if it needs them soon."""
    first = open_all(sim)
    manage(sim)
    # Who waits could need a sleeping node sooner than it would be back from deeper.
    switch_and_look_again(first, sim.clock.queued == 0, sim)


BEFORE = Kernel(before_pass, types.void(SIM), unrolled=False)
UNAWARE = Kernel(after_pass_unaware, types.void(SIM), unrolled=False)
MANAGED = Kernel(after_pass_managed, types.void(SIM), unrolled=False)


def _give_orders(address: int, nodes: Any, on: int) -> None:
    sim = sim_at(address)
    for i in range(len(nodes)):
        if on == 1:
            switch_on(nodes[i], sim)
        else:
            switch_off(nodes[i], ZERO, sim)
    end_transitions(sim)
    if sim.clock.switching > 0:
        sim.clock.timer = min(sim.clock.timer, sim.switching[0].time)
    sim.clock.pass_due = 1


give_orders = Kernel(_give_orders, types.void(int64, types.Array(int64, 1, "C"), int64))
"""Switch nodes on (1) or off (0) now, and have a pass see it: ``(address, nodes, on)``."""
