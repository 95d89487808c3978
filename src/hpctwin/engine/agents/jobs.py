"""Agents that decide about jobs: which one starts next, or ahead of the first one.

They see a window of the queue: its first jobs in the policy's order.

Sums over the queue for agents, recomputed only if the queue has changed.
"""

from __future__ import annotations

from hpctwin.engine.agents.agent_record import (
    ENDED,
    GOES_ON,
    NOT_ALLOWED,
    agent_at,
    fact_at,
    hook,
    put_mask,
    put_seen,
)
from hpctwin.engine.agents.parallel_steps import JOB_FEATURES, seen_of_job
from hpctwin.engine.agents.sizes import (
    cluster_size,
    fits,
    free_size,
    look_at_nodes,
    size_back,
    size_of,
    sum_up_back,
)
from hpctwin.engine.agents.step import TAU_MS
from hpctwin.engine.compile.intrinsics import go_on
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.loop.event_loop import records_have_room
from hpctwin.engine.passes.admitted import admission, place_of
from hpctwin.engine.passes.selected import selection
from hpctwin.engine.queue.order import submitted_at
from hpctwin.engine.state.layout import DONE, NEED_ROOM, NEVER, ONE, STEPPED, WAITING, ZERO, Arrays

__all__ = [
    "ADMIT",
    "ALLOW_PLACES",
    "OBSERVE_FEATURES",
    "OBSERVE_JOB",
    "OBSERVE_RLSCHEDULER",
    "REWARD_LATELY",
    "REWARD_SLOWDOWN",
    "REWARD_WAIT",
    "SELECT",
    "TO_ADMISSION",
    "TO_SELECTION",
    "note_queue",
    "waited_in_queue",
]


@jit
def note_queue(address: int, sim: Arrays) -> None:
    """Update the agent's sums to the present queue."""
    agent = agent_at(address)
    # Each change of the queue is a start, or counts in ``moves``.
    changes = sim.clock.starts + sim.clock.moves
    if agent.changes == changes:
        return
    agent.changes = changes
    nodes = ZERO
    walltimes = 0.0
    submits = ZERO
    first = NEVER
    last = -NEVER
    for i in range(sim.clock.queued):
        job = sim.job[sim.queue[i]]
        nodes += job.nodes
        walltimes += job.limit
        submit = submitted_at(sim.queue[i], sim)
        submits += submit
        first = min(first, submit)
        last = max(last, submit)
    agent.asked = nodes
    agent.walltimes = walltimes
    agent.submits = submits
    agent.first = first
    agent.last = last


@jit
def waited_in_queue(address: int, sim: Arrays) -> tuple[int, int]:
    """Return the waits of queued jobs since the previous decision, and in total, ms."""
    note_queue(address, sim)
    agent = agent_at(address)
    now = sim.clock.now
    lately = sim.clock.queued * (now - agent.since)
    if agent.last > agent.since:
        for i in range(sim.clock.queued):
            lately -= max(ZERO, submitted_at(sim.queue[i], sim) - agent.since)
    return lately, sim.clock.queued * now - agent.submits


HOUR_MS, DAY_MS, HALF_DAY_MS = 3_600_000.0, 86_400_000.0, 43_200_000.0
ALMOST_1 = 1.0 - 1e-5
FEATURES = 8


# --- actions -------------------------------------------------------------------------------------


def select(address: int, sim: Arrays) -> None:
    """Select the job at a place of the window to start next."""
    agent = agent_at(address)
    place = agent.action
    if place < 0 or place >= min(sim.clock.queued, agent.window):
        agent.code = NOT_ALLOWED
        return
    agent.chosen = sim.queue[place]
    selection(sim.own)[0].job = agent.chosen
    sim.clock.pass_due = 1


def admit(address: int, sim: Arrays) -> None:
    """Start the job at a place of the window now; none at the place after the last."""
    agent = agent_at(address)
    place = agent.action
    agent.chosen = -1
    if place == agent.window:
        return
    there = 0 <= place < min(sim.clock.queued, agent.window)
    if not there or place_of(sim.kept)[sim.queue[place]].place < 0:
        agent.code = NOT_ALLOWED
    else:
        agent.chosen = sim.queue[place]
        admission(sim.own)[0].admitted = agent.chosen
        sim.clock.pass_due = 1


SELECT, ADMIT = hook(select), hook(admit)


# --- running to the next decision ----------------------------------------------------------------


@jit
def next_instant(sim: Arrays) -> int:
    """Advance the engine by a pass that is due, or by one event time.

    Returns:
        A code of `event_loop.advance`.
    """
    instants = ONE
    if sim.clock.pass_due == 1:
        # The engine checks the records of where jobs run only before an event time, not before a
        # single pass.
        if not records_have_room(sim):
            return NEED_ROOM
        instants = ZERO
    return go_on(sim.hooks.advance, sim, NEVER, instants)


