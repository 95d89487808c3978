"""From instant to instant: all events of one as a batch, then a scheduling pass."""

from __future__ import annotations

from numba import int64

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import SIM, call, go_on, sim_at
from hpctwin.engine.fast_passes.counted_passes import counts
from hpctwin.engine.loop.events import apply_events, next_time
from hpctwin.engine.queue.fair_tree import keep_ranks
from hpctwin.engine.queue.limits import next_decay, next_look
from hpctwin.engine.queue.order import drop_started, enqueue, pays, score, tidy_queue
from hpctwin.engine.state.layout import (
    DONE,
    GIVE_UP,
    LINED,
    NEED_OUTAGES,
    NEED_PASS,
    NEED_RACE,
    NEED_ROOM,
    NEVER,
    NOT_A_NUMBER,
    ONE,
    PASS,
    RACED,
    REACHED,
    RUNNING,
    STEPPED,
    UNSUBMITTED,
    Arrays,
)

SIGNATURE = int64(SIM, int64, int64)


@jit
def records_have_room(sim: Arrays) -> bool:
    """Whether the records of one more instant certainly find room."""
    nodes = len(sim.node)
    if nodes == 0:
        return True
    return sim.clock.lost + sim.clock.running <= len(
        sim.lost
    ) and sim.clock.segments + nodes <= len(sim.segment)


@jit
def pass_has_room(sim: Arrays) -> bool:
    """Whether the plan of this pass fits: a job can add four rows, a maintenance window two."""
    rows = 4 * (sim.clock.running + sim.clock.queued) + 2 * len(sim.window) + 8
    if sim.rules.depths > 0:
        nodes = len(sim.node)
        rows += nodes
        if sim.rules.log == 1 and sim.clock.logged + 6 * nodes > len(sim.log):
            return False
    if len(sim.cut) > 0:
        # Those that start may be preempted in the same pass.
        if sim.clock.lost + sim.clock.running + sim.clock.queued > len(sim.lost):
            return False
    if len(sim.share) > 0 and not parts_have_room(sim):
        return False
    if sim.rules.by_node > 0:
        # Who is sent back in a pass may be promised nodes in it.
        waiting = sim.clock.queued + (sim.clock.running if len(sim.cut) > 0 else 0)
        if 2 * min(waiting, sim.rules.by_node) + 2 > len(sim.node_span):
            return False
    return rows <= len(sim.plan_time)


@jit
def parts_have_room(sim: Arrays) -> bool:
    """Whether whatever starts and is promised in a pass on shared nodes finds room."""
    sharing = sim.sharing
    asked = sim.clock.queued * sharing.widest
    if len(sim.cut) > 0:
        # Who starts may be preempted in the same pass and start again, and who runs may.
        asked = 2 * asked + sim.clock.running * sharing.widest
        promises = min(asked, sim.rules.promises)
        return sharing.parts + asked <= len(sim.part) and promises <= len(sim.promise)
    if sharing.parts + asked > len(sim.part) or min(asked, sim.rules.promises) > len(sim.promise):
        asked = 0
        for i in range(sim.clock.queued):
            asked += sim.shape[sim.job[sim.queue[i]].kind].parts
    return sharing.parts + asked <= len(sim.part) and min(asked, sim.rules.promises) <= len(
        sim.promise
    )


@jit
def hopeless(time: int, work_time: int, sim: Arrays) -> bool:
    """Whether only node failures and timers are left to happen, and for years, while jobs wait."""
    if work_time < NEVER:
        sim.clock.only_outages_since = -1
        return False
    if sim.clock.only_outages_since < 0:
        sim.clock.only_outages_since = time
    return time - sim.clock.only_outages_since > GIVE_UP


@jit
def next_batch(until: int, instants: int, sim: Arrays) -> int:
    """Apply the events of the next instant, so that a pass is due; `PASS`, or why there is none."""
    if sim.clock.pass_due == 0:
        time, work_time = next_time(sim)
        if time >= NEVER or sim.clock.alive == 0:
            return DONE
        if time > until:
            sim.clock.now = max(sim.clock.now, until)
            return REACHED
        if instants == 0:
            return STEPPED
        if time >= sim.rules.outage_horizon:
            return NEED_OUTAGES
        if not records_have_room(sim):
            return NEED_ROOM
        if hopeless(time, work_time, sim):
            return DONE
        sim.clock.now = time
        sim.clock.instants += 1
        apply_events(sim)
        sim.clock.pass_due = 1
    if sim.hooks.run_pass == 0 and sim.clock.queued > 0 and not counts(sim):
        return NEED_PASS
    if sim.hooks.run_race == 0 and sim.clock.queued >= sim.rules.race_from:
        return NEED_RACE
    return PASS if pass_has_room(sim) else NEED_ROOM


