"""Whole nodes with preemption and checkpoints."""

from __future__ import annotations

from hpctwin.engine.capacity.blocked_pools import (
    block,
    block_nothing,
    hold_blocked,
    meets_block,
)
from hpctwin.engine.capacity.plan import plan_build
from hpctwin.engine.capacity_models import whole_nodes
from hpctwin.engine.capacity_models.whole_nodes import (
    alignment,
    earliest_start,
    finds_again,
    free_held,
    give_back_held,
    hold,
    is_skipped,
    is_too_large,
    load_held,
    may_fit,
    next_candidate,
    reserve,
    reserve_rounded,
    shortage,
    take_held,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.preempting import eviction
from hpctwin.engine.preempting.eviction import resume, starts_or_preempts
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
from hpctwin.engine.state.layout import Arrays

__all__ = [
    "alignment", "any_may_start", "awaits_nodes", "begin_cycle", "begin_pass",
    "begin_with_held", "block", "earliest_start", "finds_again", "fits", "free_held", "give_back_held",
    "hold", "is_skipped", "is_sorted", "is_too_large", "job_at", "job_left", "keep_order", "kept_job",
    "list_preemptors", "list_startable", "load_held", "may_fit", "may_preempt", "next_candidate",
    "order_jobs", "reserve", "reserve_rounded", "shortage", "sort_by_level", "start", "start_fitting",
    "start_held", "start_or_preempt", "take_held",
]  # fmt: skip

start_fitting = eviction.start
keep_order, kept_job = order_jobs, job_at
list_startable = order_jobs


@jit
def begin_cycle(sim: Arrays) -> None:
    """Build the plan, and block nothing."""
    block_nothing(sim)
    plan_build(sim)


begin_pass = begin_with_held = begin_cycle


@jit
def any_may_start(sim: Arrays) -> bool:
    """Return whether any pending job may fit, or may preempt others."""
    return whole_nodes.any_may_start(sim) or preemptor_waits(sim)


@jit
def fits(j: int, sim: Arrays) -> bool:
    """Return whether a job fits from now on; leave the least amounts in ``sim.low``."""
    hold_blocked(sim)
    return whole_nodes.fits(j, sim)


@jit
def start(j: int, sim: Arrays) -> bool:
    """Start a job from its last checkpoint if it fits; return whether it did."""
    if not fits(j, sim):
        return False
    start_fitting(j, sim)
    return True


@jit
def start_held(j: int, sim: Arrays) -> None:
    """Start a job whose held reservation begins now, from its last checkpoint."""
    whole_nodes.start_held(j, sim)
    resume(j, sim)


@jit
def start_or_preempt(j: int, sim: Arrays) -> bool:
    """Start a job if it fits, or fits once others left; return whether it started."""
    if meets_block(j, sim):
        return start(j, sim)
    hold_blocked(sim)
    return starts_or_preempts(j, sim)