@jit
def settle(code: int, address: int) -> bool:
    """Store the code of an event time; return whether the agent must stop running.

    The code must not be `DONE`.
    """
    agent_at(address).code = code
    return code != STEPPED


@jit
def end(address: int) -> None:
    """End the episode: no event and no decision is left."""
    agent = agent_at(address)
    agent.over = ENDED
    agent.code = STEPPED


def to_selection(address: int, sim: Arrays) -> None:
    """Run until the selected job has started and another one is pending."""
    agent = agent_at(address)
    agent.code = STEPPED
    last = False
    while True:
        if agent.chosen >= 0 and sim.state[agent.chosen].phase != WAITING:
            agent.chosen = -1
            selection(sim.own)[0].job = -1
        if agent.chosen < 0 and sim.clock.queued > 0:
            return
        if last:
            end(address)
            return
        code = next_instant(sim)
        last = code == DONE
        if not last and settle(code, address):
            return


@jit
def may_admit(window: int, sim: Arrays) -> bool:
    """Return whether a job in the window can start ahead of its turn."""
    if admission(sim.own)[0].found == 0:
        return False
    for i in range(min(window, sim.clock.queued)):
        if place_of(sim.kept)[sim.queue[i]].place >= 0:
            return True
    return False


def to_admission(address: int, sim: Arrays) -> None:
    """Run until a pass is done and a job may start ahead of its turn."""
    agent = agent_at(address)
    agent.code = STEPPED
    last = passed = False
    while True:
        if passed and may_admit(agent.window, sim):
            return
        if last:
            end(address)
            return
        code = next_instant(sim)
        passed = True
        last = code == DONE
        if not last and settle(code, address):
            return


TO_SELECTION, TO_ADMISSION = hook(to_selection), hook(to_admission)


# --- observations --------------------------------------------------------------------------------


@jit
def mask_places(address: int, sim: Arrays) -> int:
    """Write which choices are available; return the number of jobs in the window."""
    agent = agent_at(address)
    window = agent.window
    mask = agent.mask
    there = min(sim.clock.queued, window)
    if agent.over != GOES_ON:
        there = ZERO
    for i in range(there):
        put_mask(mask, i, ONE)
    # Two buffers are written in turn: entries of both earlier observations must be cleared.
    last = max(agent.shown, agent.shown_before)
    for i in range(there, last):
        put_mask(mask, i, ZERO)
    if agent.width > window:
        for i in range(there):
            if place_of(sim.kept)[sim.queue[i]].place < 0:
                put_mask(mask, i, ZERO)
        put_mask(mask, window, ONE)
    return there


@jit
def rows_to_empty(there: int, address: int) -> int:
    """Return up to which place of the window the buffer may hold earlier jobs.

    Args:
        there: Number of jobs shown now.
        address: Address of the agent.
    """
    agent = agent_at(address)
    last = max(agent.shown, agent.shown_before)
    agent.shown_before = agent.shown
    agent.shown = there
    return last


@jit
def put_features(out: int, row: int, wait: float, limit: int, size: float, may_start: bool) -> None:
    """Write the features of a job that do not depend on the rest of the cluster."""
    put_seen(out, row, 1.0)
    put_seen(out, row + 1, wait / (wait + HOUR_MS))
    put_seen(out, row + 2, min(limit / DAY_MS, 1.0))
    put_seen(out, row + 3, size)
    put_seen(out, row + 4, 1.0 if may_start else 0.0)


@jit
def crowd_behind(there: int, address: int, sim: Arrays) -> float:
    """Return the jobs beyond the window as n / (n + size of the window)."""
    behind = sim.clock.queued - there
    return behind / float(behind + agent_at(address).window)


@jit
def empty_rows(there: int, columns: int, address: int) -> None:
    """Write zeros to rows that held jobs before."""
    last = columns * rows_to_empty(there, address)
    for k in range(columns * there, last):
        put_seen(agent_at(address).seen, k, 0.0)


def allow_places(address: int, sim: Arrays) -> None:
    """Write which choices are available, for a custom observation."""
    rows_to_empty(mask_places(address, sim), address)


def observe_features(address: int, sim: Arrays) -> None:
    """Write the observation `learn.environments.job_selection.FEATURES`."""
    there = mask_places(address, sim)
    look_at_nodes(sim)
    sum_up_back(sim)
    now = sim.clock.now
    total = cluster_size(sim)
    free = free_size(sim)
    crowd = crowd_behind(there, address, sim)
    share = free / total
    out = agent_at(address).seen
    for i in range(there):
        j = sim.queue[i]
        limit = sim.job[j].limit
        row = FEATURES * i
        wait = float(now - submitted_at(j, sim))
        put_features(out, row, wait, limit, size_of(j, sim) / total, fits(j, free, sim))
        put_seen(out, row + 5, share)
        put_seen(out, row + 6, min(size_back(now + limit, sim) / total, 1.0))
        put_seen(out, row + 7, crowd)
    empty_rows(there, FEATURES, address)


