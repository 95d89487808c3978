"""Many agents stepped by several threads at once.

Each thread has its own part of the agents, whose memory stays in its cache. It takes a few agents
at a time. When its part is done, it takes agents of other parts. A round therefore never waits for
a thread that has not woken up yet: the thread that began the round continues until no agent is
left, and then waits only for threads at work.

Between two rounds a thread polls for the next one for a while before it sleeps, since waking up
takes longer than a round.

Episodes played to their end by agents that choose the highest linear score.

Job features for agents and orderings, so that a learned agent can sort a queue.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpctwin.engine.agents.agent_record import (
    CHOSEN,
    GOES_ON,
    OUTCOME,
    agent_at,
    choice_at,
    chosen_at,
    fact_at,
    outcome_at,
    seen_at,
)
from hpctwin.engine.agents.step import step
from hpctwin.engine.compile.jit import Kernel, jit, part_of_score
from hpctwin.engine.containers.atomic import add, breathe, put, read, swap_if
from hpctwin.engine.state.layout import MINUS_ONE, ONE, STEPPED, ZERO

__all__ = [
    "JOB_FEATURES",
    "begin_round",
    "join_round",
    "leave",
    "play",
    "seen_by_orderings",
    "seen_of_job",
    "serve",
    "table",
    "wait",
]


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


play = Kernel(_play, "int64(int64, int64, int64)")
"""Play an episode to its end: ``(address, weights, numbers of a row) -> code``.

It chooses as `highest`. Rewards are added to `Agent.total`, except for a step without a decision.
"""


JOB_FEATURES = 6
HOUR_S = 3600.0
LONG = 14.0  # about the logarithm of two weeks, s


@jit
def seen_of_job(
    wait: float, walltime: float, nodes: float, machine: float
) -> tuple[float, float, float, float, float]:
    """Return the features of a pending job, all from 0 to 1.

    See `learn.environments.job_selection.OBSERVATIONS`.

    Args:
        wait: Wait so far, s.
        walltime: Requested limit, s.
        nodes: Nodes requested.
        machine: Nodes of the cluster.
    """
    return (
        wait / (wait + HOUR_S),
        min(math.log(1.0 + walltime) / LONG, 1.0),
        nodes / machine,
        math.log(1.0 + nodes) / math.log(1.0 + machine),
        wait / (wait + walltime + 1.0),
    )


seen_by_orderings = part_of_score(seen_of_job)
"""The same features, for orderings."""


LINE = np.int64(8)
"""Words in one cache line; different threads write to different lines."""
AT_ONCE = np.int64(4)
"""Number of agents taken at a time."""
LOOKS = np.int64(5000)
"""Number of polls for the next round before a thread sleeps: about 0.1 ms."""

CHOSEN_SIZE, OUTCOME_SIZE = np.int64(CHOSEN.itemsize), np.int64(OUTCOME.itemsize)

# Words of the table: lines for all threads …
BASE, SIZE, CHOICES, OUTCOMES, THREADS = np.arange(5)
ROUND, AT_WORK, NOTED = LINE, 2 * LINE, 2 * LINE + 1
# … and one line per thread: the next agent of its part, the part's end and begin, whether the
# thread is awake, and whether it was asleep when this round began.
OWN = 3 * LINE
NEXT, END, FIRST, AWAKE, CALLED = np.arange(5)


def table(agents: Any, choices: Any, outcomes: Any, threads: int) -> tuple[Any, Any, Any]:
    """Return the table by which the threads communicate [words], and two views of it.

    Args:
        agents: Records of `Agent`.
        choices: Record of `Chosen` for each agent.
        outcomes: Record of `Outcome` for each agent.
        threads: Number of threads; the first one begins rounds.

    Returns:
        The table; which threads were found asleep, 1 or 0 [threads]; the number of agents that need
        attention, because their episode has ended, they could not continue, or their choice was not
        available [1].
    """
    words = np.zeros((3 + threads + 1) * LINE, np.int64)
    # Aligned to a cache line.
    words = words[-words.ctypes.data % int(8 * LINE) // 8 :][: (3 + threads) * LINE]
    words[[BASE, SIZE, THREADS]] = agents.ctypes.data, agents.itemsize, threads
    words[[CHOICES, OUTCOMES]] = choices.ctypes.data, outcomes.ctypes.data
    own = words[int(OWN) :].reshape(threads, LINE)
    parts = np.arange(threads + 1) * len(agents) // threads
    own[:, FIRST], own[:, END] = parts[:-1], parts[1:]
    own[:, NEXT] = own[:, END]
    return words, own[:, CALLED], words[NOTED : NOTED + 1]


@jit
def word(place: int, table: int) -> int:
    """Return the address of a word of the table."""
    return table + 8 * place


@jit
def line_of(thread: int, table: int) -> int:
    """Return the address of a thread's line."""
    return word(OWN + LINE * thread, table)


