"""Nodes switch on and off; how long each was in each state.

A node is idle or computing, or on its way to or from a sleep depth, or asleep. What is on its way is in a
table by the end of its transition: many begin one at the same time, and are over at the same time. How nodes
are hidden from jobs depends on the power policy: where only active ones are shown, the passes see a node that
wakes as they see one that comes back; else jobs may have nodes that must be switched on first.

What follows a pass looks only at nodes that have changed: they are chained by ``touched``. Their timeouts are
in a heap, in which an entry that holds no more is passed over when it comes up.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import move_rows
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
    """Where the time spent in a state is kept: sleeping and switching by depth."""
    return state if state <= COMPUTING else state + DEPTH_STATES * depth


@jit
def standing_in(p: int, row: int, sim: Arrays) -> tuple[int, int]:
    """How many nodes of a pool are in a power state, and for how long its nodes have been, ms in all.

    After the members of its sets, ``sim.tally`` has of each pool, for each state: how many nodes are in it;
    and when nodes have left it, added up, less when they have come into it.

    Args:
        p: the pool.
        row: of the state, as `row_of_state` gives it.
    """
    states = sim.spent.width
    first = sim.tally.width - 2 * states + row
    there = sim.tally[p, first]
    return there, there * sim.clock.now + sim.tally[p, first + states]


@jit
def book_tail(node: int, row: int, sim: Arrays) -> None:
    """Book the time that a node spent in its power state since the last end of a job.

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
    """A node changes its state, and its sleep depth; the time in the old one is booked."""
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
    """Whether the policy keeps a node from jobs since it is not active."""
    own = sim.node[node]
    if own.job >= 0:
        return False  # nobody else could have it anyway
    if sim.rules.shown == ONLY_ACTIVE:
        return active_from(node, sim) > sim.clock.now
    return sim.rules.shown == NOT_SWITCHING_OFF and own.power == SWITCHING_OFF


@jit
def show_or_hide(node: int, sim: Arrays) -> None:
    """Let jobs have a node or not, as its state and the policy say."""
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
    """Put a node whose transition has begun among those that switch, behind all that are ready by then."""
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
    """Send an idle node to a sleep depth, or a sleeping one to a deeper one."""
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
def computes(node: int, sim: Arrays) -> bool:
    """Whether a job that was given a node runs by now."""
    if len(sim.share) == 0:
        j = sim.node[node].job
        return j >= 0 and sim.state[j].start <= sim.clock.now
    row = sim.share[node].part
    while row >= 0:
        if sim.state[sim.part[row].job].start <= sim.clock.now:
            return True
        row = sim.part[row].after
    return False


@jit
def touch_nodes(j: int, sim: Arrays) -> None:
    """Have what follows the pass look at all nodes of a job."""
    shared = len(sim.share) > 0
    place = sim.state[j].first_node
    while place >= 0:
        node = sim.part[place].node if shared else place
        place = sim.part[place].next if shared else sim.node[place].next
        touch(node, sim)


@jit
def end_transitions(sim: Arrays) -> None:
    """Nodes whose transition is over are asleep or active; who has a job is woken at once."""
    over = ZERO
    # They are taken off together; who begins another transition is put behind them.
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
    """How long a node stays as it is before it goes to a sleep depth; NEVER for always."""
    if depth >= sim.rules.depths:
        return NEVER
    return sim.sleep[sim.pool_of[node] * sim.rules.depths + depth].timeout


@jit
def due(node: int, sim: Arrays) -> int:
    """When a node's timeout to the next sleep depth is over; NEVER if it has none."""
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
    """Have the timeout of a node be noticed when it is over."""
    time = due(node, sim)
    if time >= NEVER:
        return
    if sim.clock.timeouts == len(sim.timeouts):
        # Full of what holds no more: made anew, which as many changes have paid for.
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
    """When the next timeout ends after now; what is over by now is put with what is over."""
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
    """The last node of a pool whose timeout is over; -1 if there is none."""
    pool = sim.pool[p]
    state = IDLE if chosen == IDLE_OVER else ASLEEP
    place = last_in(chosen, pool.first, pool.last, sim)
    while place >= 0:
        node = sim.by_pool[place]
        if sim.node[node].power == state and due(node, sim) <= sim.clock.now:
            return node
        # It has changed since.
        put(chosen, node, False, sim)
        place = last_in(chosen, pool.first, place, sim)
    return -1


@jit
def any_over(sim: Arrays) -> bool:
    """Whether the timeout of any node is over that is still as it was."""
    for p in range(sim.rules.pools):
        if last_over(IDLE_OVER, p, sim) >= 0 or last_over(ASLEEP_OVER, p, sim) >= 0:
            return True
    return False


@jit
def note_use(sim: Arrays) -> int:
    """After a pass: which nodes compute, and which must be woken for a job they were given to.

    Returns when the first timeout of a node is over; NEVER if none runs.
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
    """Have the engine come back when a transition ends, a timeout is over, a node must be woken."""
    clock = sim.clock
    if clock.switching > 0:
        again = min(again, sim.switching[0].time)
    again = min(again, clock.wake_at)
    clock.timer = min(clock.timer, max(again, clock.now))
