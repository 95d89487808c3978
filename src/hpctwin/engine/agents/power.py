"""Agents that decide which nodes are on: their number, or the state of each node.

Rewards of agents that decide which nodes are on.
"""

from __future__ import annotations

import numpy as np

from hpctwin.engine.agents.agent_record import (
    CUT,
    ENDED,
    agent_at,
    choice_at,
    fact_at,
    hook,
    put_mask,
    put_seen,
    seen_at,
)
from hpctwin.engine.agents.jobs import note_queue, waited_in_queue
from hpctwin.engine.agents.step import wasted
from hpctwin.engine.compile.intrinsics import go_on
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import first_in
from hpctwin.engine.loop.event_loop import records_have_room
from hpctwin.engine.power.node_states import end_transitions, standing_in, switch_off, switch_on
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.state.layout import (
    ASLEEP,
    ASLEEP_NODES,
    COMPUTING,
    DEPTH_STATES,
    DONE,
    IDLE,
    IDLE_NODES,
    NEED_ROOM,
    NEVER,
    ONE,
    REACHED,
    STEPPED,
    SWITCHING_ON,
    ZERO,
    Arrays,
)

__all__ = [
    "ALLOW_NODES",
    "OBSERVE_LEVELS",
    "OBSERVE_NODES",
    "OBSERVE_SHARES",
    "OBSERVE_SPARS",
    "REWARD_JOBS",
    "REWARD_SHARES",
    "REWARD_SPARS",
    "SWITCH_EACH",
    "SWITCH_TO_RESERVE",
    "SWITCH_TO_SHARE",
    "SWITCH_TO_SHARE_COMING",
    "TO_TIME",
]


@jit
def only_queue_waited(address: int, sim: Arrays) -> bool:
    """Return whether all jobs that waited since the last decision are in the queue.

    No job has then started since, or has nodes that are switching on.
    """
    agent = agent_at(address)
    clock = sim.clock
    begun = agent.begun
    # A job whose nodes are switching on may start in the next step.
    agent.begun = clock.starts if clock.begins == 0 else -1
    apart = clock.begins + clock.releases + clock.lost + len(sim.waits)
    return begun == clock.starts and clock.now > agent.since and apart == 0


@jit
def waited(address: int, sim: Arrays) -> tuple[int, float, float]:
    """Return the waits of jobs since the previous decision.

    Jobs that start now are included.

    Returns:
        Number of jobs, sum of waits since then, and sum of all waits so far, ms.
    """
    if only_queue_waited(address, sim):
        lately, in_all = waited_in_queue(address, sim)
        return sim.clock.queued, float(lately), float(in_all)
    return all_waited(address, sim)


@jit
def all_waited(address: int, sim: Arrays) -> tuple[int, float, float]:
    """Do the same as `waited`, with all arrived jobs that had not started by then."""
    agent = agent_at(address)
    now = sim.clock.now
    since = agent.since
    jobs = ZERO
    lately = 0.0
    in_all = 0.0
    settled = True
    for i in range(agent.low, sim.clock.arrived):
        j = sim.by_submit[i]
        start = sim.state[j].start
        gone = sim.state[j].end >= 0 and start < 0
        if gone or (start >= 0 and start <= since and start < now):
            if settled:
                agent.low = i + 1
            continue
        settled = False
        submit = submitted_at(j, sim)
        until = now if start < 0 or start > now else start
        if submit > until:
            continue
        jobs += 1
        lately += max(ZERO, until - max(submit, since))
        in_all += until - submit
    return jobs, lately, in_all


@jit
def wasted_lately(address: int, sim: Arrays) -> float:
    """Return the energy wasted since the previous decision, J."""
    agent = agent_at(address)
    before = agent.wasted
    if agent.instants == sim.clock.instants:
        # No node has changed.
        agent.wasted += agent.rate * (sim.clock.now - agent.since) / 1000.0
    else:
        agent.wasted, agent.rate = wasted(sim, agent.watts)
        agent.instants = sim.clock.instants
    return agent.wasted - before


def reward_spars(address: int, sim: Arrays) -> None:
    """Set SPARS's intended reward: -alpha × waste / 64 (J) - beta × mean wait (s)."""
    agent = agent_at(address)
    jobs, _, in_all = waited(address, sim)
    wait = in_all / jobs / 1000.0 if jobs > 0 else 0.0
    agent.earned = -agent.alpha * wasted_lately(address, sim) / 64.0 - agent.beta * wait


