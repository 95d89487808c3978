"""Shared nodes: jobs hold parts of nodes; reservations are of particular nodes."""

from __future__ import annotations

from hpctwin.engine.capacity.blocked_pools import block, block_nothing
from hpctwin.engine.capacity_models.whole_nodes import (
    awaits_nodes,
    list_preemptors,
    may_preempt,
    sort_by_level,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import (
    is_sorted,
    job_at,
    job_left,
    order_jobs,
    reckon_fairshare,
    sort_listed,
)
from hpctwin.engine.shared import fit
from hpctwin.engine.shared.alignment import alignment
from hpctwin.engine.shared.fit import (
    asks_too_much_shared,
    is_longer,
    is_skipped_shared,
    short_resource,
)
from hpctwin.engine.shared.job_starts import (
    any_may_fit,
    begin_anew,
    begin_with_held,
    finds_again,
    fits_plan_now,
    free_held,
    give_back_held,
    hold,
    load_held,
    start_chosen,
    start_held,
    take_held,
)
from hpctwin.engine.shared.reservations.node_reservations import earliest as earliest_start
from hpctwin.engine.shared.reservations.node_reservations import reserve_shared
from hpctwin.engine.shared.reservations.slurm_earliest_start import reserve_rounded
from hpctwin.engine.state.layout import ZERO, Arrays

__all__ = [
    "alignment", "any_may_start", "awaits_nodes", "begin_cycle", "begin_pass",
    "begin_with_held", "block", "earliest_start", "finds_again", "fits", "free_held", "give_back_held",
    "hold", "is_skipped", "is_sorted", "is_too_large", "job_at", "job_left", "keep_order", "kept_job",
    "list_preemptors", "list_startable", "load_held", "may_fit", "may_preempt", "next_candidate",
    "order_jobs", "reserve", "reserve_rounded", "shortage", "sort_by_level", "start", "start_fitting",
    "start_held", "start_or_preempt", "take_held",
]  # fmt: skip

any_may_start, start_fitting = any_may_fit, start_chosen
is_too_large, is_skipped = asks_too_much_shared, is_skipped_shared
keep_order, kept_job = order_jobs, job_at
kind_may_fit = fit.may_fit


@jit
def begin_pass(sim: Arrays) -> None:
    """Drop all reservations, and block nothing."""
    begin_anew(sim)
    sim.rooms.spans = 0


@jit
def begin_cycle(sim: Arrays) -> None:
    """Block nothing; the pass has made no reservation so far."""
    block_nothing(sim)
    sim.sharing.looks += 1


@jit
def list_startable(sim: Arrays) -> int:
    """Put jobs that may start now into ``sim.later``, in order; return how many."""
    reckon_fairshare(sim)
    size = ZERO
    for i in range(sim.clock.queued):
        if may_fit(sim.queue[i], sim):
            sim.later[size] = sim.queue[i]
            size += 1
    sort_listed(size, sim)
    return size


@jit
def next_candidate(i: int, sim: Arrays) -> int:
    """Return the first place of the queue, from ``i`` on, of a job that may start."""
    while i < sim.clock.queued and not may_fit(sim.queue[i], sim):
        i += 1
    return i


@jit
def may_fit(j: int, sim: Arrays) -> bool:
    """Return whether a job may fit what is free now.

    It may not if a job of its kind that is not longer was found not to fit.
    """
    return not is_longer(j, sim) and kind_may_fit(sim.job[j].kind, sim)


@jit
def fits(j: int, sim: Arrays) -> bool:
    """Return whether a job fits from now on; leave the data that choose its nodes."""
    return fits_plan_now(j, sim)


@jit
def start(j: int, sim: Arrays) -> bool:
    """Start a job if it fits; return whether it did."""
    if not fits(j, sim):
        return False
    start_fitting(j, sim)
    return True


start_or_preempt = start


@jit
def shortage(j: int, sim: Arrays) -> int:
    """Return the shortage that keeps a job from starting.

    It is -1 for none, 0 for nodes, otherwise 1 + the number of a resource.
    """
    if is_skipped(j, sim):
        return ZERO
    short = short_resource(j, sim.clock.now, sim)
    if short >= 0:
        return 1 + short
    return ZERO - 1 if may_fit(j, sim) and fits(j, sim) else ZERO


@jit
def reserve(j: int, not_before: int, sim: Arrays) -> int:
    """Reserve the earliest nodes for a job, not before a time; return the start."""
    start, _ = reserve_shared(j, not_before, sim)
    return start
