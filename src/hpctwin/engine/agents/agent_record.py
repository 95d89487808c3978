"""The record of an agent next to its simulation; kernels find it by its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpctwin.engine.compile.intrinsics import numbers_at, record_at
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.state.layout import record_type
from hpctwin.engine.state.records import Int, Real

__all__ = [
    "AGENT",
    "CHOOSING",
    "CHOSEN",
    "CUT",
    "ENDED",
    "GOES_ON",
    "MAX_INVALID",
    "NOT_ALLOWED",
    "ON_THE_WAY",
    "OUTCOME",
    "Agent",
    "Chosen",
    "Outcome",
    "agent_at",
    "choice_at",
    "chosen_at",
    "fact_at",
    "hook",
    "outcome_at",
    "put_mask",
    "put_seen",
    "seen_at",
    "words",
]


class Agent:
    """One agent.

    Addresses of arrays are addresses of their descriptors, 0 for none; times are ms.
    """

    sim: Int  # address of its simulation
    act: Int  # hooks ``(agent, sim) -> None``: execute the choice,
    go: Int  # … run until a decision is due,
    observe: Int  # … write the observation and the possible choices,
    reward: Int  # … compute the reward since the previous decision
    seen: Int  # address of the observation: 4-byte floats
    mask: Int  # address of the mask: one byte per choice
    seen_next: Int  # if agents are stepped in parallel: the buffer of the next observation,
    mask_next: Int  # … and of the next mask
    choices: Int  # address: one byte per node, if a choice has several parts
    watts: Int  # address: power of a node in each state, W [pools * states]
    facts: Int  # address: 8-byte floats whose meaning the hooks define
    window: Int  # number of jobs in the window of the queue
    width: Int  # number of choices
    every: Int  # interval between decisions; 0: a decision at each event time
    limit: Int  # maximum number of steps; 0 for no limit
    action: Int  # the choice, or
    share: Real  # … its share
    alpha: Real  # weights of the reward
    beta: Real
    stage: Int  # CHOOSING or ON_THE_WAY
    code: Int  # STEPPED, or the code of `event_loop.advance` that prevented a decision
    over: Int  # GOES_ON, ENDED or CUT
    steps: Int
    chosen: Int  # the job that is to start next, -1
    since: Int  # time of the previous decision
    until: Int  # time of the next decision
    quiet: Int  # time since which only nodes have changed; -1
    changes: Int  # queue changes when these sums were taken, see `queue.note_queue`; -1: never
    asked: Int  # nodes that pending jobs request,
    walltimes: Real  # … sum of walltimes, ms,
    submits: Int  # … sum of submit times,
    first: Int  # … first submit time,
    last: Int  # … and last submit time
    low: Int  # jobs before this place in submit order had started by ``since``
    begun: Int  # number of starts by then
    wasted: Real  # energy wasted up to ``since``, J
    rate: Real  # power wasted in the present node states, W
    most: Real  # maximum power that could be wasted, W
    instants: Int  # ``clock.instants`` when ``rate`` was computed; -1: nodes were switched since
    shown: Int  # places of the window filled in the last observation,
    shown_before: Int  # … and in the one before
    earned: Real
    total: Real  # sum of rewards while `linear_agents.play` plays an episode
    slowdown: Real  # at the end: mean bounded slowdown of the jobs that ran,
    wait: Real  # … mean wait, s,
    energy: Real  # … energy of all nodes, J
    strict: Int  # whether an unavailable choice is an error; else it has no effect
    allow: Int  # hook: write the available choices, if ``observe`` does not; 0 for none
    invalid: Int  # number of choices since the last available one


class Chosen:
    """The choice of one of many agents, as `Agent.action` and `Agent.share`.

    Data exchanged in each step is stored contiguously, apart from the agents' records. The chooser
    and the stepping threads run on different cores, which exchange memory by cache lines.
    """

    action: Int
    share: Real


class Outcome:
    """The result of an agent's step: `Agent.code`, `Agent.over` and `Agent.earned`."""

    code: Int
    over: Int
    earned: Real


AGENT, CHOSEN, OUTCOME = record_type(Agent), record_type(Chosen), record_type(Outcome)
CHOOSING, ON_THE_WAY = np.int64(0), np.int64(1)
GOES_ON, ENDED, CUT = np.int64(0), np.int64(1), np.int64(2)

NOT_ALLOWED = np.int64(7)
"""Code in addition to those of `event_loop.advance`: the choice is not available.

The step has done nothing.
"""
MAX_INVALID = np.int64(1000)
"""Number of unavailable choices in sequence after which an episode is truncated."""

agent_at, chosen_at, outcome_at = record_at(Agent), record_at(Chosen), record_at(Outcome)
_seen_at, _bytes_at = numbers_at(np.dtype("f4")), numbers_at(np.dtype("i1"))
_facts_at = numbers_at(np.dtype("f8"))


@jit
def put_seen(seen: int, place: int, number: float) -> None:
    """Write one number of the observation."""
    _seen_at(seen)[place] = number


@jit
def seen_at(seen: int, place: int) -> float:
    """Return one number of the observation."""
    found: float = _seen_at(seen)[place]
    return found


@jit
def put_mask(mask: int, choice: int, there: int) -> None:
    """Write whether a choice is available, as 1 or 0."""
    _bytes_at(mask)[choice] = there


@jit
def choice_at(choices: int, node: int) -> int:
    """Return the choice for a node, or whether a choice is available."""
    found: int = _bytes_at(choices)[node]
    return found


@jit
def fact_at(facts: int, place: int) -> float:
    """Return one of the numbers at ``Agent.facts``."""
    found: float = _facts_at(facts)[place]
    return found


def hook(function: Callable[..., None]) -> Kernel:
    """Make a hook of a function ``(agent, sim) -> None``.

    ``agent_at(agent)`` is the `Agent` in it.
    """
    return Kernel(function, "void(int64, Sim)")


def words(agents: Any) -> tuple[Any, Any]:
    """Return records of agents as integers and as floats [agents, fields].

    Access to them is faster than to records.
    """
    size = (len(agents), AGENT.itemsize // 8)
    return agents.view(np.int64).reshape(size), agents.view(np.float64).reshape(size)
