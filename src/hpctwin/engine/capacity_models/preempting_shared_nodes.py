"""Shared nodes with preemption and checkpoints."""

from __future__ import annotations

from hpctwin.engine.capacity.blocked_pools import block, meets_block
from hpctwin.engine.capacity_models import shared_nodes
from hpctwin.engine.capacity_models.shared_nodes import (
    alignment,
    begin_cycle,
    begin_pass,
    earliest_start,
    finds_again,
    fits,
    free_held,
    give_back_held,
    hold,
    is_skipped,
    is_too_large,
    may_fit,
    next_candidate,
    reserve,
    reserve_rounded,
    shortage,
    take_held,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.preempting.eviction import resume
from hpctwin.engine.preempting.shared_start import start_after_preempting
from hpctwin.engine.queue.preemptor_order import (
    awaits_nodes,
    is_sorted,
    job_at,
    job_left,
    list_preemptors,
    may_preempt,
    order_jobs,
    preemptor_waits,
    sort_by_level,
)
from hpctwin.engine.shared.job_starts import free_unheld
from hpctwin.engine.shared.job_starts import put_held as load_held
from hpctwin.engine.shared.reservations.node_reservations import forget_links
from hpctwin.engine.state.layout import Arrays

__all__ = [
    "alignment", "any_may_start", "awaits_nodes", "begin_cycle",
    "begin_pass", "begin_with_held", "block", "earliest_start", "finds_again", "fits", "free_held",
    "give_back_held", "hold", "is_skipped", "is_sorted", "is_too_large", "job_at", "job_left",
    "keep_order", "kept_job", "list_preemptors", "list_startable", "load_held", "may_fit",
    "may_preempt", "next_candidate", "order_jobs", "reserve", "reserve_rounded", "shortage",
    "sort_by_level", "start", "start_fitting", "start_held", "start_or_preempt", "take_held",
]  # fmt: skip

keep_order, kept_job = order_jobs, job_at
list_startable = order_jobs


@jit
def begin_with_held(sim: Arrays) -> None:
    """Begin a pass in which held reservations are to be loaded; drop all others."""
    shared_nodes.begin_with_held(sim)
    forget_links(sim)
    free_unheld(sim)


@jit
def any_may_start(sim: Arrays) -> bool:
    """Return whether any pending job may fit, or may preempt others."""
    return shared_nodes.any_may_start(sim) or preemptor_waits(sim)


@jit
def start_fitting(j: int, sim: Arrays) -> None:
    """Start a job that was just found to fit, from its last checkpoint."""
    shared_nodes.start_fitting(j, sim)
    resume(j, sim)


@jit
def start(j: int, sim: Arrays) -> bool:
    """Start a job if it fits; return whether it did."""
    if not fits(j, sim):
        return False
    start_fitting(j, sim)
    return True


@jit
def start_held(j: int, sim: Arrays) -> None:
    """Start a job whose held reservation begins now, from its last checkpoint."""
    shared_nodes.start_held(j, sim)
    resume(j, sim)


@jit
def start_or_preempt(j: int, sim: Arrays) -> bool:
    """Start a job if it fits, or fits once others left; return whether it started."""
    if may_fit(j, sim) and start(j, sim):
        return True
    return not meets_block(j, sim) and start_after_preempting(j, sim)
