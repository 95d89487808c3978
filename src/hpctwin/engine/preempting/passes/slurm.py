"""Slurm's scheduler, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.plan import fits_plan
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.jobs.suspended_jobs import WAKE
from hpctwin.engine.passes import Pass
from hpctwin.engine.passes.slurm import (
    Numbers,
    Own,
    begin,
    begin_look,
    block,
    depth_of,
    ends_look,
    is_due,
    is_young,
    look_from,
    may_be_tried,
    may_reserve,
    open_all,
    own,
    reserve_coarsely,
    set_timers,
    settings,
    takes_part,
    waits_for_licence,
)
from hpctwin.engine.preempting.eviction import build_plan, start, starts_or_preempts
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import reckon_fairshare
from hpctwin.engine.state.layout import WAITING, ZERO, Arrays

__all__ = ["PASS", "pass_slurm"]


@jit
def meets_block(j: int, sim: Arrays) -> bool:
    """Whether a job before this one blocks any of its pools."""
    kind = sim.job[j].kind
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0 and sim.blocked[p] == 1:
            return True
    return False


@jit
def hold_blocks(sim: Arrays) -> None:
    """Leave nothing free of pools that are blocked, though jobs that held nodes there are leaving."""
    for p in range(sim.rules.pools):
        if sim.blocked[p] == 1:
            for row in range(sim.plan_rows[0]):
                sim.plan_amount[row, p] = min(ZERO, sim.plan_amount[row, p])


@jit
def look(full: bool, sim: Arrays) -> None:
    """Jobs in order, down to a depth; each starts, or makes room, as far as no job before it blocks that."""
    begin_look(full, sim)
    build_plan(sim)
    depth = depth_of(full, sim)
    for i in range(min(by_level(sim), depth)):
        j = sim.later[i]
        if not takes_part(j, sim) or is_skipped(j, sim) or waits_for_licence(j, sim):
            continue
        if ends_look(j, sim):
            return
        hold_blocks(sim)
        if meets_block(j, sim):
            if fits_plan(j, sim):
                start(j, sim)
                continue
        elif starts_or_preempts(j, sim):
            continue
        if not is_young(j, sim) and not block(j, sim):
            return


@jit
def backfill(sim: Arrays) -> None:
    """One cycle: jobs in order; each starts if it fits, or makes room, or has a reservation for it."""
    numbers = settings(sim.numbers)[0]
    open_all(sim)
    build_plan(sim)
    tried = ZERO
    started = ZERO
    for i in range(by_level(sim)):
        j = sim.later[i]
        if sim.state[j].phase != WAITING or is_skipped(j, sim) or waits_for_licence(j, sim):
            continue
        if not may_be_tried(j, tried, sim):
            continue
        if tried == numbers.bf_max_job_test:
            return
        sim.later[tried] = j
        tried += 1
        if starts_or_preempts(j, sim):
            started += 1
            if started == numbers.bf_max_job_start:
                return
        elif may_reserve(j, sim):
            reserve_coarsely(j, sim)


@jit
def pass_slurm(sim: Arrays) -> None:
    """Jobs in order if they may be looked at, then a backfill cycle if one is due."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    reckon_fairshare(sim)
    started = sim.clock.starts
    full = is_due(numbers.sched_interval, mine.full_at, sim)
    looks = full or look_from(sim) <= sim.clock.now
    if looks:
        look(full, sim)
    cycle = is_due(numbers.bf_interval, mine.cycle_at, sim)
    if cycle:
        mine.cycle_at = sim.clock.now
        backfill(sim)
    set_timers(looks, full, cycle, sim.clock.starts > started, sim)


PASS = Pass(
    Kernel(pass_slurm, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    wake=WAKE,
    shared="hpctwin.engine.preempting.passes.shared_slurm",
)
