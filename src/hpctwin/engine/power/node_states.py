"""Power states of nodes, their transitions, and the time spent in each state.

A node is idle, computing, in transition to or from a sleep depth, or asleep. Nodes in transition
are in a table sorted by the end of the transition: many begin and end one together. How nodes are
hidden from jobs depends on the power policy. If only active nodes are shown, passes see a waking
node like a node that returns from repair. Otherwise jobs may get nodes that must be switched on
first.

The update after a pass looks only at nodes that have changed; they are chained by ``touched``.
Timeouts are in a heap; entries that are no longer valid are skipped when they come up.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.intrinsics import move_rows
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_pop, heap_push
from hpctwin.engine.containers.node_sets import last_in, put, refresh, touch
from hpctwin.engine.state.layout import (
    ASLEEP,
    ASLEEP_OVER,
    COMPUTING,
    DEPTH_STATES,
    IDLE,
    IDLE_OVER,
    NEVER,
    NOT_SWITCHING_OFF,
    ONLY_ACTIVE,
    SWITCHING_OFF,
    SWITCHING_ON,
    ZERO,
    Arrays,
)


@jit
def row_of_state(state: int, depth: int) -> int:
    """Return the row of a state's time; sleep and transitions have one row per depth."""
    return state if state <= COMPUTING else state + DEPTH_STATES * depth


@jit
def standing_in(p: int, row: int, sim: Arrays) -> tuple[int, int]:
    """Return how many of a pool's nodes are in a power state, and their time in it.

    Behind the sizes of the node sets, ``sim.tally`` has two columns per pool and state. The first
    counts the nodes in the state. The second is the sum of the times at which nodes left the state,
    minus the sum of the times at which nodes entered it.

    Args:
        p: Pool.
        row: State, as `row_of_state` returns it.
        sim: Simulation.

    Returns:
        Number of nodes now, and node-ms so far.
    """
    states = sim.spent.width
    first = sim.tally.width - 2 * states + row
    there = sim.tally[p, first]
    return there, there * sim.clock.now + sim.tally[p, first + states]


@jit
def book_tail(node: int, row: int, sim: Arrays) -> None:
    """Book the time that a node spent in its power state since the last job end.

    An earlier booking is void if a job has ended since.
    """
    states = sim.spent.width
    ended = sim.clock.ended
    if sim.tail[node, states] != ended:
        for state in range(states):
            sim.tail[node, state] = 0
        sim.tail[node, states] = ended
    sim.tail[node, row] += sim.clock.now - max(sim.node[node].since, ended)


@jit
def change_power(node: int, state: int, depth: int, sim: Arrays) -> None:
    """Change a node's state and sleep depth; book the time in the old state."""
    own = sim.node[node]
    now = sim.clock.now
    old = row_of_state(own.power, own.depth)
    new = row_of_state(state, depth)
    sim.spent[node, old] += now - own.since
    book_tail(node, old, sim)
    tally, p, states = sim.tally, sim.pool_of[node], sim.spent.width
    first = tally.width - 2 * states
    tally[p, first + old] -= 1
    tally[p, first + new] += 1
    tally[p, first + states + old] += now
    tally[p, first + states + new] -= now
    if sim.rules.log == 1 and now > own.since:
        span = sim.log[sim.clock.logged]
        span.node = node
        span.state = old
        span.start = own.since
        span.end = now
        sim.clock.logged += 1
    own.power = state
    own.depth = depth
    own.since = now


@jit
def is_hidden(node: int, sim: Arrays) -> bool:
    """Return whether the power policy hides a node from jobs because it is not active."""
    own = sim.node[node]
    if own.job >= 0:
        return False  # no other job could get it anyway
    if sim.rules.shown == ONLY_ACTIVE:
        return active_from(node, sim) > sim.clock.now
    return sim.rules.shown == NOT_SWITCHING_OFF and own.power == SWITCHING_OFF


@jit
def show_or_hide(node: int, sim: Arrays) -> None:
    """Hide a node from jobs or show it, depending on its state and the power policy."""
    own = sim.node[node]
    hidden = 1 if is_hidden(node, sim) else 0
    if hidden == own.hidden:
        return
    sign = hidden - own.hidden
    own.hidden = hidden
    if own.down == 0:
        sim.stock[sim.pool_of[node]].free -= sign
    sim.clock.unpowered += sign
    sim.clock.came_back = 1


