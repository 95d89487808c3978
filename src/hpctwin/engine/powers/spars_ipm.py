"""FCFS with SPARS's power manager, by its published rule: it plans jobs and nodes together.

Each call plans from scratch, and gives each node to at most one waiting job. A job gets idle nodes
if there are enough, else the nodes that are released soonest. Among these it gets the ones that
waste the least energy until then. The plan is by node, while all others use numbers of nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.transitions import start_job
from hpctwin.engine.passes import made_of
from hpctwin.engine.placement.job_nodes import claim
from hpctwin.engine.power.node_states import (
    end_transitions,
    look_again,
    note_use,
    switch_off,
    switch_on,
)
from hpctwin.engine.powers import switched_by
from hpctwin.engine.queue.order import drop_started, order_queue, pop_order
from hpctwin.engine.state.layout import (
    ASLEEP,
    COMPUTING,
    GIVEN,
    IDLE,
    NEVER,
    ONLY_ACTIVE,
    SWITCHING_OFF,
    SWITCHING_ON,
    ZERO,
    Arrays,
)
from hpctwin.engine.state.records import Int, Real

__all__ = ["POWER"]

TAKES_TIMEOUT = NEEDS_TIMEOUT = True


class ByNode:
    """Plan of one node."""

    released: (
        Int  # when it is free for another job by the requests; NEVER if excluded from the plan
    )
    held_by: Int  # number of the waiting job it is planned for; -1
    chosen: Int  # nodes chosen for a job
    cost: Real


planned = view(ByNode)


@jit
def note_releases(sim: Arrays) -> None:
    """Record when each node is free for another job."""
    now = sim.clock.now
    plan = planned(sim.power_kept)
    for node in range(len(sim.node)):
        own = sim.node[node]
        plan[node].held_by = -1
        released = now
        if own.power == SWITCHING_OFF:
            released = NEVER
        elif own.job >= 0:
            released = sim.state[own.job].start + sim.job[own.job].expected
            if released <= now:
                released = NEVER
        elif own.power > COMPUTING:
            released = active_from(node, sim)
        plan[node].released = released


@jit
def choose_idle(wanted: int, sim: Arrays) -> bool:
    """Choose the first idle nodes that no earlier job holds; False if not enough."""
    plan = planned(sim.power_kept)
    found = 0
    for node in range(len(sim.node)):
        own = sim.node[node]
        if plan[node].held_by < 0 and own.power <= COMPUTING and own.job < 0:
            plan[found].chosen = node
            found += 1
            if found == wanted:
                return True
    return False


@jit
def time_of_enough(wanted: int, sim: Arrays) -> int:
    """Return the first time by which enough nodes without an earlier job are released.

    It is NEVER if there is none.
    """
    plan = planned(sim.power_kept)
    time = -1
    while True:
        following = NEVER
        enough = 0
        for node in range(len(sim.node)):
            if plan[node].held_by >= 0:
                continue
            released = plan[node].released
            if released <= time:
                enough += 1
            elif released < following:
                following = released
        if enough >= wanted or following >= NEVER:
            return time if enough >= wanted else NEVER
        time = following


@jit
def waste(node: int, time: int, sim: Arrays) -> float:
    """Return the energy that a node wastes until a time; -1 if it is not free then."""
    plan = planned(sim.power_kept)[node]
    active_w = sim.pool_fact[0].active_w
    boot_w = sim.sleep[0].on_w
    now = sim.clock.now
    if plan.held_by >= 0 or plan.released > time:
        return -1.0
    if sim.node[node].power == ASLEEP:
        return boot_w * sim.node[node].boot
    if sim.node[node].power == SWITCHING_ON:
        return boot_w * (plan.released - now) + active_w * (time - plan.released)
    return active_w * (time - plan.released)


@jit
def choose_least_waste(wanted: int, time: int, sim: Arrays) -> None:
    """Choose the nodes released by a time that waste the least energy until then."""
    plan = planned(sim.power_kept)
    for node in range(len(sim.node)):
        plan[node].cost = waste(node, time, sim)
    for n in range(wanted):
        best = -1
        for node in range(len(sim.node)):
            if plan[node].cost < 0:
                continue
            if best < 0 or plan[node].cost < plan[best].cost:
                best = node
            elif plan[node].cost == plan[best].cost:
                booting = sim.node[node].power == SWITCHING_ON
                if booting and sim.node[best].power != SWITCHING_ON:
                    best = node
        plan[best].cost = -1.0
        plan[n].chosen = best


@jit
def plan_jobs(sim: Arrays) -> int:
    """Plan the waiting jobs until nodes run out, and return their number.

    No job starts before an earlier one.
    """
    plan = planned(sim.power_kept)
    now = sim.clock.now
    note_releases(sim)
    latest = now
    n = 0
    for left in range(order_queue(sim), 0, -1):
        j = pop_order(left, sim)
        wanted = sim.job[j].nodes
        start = now
        if not choose_idle(wanted, sim):
            start = time_of_enough(wanted, sim)
            if start >= NEVER:
                break
            choose_least_waste(wanted, start, sim)
        for k in range(wanted):
            plan[plan[k].chosen].held_by = n
        latest = max(latest, start)
        sim.later[n] = j
        sim.stack[n] = latest
        n += 1
    return n


@jit
def start_planned(jobs: int, sim: Arrays) -> None:
    """Start the planned jobs whose time has come."""
    started = sim.clock.starts
    for i in range(jobs):
        if sim.stack[i] > sim.clock.now:
            break
        j = sim.later[i]
        for node in range(len(sim.node)):
            if planned(sim.power_kept)[node].held_by == i:
                claim(j, node, sim)
        sim.take[0] = sim.job[j].nodes
        start_job(j, sim)
    if sim.clock.starts > started:
        drop_started(sim)


@jit
def switch_planned(sim: Arrays) -> tuple[bool, int]:
    """Wake and switch off nodes; return whether any was, and when to check again."""
    now = sim.clock.now
    sleep = sim.sleep[0]
    switched = False
    again = NEVER
    for node in range(len(sim.node)):
        i = planned(sim.power_kept)[node].held_by
        own = sim.node[node]
        if own.power == ASLEEP and i >= 0:
            wake = sim.stack[i] - sleep.on_time
            if wake <= now:
                switch_on(node, sim)
                switched = True
            else:
                again = min(again, wake)
        elif own.power == IDLE and own.job < 0 and sleep.timeout < NEVER:
            over = own.since + sleep.timeout
            if over > now:
                again = min(again, over)
            elif i < 0 or now + sleep.off_time + sleep.on_time <= sim.stack[i]:
                switch_off(node, ZERO, sim)
                switched = True
    return switched, again


@jit
def next_boot_for_end(sim: Arrays) -> int:
    """Return the next time to wake a sleeping node so that it is on when a job ends."""
    for node in range(len(sim.node)):
        if sim.node[node].power == ASLEEP:
            for r in range(sim.clock.run_first, sim.clock.run_end):
                if sim.run[r].job < 0:
                    continue
                wake = sim.run[r].planned - sim.sleep[0].on_time
                if wake > sim.clock.now:
                    return wake
            return NEVER
    return NEVER


def plan_and_switch(sim: Arrays) -> None:
    """Plan and act until nothing is left to do at this event time."""
    while True:
        started = sim.clock.starts
        start_planned(plan_jobs(sim), sim)
        note_use(sim)
        switched, again = switch_planned(sim)
        if not switched and sim.clock.starts == started:
            break
    again = min(again, next_boot_for_end(sim))
    # Transitions without duration end at once.
    end_transitions(sim)
    look_again(again, sim)


def no_pass(sim: Arrays) -> None:
    """Do nothing: jobs are started together with the switching of nodes."""


def _refuses(cluster: Any, policy: Any) -> str:
    if cluster.cleanup > 0:
        return "SPARS has no 'cleanup'; remove it"
    if policy.backfill != "none":
        return "it is there without backfilling only (--backfill none): SPARS's EASY is not sound"
    if policy.placement.name != "first-fit":
        return "it chooses the nodes itself, so it goes with no placement"
    if len(cluster.nodes) > 1 or cluster.depths > 1:
        return "it is for one group of equal nodes with one sleep state"
    return ""


POWER = switched_by(
    plan_and_switch,
    kept=ByNode,
    shown=int(ONLY_ACTIVE),
    preferred=int(GIVEN),
    from_start=False,
    scheduling=replace(made_of(no_pass), in_order=True),
    refuses=_refuses,
)
