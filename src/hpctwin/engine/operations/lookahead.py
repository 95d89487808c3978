"""Forecasts: a fork of the necessary state, run until the added jobs start.

A fork for a what-if needs no jobs that have ended or have not arrived. Its arrays keep their full
length, so that rows mean the same jobs. Only rows of pending, running or arriving jobs are written;
other rows are never read. This is valid for workloads without dependencies.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.intrinsics import copy_row, copy_table, go_on, sim_at, view
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.jobs.transitions import has_ended, next_end
from hpctwin.engine.queue.limits import count_submitted
from hpctwin.engine.queue.order import enqueue, leave
from hpctwin.engine.queue.pushdown_lists import Push, copy_lists
from hpctwin.engine.state.layout import (
    COMPLETED,
    DONE,
    MINUS_ONE,
    NEED_ROOM,
    ONE,
    REACHED,
    RUNNING,
    STEPPED,
    UNSUBMITTED,
    WAITING,
    ZERO,
    Arrays,
)

__all__ = ["arrive", "enter", "look_ahead", "withdraw"]

_MINUTE = 60_000

lists = view(Push)


@jit
def copy_job(j: int, sim: Arrays, fork: Arrays) -> None:
    """Copy the whole state of one job."""
    copy_row(fork.state, sim.state, j)
    if len(sim.taken) > 0:
        copy_row(fork.taken, sim.taken, j)
    if len(sim.kept) > 0:
        copy_row(fork.kept, sim.kept, j)
    if len(sim.cut) > 0:
        copy_row(fork.cut, sim.cut, j)


@jit
def forget_preemption(j: int, sim: Arrays) -> None:
    """Reset what is recorded of the preemption of a job, and for it."""
    cut = sim.cut[j]
    cut.times = cut.lost = cut.done = 0
    cut.leaves = cut.tried = cut.waits = 0
    cut.suspended = cut.covered = cut.ran = cut.left = 0
    cut.pauses = cut.paused = cut.before = cut.since = cut.until = 0


@jit
def keeps_lists(sim: Arrays) -> bool:
    """Return whether the pass keeps pending jobs in lists, as pushdown does."""
    return len(sim.kept) > len(sim.state)


@jit
def forget_job(j: int, sim: Arrays) -> None:
    """Reset a job to the state before its submission."""
    state = sim.state[j]
    state.phase = UNSUBMITTED
    state.eligible = -1
    state.start = -1
    state.end = -1
    state.release = -1
    state.first_node = -1
    state.started = 0
    state.dead = 0
    state.open = 0
    state.requeues = 0
    if len(sim.kept) > 0 and not keeps_lists(sim):
        for column in range(sim.kept.width):
            sim.kept[j, column] = -1
    if len(sim.cut) > 0:
        forget_preemption(j, sim)


@jit
def parts_held(sim: Arrays) -> int:
    """Return the number of parts of running jobs on shared nodes."""
    held = ZERO
    for i in range(sim.clock.run_first, sim.clock.run_end):
        row = sim.state[sim.run[i].job].first_node if sim.run[i].job >= 0 else -1
        while row >= 0:
            held += 1
            row = sim.part[row].next
    return held


@jit
def copy_shared(sim: Arrays, fork: Arrays) -> None:
    """Copy parts and reservations on shared nodes, without the parts of ended jobs."""
    copy_table(fork.share, sim.share)
    copy_table(fork.left, sim.left)
    copy_table(fork.tried, sim.tried)
    copy_table(fork.freed, sim.freed)
    copy_table(fork.sharing, sim.sharing)
    fork.rooms.linked = sim.rooms.linked
    for row in range(sim.sharing.promises):
        copy_row(fork.promise, sim.promise, row)
        copy_row(fork.promise_left, sim.promise_left, row)
    for node in range(len(fork.share)):
        fork.share[node].part = -1
    last = ZERO
    for i in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[i].job
        if j < 0:
            continue
        row = sim.state[j].first_node
        fork.state[j].first_node = -1 if row < 0 else last
        while row >= 0:
            following = sim.part[row].next
            put_part(last, row, sim, fork)
            fork.part[last].next = -1 if following < 0 else last + 1
            row = following
            last += 1
    fork.sharing.parts = last


@jit
def put_part(to: int, row: int, sim: Arrays, fork: Arrays) -> None:
    """Copy a part to another row, in front of the other parts on its node."""
    own = fork.part[to]
    origin = sim.part[row]
    share = fork.share[origin.node]
    own.job = origin.job
    own.start = origin.start
    own.node = origin.node
    own.tasks = origin.tasks
    own.kind = origin.kind
    own.planned = origin.planned
    own.before = -1
    own.after = share.part
    if share.part >= 0:
        fork.part[share.part].before = to
    share.part = to


@jit
def shared_have_room(sim: Arrays, fork: Arrays) -> bool:
    """Return whether parts and reservations on shared nodes fit in a fork's arrays."""
    return parts_held(sim) <= len(fork.part) and sim.sharing.promises <= len(fork.promise)


