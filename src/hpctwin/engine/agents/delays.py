"""Observation of pending jobs that includes how long each must wait for nodes."""

from __future__ import annotations

import math

from hpctwin.engine.agents.agent_record import agent_at, hook, put_seen
from hpctwin.engine.agents.jobs import empty_rows, free_now, mask_places
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.running_jobs import close_holes
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = ["DELAY_FEATURES", "OBSERVE_DELAYS"]

DELAY_FEATURES = 13
LONG = 14.0  # about the logarithm of two weeks, s
TEN_DAYS_S = 864_000.0


@jit
def in_logs(seconds: float) -> float:
    """Return a duration in s on a logarithmic scale from 0 to 1.

    Short durations differ on this scale too.
    """
    return min(math.log(1.0 + seconds) / LONG, 1.0)


@jit
def sum_up_nodes_back(sim: Arrays) -> None:
    """Write to ``sim.later`` how many nodes jobs give back up to each, in the order of planned ends."""
    back = ZERO
    close_holes(sim)
    for r in range(sim.clock.running):
        back += sim.job[sim.run[r].job].nodes
        sim.later[r] = back


@jit
def enough_at(wanted: int, free: int, sim: Arrays) -> int:
    """When running jobs have given back enough as planned, ms, given sums in ``sim.later``; `NEVER` if not.

    Args:
        wanted: nodes, more than are free.
        free: so many are now.
        sim: the simulation.
    """
    low = 0
    high = sim.clock.running
    while low < high:
        middle = (low + high) // 2
        if free + sim.later[middle] >= wanted:
            high = middle
        else:
            low = middle + 1
    return NEVER if low == sim.clock.running else max(sim.run[low].planned, sim.clock.now)


@jit
def put_delays(
    j: int,
    size: float,
    widest: float,
    share: float,
    begin: int,
    row: int,
    address: int,
    sim: Arrays,
) -> None:
    """Write the observation of a job.

    Args:
        j: Job.
        size: Its nodes, in the unit of all sizes.
        widest: Logarithm of all nodes, in the same unit.
        share: Its share of all nodes.
        begin: Earliest start as planned, ms.
        row: Index of its first number.
        address: Address of the agent.
        sim: Simulation.
    """
    out = agent_at(address).seen
    now = sim.clock.now
    job = sim.job[j]
    wait = (now - submitted_at(j, sim)) / 1000.0
    walltime = job.limit / 1000.0
    delay = (begin - now) / 1000.0
    long = in_logs(walltime)
    wide = math.log(size) / widest
    put_seen(out, row, 1.0)
    put_seen(out, row + 1, in_logs(wait))
    put_seen(out, row + 2, min(wait / TEN_DAYS_S, 1.0))
    put_seen(out, row + 3, wait / (wait + walltime + 1.0))
    put_seen(out, row + 4, long)
    put_seen(out, row + 5, wide)
    put_seen(out, row + 6, share)
    put_seen(out, row + 7, share * long)
    put_seen(out, row + 8, wide * long)
    put_seen(out, row + 9, long * long)
    put_seen(out, row + 10, 1.0 if begin == now else 0.0)
    put_seen(out, row + 11, 0.0 if begin == now else in_logs(delay))
    put_seen(out, row + 12, delay / (delay + walltime + 1.0))


@jit
def see_delays(address: int, sim: Arrays) -> None:
    """See `learn.environments.job_selection.DELAYS`."""
    there = mask_places(address, sim)
    machine = float(sim.rules.machine_nodes)
    free = free_now(sim)
    sum_up_nodes_back(sim)
    widest = math.log(machine) if machine > 1.0 else 1.0
    for i in range(there):
        j = sim.queue[i]
        nodes = sim.job[j].nodes
        begin = sim.clock.now if nodes <= free else enough_at(nodes, free, sim)
        row = DELAY_FEATURES * i
        put_delays(j, float(nodes), widest, nodes / machine, begin, row, address, sim)
    empty_rows(there, DELAY_FEATURES, address)


def observe_delays(address: int, sim: Arrays) -> None:
    """Where jobs have whole nodes."""
    see_delays(address, sim)


OBSERVE_DELAYS = hook(observe_delays)
