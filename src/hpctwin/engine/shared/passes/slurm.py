"""Slurm's scheduler on shared nodes; see `passes.slurm`."""

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
from hpctwin.engine.shared.fit import is_skipped_shared, may_fit
from hpctwin.engine.shared.passes.common import (
    any_may_fit,
    begin_anew,
    fits_plan_now,
    jobs_in_order,
    nth,
    start_chosen,
    start_if_it_fits,
)
from hpctwin.engine.shared.slurm_earliest_start import keep_soonest
from hpctwin.engine.state.layout import WAITING, ZERO, Arrays

__all__ = ["PASS"]


@jit
def look(full: bool, sim: Arrays) -> None:
    """Jobs in order, down to a depth; each starts if it fits what no job before it blocks."""
    begin_look(full, sim)
    if not any_may_fit(sim):
        return
    for i in range(min(jobs_in_order(sim), depth_of(full, sim))):
        j = nth(i, sim)
        if not takes_part(j, sim) or is_skipped_shared(j, sim) or waits_for_licence(j, sim):
            continue
        if ends_look(j, sim):
            return
        starts = may_fit(sim.job[j].kind, sim) and start_if_it_fits(j, sim)
        if not starts and not is_young(j, sim) and not block(j, sim):
            return


@jit
def fits_beside(j: int, owed: int, done: int, sim: Arrays) -> int:
    """Make those promises that are owed, until one keeps a job from starting; how many are made then.

    One more than are owed, if none keeps it.
    """
    ends = sim.clock.now + sim.job[j].expected
    fits = fits_plan_now(j, sim)
    while fits and done < owed:
        begins = keep_soonest(sim.stack[done], sim)
        done += 1
        if begins < ends or done == owed:
            fits = fits_plan_now(j, sim)
    return done + 1 if fits else done


@jit
def backfill(sim: Arrays) -> None:
    """One cycle: jobs in order; each starts if it fits, or is promised nodes for this cycle.

    Promises matter only to a job that could start without them: they are made (``sim.stack``) when there is
    one.
    """
    numbers = settings(sim.numbers)[0]
    open_all(sim)
    sim.sharing.looks += 1
    if not any_may_fit(sim):
        return
    sim.rooms.spans = open_spans(sim)
    tried = ZERO
    owed = ZERO
    done = ZERO
    started = ZERO
    for i in range(jobs_in_order(sim)):
        j = nth(i, sim)
        if sim.state[j].phase != WAITING or is_skipped_shared(j, sim):
            continue
        if waits_for_licence(j, sim) or not may_be_tried(j, tried, sim):
            continue
        if tried == numbers.bf_max_job_test:
            return
        sim.later[tried] = j  # behind the place that `nth` has come to
        tried += 1
        if may_fit(sim.job[j].kind, sim):
            done = fits_beside(j, owed, done, sim)
            if done > owed:
                done = owed
                start_chosen(j, sim)
                started += 1
                if started == numbers.bf_max_job_start:
                    return
                continue
        if may_reserve(j, sim):
            sim.stack[owed] = j
            owed += 1


def shared_slurm(sim: Arrays) -> None:
    """Jobs in order if they may be looked at, then a backfill cycle if one is due."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    begin_anew(sim)
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
    Kernel(shared_slurm, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    reserves=lambda numbers: numbers["bf_max_job_test"],
    promises=lambda numbers, partitions: numbers["bf_max_job_test"],
)
