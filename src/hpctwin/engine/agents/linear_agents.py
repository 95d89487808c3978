"""Episodes played to their ends by who takes the choice whose sum of what is seen is highest."""

from __future__ import annotations

from numba import int64

from hpctwin.engine.agents.agent_record import GOES_ON, agent_at, choice_at, fact_at, seen_at
from hpctwin.engine.agents.step import step
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.state.layout import STEPPED, ZERO

__all__ = ["play"]


@jit
def highest(address: int, weights: int, inputs: int) -> int:
    """The choice with the highest score, of those that there are; of equals the first.

    Rows of what is seen are scored by the sum of their numbers times weights, choices after them as they are.

    Args:
        address: the agent's.
        weights: address of as many numbers as a row has, and those of choices after the rows.
        inputs: numbers of a row.
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
        # Where a share is chosen, choices are levels of it.
        agent.share = agent.action / max(agent.width - 1.0, 1.0)
        code = step(address)
        if code != STEPPED:
            return code
        agent.total += agent.earned
    return STEPPED


play = Kernel(_play, int64(int64, int64, int64))
"""Play on to the end of the episode: ``(address, weights, numbers of a row) -> code``; as `highest`.

What steps earn is added to `Agent.total`, but for one that came to no decision.
"""
