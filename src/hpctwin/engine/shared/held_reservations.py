"""Reservations on shared nodes that outlive a pass."""

from __future__ import annotations

from hpctwin.engine.capacity.held_reservations import held
from hpctwin.engine.capacity.plan import active_from, plan_build, plan_reach
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.allocation import start_shared, take_from_promises, take_resources
from hpctwin.engine.shared.fit import begin_pass, runs_apart
from hpctwin.engine.shared.node_reservations import (
    choose_promised,
    link,
    reserve_shared,
    take_off,
)
from hpctwin.engine.state.layout import NEVER, RETURN, TAKE, ZERO, Arrays

__all__ = [
    "begin_with_held", "free_held", "give_back_held", "hold", "load_held", "start_held", "take_held",
]  # fmt: skip


@jit
def begin_with_held(sim: Arrays) -> None:
    """Begin a pass in which held reservations are to be loaded."""
    begin_pass(sim)
    if sim.asks.width > 0:
        plan_build(sim)


@jit
def load_held(sim: Arrays) -> bool:
    """Compute again what each reservation leaves free when it begins.

    Returns:
        False if that is too little, or a reserved node is not available.
    """
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            sim.share[sim.promise[row].node].promise = -1
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            own = sim.promise[row]
            node = sim.node[own.node]
            if node.down > 0:
                return False
            if node.hidden == 1 and active_from(own.node, sim) > own.start:
                return False
            if runs_apart(own.kind, own.node, own.start, sim):
                return False
            link(row, sim)
            if own.first == 1:
                take_resources(own.job, own.start, own.end, TAKE, sim)
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            for c in range(sim.promise_left.width):
                if sim.promise_left[row, c] < 0:
                    return False
    if sim.asks.width > 0:
        plan_reach(NEVER, sim)
    for i in range(sim.plan_rows[0] if sim.asks.width > 0 else 0):
        for c in range(sim.rules.pools, sim.plan_amount.width):
            if sim.plan_amount[i, c] < 0:
                return False
    return True


@jit
def hold(j: int, sim: Arrays) -> None:
    """Reserve the earliest nodes for a job, and keep the reservation."""
    start, first = reserve_shared(j, ZERO, sim)
    held(sim.kept)[j].start = start
    held(sim.kept)[j].first = first


@jit
def free_held(j: int, sim: Arrays) -> None:
    """Free the nodes of a held reservation."""
    take_off(held(sim.kept)[j].first, False, sim)


@jit
def give_back_held(j: int, sim: Arrays) -> None:
    """Free the nodes and cluster-wide resources of a held reservation."""
    start = held(sim.kept)[j].start
    take_resources(j, start, start + sim.job[j].expected, RETURN, sim)
    free_held(j, sim)


@jit
def take_held(j: int, sim: Arrays) -> None:
    """Do nothing: a held reservation is on its nodes already."""


@jit
def start_held(j: int, sim: Arrays) -> None:
    """Start a job whose held reservation begins now."""
    first = held(sim.kept)[j].first
    choose_promised(first, sim)
    take_off(first, True, sim)
    start_shared(j, sim)
    if sim.state[j].start > sim.clock.now:
        # It ends later than reserved because its nodes are not on yet.
        take_from_promises(j, sim.clock.now + sim.job[j].expected, sim)
