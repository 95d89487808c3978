"""Hooks of power policies, which the event loop calls before and after each pass."""

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
    """Allow switching off all nodes.

    Returns:
        Time at which the first timeout ends, ms.
    """
    first = note_use(sim)
    sim.clock.wake_at = NEVER
    for p in range(sim.rules.pools):
        sim.spare[p].allowed = NEVER
    return first


@jit
def switch_and_look_again(first: int, deeper: bool, sim: Arrays) -> None:
    """Switch off nodes whose timeout has ended, and set the timer for the next action.

    Args:
        first: Time at which the first timeout ends, ms.
        deeper: Whether sleeping nodes may go to deeper sleep.
        sim: Simulation.
    """
    at_once = False
    if first <= sim.clock.now:
        at_once = switch_off_due(deeper, sim)
    # Transitions that take no time end at once.
    end_transitions(sim)
    note_use(sim)
    look_again(sim.clock.now if at_once else next_due(sim), sim)


def before_pass(sim: Arrays) -> None:
    """End transitions that are due."""
    end_transitions(sim)


def after_pass_unaware(sim: Arrays) -> None:
    """Switch off nodes that were idle for their timeout; wake nodes given to jobs."""
    switch_and_look_again(open_all(sim), True, sim)


def after_pass_managed(sim: Arrays) -> None:
    """Wake nodes in time for the plan, and keep nodes on that it needs soon."""
    first = open_all(sim)
    manage(sim)
    # A pending job could need a sleeping node sooner than it would be back from a deeper sleep.
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
"""Switch nodes on (1) or off (0) now; request a pass: ``(address, nodes, on)``."""