def reward_shares(address: int, sim: Arrays) -> None:
    """Set the reward from waste and waits, both scaled from 0 to 1.

    They are the waste over its maximum, and the share of the time that jobs waited.
    """
    agent = agent_at(address)
    jobs, lately, _ = waited(address, sim)
    length = float(sim.clock.now - agent.since)
    waste = wasted_lately(address, sim)
    if length <= 0.0:
        agent.earned = 0.0
        return
    most = agent.most * length / 1000.0
    part = waste / most if most > 0.0 else 0.0
    wait = lately / jobs / length if jobs > 0 else 0.0
    agent.earned = -agent.alpha * part - agent.beta * wait


def reward_jobs(address: int, sim: Arrays) -> None:
    """Set the reward from waste, kWh, and waits, h, per job of the episode."""
    agent = agent_at(address)
    _, lately, _ = waited(address, sim)
    jobs = float(len(sim.state))
    waste = wasted_lately(address, sim) / 3.6e6
    agent.earned = -(agent.alpha * waste + agent.beta * lately / 3.6e6) / jobs


REWARD_SPARS, REWARD_SHARES = hook(reward_spars), hook(reward_shares)
REWARD_JOBS = hook(reward_jobs)


QUIET_MS = np.int64(10 * 86_400_000)
"""Time for which jobs wait, without events left, until the episode is cut, ms."""
HOUR_MS, DAY_MS = 3_600_000.0, 86_400_000.0
SHARES, SPARS, NODES = 8, 6, 8
LEVEL = 2 + SHARES


# --- actions -------------------------------------------------------------------------------------


@jit
def switched(address: int, sim: Arrays) -> None:
    """Update the state after nodes were switched, and request a pass."""
    agent_at(address).instants = -1
    end_transitions(sim)
    if sim.clock.switching > 0:
        sim.clock.timer = min(sim.clock.timer, sim.switching[0].time)
    sim.clock.pass_due = 1


@jit
def may_sleep(p: int, agent: int) -> bool:
    """Return whether nodes of a pool have a sleep state."""
    return fact_at(agent_at(agent).facts, p) > 0.0


@jit
def switch_some_off(wanted: int, address: int, sim: Arrays) -> int:
    """Switch idle nodes off, in number order within each pool; return how many."""
    done = ZERO
    for p in range(sim.rules.pools):
        if not may_sleep(p, address):
            continue
        place = sim.pool[p].first
        while done < wanted:
            place = first_in(IDLE_NODES, place, sim.pool[p].last, sim)
            if place < 0:
                break
            switch_off(sim.by_pool[place], ZERO, sim)
            done += 1
            place += 1
    return done


@jit
def switch_some_on(wanted: int, sim: Arrays) -> int:
    """Wake sleeping nodes; return how many.

    Nodes that are on soonest come first, then lower numbers.
    """
    done = ZERO
    for depth in range(sim.rules.depths):
        for p in range(sim.rules.pools):
            place = sim.pool[p].first
            while done < wanted:
                place = first_in(ASLEEP_NODES + depth, place, sim.pool[p].last, sim)
                if place < 0:
                    break
                switch_on(sim.by_pool[place], sim)
                done += 1
                place += 1
    return done


@jit
def in_state(state: int, sim: Arrays) -> int:
    """Return how many nodes are in a power state, at any sleep depth."""
    there = ZERO
    for p in range(sim.rules.pools):
        for row in range(state, sim.spent.width if state > COMPUTING else state + 1, DEPTH_STATES):
            there += standing_in(p, row, sim)[0]
    return there


@jit
def share_of(nodes: int, address: int) -> int:
    """Return the chosen share of a number of nodes, rounded."""
    return int(np.rint(min(max(agent_at(address).share, 0.0), 1.0) * nodes))


@jit
def switch_to(target: int, coming: bool, address: int, sim: Arrays) -> None:
    """Switch nodes so that a number of them is on.

    Args:
        target: Number of nodes.
        coming: Whether nodes that are switching on count as on.
        address: Address of the agent.
        sim: Simulation.
    """
    on = in_state(IDLE, sim) + in_state(COMPUTING, sim)
    if coming:
        on += in_state(SWITCHING_ON, sim)
    done = ZERO
    if on > target:
        done = switch_some_off(on - target, address, sim)
    elif on < target:
        done = switch_some_on(target - on, sim)
    if done > 0:
        switched(address, sim)


