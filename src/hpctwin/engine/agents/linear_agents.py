"""Episodes played to their end by agents that choose the highest linear score."""

from __future__ import annotations

from numba import int64

from hpctwin.engine.agents.agent_record import GOES_ON, agent_at, choice_at, fact_at, seen_at
from hpctwin.engine.agents.step import step
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.state.layout import STEPPED, ZERO

__all__ = ["play"]


@jit
def highest(address: int, weights: int, inputs: int) -> int:
    """Return the available choice with the highest score; ties go to the first.

    The score of a row of the observation is the sum of its numbers times weights. Choices behind
    the rows have fixed scores.

    Args:
        address: Address of the agent.
        weights: Address of the weights: one for each number of a row, then the fixed scores.
        inputs: Numbers in a row.
    """
    agent = agent_at(address)
    best = ZERO
    most = -1e300
    for i in range(agent.shown):
        if choice_at(agent.mask, i) == 0:
            continue
        score = 0.0
        for k in range(inputs):
            score += fact_at(weights, k) * seen_at(agent.seen, i * inputs + k)
        if score > most:
            most = score
            best = i
    for i in range(agent.window, agent.width):
        if choice_at(agent.mask, i) != 0 and fact_at(weights, inputs + i - agent.window) > most:
            most = fact_at(weights, inputs + i - agent.window)
            best = i
    return best


def _play(address: int, weights: int, inputs: int) -> int:
    agent = agent_at(address)
    while agent.over == GOES_ON:
        agent.action = highest(address, weights, inputs)
        # If the choice is a share, choices are its levels.
        agent.share = agent.action / max(agent.width - 1.0, 1.0)
        code = step(address)
        if code != STEPPED:
            return code
        agent.total += agent.earned
    return STEPPED


play = Kernel(_play, int64(int64, int64, int64))
"""Play an episode to its end: ``(address, weights, numbers of a row) -> code``.

It chooses as `highest`. Rewards are added to `Agent.total`, except for a step without a decision.
"""