@jit
def step_one_of_many(number: int, table: int) -> None:
    """Step one agent; the observation goes to the buffer that was not used last.

    Args:
        number: Number of the agent.
        table: Address of the table.
    """
    address = read(word(BASE, table)) + number * read(word(SIZE, table))
    agent = agent_at(address)
    chosen = chosen_at(read(word(CHOICES, table)) + number * CHOSEN_SIZE)
    agent.action = chosen.action
    agent.share = chosen.share
    seen = agent.seen
    mask = agent.mask
    agent.seen = agent.seen_next
    agent.mask = agent.mask_next
    agent.seen_next = seen
    agent.mask_next = mask
    step(address)
    outcome = outcome_at(read(word(OUTCOMES, table)) + number * OUTCOME_SIZE)
    outcome.code = agent.code
    outcome.over = agent.over
    outcome.earned = agent.earned
    if agent.code != STEPPED or agent.over != GOES_ON or agent.invalid != 0:
        add(word(NOTED, table), ONE)


@jit
def step_part(thread: int, table: int) -> None:
    """Step the remaining agents of a thread's part."""
    line = line_of(thread, table)
    end = read(word(END, line))
    while read(word(NEXT, line)) < end:
        first = add(word(NEXT, line), AT_ONCE)
        for i in range(first, min(first + AT_ONCE, end)):
            step_one_of_many(i, table)


@jit
def step_all(thread: int, table: int) -> None:
    """Step the remaining agents, the thread's own part first."""
    threads = read(word(THREADS, table))
    add(word(AT_WORK, table), ONE)
    for k in range(threads):
        step_part((thread + k) % threads, table)
    add(word(AT_WORK, table), MINUS_ONE)


@jit
def all_done(looks: int, table: int) -> bool:
    """Poll up to ``looks`` times; return whether no thread is at work any more."""
    for _ in range(looks):
        if read(word(AT_WORK, table)) == 0:
            return True
        breathe()
    return False


def _begin_round(table: int) -> int:
    threads = read(word(THREADS, table))
    put(word(NOTED, table), ZERO)
    for thread in range(threads):
        line = line_of(thread, table)
        put(word(NEXT, line), read(word(FIRST, line)))
    add(word(ROUND, table), ONE)
    asleep = ZERO
    for thread in range(1, threads):
        line = line_of(thread, table)
        was = swap_if(word(AWAKE, line), ZERO, ONE)
        put(word(CALLED, line), ONE - was)
        asleep += ONE - was
    return asleep


def _join_round(table: int) -> bool:
    step_all(ZERO, table)
    return all_done(LOOKS, table)


def _serve(thread: int, table: int) -> None:
    awake = word(AWAKE, line_of(thread, table))
    seen = MINUS_ONE
    while True:
        looks = LOOKS
        while read(word(ROUND, table)) == seen and looks > 0:
            looks -= 1
            breathe()
        if looks == 0:
            put(awake, ZERO)
            # A round that began meanwhile found this thread awake, unless it has just been called.
            if read(word(ROUND, table)) == seen or swap_if(awake, ZERO, ONE) != 0:
                return
        seen = read(word(ROUND, table))
        step_all(thread, table)


def _wait(table: int) -> bool:
    return all_done(LOOKS, table)


def _leave(table: int) -> None:
    add(word(AT_WORK, table), MINUS_ONE)


begin_round = Kernel(_begin_round, "int64(int64)")
"""Begin a round: ``(address of the table) -> number of threads to wake``."""

join_round = Kernel(_join_round, "bool(int64)")
"""Step the remaining agents; return whether all threads are done.

The argument is ``(address of the table)``.
"""

serve = Kernel(_serve, "void(int64, int64)")
"""Run a worker thread until no round has come for a while.

The arguments are ``(thread, address of the table)``.
"""

wait = Kernel(_wait, "bool(int64)")
"""Poll for a while: ``(address of the table) -> whether all threads are done``."""

leave = Kernel(_leave, "void(int64)")
"""Record that a thread has stopped after an error: ``(address of the table)``."""
