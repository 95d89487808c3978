"""Which shared nodes `psas-ipm` switches on and off.

It depends on when each node is reserved for a pending job.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.power.node_states import (
    due,
    end_transitions,
    look_again,
    next_due,
    note_use,
    switch_off,
    switch_on,
)
from hpctwin.engine.power.switching_plan import count_idle, latest_ahead, list_waiting, note_planned
from hpctwin.engine.shared.fit import is_skipped_shared
from hpctwin.engine.shared.job_starts import begin_anew
from hpctwin.engine.shared.reservations.node_reservations import reserve_shared
from hpctwin.engine.state.layout import ASLEEP, NEVER, ZERO, Arrays

__all__ = ["after_pass_managed_shared"]


@jit
def promise_waiting(sim: Arrays) -> None:
    """Reserve nodes for pending jobs in order, each at its earliest start."""
    begin_anew(sim)
    for i in range(list_waiting(sim)):
        j = sim.later[i]
        if is_skipped_shared(j, sim):
            continue
        not_before = ZERO
        if sim.rules.in_order == 1:
            not_before = latest_ahead(j, sim)
        start, _ = reserve_shared(j, not_before, sim)
        note_planned(j, start, sim)


@jit
def first_use(node: int, sim: Arrays) -> int:
    """Return when the first reservation of a node begins; NEVER if it has none."""
    row = sim.share[node].promise
    return sim.promise[row].start if row >= 0 else NEVER


@jit
def wake_promised(sim: Arrays) -> None:
    """Wake the nodes that must be on in time for their first reservations.

    It also sets the time at which the next node must be woken.
    """
    now = sim.clock.now
    for node in range(len(sim.share)):
        own = sim.node[node]
        if own.power != ASLEEP or own.down > 0 or own.job >= 0:
            continue
        first = first_use(node, sim)
        if first <= now + own.boot:
            switch_on(node, sim)
        elif first < NEVER:
            sim.clock.wake_at = min(sim.clock.wake_at, first - own.boot)


@jit
def is_spared(node: int, sim: Arrays) -> bool:
    """Return whether a node can be off and on again before its first reservation.

    If no job is pending, it can.
    """
    if sim.clock.queued == 0:
        return True
    sleep = sim.sleep[sim.pool_of[node] * sim.rules.depths]
    return first_use(node, sim) > sim.clock.now + sleep.off_time + sleep.on_time


@jit
def switch_off_spared(sim: Arrays) -> bool:
    """Switch off nodes whose timeout has ended, the last nodes first.

    Returns:
        Whether any node is asleep at once.
    """
    now = sim.clock.now
    at_once = False
    count_idle(sim)
    for node in range(len(sim.share) - 1, -1, -1):
        if due(node, sim) > now:
            continue
        own = sim.node[node]
        group = sim.pool[sim.pool_of[node]].group
        if own.power == ASLEEP:
            # A pending job may need it before it could return from deeper sleep.
            if sim.clock.queued > 0:
                continue
            switch_off(node, own.depth + 1, sim)
        elif sim.spare[group].idle > 0 and is_spared(node, sim):
            switch_off(node, ZERO, sim)
            sim.spare[group].idle -= 1
        else:
            continue
        if own.ready <= now:
            at_once = True
    return at_once


def after_pass_managed_shared(sim: Arrays) -> None:
    """Wake nodes in time for the plan; keep nodes on that the plan needs soon."""
    first = note_use(sim)
    sim.clock.wake_at = NEVER
    if sim.clock.queued > 0:
        if sim.hooks.reserved == 0:
            promise_waiting(sim)
        wake_promised(sim)
    at_once = first <= sim.clock.now and switch_off_spared(sim)
    # Transitions that take no time end at once.
    end_transitions(sim)
    note_use(sim)
    look_again(sim.clock.now if at_once else next_due(sim), sim)
