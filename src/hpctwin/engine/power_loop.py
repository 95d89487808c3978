"""From instant to instant where nodes have power states."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    I64,
    INSTANTS,
    NEED_ROOM,
    NOW,
    ONE,
    PASS,
    PASS_DUE,
    QUEUED,
    RUN,
    STEPPED,
    TIMER,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.loop import after_pass, next_batch
from hpctwin.engine.passes import run_pass
from hpctwin.engine.power import end_transitions, note_use, switch_off, switch_on
from hpctwin.engine.power_faults import faulty_pass
from hpctwin.engine.power_layout import (
    HEAP,
    HIDES_SWITCHING_OFF,
    LOGGED,
    MANAGED,
    NO_FAULT,
    WAKE_AT,
    Power,
    PowerRules,
)
from hpctwin.engine.power_plan import manage, switch_off_due
from hpctwin.engine.power_published import pass_planned_by_node


@jit()
def has_room(machine: Machine, sim: Sim, work: Work, power: Power, prules: PowerRules) -> bool:
    """Whether the plan of this pass and the record of this instant find room."""
    nodes = sim.node.shape[1]
    if prules.log == 1 and power.count[LOGGED] + 6 * nodes > power.log.shape[1]:
        return False
    busy = sim.count[RUN] + sim.count[QUEUED]
    return 4 * busy + nodes + 2 * machine.windows.shape[1] + 8 <= work.time.shape[0]


@jit()
def look_again(again: int, now: int, sim: Sim, power: Power) -> None:
    """Have the engine come back when a transition ends, a timeout is over, a node must be woken."""
    if power.count[HEAP] > 0:
        again = min(again, power.heap[ZERO, 0])
    again = min(again, power.count[WAKE_AT])
    sim.count[TIMER] = min(sim.count[TIMER], max(again, now))


def advance_powered(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    power: Power,
    prules: PowerRules,
    in_order: Rules,
    unprotected: Rules,
    until: int,
    instants: int,
) -> int:
    """As `loop.advance`, with power states.

    Args:
        order, candidate_order, jobs, machine, sim, rules, work, until, instants: as there.
        power, prules: see `power_layout`.
        in_order, unprotected: see `power_faults`.

    Returns:
        One of the codes in `layout`.
    """
    last = sim.count[INSTANTS] + instants
    while True:
        left = ONE if instants < 0 else last - sim.count[INSTANTS]
        code = next_batch(order, jobs, machine, sim, rules, work, until, left)
        if code != PASS:
            return code
        if not has_room(machine, sim, work, power, prules):
            return NEED_ROOM
        now = sim.count[NOW]
        end_transitions(now, machine, sim, power, prules)
        if prules.kind == MANAGED and prules.as_published == 1:
            again = pass_planned_by_node(order, jobs, machine, sim, rules, work, power, prules)
        else:
            if prules.fault == NO_FAULT or prules.fault == HIDES_SWITCHING_OFF:
                run_pass(order, candidate_order, jobs, machine, sim, rules, work)
            else:
                faulty_pass(
                    order,
                    candidate_order,
                    jobs,
                    machine,
                    sim,
                    rules,
                    in_order,
                    unprotected,
                    work,
                    prules,
                )
            again = note_use(now, machine, sim, power, prules)
            manage(order, now, jobs, machine, sim, rules, work, power, prules)
            if again <= now:
                again = switch_off_due(now, machine, sim, power, prules)
        # Transitions that take no time are over at once.
        end_transitions(now, machine, sim, power, prules)
        look_again(again, now, sim, power)
        code = after_pass(sim)
        if code != PASS:
            return code
        if prules.stepped == 1 and instants >= 0 and sim.count[INSTANTS] >= last:
            return STEPPED


def give_orders(
    nodes: I64, on: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules
) -> None:
    """Switch nodes on or off now, and have a pass see it.

    Args:
        nodes: those that are asleep if they are to be switched on, else those that are idle.
        on: 1 to switch them on, 0 off.
        machine, sim, power, prules: as elsewhere.
    """
    now = sim.count[NOW]
    for i in range(nodes.shape[0]):
        if on == 1:
            switch_on(nodes[i], now, machine, sim, power, prules)
        else:
            switch_off(nodes[i], ZERO, now, machine, sim, power, prules)
    end_transitions(now, machine, sim, power, prules)
    sim.count[PASS_DUE] = 1