@jit
def forget_derived(fork: Arrays) -> None:
    """Reset what was derived from the state of the previous fork in the same arrays.

    It is all that outlives a pass in `layout.Scratch`, except ``moves`` and ``soon_of``: their
    stamps only grow, and `fit_cache.forget_openings` makes the old ones invalid.
    """
    fork.race.valid = 0
    fork.walk.valid = 0
    fork.standing.valid = 0
    fork.windows.valid = 0
    fork.rooms.valid = fork.rooms.linked = 0
    fork.rooms.sums = fork.rooms.table = 0
    for node in range(len(fork.near)):
        fork.near[node] = 0
    for kind in range(len(fork.aligned_at)):
        fork.aligned_at[kind] = 0


@jit
def copy_live(sim: Arrays, fork: Arrays) -> None:
    """Copy the state of the cluster, and of pending and running jobs."""
    copy_table(fork.clock, sim.clock)
    # Records of lost attempts and node use are not copied, and future failures are unknown.
    fork.clock.lost = 0
    fork.clock.segments = 0
    fork.clock.outages_done = 0
    fork.clock.cancels_done = 0
    forget_derived(fork)
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        fork.queue[i] = j
        copy_job(j, sim, fork)
    for i in range(sim.clock.run_first, sim.clock.run_end):
        if sim.run[i].job >= 0:
            copy_job(sim.run[i].job, sim, fork)
        copy_row(fork.run, sim.run, i)
    if keeps_lists(sim):
        copy_lists(lists(sim.kept), lists(fork.kept))
    for i in range(sim.clock.releases):
        copy_row(fork.releases, sim.releases, i)
        copy_job(sim.releases[i].job, sim, fork)
    for i in range(sim.clock.ends):
        copy_row(fork.ends, sim.ends, i)
    copy_table(fork.stock, sim.stock)
    copy_table(fork.user_running, sim.user_running)
    copy_table(fork.user_state, sim.user_state)
    copy_table(fork.held, sim.held)
    copy_table(fork.used, sim.used)
    copy_table(fork.rank, sim.rank)
    copy_table(fork.usage, sim.usage)
    copy_table(fork.node, sim.node)
    copy_table(fork.beneath, sim.beneath)
    copy_table(fork.power_kept, sim.power_kept)
    for i in range(sim.clock.switching):
        copy_row(fork.switching, sim.switching, i)
    for i in range(sim.clock.timeouts):
        copy_row(fork.timeouts, sim.timeouts, i)
    for i in range(sim.clock.begins):
        copy_row(fork.begins, sim.begins, i)
    copy_table(fork.index, sim.index)
    copy_table(fork.summary, sim.summary)
    copy_table(fork.tally, sim.tally)
    copy_table(fork.own, sim.own)
    if len(sim.share) > 0:
        copy_shared(sim, fork)


@jit
def expected_end(j: int, sim: Arrays) -> int:
    """Return when a running job ends by what is known, ms.

    That is its runtime; if that has passed, its walltime; if that has passed too, one minute from
    now. A suspended job counts as if it resumed now.
    """
    now = sim.clock.now
    job = sim.job[j]
    start = sim.state[j].start
    length = job.runtime
    if len(sim.cut) > 0:
        length -= sim.cut[j].done
        if sim.cut[j].suspended == 1:
            start = now - sim.cut[j].ran
    end = start + min(length, job.limit)
    if end <= now:
        end = start + job.limit
    if end <= now:
        end = now + _MINUTE
    return end


@jit
def forget_ends(sim: Arrays) -> None:
    """Set the ends of running jobs to their expected instead of their actual ends."""
    n = 0
    for i in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[i].job
        if j < 0:
            continue
        if len(sim.cut) > 0 and sim.cut[j].suspended == 1:
            sim.cut[j].left = expected_end(j, sim) - sim.clock.now
            continue
        if not has_ended(j, sim):
            sim.state[j].end = expected_end(j, sim)
            if len(sim.cut) > 0:
                end_with_grace(j, sim)
        n = heap_push(sim.ends, n, next_end(j, sim), j)
    sim.clock.ends = n


@jit
def end_with_grace(j: int, sim: Arrays) -> None:
    """Let a preempted job leave when its grace ends, unless it is expected to end before."""
    if sim.cut[j].leaves == 0:
        return
    stops = sim.cut[j].leaves - sim.rules.cleanup
    state = sim.state[j]
    state.outcome = COMPLETED
    if state.end > stops:
        state.end = stops
        state.outcome = sim.yields[sim.claim[j].standing].mode


@jit
def forget_arrivals(sim: Arrays) -> None:
    """Drop past arrivals, to have rows for jobs that arrive again."""
    gone = sim.clock.arrived
    for i in range(gone, sim.clock.arrival_end):
        sim.by_submit[i - gone] = sim.by_submit[i]
    sim.clock.arrival_end -= gone
    sim.clock.arrived = 0


