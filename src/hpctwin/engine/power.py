"""Nodes switch on and off; how long each was in each state.

A node is idle or computing, or on its way to or from a sleep depth, or asleep. What is on its way is in
a heap by the end of its transition. How nodes are hidden from jobs depends on the power policy: a
managed node is hidden unless it is active, so that the passes see it as they see a node that comes
back; under the other two policies jobs may have nodes that must be switched on first.
"""

from __future__ import annotations

from hpctwin.engine.heap import heap_pop, heap_push
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    COMPRESS,
    FREE,
    NEVER,
    NODE_BOOT,
    NODE_DEPTH,
    NODE_DOWN,
    NODE_JOB,
    NODE_POOL,
    NODE_POWER,
    NODE_READY,
    NODE_SINCE,
    POWER_SPENT,
    START,
    UNPOWERED,
    ZERO,
    Machine,
    Sim,
)
from hpctwin.engine.placement import active_from
from hpctwin.engine.power_layout import (
    ASLEEP,
    AUTO,
    COMPUTING,
    DEPTH_STATES,
    HEAP,
    HIDES_SWITCHING_OFF,
    IDLE,
    LOG_END,
    LOG_NODE,
    LOG_START,
    LOG_STATE,
    LOGGED,
    MANAGED,
    OFF_TIME,
    ON_TIME,
    SWITCHING_OFF,
    SWITCHING_ON,
    Power,
    PowerRules,
)


@jit()
def row_of_state(state: int, depth: int) -> int:
    """The row of the time spent in a state: sleeping and switching are kept by depth."""
    return state if state <= COMPUTING else state + DEPTH_STATES * depth


@jit()
def turn(node: int, state: int, now: int, sim: Sim, power: Power, prules: PowerRules) -> None:
    """A node changes its state; the time in the old one is booked."""
    old = row_of_state(sim.node[NODE_POWER, node], sim.node[NODE_DEPTH, node])
    since = sim.node[NODE_SINCE, node]
    sim.node[POWER_SPENT + old, node] += now - since
    if prules.log == 1 and now > since:
        n = power.count[LOGGED]
        power.log[LOG_NODE, n] = node
        power.log[LOG_STATE, n] = old
        power.log[LOG_START, n] = since
        power.log[LOG_END, n] = now
        power.count[LOGGED] = n + 1
    sim.node[NODE_POWER, node] = state
    sim.node[NODE_SINCE, node] = now


@jit()
def show_or_hide(node: int, now: int, machine: Machine, sim: Sim, prules: PowerRules) -> None:
    """Let jobs have a node or not, as its state and the policy say."""
    hidden = False
    if sim.node[NODE_JOB, node] >= 0:
        hidden = False  # nobody else could have it anyway
    elif prules.kind >= MANAGED:
        hidden = active_from(node, now, sim) > now
    elif prules.fault == HIDES_SWITCHING_OFF or (prules.kind == AUTO and prules.as_published == 1):
        hidden = sim.node[NODE_POWER, node] == SWITCHING_OFF
    if hidden == (sim.node[NODE_DOWN, node] > 0):
        return
    sign = 1 if hidden else -1
    sim.node[NODE_DOWN, node] += sign
    sim.amount[FREE, machine.node[NODE_POOL, node]] -= sign
    sim.count[UNPOWERED] += sign
    sim.count[COMPRESS] = 1


@jit()
def switch_off(
    node: int, depth: int, now: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules
) -> None:
    """Send an idle node to a sleep depth, or a sleeping one to a deeper one."""
    turn(node, SWITCHING_OFF, now, sim, power, prules)
    column = machine.node[NODE_POOL, node] * prules.depths + depth
    sim.node[NODE_DEPTH, node] = depth
    sim.node[NODE_READY, node] = now + power.table[OFF_TIME, column]
    sim.node[NODE_BOOT, node] = power.table[ON_TIME, column]
    heap_push(power.heap, power.count, HEAP, sim.node[NODE_READY, node], node)
    show_or_hide(node, now, machine, sim, prules)


@jit()
def switch_on(
    node: int, now: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules
) -> None:
    """Wake a sleeping node."""
    turn(node, SWITCHING_ON, now, sim, power, prules)
    sim.node[NODE_READY, node] = now + sim.node[NODE_BOOT, node]
    sim.node[NODE_BOOT, node] = 0
    heap_push(power.heap, power.count, HEAP, sim.node[NODE_READY, node], node)
    show_or_hide(node, now, machine, sim, prules)


@jit()
def end_transitions(now: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules) -> None:
    """Nodes whose transition is over are asleep or active; who has a job is woken at once."""
    while power.count[HEAP] > 0 and power.heap[ZERO, 0] <= now:
        node = heap_pop(power.heap, power.count, HEAP)
        if sim.node[NODE_POWER, node] == SWITCHING_OFF:
            turn(node, ASLEEP, now, sim, power, prules)
            if sim.node[NODE_JOB, node] >= 0:
                switch_on(node, now, machine, sim, power, prules)
                continue
        else:
            j = sim.node[NODE_JOB, node]
            state = COMPUTING if j >= 0 and sim.time[START, j] <= now else IDLE
            turn(node, state, now, sim, power, prules)
            sim.node[NODE_DEPTH, node] = 0
        show_or_hide(node, now, machine, sim, prules)


@jit()
def timeout_of(node: int, depth: int, machine: Machine, power: Power, prules: PowerRules) -> int:
    """How long a node stays as it is before it goes to a sleep depth; NEVER for always."""
    if depth >= prules.depths:
        return NEVER
    return power.timeout[machine.node[NODE_POOL, node] * prules.depths + depth]


@jit()
def due(node: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules) -> int:
    """When a node's timeout to the next sleep depth is over; NEVER if it has none."""
    if sim.node[NODE_JOB, node] >= 0:
        return NEVER
    state = sim.node[NODE_POWER, node]
    if state == IDLE:
        timeout = timeout_of(node, ZERO, machine, power, prules)
    elif state == ASLEEP:
        timeout = timeout_of(node, sim.node[NODE_DEPTH, node] + 1, machine, power, prules)
    else:
        return NEVER
    return NEVER if timeout >= NEVER else sim.node[NODE_SINCE, node] + timeout


@jit()
def note_use(now: int, machine: Machine, sim: Sim, power: Power, prules: PowerRules) -> int:
    """After a pass: which nodes compute, and which must be woken for a job they were given to.

    Returns when the first timeout of a node is over; NEVER if none runs.
    """
    first = NEVER
    for node in range(sim.node.shape[1]):
        j = sim.node[NODE_JOB, node]
        state = sim.node[NODE_POWER, node]
        if state <= COMPUTING:
            wanted = COMPUTING if j >= 0 and sim.time[START, j] <= now else IDLE
            if state != wanted:
                turn(node, wanted, now, sim, power, prules)
        elif j >= 0 and state == ASLEEP:
            switch_on(node, now, machine, sim, power, prules)
        if j < 0:
            first = min(first, due(node, machine, sim, power, prules))
    return first
