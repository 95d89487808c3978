"""Slurm's scheduler on shared nodes, where jobs preempt others."""

from __future__ import annotations

from numba import types

from hpctwin.engine.capacity.node_reservations import open_spans
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.passes import SharedPass
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
    set_timers,
    settings,
    takes_part,
    waits_for_licence,
)
from hpctwin.engine.preempting.fit_after_eviction import FITS_LATER
from hpctwin.engine.preempting.passes.slurm import meets_block
from hpctwin.engine.preempting.preemptor_order import by_level
from hpctwin.engine.preempting.shared_start import (
    any_may_start,
    begin_interrupted,
    may_make_room,
    owe,
    starts,
    starts_or_preempts,
)
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.slurm_earliest_start import keep_soonest
from hpctwin.engine.shared.suspended_jobs import WAKE_SHARED
from hpctwin.engine.state.layout import WAITING, ZERO, Arrays

__all__ = ["PASS"]


@jit
def look(full: bool, sim: Arrays) -> None:
    """Jobs in order, down to a depth; each starts, or makes room, as far as no job before it blocks that."""
    begin_look(full, sim)
    if not any_may_start(sim):
        return
    depth = depth_of(full, sim)
    for i in range(min(by_level(sim), depth)):
        j = sim.later[i]
        if not takes_part(j, sim) or is_skipped_shared(j, sim) or waits_for_licence(j, sim):
            continue
        if ends_look(j, sim):
            return
        blocked = meets_block(j, sim)
        if starts(j, sim) if blocked else starts_or_preempts(j, sim):
            continue
        if not is_young(j, sim) and not block(j, sim):
            return


@jit
def backfill(sim: Arrays) -> None:
    """One cycle: jobs in order; each starts if it fits, or makes room, or is promised nodes for it."""
    numbers = settings(sim.numbers)[0]
    open_all(sim)
    sim.sharing.looks += 1
    if not any_may_start(sim):
        return
    sim.rooms.spans = open_spans(sim)
    tried = ZERO
    started = ZERO
    owed = ZERO
    for i in range(by_level(sim)):
        j = sim.later[i]
        if sim.state[j].phase != WAITING or is_skipped_shared(j, sim):
            continue
        if waits_for_licence(j, sim) or not may_be_tried(j, tried, sim):
            continue
        if tried == numbers.bf_max_job_test:
            return
        sim.later[tried] = j
        tried += 1
        if may_fit(sim.job[j].kind, sim) or may_make_room(j, sim):
            for k in range(owed):
                keep_soonest(sim.order[k].job, sim)
            owed = ZERO
            if starts_or_preempts(j, sim):
                started += 1
                if started == numbers.bf_max_job_start:
                    return
                continue
        if may_reserve(j, sim):
            owed = owe(j, owed, sim)


def preempting_slurm(sim: Arrays) -> None:
    """Jobs in order if they may be looked at, then a backfill cycle if one is due."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    begin_interrupted(sim)
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


PASS = SharedPass(
    Kernel(preempting_slurm, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    reserves=lambda numbers: numbers["bf_max_job_test"],
    promises=lambda numbers, partitions: numbers["bf_max_job_test"],
    fits_later=FITS_LATER,
    wake=WAKE_SHARED,
)
