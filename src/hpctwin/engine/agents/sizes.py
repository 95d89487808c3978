"""Sizes of jobs for agents, under either capacity model.

With whole nodes, a size is a number of nodes. With shared nodes, a job's size is its largest share
of the cluster, in thousandths of nodes, and the free size is the free share of cores.
"""

from __future__ import annotations

import numpy as np

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.running_jobs import close_holes
from hpctwin.engine.shared.fit import begin_pass, may_fit
from hpctwin.engine.shared.node_resources import CORES
from hpctwin.engine.state.layout import NEVER, ONE, ZERO, Arrays

__all__ = [
    "cluster_size",
    "enough_at",
    "fits",
    "free_size",
    "look_at_nodes",
    "size_back",
    "size_of",
    "sum_up_back",
]

THOUSAND = 1000.0


@jit
def size_of(j: int, sim: Arrays) -> int:
    """Return the size of a job."""
    if len(sim.share) == 0:
        return sim.job[j].nodes
    return max(ONE, int(np.rint(THOUSAND * sim.shape[sim.job[j].kind].charge)))


@jit
def cluster_size(sim: Arrays) -> float:
    """Return the size of all nodes."""
    nodes = float(sim.rules.machine_nodes)
    return nodes if len(sim.share) == 0 else THOUSAND * nodes


@jit
def free_size(sim: Arrays) -> int:
    """Return the size of what is free on nodes that are up."""
    free = ZERO
    if len(sim.share) == 0:
        for p in range(sim.rules.pools):
            free += max(ZERO, sim.stock[p].free)
        return free
    whole = ZERO
    for node in range(len(sim.share)):
        whole += sim.whole[node, CORES]
        if sim.node[node].down == 0:
            free += sim.left[node, CORES]
    return int(cluster_size(sim) * (free / float(whole)))


@jit
def look_at_nodes(sim: Arrays) -> None:
    """Let `fits` answer for the present state of the nodes."""
    if len(sim.share) > 0:
        begin_pass(sim)


@jit
def fits(j: int, free: int, sim: Arrays) -> bool:
    """Return whether a job fits now, given `free_size`; call `look_at_nodes` before."""
    if len(sim.share) == 0:
        return sim.job[j].nodes <= free
    return may_fit(sim.job[j].kind, sim)


@jit
def sum_up_back(sim: Arrays) -> None:
    """Sum up the sizes that running jobs return, by planned end, in ``sim.later``."""
    back = ZERO
    close_holes(sim)
    for r in range(sim.clock.running):
        back += size_of(sim.run[r].job, sim)
        sim.later[r] = back


@jit
def size_back(within: int, sim: Arrays) -> int:
    """Return the size that running jobs return by a time; call `sum_up_back` before."""
    low = 0
    high = sim.clock.running
    while low < high:
        middle = (low + high) // 2
        if sim.run[middle].planned <= within:
            low = middle + 1
        else:
            high = middle
    return ZERO if low == 0 else sim.later[low - 1]


@jit
def enough_at(wanted: int, free: int, sim: Arrays) -> int:
    """Return when running jobs have returned enough as planned, ms.

    `NEVER` if they do not. Call `sum_up_back` before. At least one running job must end.

    Args:
        wanted: A size, larger than the free size.
        free: The free size now.
        sim: Simulation.
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
