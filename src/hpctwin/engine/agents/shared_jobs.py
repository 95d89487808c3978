"""What agents see of a job where nodes are shared; see `jobs` and `delays`.

In the place of nodes stands how many a job counts as, by the largest of its shares of the machine, in
thousandths; in that of free nodes, the share of cores that is free.
"""

from __future__ import annotations

import math

import numpy as np

from hpctwin.engine.agents.agent_record import agent_at, hook, put_seen
from hpctwin.engine.agents.delays import DELAY_FEATURES, enough_at, put_delays, see_delays
from hpctwin.engine.agents.jobs import (
    FEATURES,
    crowd_behind,
    empty_rlscheduler,
    empty_rows,
    mask_places,
    nodes_back,
    put_features,
    put_rlscheduler,
    see_features,
    see_rlscheduler,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.running_jobs import close_holes
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.shared.fit import begin_pass, may_fit
from hpctwin.engine.shared.node_resources import CORES
from hpctwin.engine.state.layout import ONE, ZERO, Arrays

__all__ = ["OBSERVE_DELAYS_SHARED", "OBSERVE_FEATURES_SHARED", "OBSERVE_RLSCHEDULER_SHARED"]

THOUSAND = 1000.0


@jit
def size_of(j: int, sim: Arrays) -> int:
    """As how many nodes a job counts, in thousandths."""
    return max(ONE, int(np.rint(THOUSAND * sim.shape[sim.job[j].kind].charge)))


@jit
def machine_size(sim: Arrays) -> float:
    """All nodes, in thousandths."""
    return THOUSAND * sim.rules.machine_nodes


@jit
def free_size(sim: Arrays) -> int:
    """The share of cores that is free on nodes that are up, as so many nodes, in thousandths."""
    free = ZERO
    whole = ZERO
    for node in range(len(sim.share)):
        whole += sim.whole[node, CORES]
        if sim.node[node].down == 0:
            free += sim.left[node, CORES]
    return int(machine_size(sim) * (free / float(whole)))


@jit
def sum_up_sizes_back(sim: Arrays) -> None:
    """Write to ``sim.later`` how much jobs give back up to each, in the order of planned ends."""
    back = ZERO
    close_holes(sim)
    for r in range(sim.clock.running):
        back += size_of(sim.run[r].job, sim)
        sim.later[r] = back


@jit
def begin_to_look(address: int, sim: Arrays) -> int:
    """Have `may_fit` and ``sim.later`` be of now; how many jobs are in the window."""
    begin_pass(sim)
    sum_up_sizes_back(sim)
    return mask_places(address, sim)


@jit
def see_features_shared(address: int, sim: Arrays) -> None:
    """See `learn.environments.job_selection.FEATURES`."""
    there = begin_to_look(address, sim)
    now = sim.clock.now
    total = machine_size(sim)
    share = free_size(sim) / total
    crowd = crowd_behind(there, address, sim)
    out = agent_at(address).seen
    for i in range(there):
        j = sim.queue[i]
        job = sim.job[j]
        row = FEATURES * i
        wait = float(now - submitted_at(j, sim))
        put_features(out, row, wait, job.limit, size_of(j, sim) / total, may_fit(job.kind, sim))
        put_seen(out, row + 5, share)
        put_seen(out, row + 6, min(nodes_back(now + job.limit, sim) / total, 1.0))
        put_seen(out, row + 7, crowd)
    empty_rows(there, FEATURES, address)


@jit
def see_rlscheduler_shared(address: int, sim: Arrays) -> None:
    """The eight numbers of RLScheduler."""
    there = begin_to_look(address, sim)
    total = machine_size(sim)
    for i in range(there):
        j = sim.queue[i]
        fits = may_fit(sim.job[j].kind, sim)
        put_rlscheduler(j, size_of(j, sim) / total, fits, FEATURES * i, address, sim)
    empty_rlscheduler(there, address)


@jit
def see_delays_shared(address: int, sim: Arrays) -> None:
    """See `learn.environments.job_selection.DELAYS`.

    A job that does not fit is taken to when enough is given back in sum, one running job's at least.
    """
    there = begin_to_look(address, sim)
    total = machine_size(sim)
    free = free_size(sim)
    widest = math.log(total)
    for i in range(there):
        j = sim.queue[i]
        size = size_of(j, sim)
        fits = may_fit(sim.job[j].kind, sim)
        begin = sim.clock.now if fits else enough_at(size, free, sim)
        row = DELAY_FEATURES * i
        put_delays(j, float(size), widest, size / total, begin, row, address, sim)
    empty_rows(there, DELAY_FEATURES, address)


# --- an episode of whole nodes alone has none that are shared ---------------------------------------


def observe_features_shared(address: int, sim: Arrays) -> None:
    """As the episode has it."""
    if len(sim.share) > 0:
        see_features_shared(address, sim)
    else:
        see_features(address, sim)


def observe_rlscheduler_shared(address: int, sim: Arrays) -> None:
    """As the episode has it."""
    if len(sim.share) > 0:
        see_rlscheduler_shared(address, sim)
    else:
        see_rlscheduler(address, sim)


def observe_delays_shared(address: int, sim: Arrays) -> None:
    """As the episode has it."""
    if len(sim.share) > 0:
        see_delays_shared(address, sim)
    else:
        see_delays(address, sim)


OBSERVE_FEATURES_SHARED = hook(observe_features_shared)
OBSERVE_RLSCHEDULER_SHARED = hook(observe_rlscheduler_shared)
OBSERVE_DELAYS_SHARED = hook(observe_delays_shared)