@jit
def expect(j: int, sim: Arrays) -> None:
    """Add a job to the arrivals, after jobs with the same submit time."""
    if sim.clock.arrival_end == len(sim.by_submit):
        forget_arrivals(sim)
    i = sim.clock.arrival_end
    sim.clock.arrival_end = i + 1
    submit = sim.job[j].submit
    while i > sim.clock.arrived and sim.job[sim.by_submit[i - 1]].submit > submit:
        sim.by_submit[i] = sim.by_submit[i - 1]
        i -= 1
    sim.by_submit[i] = j


@jit
def begin_fork(now: int, coming: Any, ends_known: int, sim: Arrays, fork: Arrays) -> None:
    """Copy a simulation's state to a fork, just before an event time; add arrivals.

    Args:
        now: The event time, ms.
        coming: Rows of jobs that arrive only in the fork.
        ends_known: 1 if running jobs end at their actual ends, 0 at their expected ends.
        sim: Simulation.
        fork: Fork.
    """
    copy_live(sim, fork)
    fork.clock.now = now - 1
    if ends_known == 0:
        forget_ends(fork)
    fork.clock.now = sim.clock.now
    fork.clock.arrived = 0
    fork.clock.arrival_end = 0
    for i in range(sim.clock.arrived, sim.clock.arrival_end):
        j = sim.by_submit[i]
        fork.job[j].submit = sim.job[j].submit
        forget_job(j, fork)
        expect(j, fork)
    for i in range(coming.shape[0]):
        forget_job(coming[i], fork)
        expect(coming[i], fork)
    fork.clock.alive += coming.shape[0]


def _look_ahead(
    address: int,
    ahead: int,
    now: int,
    coming: Any,
    watched: Any,
    latest: int,
    ends_known: int,
    found: Any,
) -> int:
    sim = sim_at(address)
    fork = sim_at(ahead)
    advance = sim.hooks.advance
    code = go_on(advance, sim, now - 1, -1)
    if code != DONE and code != REACHED:
        return code
    if len(sim.share) > 0 and not shared_have_room(sim, fork):
        return -NEED_ROOM
    begin_fork(now, coming, ends_known, sim, fork)
    for i in range(watched.shape[0]):
        j = watched[i]
        found[0, i] = -1
        found[1, i] = -1
        while fork.state[j].phase < RUNNING or fork.state[j].phase == UNSUBMITTED:
            fork.clock.stop_job = j
            code = go_on(advance, fork, latest, -1)
            if code == DONE or code == REACHED:
                break
            if code == NEED_ROOM and fork.clock.lost + fork.clock.segments > 0:
                fork.clock.lost = 0
                fork.clock.segments = 0
            elif code != STEPPED:
                return -code
        if RUNNING <= fork.state[j].phase < UNSUBMITTED:
            found[0, i] = fork.state[j].start
            if len(fork.beneath) > 0:
                found[0, i] -= fork.cut[j].paused
            found[1, i] = fork.state[j].end
    return DONE


look_ahead = Kernel(
    _look_ahead,
    "int64(int64, int64, int64, int64[::1], int64[::1], int64, int64, int64[:,::1])",
)
"""Run a simulation to a time, then a fork of it until watched jobs have started.

Args:
    address: Address of the simulation.
    ahead: Address of the fork. Its jobs have the known runtimes; it owns ``by_submit`` and has no
        cancellations or outages.
    now: Time, ms; earlier events happen in the simulation, later ones only in the fork.
    coming: Jobs that arrive in the fork, at their submit times there.
    watched: Jobs whose start is requested; they must be arriving or pending.
    latest: Latest start that is searched for, ms.
    ends_known: 1 if running jobs end at their actual ends, 0 at the ends that the fork expects.
    found: Output: start and end of each watched job, ms; -1 if it has not started.

Returns:
    `DONE`, or the code that stopped the simulation (negative: the fork) early.
"""


def _withdraw(address: int, j: int, now: int) -> None:
    sim = sim_at(address)
    if sim.state[j].phase == WAITING:
        leave(j, sim)
        if len(sim.held) > 0:
            count_submitted(j, MINUS_ONE, sim)
        sim.race.valid = 0
        sim.clock.timer = min(sim.clock.timer, now)
        forget_job(j, sim)
        sim.clock.alive -= 1


withdraw = Kernel(_withdraw, "void(int64, int64, int64)")
"""Remove a pending job as if it had never been submitted; a pass follows.

The arguments are ``(address, job, now)``.
"""


def _arrive(address: int, j: int) -> None:
    sim = sim_at(address)
    expect(j, sim)
    sim.clock.alive += 1


arrive = Kernel(_arrive, "void(int64, int64)")
"""Let a job be submitted at its submit time: ``(address, job)``.

That time must not be before the present.
"""


def _enter(address: int, j: int) -> None:
    sim = sim_at(address)
    # A tournament may still hold the previous job of this row.
    sim.race.valid = 0
    forget_job(j, sim)
    sim.state[j].eligible = sim.job[j].submit
    if len(sim.held) > 0:
        count_submitted(j, ONE, sim)
    enqueue(j, sim)
    sim.clock.alive += 1


enter = Kernel(_enter, "void(int64, int64)")
"""Add a job to the queue: ``(address, job)``.

Its submit time may be before the present.
"""
