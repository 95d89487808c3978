"""Earliest time at which a job with one task fits, if nothing is reserved.

When a task fits on a node depends only on what runs there. The time is therefore kept for each node
until something starts or ends on it. Only such nodes are computed again.
"""

from __future__ import annotations

from hpctwin.engine.capacity.maintenance_windows import maintenance_is_over
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_pop, heap_push
from hpctwin.engine.shared.allocation import free_at
from hpctwin.engine.shared.fit import (
    goes_by_kind,
    is_there,
    mark_pools,
    stops_early,
)
from hpctwin.engine.shared.fit_cache import list_leaving
from hpctwin.engine.shared.node_resources import copy_row, give_held, has_room
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

KINDS = 1 << 24
"""More than the number of kinds of jobs."""

AGAIN = 8
"""Number of consecutive searches for one job's start after which times are kept.

Keeping them for each node pays only then.
"""


@jit
def is_plain(j: int, not_before: int, sim: Arrays) -> bool:
    """Return whether a job of one task has long waited only for what runs on nodes.

    It then gets the first node on which it fits.
    """
    clock = sim.clock
    kind = sim.job[j].kind
    if sim.shape[kind].tasks != 1 or goes_by_kind(kind, sim) or not stops_early(sim):
        return False
    if sim.shape[kind].gpus > 0:
        return False
    if sim.sharing.owners > 0 or sim.sharing.promises > 0 or len(sim.cut) > 0:
        return False
    if clock.unpowered > 0 or not_before > clock.now:
        return False
    if clock.run_first < clock.run_end and sim.run[clock.run_first].planned <= clock.now:
        return False  # an overdue job is expected to end ever later
    if not maintenance_is_over(sim):
        return False
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            return False
    return is_sought_again(j, sim)


@jit
def is_sought_again(j: int, sim: Arrays) -> bool:
    """Return whether a job's start was searched often, and no other's since."""
    rooms = sim.rooms
    if rooms.sought != j + 1:
        rooms.sought = j + 1
        rooms.times = 0
    rooms.times += 1
    return rooms.times > AGAIN


@jit
def room_from(kind: int, node: int, sim: Arrays) -> int:
    """Return from when on a task of a kind fits on a node; 0 if it fits now."""
    copy_row(sim.left, node, sim.free_at, node)
    if has_room(kind, node, sim.free_at, sim):
        return ZERO
    if not list_leaving(node, sim):
        return _room_from_heap(kind, node, sim)
    for i in range(sim.listed[node]):
        give_held(sim.leaves_kind[node, i], node, sim.leaves_tasks[node, i], sim.free_at, node, sim)
        if has_room(kind, node, sim.free_at, sim):
            return sim.leaves_at[node, i]
    return NEVER


@jit
def _room_from_heap(kind: int, node: int, sim: Arrays) -> int:
    """Return `room_from` for a node with more jobs than are listed.

    ``sim.free_at`` holds what is free now.
    """
    n = ZERO
    row = sim.share[node].part
    while row >= 0:
        n = heap_push(sim.times, n, sim.part[row].planned, row)
        row = sim.part[row].after
    while n > 0:
        time = sim.times[0].time
        part = sim.part[heap_pop(sim.times, n)]
        n -= 1
        give_held(part.kind, node, part.tasks, sim.free_at, node, sim)
        if has_room(kind, node, sim.free_at, sim):
            return time
    return NEVER


@jit
def stamp_of(kind: int, node: int, sim: Arrays) -> int:
    """Return a number that differs for each kind, and after each change on a node."""
    return (sim.moves[node] + 1) * KINDS + kind


@jit
def reckon_again(kind: int, place: int, node: int, sim: Arrays) -> None:
    """Record from when on a task of a kind fits on a node."""
    sim.soon_of[place, node] = stamp_of(kind, node, sim)
    sim.soon[place, node] = room_from(kind, node, sim)


@jit
def soonest(j: int, sim: Arrays) -> int:
    """Return the earliest time from which a job that `is_plain` fits.

    It sets ``sim.rooms.first`` to the first node on which the job then fits, and ``sim.free_at`` of
    that node to what is free then.
    """
    kind = sim.job[j].kind
    now = sim.clock.now
    mark_pools(kind, now, now + sim.job[j].expected, sim)
    best = NEVER
    place = kind % len(sim.soon)
    for node in range(len(sim.share)):
        if is_there(node, now, sim):
            # Mostly nothing changed there, and this loop visits all nodes for each job.
            if sim.soon_of[place, node] != stamp_of(kind, node, sim):
                reckon_again(kind, place, node, sim)
            time = sim.soon[place, node]
            if time < best:
                best = time
                sim.rooms.first = node
    sim.fits[sim.rooms.first] = 1
    free_at(sim.rooms.first, max(best, now), sim)
    return max(best, now)