@jit
def among(value: float, most: float) -> float:
    """Return a label or an amount over the largest in the trace; 1 if it is unknown."""
    if value < 0.0 or most <= 0.0:
        return 1.0
    return min(value / most, ALMOST_1)


@jit
def put_rlscheduler(
    j: int, size: float, may_start: bool, row: int, address: int, sim: Arrays
) -> None:
    """Write the eight numbers of a job, given its share of the nodes."""
    out = agent_at(address).seen
    facts = agent_at(address).facts
    job = sim.job[j]
    fact = sim.fact[j]
    memory = fact.memory_gb if fact.memory_gb > 0.0 else -1.0
    put_seen(out, row, min((sim.clock.now - submitted_at(j, sim)) / HALF_DAY_MS, ALMOST_1))
    put_seen(out, row + 1, min(job.limit / fact_at(facts, ZERO), ALMOST_1))
    put_seen(out, row + 2, min(size, ALMOST_1))
    put_seen(out, row + 3, among(memory, fact_at(facts, ONE)))
    put_seen(out, row + 4, among(fact.user, fact_at(facts, ONE * 2)))
    put_seen(out, row + 5, among(fact.account, fact_at(facts, ONE * 3)))
    put_seen(out, row + 6, 1.0)
    put_seen(out, row + 7, ALMOST_1 if may_start else 1e-5)


@jit
def empty_rlscheduler(there: int, address: int) -> None:
    """Write the features of an empty place to rows that held jobs before."""
    out = agent_at(address).seen
    last = rows_to_empty(there, address)
    for i in range(there, last):
        row = FEATURES * i
        put_seen(out, row, 0.0)
        for k in range(1, FEATURES - 1):
            put_seen(out, row + k, 1.0)
        put_seen(out, row + FEATURES - 1, 0.0)


def observe_rlscheduler(address: int, sim: Arrays) -> None:
    """Write the eight features of RLScheduler.

    They are wait, walltime, nodes, memory, user, group, executable and whether the job fits.
    """
    there = mask_places(address, sim)
    look_at_nodes(sim)
    total = cluster_size(sim)
    free = free_size(sim)
    for i in range(there):
        j = sim.queue[i]
        share = size_of(j, sim) / total
        put_rlscheduler(j, share, fits(j, free, sim), FEATURES * i, address, sim)
    empty_rlscheduler(there, address)


def observe_job(address: int, sim: Arrays) -> None:
    """Write the features that orderings see too, see `features.seen_of_job`."""
    agent = agent_at(address)
    there = mask_places(address, sim)
    now = sim.clock.now
    machine = float(sim.rules.machine_nodes)
    out = agent.seen
    for i in range(there):
        job = sim.job[sim.queue[i]]
        a, b, c, d, e = seen_of_job(
            (now - submitted_at(sim.queue[i], sim)) / 1000.0,
            job.limit / 1000.0,
            float(job.nodes),
            machine,
        )
        row = JOB_FEATURES * i
        put_seen(out, row, 1.0)
        put_seen(out, row + 1, a)
        put_seen(out, row + 2, b)
        put_seen(out, row + 3, c)
        put_seen(out, row + 4, d)
        put_seen(out, row + 5, e)
    empty_rows(there, JOB_FEATURES, address)


ALLOW_PLACES, OBSERVE_JOB = hook(allow_places), hook(observe_job)
OBSERVE_FEATURES, OBSERVE_RLSCHEDULER = hook(observe_features), hook(observe_rlscheduler)


# --- rewards -------------------------------------------------------------------------------------


def reward_slowdown(address: int, sim: Arrays) -> None:
    """Set the reward: minus the mean bounded slowdown, at the end."""
    agent = agent_at(address)
    agent.earned = -agent.slowdown if agent.over != GOES_ON else 0.0


def reward_wait(address: int, sim: Arrays) -> None:
    """Set the reward: minus the mean wait, h, at the end."""
    agent = agent_at(address)
    agent.earned = -agent.wait / 3600.0 if agent.over != GOES_ON else 0.0


def reward_lately(address: int, sim: Arrays) -> None:
    """Set the reward: minus what was added to the mean of wait over runtime.

    Only waits since the previous decision count.
    """
    agent = agent_at(address)
    now = sim.clock.now
    since = agent.since
    total = 0.0
    settled = True
    for i in range(agent.low, sim.clock.arrived):
        j = sim.by_submit[i]
        state = sim.state[j]
        gone = state.end >= 0 and state.start < 0
        if gone or 0 <= state.start <= since:
            if settled:
                agent.low = i + 1
            continue
        settled = False
        until = state.start if 0 <= state.start <= now else now
        begin = max(submitted_at(j, sim), since)
        if until > begin:
            total += (until - begin) / float(max(sim.job[j].runtime, TAU_MS))
    agent.earned = -total / len(sim.state)


REWARD_SLOWDOWN, REWARD_WAIT = hook(reward_slowdown), hook(reward_wait)
REWARD_LATELY = hook(reward_lately)
