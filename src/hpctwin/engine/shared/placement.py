"""Choice of a job's nodes among those on which it fits, common to all placements."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.intrinsics import call_with_job
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit import goes_by_kind
from hpctwin.engine.shared.gpus import hold, lay_chosen
from hpctwin.engine.shared.node_resources import CORES, GPUS, MEMORY
from hpctwin.engine.state.layout import ONE, SOONEST, ZERO, Arrays

__all__ = ["choose", "choose_for", "give", "give_most", "has_less", "ready_at"]


@jit
def choose(j: int, sim: Arrays) -> None:
    """Choose nodes from ``sim.fits`` for a job.

    It sets ``sim.chosen_nodes`` and ``sim.chosen_tasks``. If a job `goes_by_kind`, its nodes are
    chosen already; see `mixed_tasks`.
    """
    kind = sim.job[j].kind
    if not goes_by_kind(kind, sim):
        sim.sharing.chosen = 0
        choose_for(j, kind, sim)


@jit
def choose_for(j: int, kind: int, sim: Arrays) -> None:
    """Choose nodes for a job's tasks of one kind, after those chosen for other kinds."""
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

    It is like ``--spread-job`` of Slurm (22.05: ``_eval_nodes_spread`` and
    ``dist_tasks_compute_c_b`` of cons_tres).
    """
    shape = sim.shape[kind]
    sharing = sim.sharing
    unshared = shape.tasks
    node = sim.rooms.first
    while sharing.chosen - sharing.before < shape.tasks and node < len(sim.share):
        if sim.fits[node] > 0:
            # At most the tasks that the nodes before it cannot have, but at least one.
            sim.fits[node] = min(sim.fits[node], shape.most, max(ONE, unshared))
            unshared -= sim.fits[node]
            give(node, ONE, sim)
        node += 1
    left = shape.tasks - (sharing.chosen - sharing.before)
    while left > 0:
        open_to_more = ZERO
        for n in range(sharing.before, sharing.chosen):
            open_to_more += sim.chosen_tasks[n] < sim.fits[sim.chosen_nodes[n]]
        # Several full rounds at once; the last round may be partial.
        rounds = max(ONE, left // open_to_more)
        for n in range(sharing.before, sharing.chosen):
            more = min(rounds, sim.fits[sim.chosen_nodes[n]] - sim.chosen_tasks[n], left)
            sim.chosen_tasks[n] += more
            left -= more


@jit
def give(node: int, tasks: int, sim: Arrays) -> None:
    """Choose a node for a number of tasks."""
    hold(sim.sharing.kind, node, tasks, sim)


@jit
def give_most(node: int, left: int, sim: Arrays) -> int:
    """Give a node as many of the remaining tasks as fit; return how many remain.

    One task is kept for each further node that the job must have. Afterwards the node is full.
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
    """Return whether a node has less left than another: GPUs, then cores, then memory."""
    if sim.min_free[a, GPUS] != sim.min_free[b, GPUS]:
        return sim.min_free[a, GPUS] < sim.min_free[b, GPUS]
    if sim.min_free[a, CORES] != sim.min_free[b, CORES]:
        return sim.min_free[a, CORES] < sim.min_free[b, CORES]
    return sim.min_free[a, MEMORY] < sim.min_free[b, MEMORY]


@jit
def ready_at(node: int, sim: Arrays) -> int:
    """Return when a node is on, if the nodes that are on soonest come first; else 0."""
    return active_from(node, sim) if sim.rules.preferred == SOONEST else ZERO
