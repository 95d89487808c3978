"""Which nodes a job gets of those that have room for it: what all placements have in common."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import call_with_job
from hpctwin.engine.shared.fit import goes_by_kind
from hpctwin.engine.shared.gpus import hold, lay_chosen
from hpctwin.engine.shared.node_resources import CORES, GPUS, MEMORY
from hpctwin.engine.state.layout import ONE, SOONEST, ZERO, Arrays

__all__ = ["choose", "choose_for", "give", "give_most", "has_less", "ready_at"]


@jit
def choose(j: int, sim: Arrays) -> None:
    """Choose from the nodes in ``sim.fits`` and set ``sim.chosen_nodes`` and ``sim.chosen_tasks``.

    Of a job that `goes_by_kind` they are chosen already; see `kinds`.
    """
    kind = sim.job[j].kind
    if not goes_by_kind(kind, sim):
        sim.sharing.chosen = 0
        choose_for(j, kind, sim)


@jit
def choose_for(j: int, kind: int, sim: Arrays) -> None:
    """Choose nodes for tasks of one kind of a job, after those that were chosen for others."""
    sim.sharing.before = sim.sharing.chosen
    sim.sharing.kind = kind
    sim.sharing.laid = 0
    if sim.shape[kind].spread == 1:
        _give_widely(kind, sim)
    else:
        call_with_job(sim.hooks.choose, j, sim)
    lay_chosen(kind, sim)


@jit
def _give_widely(kind: int, sim: Arrays) -> None:
    """Choose as many nodes as a job can have, by number, whatever the placement.

    As ``--spread-job`` of Slurm (22.05: ``_eval_nodes_spread`` and ``dist_tasks_compute_c_b`` of cons_tres).
    """
    shape = sim.shape[kind]
    sharing = sim.sharing
    unshared = shape.tasks
    node = sim.rooms.first
    while sharing.chosen - sharing.before < shape.tasks and node < len(sim.share):
        if sim.fits[node] > 0:
            # What it may have at most: one task, whatever those before it may have.
            sim.fits[node] = min(sim.fits[node], shape.most, max(ONE, unshared))
            unshared -= sim.fits[node]
            give(node, ONE, sim)
        node += 1
    left = shape.tasks - (sharing.chosen - sharing.before)
    while left > 0:
        open_to_more = ZERO
        for n in range(sharing.before, sharing.chosen):
            open_to_more += sim.chosen_tasks[n] < sim.fits[sim.chosen_nodes[n]]
        # So many rounds as one, or the last one.
        rounds = max(ONE, left // open_to_more)
        for n in range(sharing.before, sharing.chosen):
            more = min(rounds, sim.fits[sim.chosen_nodes[n]] - sim.chosen_tasks[n], left)
            sim.chosen_tasks[n] += more
            left -= more


@jit
def give(node: int, tasks: int, sim: Arrays) -> None:
    """Choose a node for so many tasks."""
    hold(sim.sharing.kind, node, tasks, sim)


@jit
def give_most(node: int, left: int, sim: Arrays) -> int:
    """Give a node as many tasks as it can have of those that are left; how many are left then.

    One is left for each further node that the job must have. The node has no room any more.
    """
    shape = sim.shape[sim.sharing.kind]
    has = sim.sharing.chosen - sim.sharing.before
    fits = min(sim.fits[node], shape.most)
    sim.fits[node] = 0
    if fits <= 0:
        return left
    tasks = min(fits, left - max(0, shape.nodes - has - 1))
    give(node, tasks, sim)
    return left - tasks


@jit
def has_less(a: int, b: int, sim: Arrays) -> bool:
    """Whether one node has less left than another: GPUs, then cores, then memory."""
    if sim.min_free[a, GPUS] != sim.min_free[b, GPUS]:
        return sim.min_free[a, GPUS] < sim.min_free[b, GPUS]
    if sim.min_free[a, CORES] != sim.min_free[b, CORES]:
        return sim.min_free[a, CORES] < sim.min_free[b, CORES]
    return sim.min_free[a, MEMORY] < sim.min_free[b, MEMORY]


@jit
def ready_at(node: int, sim: Arrays) -> int:
    """When a node is on, where that comes first; else the same for all."""
    return active_from(node, sim) if sim.rules.preferred == SOONEST else ZERO
