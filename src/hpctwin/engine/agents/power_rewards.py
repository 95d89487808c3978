"""Rewards of agents that decide which nodes are on."""

from __future__ import annotations

from hpctwin.engine.agents.agent_record import agent_at, hook
from hpctwin.engine.agents.queue import waited_in_queue
from hpctwin.engine.agents.step import wasted
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = ["REWARD_JOBS", "REWARD_SHARES", "REWARD_SPARS"]


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
