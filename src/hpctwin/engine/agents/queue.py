"""Sums over the queue for agents, recomputed only if the queue has changed."""

from __future__ import annotations

from hpctwin.engine.agents.agent_record import agent_at
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = ["note_queue", "waited_in_queue"]


@jit
def note_queue(address: int, sim: Arrays) -> None:
    """Update the agent's sums to the present queue."""
    agent = agent_at(address)
    # Each change of the queue is a start, or counts in ``moves``.
    changes = sim.clock.starts + sim.clock.moves
    if agent.changes == changes:
        return
    agent.changes = changes
    nodes = ZERO
    walltimes = 0.0
    submits = ZERO
    first = NEVER
    last = -NEVER
    for i in range(sim.clock.queued):
        job = sim.job[sim.queue[i]]
        nodes += job.nodes
        walltimes += job.limit
        submit = submitted_at(sim.queue[i], sim)
        submits += submit
        first = min(first, submit)
        last = max(last, submit)
    agent.asked = nodes
    agent.walltimes = walltimes
    agent.submits = submits
    agent.first = first
    agent.last = last


@jit
def waited_in_queue(address: int, sim: Arrays) -> tuple[int, int]:
    """Return the waits of queued jobs since the previous decision, and in total, ms."""
    note_queue(address, sim)
    agent = agent_at(address)
    now = sim.clock.now
    lately = sim.clock.queued * (now - agent.since)
    if agent.last > agent.since:
        for i in range(sim.clock.queued):
            lately -= max(ZERO, submitted_at(sim.queue[i], sim) - agent.since)
    return lately, sim.clock.queued * now - agent.submits
