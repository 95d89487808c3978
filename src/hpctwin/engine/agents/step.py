"""Steps of one agent."""

from __future__ import annotations

import numpy as np

from hpctwin.engine.agents.agent_record import (
    CHOOSING,
    CUT,
    GOES_ON,
    MAX_INVALID,
    NOT_ALLOWED,
    ON_THE_WAY,
    agent_at,
    fact_at,
)
from hpctwin.engine.compile.intrinsics import call_with_job, sim_at
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.power.node_states import standing_in
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.state.layout import COMPUTING, DEPTH_STATES, IDLE, STEPPED, Arrays

__all__ = ["drawn", "look", "step", "step_one", "wasted"]

TAU_MS = np.int64(10_000)
"""The same as `metrics.jobs.jobs.TAU_S`, in ms."""


@jit
def is_waste(row: int) -> bool:
    """Return whether a state is waste: idle or switching.

    `energy.accounts.accounting` has the same definition.
    """
    return row == IDLE or (row > COMPUTING and row % DEPTH_STATES != 0)


@jit
def drawn(sim: Arrays, watts: int) -> float:
    """Return the energy of all nodes up to now, J.

    Args:
        sim: Simulation.
        watts: Address of the power of a node in each state, W [pools * states].
    """
    states = sim.spent.width
    total = 0.0
    for p in range(sim.rules.pools):
        for row in range(states):
            total += standing_in(p, row, sim)[1] * fact_at(watts, p * states + row)
    return total / 1000.0


@jit
def wasted(sim: Arrays, watts: int) -> tuple[float, float]:
    """Return the energy wasted up to now, J, and the power wasted at present, W.

    Args:
        sim: Simulation.
        watts: Address of the power of a node in each state, W [pools * states].
    """
    states = sim.spent.width
    joules = 0.0
    rate = 0.0
    for p in range(sim.rules.pools):
        for row in range(states):
            if is_waste(row):
                there, time = standing_in(p, row, sim)
                power = fact_at(watts, p * states + row)
                joules += time * power
                rate += there * power
    return joules / 1000.0, rate


@jit
def sum_up(address: int, sim: Arrays) -> None:
    """Compute an agent's statistics at the end: mean slowdown, mean wait, energy."""
    agent = agent_at(address)
    slowdown = 0.0
    wait = 0.0
    ran = 0
    for j in range(len(sim.state)):
        state = sim.state[j]
        if state.start < 0 or state.end > sim.clock.now:
            continue
        ran += 1
        submit = submitted_at(j, sim)
        wait += state.start - submit
        run = float(max(state.end - state.start, TAU_MS))
        slowdown += max(1.0, (state.end - submit) / run)
    if ran > 0:
        agent.slowdown = slowdown / ran
        agent.wait = wait / ran / 1000.0
    if agent.watts != 0:
        agent.energy = drawn(sim, agent.watts)


@jit
def step(address: int) -> int:
    """Execute the choice, and run until the next decision; see `Agent.code`.

    With a choice that is not available, nothing happens and no time passes.
    """
    agent = agent_at(address)
    sim = sim_at(agent.sim)
    if agent.stage == CHOOSING:
        agent.code = STEPPED
        call_with_job(agent.act, address, sim)
        agent.stage = ON_THE_WAY
        if agent.code != NOT_ALLOWED:
            agent.invalid = 0
        elif sim.clock.queued > 0:  # an episode without decisions has no available choice
            agent.stage = CHOOSING
            if agent.strict != 0:
                return NOT_ALLOWED
            agent.invalid += 1
    if agent.stage == ON_THE_WAY:
        call_with_job(agent.go, address, sim)
        if agent.code != STEPPED:
            return agent.code
    agent.code = STEPPED
    agent.stage = CHOOSING
    agent.steps += 1
    limited = agent.limit > 0 and agent.steps >= agent.limit
    if agent.over == GOES_ON and (limited or agent.invalid >= MAX_INVALID):
        agent.over = CUT
    if agent.over != GOES_ON:
        sum_up(address, sim)
    call_with_job(agent.reward, address, sim)
    agent.since = sim.clock.now
    if agent.allow != 0:
        call_with_job(agent.allow, address, sim)
    call_with_job(agent.observe, address, sim)
    return STEPPED


def _step_one(address: int) -> int:
    return step(address)


def _look(address: int) -> None:
    agent = agent_at(address)
    agent.changes = -1  # the sums may be of another simulation
    call_with_job(agent.observe, address, sim_at(agent.sim))


look = Kernel(_look, "void(int64)")
"""Write an agent's present observation: ``(address)``."""

step_one = Kernel(_step_one, "int64(int64)")
"""Step the agent at an address: ``(address) -> code``."""
