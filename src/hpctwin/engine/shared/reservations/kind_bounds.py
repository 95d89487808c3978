"""Which kinds of jobs, and how long jobs of each, a tournament searches on shared nodes.

A job that fits now may not fit if it still runs when some reservation begins. The first such time is
the same for all jobs of a kind. One look at the nodes finds it, because fewer tasks fit on a node
only from the beginning of one of its reservations on.

``sim.times`` has two entries for each time at which reservations begin, in order: how many tasks no
longer fit from then on, and on how many nodes no task does.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared.fit import (
    go_together,
    goes_by_kind,
    is_there,
    keeps_off,
    mark_pools,
    may_fit,
)
from hpctwin.engine.shared.fit_cache import is_open, is_open_block
from hpctwin.engine.shared.node_resources import copy_row, take_held, tasks_on
from hpctwin.engine.shared.reservation_list import first_over
from hpctwin.engine.state.layout import BLOCK, NEVER, ZERO, Arrays

__all__ = ["bound_kind", "list_begins", "search_all_kinds", "search_kinds_that_fit"]


@jit
def search_all_kinds(sim: Arrays) -> None:
    """Let a tournament search jobs of all kinds and lengths."""
    for kind in range(len(sim.tried)):
        sim.tried[kind].below = NEVER


@jit
def search_kinds_that_fit(begins: int, sim: Arrays) -> tuple[int, int]:
    """Let a tournament search only jobs that fit next to the reservations.

    Kinds that are excluded already remain so.

    Args:
        begins: Number of times at which reservations begin, as listed by `list_begins`.
        sim: Simulation.

    Returns:
        Last kind whose jobs are searched, -1 for none; expected runtime below which all jobs are.
    """
    last = ZERO - 1
    longest = ZERO
    for kind in range(len(sim.tried)):
        tried = sim.tried[kind]
        if tried.waiting == 0 or tried.below == 0 or not may_fit(kind, sim):
            tried.below = 0
            continue
        last = kind
        if not goes_by_kind(kind, sim):
            bound_kind(kind, begins, sim)
        longest = max(longest, tried.below)
    return last, longest


@jit
def bound_kind(kind: int, begins: int, sim: Arrays) -> None:
    """Let a tournament search only jobs of a kind that are short enough to fit.

    The kind must not be one that `goes_by_kind`.

    Args:
        kind: Kind of job.
        begins: Number of times at which reservations begin, as listed by `list_begins`.
        sim: Simulation.
    """
    tried = sim.tried[kind]
    if tried.look == sim.sharing.looks:
        tried.below = tried.length
    until = fits_until(kind, begins, sim)
    if until < NEVER and until - sim.clock.now < tried.below:
        tried.look = sim.sharing.looks
        tried.length = tried.below = until - sim.clock.now + 1


@jit
def list_begins(sim: Arrays) -> int:
    """List the times at which reservations begin; return how many."""
    n = ZERO
    for row in range(sim.sharing.promises):
        own = sim.promise[row]
        if own.node < 0 or own.first == 0:
            continue
        place = n
        while place > 0 and sim.times[2 * place - 2].time > own.start:
            place -= 1
        if place > 0 and sim.times[2 * place - 2].time == own.start:
            continue
        for later in range(n, place, -1):
            sim.times[2 * later].time = sim.times[2 * later - 2].time
        sim.times[2 * place].time = own.start
        n += 1
    return n


@jit
def fits_until(kind: int, begins: int, sim: Arrays) -> int:
    """Return a time after which no job of a kind that begins now may end; `NEVER` if it may.

    It is the present if no job of the kind fits now. Future maintenance is ignored.
    """
    now = sim.clock.now
    shape = sim.shape[kind]
    mark_pools(kind, now, now + 1, sim)
    for i in range(2 * begins):
        sim.times[i].job = 0
    tasks = nodes = always = always_nodes = ZERO
    for block in range(len(sim.open_block)):
        if not is_open_block(kind, block, sim):
            continue
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(sim.share))):
            if not is_open(kind, node, sim) or not is_there(node, now, sim):
                continue
            fits = left = fits_at_first(kind, node, sim)
            if fits > 0 and sim.share[node].promise >= 0:
                left = fits_at_last(kind, node, fits, sim)
            tasks += fits
            nodes += min(fits, 1)
            always += left
            always_nodes += min(left, 1)
            if always >= shape.tasks and always_nodes >= shape.nodes:
                return NEVER
    if tasks < shape.tasks or nodes < shape.nodes:
        return now
    i = ZERO
    while True:
        tasks -= sim.times[2 * i].job
        nodes -= sim.times[2 * i + 1].job
        if tasks < shape.tasks or nodes < shape.nodes:
            return sim.times[2 * i].time
        i += 1


@jit
def fits_at_first(kind: int, node: int, sim: Arrays) -> int:
    """Return how many tasks of a job fit on a node now; set ``sim.min_free`` to what is free."""
    now = sim.clock.now
    copy_row(sim.left, node, sim.min_free, node)
    p = first_over(node, now, sim)
    while p >= 0 and sim.promise[p].start <= now:
        own = sim.promise[p]
        if own.end > now:
            take_held(own.kind, node, own.tasks, sim.min_free, node, sim)
        p = own.after
    fits = min(tasks_on(kind, node, sim.min_free, sim), sim.shape[kind].most)
    return ZERO if fits > 0 and keeps_off(kind, node, now, now + 1, sim) else fits


@jit
def fits_at_last(kind: int, node: int, fits: int, sim: Arrays) -> int:
    """Return how many tasks of a job fit on a node next to all its reservations.

    What no longer fits when each of them begins is added to ``sim.times``. ``fits`` tasks fit now,
    and ``sim.min_free`` is what is free now.
    """
    i = ZERO
    p = first_over(node, sim.clock.now, sim)
    while p >= 0 and fits > 0:
        own = sim.promise[p]
        if own.start > sim.clock.now:
            for c in range(sim.min_free.width):
                sim.min_free[node, c] = min(sim.min_free[node, c], sim.promise_left[p, c])
            left = min(tasks_on(kind, node, sim.min_free, sim), sim.shape[kind].most)
            if sim.sharing.owners == 1 and not go_together(kind, own.kind, sim):
                left = ZERO
            while sim.times[2 * i].time < own.start:
                i += 1
            sim.times[2 * i].job += fits - left
            sim.times[2 * i + 1].job += min(fits, 1) - min(left, 1)
            fits = left
        p = own.after
    return fits
