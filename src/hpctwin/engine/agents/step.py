"""A step of one agent, and of many."""

from __future__ import annotations

import numpy as np
from numba import int64, types

from hpctwin.engine.agents.record import (
    CHOOSING,
    CUT,
    GOES_ON,
    NOT_ALLOWED,
    ON_THE_WAY,
    agent_at,
    fact_at,
)
from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import COMPUTING, DEPTH_STATES, IDLE, STEPPED, Arrays
from hpctwin.engine.power import row_of_state
from hpctwin.engine.rows import call_with_job, sim_at

__all__ = ["drawn", "look", "step_many", "step_one", "wasting"]

TAU_MS = np.int64(10_000)
"""As `metrics.jobs.TAU_S`."""


@jit
def is_waste(row: int) -> bool:
    """Whether a state counts as waste, as in `energy.accounting`: idle or switching."""
    return row == IDLE or (row > COMPUTING and row % DEPTH_STATES != 0)


@jit
def drawn(sim: Arrays, watts: int, all_states: bool) -> float:
    """What all nodes have drawn up to now, J, or only their waste.

    Args:
        watts: address of the power of a node in each state, W [pools * states].
        all_states: whether to count all.
    """
    states = sim.spent.width
    total = 0.0
    now = sim.clock.now
    for node in range(len(sim.node)):
        first = sim.pool_of[node] * states
        own = sim.node[node]
        state = row_of_state(own.power, own.depth)
        if all_states or is_waste(state):
            total += (now - own.since) * fact_at(watts, first + state)
        for row in range(states):
            if all_states or is_waste(row):
                total += sim.spent[node, row] * fact_at(watts, first + row)
    return total / 1000.0


@jit
def wasting(sim: Arrays, watts: int) -> float:
    """What nodes waste as they are now, W."""
    total = 0.0
    for node in range(len(sim.node)):
        own = sim.node[node]
        state = row_of_state(own.power, own.depth)
        if is_waste(state):
            total += fact_at(watts, sim.pool_of[node] * sim.spent.width + state)
    return total


@jit
def sum_up(address: int, sim: Arrays) -> None:
    """At the end: how the jobs that ran were served, and what that took."""
    agent = agent_at(address)
    slowdown = 0.0
    wait = 0.0
    ran = 0
    for j in range(len(sim.state)):
        state = sim.state[j]
        if state.start < 0 or state.end > sim.clock.now:
            continue
        ran += 1
        submit = sim.job[j].submit
        wait += state.start - submit
        run = float(max(state.end - state.start, TAU_MS))
        slowdown += max(1.0, (state.end - submit) / run)
    if ran > 0:
        agent.slowdown = slowdown / ran
        agent.wait = wait / ran / 1000.0
    if agent.watts != 0:
        agent.energy = drawn(sim, agent.watts, True)


@jit
def step(address: int) -> int:
    """Do what was chosen, and go on until the next decision; see `Agent.code`."""
    agent = agent_at(address)
    sim = sim_at(agent.sim)
    if agent.stage == CHOOSING:
        agent.code = STEPPED
        call_with_job(agent.act, address, sim)
        if agent.code == NOT_ALLOWED:
            return NOT_ALLOWED
        agent.stage = ON_THE_WAY
    call_with_job(agent.go, address, sim)
    if agent.code != STEPPED:
        return agent.code
    agent.stage = CHOOSING
    agent.steps += 1
    if agent.over == GOES_ON and agent.limit > 0 and agent.steps >= agent.limit:
        agent.over = CUT
    if agent.over != GOES_ON:
        sum_up(address, sim)
    call_with_job(agent.reward, address, sim)
    agent.since = sim.clock.now
    call_with_job(agent.observe, address, sim)
    return STEPPED


def _step_one(address: int) -> int:
    return step(address)


def _step_many(first: int, size: int, count: int) -> int:
    worst = STEPPED
    for i in range(count):
        code = step(first + i * size)
        if code != STEPPED:
            worst = code
    return worst


def _look(address: int) -> None:
    agent = agent_at(address)
    call_with_job(agent.observe, address, sim_at(agent.sim))


look = Kernel(_look, types.void(int64))
"""Write what an agent sees now: ``(address)``."""

step_one = Kernel(_step_one, int64(int64))
"""A step of the agent at an address: ``(address) -> code``."""

step_many = Kernel(_step_many, int64(int64, int64, int64))
"""Of agents one after the other: ``(address of the first, size of each, how many) -> code``."""