@jit
def note_switching(node: int, sim: Arrays) -> None:
    """Insert a node into the table of transitions, behind nodes ready at its time."""
    ready = sim.node[node].ready
    low = ZERO
    high = sim.clock.switching
    while low < high:
        middle = (low + high) // 2
        if sim.switching[middle].time <= ready:
            low = middle + 1
        else:
            high = middle
    move_rows(sim.switching, low + 1, low, sim.clock.switching)
    sim.switching[low].time = ready
    sim.switching[low].job = node
    sim.clock.switching += 1


@jit
def switch_off(node: int, depth: int, sim: Arrays) -> None:
    """Send an idle node to a sleep depth, or a sleeping node to a deeper one."""
    change_power(node, SWITCHING_OFF, depth, sim)
    own = sim.node[node]
    sleep = sim.sleep[sim.pool_of[node] * sim.rules.depths + depth]
    own.ready = sim.clock.now + sleep.off_time
    own.boot = sleep.on_time
    note_switching(node, sim)
    show_or_hide(node, sim)
    refresh(node, sim)


@jit
def switch_on(node: int, sim: Arrays) -> None:
    """Wake a sleeping node."""
    own = sim.node[node]
    change_power(node, SWITCHING_ON, own.depth, sim)
    own.ready = sim.clock.now + own.boot
    own.boot = 0
    note_switching(node, sim)
    show_or_hide(node, sim)
    refresh(node, sim)


@jit
def runs_now(j: int, sim: Arrays) -> bool:
    """Return whether a job runs on its nodes: it has begun, is not suspended and has not ended."""
    if len(sim.cut) > 0 and sim.cut[j].suspended == 1:
        return False
    state = sim.state[j]
    ended = sim.rules.cleanup > 0 and state.end <= sim.clock.now
    return state.start <= sim.clock.now and not ended


@jit
def computes(node: int, sim: Arrays) -> bool:
    """Return whether a job runs on a node by now."""
    if len(sim.share) == 0:
        j = sim.node[node].job
        return j >= 0 and runs_now(j, sim)
    row = sim.share[node].part
    while row >= 0:
        if runs_now(sim.part[row].job, sim):
            return True
        row = sim.part[row].after
    return False


@jit
def touch_nodes(j: int, sim: Arrays) -> None:
    """Queue all nodes of a job for the update after the pass, if nodes have power states."""
    if sim.rules.depths == 0:
        return
    shared = len(sim.share) > 0
    place = sim.state[j].first_node
    while place >= 0:
        node = sim.part[place].node if shared else place
        place = sim.part[place].next if shared else sim.node[place].next
        touch(node, sim)


@jit
def end_transitions(sim: Arrays) -> None:
    """End all transitions that are due; the nodes are then asleep or active.

    A node that falls asleep but has a job is woken at once.
    """
    over = ZERO
    # Removed together at the end; a node that begins another transition is inserted behind them.
    while over < sim.clock.switching and sim.switching[over].time <= sim.clock.now:
        node = sim.switching[over].job
        over += 1
        own = sim.node[node]
        if own.power == SWITCHING_OFF:
            change_power(node, ASLEEP, own.depth, sim)
            if own.job >= 0:
                switch_on(node, sim)
                continue
        else:
            change_power(node, COMPUTING if computes(node, sim) else IDLE, ZERO, sim)
        show_or_hide(node, sim)
        touch(node, sim)
    if over > 0:
        move_rows(sim.switching, ZERO, over, sim.clock.switching)
        sim.clock.switching -= over


@jit
def timeout_of(node: int, depth: int, sim: Arrays) -> int:
    """Return a node's timeout before a sleep depth, ms; `NEVER` if it has none."""
    if depth >= sim.rules.depths:
        return NEVER
    return sim.sleep[sim.pool_of[node] * sim.rules.depths + depth].timeout