@jit
def schedule(sim: Arrays) -> None:
    """Start who may start: by a tournament, or a list of lines, where so many wait that it pays."""
    race = sim.race
    started = sim.clock.starts
    race.done = 0
    if race.failed == 0:
        if sim.hooks.run_race != 0 and pays(sim.rules.race_from, RACED, sim):
            call(sim.hooks.run_race, sim)
        elif sim.hooks.run_lined != 0 and pays(sim.rules.lines_from, LINED, sim):
            call(sim.hooks.run_lined, sim)
    if race.done == 1:
        # Now and then is enough: the tournament knows who has gone. Of a short queue nothing may be left that
        # depends on where a run has stopped.
        race.gone += sim.clock.starts - started
        if race.gone > 0 and (race.valid == LINED or 8 * race.gone > sim.clock.queued):
            drop_started(sim)
        return
    tidy_queue(sim)
    waiting = sim.clock.queued
    call(sim.hooks.run_counted if counts(sim) else sim.hooks.run_pass, sim)
    if sim.clock.queued + sim.clock.starts - started > waiting:
        drop_started(sim)


@jit
def run_pass(sim: Arrays) -> None:
    """One scheduling pass at the present instant, and what comes before and after it."""
    hooks = sim.hooks
    if hooks.before_pass != 0:
        call(hooks.before_pass, sim)
    sim.clock.timer = NEVER
    if sim.clock.queued > 0:
        if len(sim.tree) > 0 and sim.rules.fairshare == 1:
            keep_ranks(sim)
        schedule(sim)
    if sim.clock.timed > 0 and sim.clock.queued > 0:
        sim.clock.timer = min(sim.clock.timer, next_look(sim))
    if len(sim.used) > 0 and sim.clock.queued > 0:
        sim.clock.timer = min(sim.clock.timer, next_decay(sim))
    if hooks.after_pass != 0:
        call(hooks.after_pass, sim)
    sim.clock.pass_due = 0


@jit
def after_pass(sim: Arrays) -> int:
    """`PASS` if the run goes on after a pass, else why not."""
    if sim.clock.bad_job >= 0:
        return NOT_A_NUMBER
    stop = sim.clock.stop_job
    if stop >= 0 and RUNNING <= sim.state[stop].phase < UNSUBMITTED:
        return STEPPED
    return PASS


@jit
def advance(sim: Arrays, until: int, instants: int) -> int:
    """Run until no event is left, a time is reached, or so many instants are done.

    Args:
        sim: the simulation.
        until: ms; events at this time still happen.
        instants: at most so many; negative for no limit.

    Returns:
        One of the codes in `layout`.
    """
    code = int(PASS)
    last = sim.clock.instants + instants
    while code == PASS:
        left = ONE if instants < 0 else last - sim.clock.instants
        code = next_batch(until, left, sim)
        if code != PASS:
            break
        run_pass(sim)
        code = after_pass(sim)
        if code == PASS and sim.rules.stepped == 1 and instants >= 0:
            if sim.clock.instants >= last:
                code = STEPPED
    tidy_queue(sim)
    return code


def advance_at(address: int, until: int, instants: int) -> int:
    """As `advance`."""
    sim = sim_at(address)
    return go_on(sim.hooks.advance, sim, until, instants)


def reorder(address: int) -> None:
    """Put the queue into the order of another ordering."""
    sim = sim_at(address)
    waiting = sim.clock.queued
    for i in range(waiting):
        sim.later[i] = sim.queue[i]
    sim.clock.queued = 0
    sim.walk.valid = 0
    for i in range(waiting):
        enqueue(sim.later[i], sim)
    # Some passes compare those that wait with those that run.
    for r in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[r].job
        if j < 0:
            continue
        sim.state[j].key = score(sim.hooks.order, j, sim)