@jit
def next_time_due(address: int, sim: Arrays) -> None:
    """Set the time of the next decision."""
    agent = agent_at(address)
    if agent.every > 0:
        agent.until = (sim.clock.now // agent.every + 1) * agent.every


def switch_to_share(address: int, sim: Arrays) -> None:
    """Switch to a share of all nodes, as SPARS does: waking nodes do not count as on."""
    switch_to(share_of(len(sim.node), address), False, address, sim)
    next_time_due(address, sim)


def switch_to_share_coming(address: int, sim: Arrays) -> None:
    """Switch to a share of all nodes; waking nodes count as on."""
    switch_to(share_of(len(sim.node), address), True, address, sim)
    next_time_due(address, sim)


def switch_to_reserve(address: int, sim: Arrays) -> None:
    """Switch to a share of all nodes in addition to the nodes in demand.

    These are the computing nodes, and the nodes that pending jobs request.
    """
    note_queue(address, sim)
    wanted = in_state(COMPUTING, sim) + share_of(len(sim.node), address) + agent_at(address).asked
    switch_to(min(wanted, len(sim.node)), True, address, sim)
    next_time_due(address, sim)


def switch_each(address: int, sim: Arrays) -> None:
    """Switch each idle or sleeping node on or off."""
    agent = agent_at(address)
    done = False
    for node in range(len(sim.node)):
        own = sim.node[node]
        if own.down > 0 or own.job >= 0:
            continue
        on = choice_at(agent.choices, node)
        if on != 0 and own.power == ASLEEP:
            switch_on(node, sim)
            done = True
        elif on == 0 and own.power == IDLE and may_sleep(sim.pool_of[node], address):
            switch_off(node, ZERO, sim)
            done = True
    if done:
        switched(address, sim)
    next_time_due(address, sim)


SWITCH_TO_SHARE = hook(switch_to_share)
SWITCH_TO_SHARE_COMING = hook(switch_to_share_coming)
SWITCH_TO_RESERVE = hook(switch_to_reserve)
SWITCH_EACH = hook(switch_each)


# --- running to the next decision ----------------------------------------------------------------


def to_time(address: int, sim: Arrays) -> None:
    """Run past the next time of the decision grid, or past the next event time."""
    agent = agent_at(address)
    instants = -ONE if agent.every > 0 else ONE
    if agent.every > 0 and agent.until < 0:
        # The first decision comes before all events.
        agent.until = ZERO
        agent.code = STEPPED
        return
    if sim.clock.pass_due == 1 and not records_have_room(sim):
        agent.code = NEED_ROOM
        return
    code = go_on(sim.hooks.advance, sim, agent.until if agent.every > 0 else NEVER, instants)
    if code == DONE and sim.clock.alive > 0 and sim.clock.queued > 0 and agent.every > 0:
        # Only the agent can cause further events.
        sim.clock.now = max(sim.clock.now, agent.until)
        if agent.quiet < 0:
            agent.quiet = sim.clock.now
        code = REACHED
        if sim.clock.now - agent.quiet > QUIET_MS:
            agent.over = CUT
    elif code == REACHED:
        agent.quiet = -1
    elif code == DONE:
        agent.over = CUT if sim.clock.alive > 0 else ENDED
    agent.code = STEPPED if code == REACHED or code == DONE else code


TO_TIME = hook(to_time)


# --- observations --------------------------------------------------------------------------------


@jit
def in_states(sim: Arrays) -> tuple[int, int, int, int]:
    """Return how many nodes are idle without a job, computing, asleep, and waking."""
    idle = in_state(IDLE, sim)
    if sim.clock.touched > 0 or sim.clock.begins > 0:
        # Some nodes have a job but do not compute, or their state is not updated yet.
        idle = ZERO
        for node in range(len(sim.node)):
            if sim.node[node].power == IDLE and sim.node[node].job < 0:
                idle += 1
    return idle, in_state(COMPUTING, sim), in_state(ASLEEP, sim), in_state(SWITCHING_ON, sim)


def observe_spars(address: int, sim: Arrays) -> None:
    """Write SPARS's six numbers, unscaled: s, jobs, nodes."""
    agent = agent_at(address)
    note_queue(address, sim)
    idle, _, asleep, _ = in_states(sim)
    now = sim.clock.now
    out = agent.seen
    put_seen(out, ZERO, float(sim.clock.queued))
    put_seen(out, ONE, sim.clock.arrived / (now / 1000.0) if now > 0 else 0.0)
    put_seen(out, ONE * 2, agent.walltimes / 1000.0)
    put_seen(out, ONE * 3, float(agent.asked))
    put_seen(out, ONE * 4, float(idle))
    put_seen(out, ONE * 5, float(asleep))


@jit
def shares(first: int, address: int, sim: Arrays) -> None:
    """Write `learn.environments.power_management.SHARES` from a place on."""
    agent = agent_at(address)
    out = agent.seen
    note_queue(address, sim)
    nodes = agent.asked
    longest = max(ZERO, sim.clock.now - agent.first)
    idle, computing, asleep, coming = in_states(sim)
    total = float(len(sim.node))
    put_seen(out, first, sim.clock.queued / (sim.clock.queued + 100.0))
    put_seen(out, first + 1, nodes / (nodes + total))
    put_seen(out, first + 2, longest / (longest + HOUR_MS))
    put_seen(out, first + 3, idle / total)
    put_seen(out, first + 4, computing / total)
    put_seen(out, first + 5, asleep / total)
    put_seen(out, first + 6, coming / total)
    put_seen(out, first + 7, (sim.clock.now % 86_400_000) / DAY_MS)


def observe_shares(address: int, sim: Arrays) -> None:
    """Observe the queue and the nodes, all from 0 to 1."""
    shares(ZERO, address, sim)


def observe_levels(address: int, sim: Arrays) -> None:
    """Observe each level of nodes.

    It is described by its height from 0 to 1, the square of it, and the height times
    `observe_shares`.
    """
    agent = agent_at(address)
    out = agent.seen
    levels = agent.window
    last = LEVEL * (levels - 1)
    put_seen(out, last, 1.0)
    put_seen(out, last + 1, 1.0)
    shares(last + 2, address, sim)
    for level in range(levels - 1):
        height = level / (levels - 1.0)
        row = LEVEL * level
        put_seen(out, row, height)
        put_seen(out, row + 1, height * height)
        for k in range(2, LEVEL):
            put_seen(out, row + k, height * seen_at(out, last + k))


@jit
def mask_node(node: int, address: int, sim: Arrays) -> None:
    """Write whether a node can be off, and whether it can be on."""
    mask = agent_at(address).mask
    own = sim.node[node]
    off = own.power == IDLE and may_sleep(sim.pool_of[node], address)
    decides = own.job < 0 and own.down == 0 and (off or own.power == ASLEEP)
    put_mask(mask, 2 * node, ONE if decides or own.power > COMPUTING else ZERO)
    put_mask(mask, 2 * node + 1, ONE if decides or own.power <= COMPUTING else ZERO)


def allow_nodes(address: int, sim: Arrays) -> None:
    """Write which choices are available, for a custom observation."""
    for node in range(len(sim.node)):
        mask_node(node, address, sim)


def observe_nodes(address: int, sim: Arrays) -> None:
    """Observe each node's state and the time in it, after `observe_shares`."""
    agent = agent_at(address)
    out = agent.seen
    now = sim.clock.now
    shares(ZERO, address, sim)
    for node in range(len(sim.node)):
        own = sim.node[node]
        row = SHARES + NODES * node
        for k in range(5):
            put_seen(out, row + k, 1.0 if own.power == k else 0.0)
        spell = float(now - own.since)
        left = float(max(ZERO, own.ready - now) + own.boot)
        free = own.job < 0 and own.down == 0
        put_seen(out, row + 5, spell / (spell + HOUR_MS))
        put_seen(out, row + 6, left / (left + HOUR_MS) if own.power > COMPUTING else 0.0)
        put_seen(out, row + 7, 1.0 if free else 0.0)
        mask_node(node, address, sim)


OBSERVE_SPARS, OBSERVE_SHARES = hook(observe_spars), hook(observe_shares)
ALLOW_NODES = hook(allow_nodes)
OBSERVE_LEVELS, OBSERVE_NODES = hook(observe_levels), hook(observe_nodes)