@jit
def due(node: int, sim: Arrays) -> int:
    """Return when a node's timeout to the next sleep depth ends; `NEVER` if none."""
    own = sim.node[node]
    if own.job >= 0 or own.down > 0:
        return NEVER
    if own.power == IDLE:
        timeout = timeout_of(node, ZERO, sim)
    elif own.power == ASLEEP:
        timeout = timeout_of(node, own.depth + 1, sim)
    else:
        return NEVER
    return NEVER if timeout >= NEVER else own.since + timeout


@jit
def note_due(node: int, sim: Arrays) -> None:
    """Add a node's timeout to the heap of timeouts."""
    time = due(node, sim)
    if time >= NEVER:
        return
    if sim.clock.timeouts == len(sim.timeouts):
        # The heap is full of invalid entries. The rebuild is paid for by as many changes.
        sim.clock.timeouts = 0
        for other in range(len(sim.node)):
            if due(other, sim) < NEVER:
                sim.clock.timeouts = heap_push(
                    sim.timeouts, sim.clock.timeouts, due(other, sim), other
                )
        return
    sim.clock.timeouts = heap_push(sim.timeouts, sim.clock.timeouts, time, node)


@jit
def next_due(sim: Arrays) -> int:
    """Return when the next timeout ends after now; `NEVER` if there is none.

    Timeouts that have ended by now are moved to the sets of nodes with an ended timeout.
    """
    clock = sim.clock
    while clock.timeouts > 0:
        time = sim.timeouts[0].time
        node = sim.timeouts[0].job
        holds = due(node, sim) == time
        if holds and time > clock.now:
            return time
        heap_pop(sim.timeouts, clock.timeouts)
        clock.timeouts -= 1
        if holds:
            put(IDLE_OVER if sim.node[node].power == IDLE else ASLEEP_OVER, node, True, sim)
    return NEVER


@jit
def last_over(chosen: int, p: int, sim: Arrays) -> int:
    """Return the last node, in the pool's order, that has been idle or asleep for its timeout.

    It is -1 if there is none.
    """
    pool = sim.pool[p]
    state = IDLE if chosen == IDLE_OVER else ASLEEP
    place = last_in(chosen, pool.first, pool.last, sim)
    while place >= 0:
        node = sim.by_pool[place]
        if sim.node[node].power == state and due(node, sim) <= sim.clock.now:
            return node
        # It has changed since it was added.
        put(chosen, node, False, sim)
        place = last_in(chosen, pool.first, place, sim)
    return -1


@jit
def any_over(sim: Arrays) -> bool:
    """Return whether any node has an unhandled timeout that has ended."""
    for p in range(sim.rules.pools):
        if last_over(IDLE_OVER, p, sim) >= 0 or last_over(ASLEEP_OVER, p, sim) >= 0:
            return True
    return False


@jit
def note_use(sim: Arrays) -> int:
    """Update nodes after a pass: which compute, and which must be woken for their job.

    Returns:
        Time at which the first timeout ends; `NEVER` if none runs.
    """
    clock = sim.clock
    while clock.begins > 0 and sim.begins[0].time <= clock.now:
        j = heap_pop(sim.begins, clock.begins)
        clock.begins -= 1
        touch_nodes(j, sim)
    while clock.touched > 0:
        node = clock.touched - 1
        own = sim.node[node]
        clock.touched = own.touched - 1
        own.touched = 0
        if own.power <= COMPUTING:
            wanted = COMPUTING if computes(node, sim) else IDLE
            if own.power != wanted:
                change_power(node, wanted, own.depth, sim)
                refresh(node, sim)
        elif own.job >= 0 and own.power == ASLEEP:
            switch_on(node, sim)
        note_due(node, sim)
    first = next_due(sim)
    return clock.now if any_over(sim) else first


@jit
def look_again(again: int, sim: Arrays) -> None:
    """Set the timer to the next time at which nodes may have to be switched.

    That is the end of a transition or timeout, or a time at which a node must be woken.

    Args:
        again: End of the next timeout, ms.
        sim: Simulation.
    """
    clock = sim.clock
    if clock.switching > 0:
        again = min(again, sim.switching[0].time)
    again = min(again, clock.wake_at)
    clock.timer = min(clock.timer, max(again, clock.now))
