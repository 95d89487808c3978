"""What is kept of an agent beside its simulation; kernels find it by its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, numbers_at, record_at
from hpctwin.engine.state.layout import record_type
from hpctwin.engine.state.records import Int, Real

__all__ = [
    "AGENT",
    "CHOOSING",
    "CHOSEN",
    "CUT",
    "ENDED",
    "GOES_ON",
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
    """One agent. Addresses of arrays are those of their descriptors, 0 for none; times are ms."""

    sim: Int  # address of its simulation
    act: Int  # hooks ``(agent, sim) -> None``: do what was chosen,
    go: Int  # … go on until a decision is to be made,
    observe: Int  # … write what is seen and may be chosen,
    reward: Int  # … what was earned since the decision before
    seen: Int  # address: numbers of 4 bytes
    mask: Int  # address: a byte for each choice
    seen_next: Int  # where many are stepped together: the other place, which what is seen next is written to,
    mask_next: Int  # … and its choices
    choices: Int  # address: a byte for each node; where more than one thing is chosen
    watts: Int  # address: power of a node in each state, W [pools * states]
    facts: Int  # address: numbers of 8 bytes that the hooks know how to read
    window: Int  # places that jobs are seen in
    width: Int  # choices
    every: Int  # a decision so often; 0: at each instant
    limit: Int  # so many steps at most; 0 for no limit
    action: Int  # what was chosen, or
    share: Real  # … how much
    alpha: Real  # weights of what is earned
    beta: Real
    stage: Int  # CHOOSING or ON_THE_WAY
    code: Int  # why a step came to no decision: as of `event_loop.advance`; STEPPED if it did
    over: Int  # GOES_ON, ENDED or CUT
    steps: Int
    chosen: Int  # the job that is to start next, -1
    since: Int  # when the decision before was made
    until: Int  # when the next is due
    quiet: Int  # since when nothing but nodes has changed; -1
    changes: Int  # so often had the queue changed when these were reckoned of it; -1, see `queue.note_queue`
    asked: Int  # … nodes,
    walltimes: Real  # … ms in sum,
    submits: Int  # … times of submission in sum,
    first: Int  # … the first of them
    last: Int  # … and the last
    low: Int  # jobs before this place in the order of submission had started by then
    begun: Int  # so many had started by then
    wasted: Real  # J by then
    rate: Real  # W that are wasted as nodes are now
    most: Real  # W that could be wasted at most
    instants: Int  # of the clock when that was reckoned; -1: nodes were switched since
    shown: Int  # so many places of the window were filled the last time,
    shown_before: Int  # … and the time before
    earned: Real
    total: Real  # … since an episode is played to its end by `sums.play`
    slowdown: Real  # at the end: mean bounded slowdown of the jobs that ran,
    wait: Real  # … mean wait, s,
    energy: Real  # … of all nodes, J


class Chosen:
    """What was chosen for one of many agents, as `Agent.action` and `Agent.share`.

    What goes to and fro in each step lies apart from the agents' records, close together: who chooses and
    who steps are on different cores, and take what they have not of each other line by line.
    """

    action: Int
    share: Real


class Outcome:
    """What came of a step of one of many agents, as `Agent.code`, `Agent.over` and `Agent.earned`."""

    code: Int
    over: Int
    earned: Real


AGENT, CHOSEN, OUTCOME = record_type(Agent), record_type(Chosen), record_type(Outcome)
CHOOSING, ON_THE_WAY = np.int64(0), np.int64(1)
GOES_ON, ENDED, CUT = np.int64(0), np.int64(1), np.int64(2)

NOT_ALLOWED = np.int64(7)
"""Beside the codes of `event_loop.advance`: what was chosen is not there; nothing was done."""

agent_at, chosen_at, outcome_at = record_at(Agent), record_at(Chosen), record_at(Outcome)
_seen_at, _bytes_at = numbers_at(np.dtype("f4")), numbers_at(np.dtype("i1"))
_facts_at = numbers_at(np.dtype("f8"))


@jit
def put_seen(seen: int, place: int, number: float) -> None:
    """Write a number of what is seen."""
    _seen_at(seen)[place] = number


@jit
def seen_at(seen: int, place: int) -> float:
    """One of the numbers of what is seen."""
    found: float = _seen_at(seen)[place]
    return found


@jit
def put_mask(mask: int, choice: int, there: int) -> None:
    """Write whether there is a choice, as 1 or 0."""
    _bytes_at(mask)[choice] = there


@jit
def choice_at(choices: int, node: int) -> int:
    """What was chosen for a node, or whether there is a choice."""
    found: int = _bytes_at(choices)[node]
    return found


@jit
def fact_at(facts: int, place: int) -> float:
    """One of the numbers that hooks know how to read."""
    found: float = _facts_at(facts)[place]
    return found


def hook(function: Callable[..., None]) -> Kernel:
    """A function ``(agent, sim) -> None``, where ``agent_at(agent)`` is its `Agent`, to be handed over."""
    return Kernel(function, types.void(int64, SIM))


def words(agents: Any) -> tuple[Any, Any]:
    """Records of agents as whole numbers and as reals, which are set and read sooner [agents, fields]."""
    size = (len(agents), AGENT.itemsize // 8)
    return agents.view(np.int64).reshape(size), agents.view(np.float64).reshape(size)
