"""The event loop: at each event time, one batch of events, then a scheduling pass."""

from __future__ import annotations

from hpctwin.engine.compile.intrinsics import call, go_on, sim_at
from hpctwin.engine.compile.jit import jit
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


@jit
def records_have_room(sim: Arrays) -> bool:
    """Return whether the records of one more event time certainly fit."""
    nodes = len(sim.node)
    if nodes == 0:
        return True
    # A job that was suspended leaves two records when it is cut off: its last stretch, and all.
    lost = sim.clock.lost + sim.clock.running * (1 if len(sim.beneath) == 0 else 2)
    return lost <= len(sim.lost) and sim.clock.segments + nodes <= len(sim.segment)


@jit
def pass_has_room(sim: Arrays) -> bool:
    """Return whether all arrays have enough rows for this pass.

    In the plan, a job can add four rows and a maintenance window two.
    """
    rows = 4 * (sim.clock.running + sim.clock.queued) + 2 * len(sim.window) + 8
    if sim.rules.depths > 0:
        nodes = len(sim.node)
        rows += nodes
        if sim.rules.log == 1 and sim.clock.logged + 6 * nodes > len(sim.log):
            return False
    if len(sim.cut) > 0:
        # Jobs that start may be preempted in the same pass.
        if sim.clock.lost + sim.clock.running + sim.clock.queued > len(sim.lost):
            return False
    if len(sim.share) > 0 and not parts_have_room(sim):
        return False
    if sim.rules.by_node > 0:
        # A job that is requeued in this pass may get reserved nodes in it.
        waiting = sim.clock.queued + (sim.clock.running if len(sim.cut) > 0 else 0)
        if 2 * min(waiting, sim.rules.by_node) + 2 > len(sim.node_span):
            return False
    return rows <= len(sim.plan_time)


@jit
def parts_asked(sim: Arrays) -> int:
    """Return how many parts of nodes the pending jobs use at most."""
    waiting = asked = 0
    for kind in range(len(sim.tried)):
        waiting += sim.tried[kind].waiting
        asked += sim.tried[kind].waiting * sim.shape[kind].parts
    if waiting != sim.clock.queued - sim.race.gone:
        # The counts are wrong if the queue was made elsewhere.
        asked = 0
        for i in range(sim.clock.queued):
            asked += sim.shape[sim.job[sim.queue[i]].kind].parts
    return asked


@jit
def parts_have_room(sim: Arrays) -> bool:
    """Return whether all starts and reservations of a pass on shared nodes fit."""
    sharing = sim.sharing
    asked = sim.clock.queued * sharing.widest
    if len(sim.cut) > 0:
        # A job that starts may be preempted in the same pass and start again; so may a running job.
        asked = 2 * asked + sim.clock.running * sharing.widest
        promises = min(asked, sim.rules.promises)
        return sharing.parts + asked <= len(sim.part) and promises <= len(sim.promise)
    if sharing.parts + asked > len(sim.part) or min(asked, sim.rules.promises) > len(sim.promise):
        asked = parts_asked(sim)
    return sharing.parts + asked <= len(sim.part) and min(asked, sim.rules.promises) <= len(
        sim.promise
    )


@jit
def hopeless(time: int, work_time: int, sim: Arrays) -> bool:
    """Return whether the simulation gives up: jobs wait, but no event can start them.

    Only node failures and timers have been left for longer than `GIVE_UP`.
    """
    if work_time < NEVER:
        sim.clock.only_outages_since = -1
        return False
    if sim.clock.only_outages_since < 0:
        sim.clock.only_outages_since = time
    return time - sim.clock.only_outages_since > GIVE_UP


@jit
def next_batch(until: int, instants: int, sim: Arrays) -> int:
    """Apply the events of the next event time, so that a pass is due.

    Returns:
        `PASS`, or the reason why no pass can run.
    """
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
    """Start jobs, with a tournament or a list of lines where the queue is long enough."""
    race = sim.race
    started = sim.clock.starts
    race.done = 0
    if race.failed == 0:
        if sim.hooks.run_race != 0 and pays(sim.rules.race_from, RACED, sim):
            call(sim.hooks.run_race, sim)
        elif sim.hooks.run_lined != 0 and pays(sim.rules.lines_from, LINED, sim):
            call(sim.hooks.run_lined, sim)
    if race.done == 1:
        # Removing started jobs now and then is enough: the tournament knows them. The list of lines
        # serves short queues. Their state must not depend on where a run stopped, so the queue is
        # cleaned every time.
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
    """Run one scheduling pass at the present time, with the hooks before and after it."""
    hooks = sim.hooks
    if hooks.wake != 0:
        call(hooks.wake, sim)
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
    """Return `PASS` if the run continues after a pass, else the reason to stop."""
    if sim.clock.bad_job >= 0:
        return NOT_A_NUMBER
    stop = sim.clock.stop_job
    if stop >= 0 and RUNNING <= sim.state[stop].phase < UNSUBMITTED:
        return STEPPED
    return PASS


@jit
def advance(sim: Arrays, until: int, instants: int) -> int:
    """Run until no event is left, or up to a time or a number of event times.

    Args:
        sim: Simulation.
        until: Last time whose events are applied, ms.
        instants: Maximum number of event times; negative for no limit.

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
    """Run `advance` on the simulation at an address."""
    sim = sim_at(address)
    return go_on(sim.hooks.advance, sim, until, instants)


def reorder(address: int) -> None:
    """Sort the queue again, after the ordering has changed."""
    sim = sim_at(address)
    waiting = sim.clock.queued
    for i in range(waiting):
        sim.later[i] = sim.queue[i]
    sim.clock.queued = 0
    sim.walk.valid = 0
    for kind in range(len(sim.tried)):
        sim.tried[kind].waiting = 0
    for i in range(waiting):
        enqueue(sim.later[i], sim)
    # Some passes compare the scores of pending and running jobs.
    for r in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[r].job
        if j < 0:
            continue
        sim.state[j].key = score(sim.hooks.order, j, sim)
