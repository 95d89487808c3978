"""The events of a network: steps of jobs begin and end, and tasks share again."""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.network.records import (
    DELAY,
    DELAYED,
    FORK,
    IDLE,
    LATENT,
    MEET,
    MEETING,
    PAUSED,
    REPEAT,
    RUNNING,
    TASK,
    WAITING,
    Network,
    chains_of,
    loads_of,
    network_at,
    numbers_of,
    reals_of,
    resources_of,
    steps_of,
    strands_of,
    uses_of,
)
from hpctwin.engine.network.sharing import FOREVER, begin_group, share_again, touch_resources

__all__ = ["ADVANCE", "CONTINUE", "COUNT", "PAUSE", "SHARE", "START", "STOP"]

DONE_BELOW = 1e-14
"""Work below which a task is done, of 1."""


@jit
def link_uses(s: int, net: Network) -> None:
    """Put a task into the chains of its resources."""
    resources, uses, chains = resources_of(net), uses_of(net), chains_of(net)
    load = loads_of(net)[strands_of(net)[s].load]
    strands_of(net)[s].group = 0
    numbers_of(net.fresh)[net.fresh_count] = s
    net.fresh_count += 1
    for u in range(load.first, load.last):
        resource = resources[uses[u].resource]
        chains[u].strand = s
        chains[u].last = -1
        chains[u].next = resource.first
        if resource.first >= 0:
            chains[resource.first].last = u
        resource.first = u
    touch_resources(s, net)


@jit
def unlink_uses(s: int, net: Network) -> None:
    """Take a task out of the chains of its resources."""
    resources, uses, chains = resources_of(net), uses_of(net), chains_of(net)
    load = loads_of(net)[strands_of(net)[s].load]
    strands_of(net)[s].group = 0
    for u in range(load.first, load.last):
        after, before = chains[u].next, chains[u].last
        if after >= 0:
            chains[after].last = before
        if before >= 0:
            chains[before].next = after
        else:
            resources[uses[u].resource].first = after
    touch_resources(s, net)


@jit
def begin_computing(s: int, net: Network) -> None:
    """Count a task on the hosts on which it computes; they come first among its uses."""
    uses, load = uses_of(net), loads_of(net)[strands_of(net)[s].load]
    computing, busy_since = numbers_of(net.computing), reals_of(net.busy_since)
    for u in range(load.first, load.last):
        host = uses[u].resource
        if host >= net.hosts:
            return
        if computing[host] == 0:
            busy_since[host] = net.now
        computing[host] += 1


@jit
def end_computing(s: int, progress: float, net: Network) -> None:
    """Count what a task has computed, by the part of its work that is done."""
    strand = strands_of(net)[s]
    uses, load = uses_of(net), loads_of(net)[strand.load]
    computing, flops = numbers_of(net.computing), reals_of(net.flops)
    busy_since, busy_s = reals_of(net.busy_since), reals_of(net.busy_s)
    for u in range(load.first, load.last):
        host = uses[u].resource
        if host >= net.hosts:
            return
        flops[host] += uses[u].amount * (progress - strand.counted)
        computing[host] -= 1
        if computing[host] == 0:
            busy_s[host] += net.now - busy_since[host]


@jit
def progress_of(s: int, net: Network) -> float:
    """Return the part of a running task's work that is done."""
    strand = strands_of(net)[s]
    return 1.0 - (strand.left - strand.rate * (net.now - strand.since))


@jit
def count_computing(s: int, net: Network) -> None:
    """Count what a running task has computed so far."""
    progress = progress_of(s, net)
    end_computing(s, progress, net)
    strands_of(net)[s].counted = progress
    begin_computing(s, net)


@jit
def make_ready(s: int, net: Network) -> None:
    """Note that a strand continues with its next step."""
    strands_of(net)[s].step += 1
    numbers_of(net.ready)[net.ready_count] = s
    net.ready_count += 1


@jit
def release_others(s: int, net: Network) -> None:
    """Let strands continue that met with this one for the task that is done."""
    strands, steps = strands_of(net), steps_of(net)
    step = steps[strands[s].step]
    if step.kind != MEET:
        return
    other = steps[step.row].waiting
    steps[step.row].waiting = -1
    while other >= 0:
        before = strands[other].load
        make_ready(other, net)
        other = before


@jit
def go_on_later(s: int, net: Network) -> None:
    """Let a strand whose step is done continue, and strands that met with it."""
    release_others(s, net)
    make_ready(s, net)


@jit
def run_task(s: int, net: Network) -> bool:
    """Begin the task of a strand after its latency; return whether it is done at once."""
    strand, due = strands_of(net)[s], reals_of(net.due)
    load = loads_of(net)[strand.load]
    strand.phase = RUNNING
    strand.since = net.now
    strand.left = 1.0
    strand.counted = 0.0
    strand.rate = 0.0
    due[s] = FOREVER
    if load.first < load.last:
        link_uses(s, net)
        begin_computing(s, net)
    elif load.bound == FOREVER:
        return True
    elif load.bound > 0:
        strand.rate = load.bound
        due[s] = net.now + 1.0 / load.bound
    return False


@jit
def begin_task(s: int, load: int, net: Network) -> bool:
    """Begin a task with its latency; return whether it is done at once."""
    strand, latency = strands_of(net)[s], loads_of(net)[load].latency
    strand.load = load
    if latency > 0:
        strand.phase = LATENT
        reals_of(net.due)[s] = net.now + latency
        return False
    return run_task(s, net)


@jit
def end_strand(s: int, net: Network) -> None:
    """End a strand, and its job if it is the job's first one."""
    strands = strands_of(net)
    strands[s].phase = IDLE
    reals_of(net.due)[s] = FOREVER
    parent = strands[s].parent
    if parent < 0:
        numbers_of(net.ended)[net.ended_count] = s
        reals_of(net.ended_at)[net.ended_count] = net.now
        net.ended_count += 1
        return
    strands[parent].open -= 1
    if strands[parent].open == 0:
        make_ready(parent, net)


@jit
def fork(s: int, first: int, count: int, net: Network) -> None:
    """Begin strands for which this one waits."""
    strands = strands_of(net)
    strands[s].phase = WAITING
    strands[s].open = count
    reals_of(net.due)[s] = FOREVER
    for child in range(first, first + count):
        strands[child].step = strands[child].begin - 1
        make_ready(child, net)


@jit
def meet(s: int, row: int, net: Network) -> bool:
    """Wait for the other strands of a meeting, or begin its task; return whether it is done."""
    strand, meeting = strands_of(net)[s], steps_of(net)[row]
    meeting.left -= 1
    if meeting.left == 0:
        meeting.left = meeting.count
        return begin_task(s, meeting.row, net)
    strand.phase = WAITING
    strand.load = meeting.waiting
    meeting.waiting = s
    reals_of(net.due)[s] = FOREVER
    return False


@jit
def go_on(s: int, net: Network) -> None:
    """Do the steps of a strand, up to one that takes time."""
    strand, steps = strands_of(net)[s], steps_of(net)
    while True:
        step = steps[strand.step]
        if step.kind == DELAY:
            strand.phase = DELAYED
            reals_of(net.due)[s] = net.now + step.seconds
            return
        if step.kind == TASK:
            if not begin_task(s, step.row, net):
                return
        elif step.kind == REPEAT:
            step.left -= 1
            if step.left > 0:
                strand.step = step.row
                continue
            step.left = step.count
        elif step.kind == MEET:
            if not meet(s, step.row, net):
                return
            release_others(s, net)
        elif step.kind == FORK:
            fork(s, step.row, step.count, net)
            return
        else:
            end_strand(s, net)
            return
        strand.step += 1


@jit
def settle(net: Network) -> None:
    """Let all strands that are ready continue, and share again."""
    ready = numbers_of(net.ready)
    while net.ready_count > 0:
        net.ready_count -= 1
        go_on(ready[net.ready_count], net)
    if net.touched_count > 0:
        share_again(net)


@jit
def next_time(net: Network) -> float:
    """Return the time of the next event; infinity if there is none."""
    due = reals_of(net.due)
    time = FOREVER
    for s in range(net.strand_count):
        time = min(time, due[s])
    return time


@jit
def continue_strand(s: int, net: Network) -> None:
    """Let a strand that stands still continue, or begin its step."""
    strand, due = strands_of(net)[s], reals_of(net.due)
    if strand.phase < PAUSED:
        return
    strand.phase -= PAUSED
    if strand.phase == IDLE:
        strand.step -= 1
        make_ready(s, net)
        return
    if strand.phase != RUNNING:
        due[s] = net.now + strand.left
        return
    load = loads_of(net)[strand.load]
    strand.since = net.now
    if load.first < load.last:
        link_uses(s, net)
        begin_computing(s, net)
    elif load.bound > 0:
        strand.rate = load.bound
        due[s] = net.now + strand.left / load.bound


@jit
def happen(s: int, net: Network) -> None:
    """Apply the event of a strand."""
    strand = strands_of(net)[s]
    if strand.phase >= PAUSED:
        continue_strand(s, net)
        return
    if strand.phase == LATENT:
        if run_task(s, net):
            go_on_later(s, net)
        return
    if strand.phase == RUNNING:
        unlink_uses(s, net)
        end_computing(s, 1.0, net)
    go_on_later(s, net)


@jit
def is_due(s: int, net: Network) -> bool:
    """Return whether the event of a strand happens now."""
    due = reals_of(net.due)[s]
    if due <= net.now:
        return True
    strand = strands_of(net)[s]
    return strand.phase == RUNNING and (due - net.now) * strand.rate < DONE_BELOW


def _advance(address: int, until: float, stops: int) -> float:
    net = network_at(address)
    settle(net)
    while True:
        time = next_time(net)
        if time > until or time == FOREVER or (stops == 1 and net.ended_count > 0):
            return time
        net.now = max(net.now, time)
        for s in range(net.strand_count):
            if is_due(s, net):
                happen(s, net)
        settle(net)


ADVANCE = Kernel(_advance, "float64(int64, float64, int64)")
"""Apply all events up to a time: ``(address, until, stops) -> time of the next event``.

With ``stops``, it stops after an event at which jobs end.
"""


@jit
def shift_steps(first: int, last: int, strand: int, load: int, net: Network) -> None:
    """Make the rows of a job's steps, which count from its first rows, those of the tables."""
    steps = steps_of(net)
    for i in range(first, last):
        step = steps[i]
        if step.kind == TASK or step.kind == MEETING:
            step.row += load
        elif step.kind == REPEAT or step.kind == MEET:
            step.row += first
        elif step.kind == FORK:
            step.row += strand


def _start(address: int, rows: Any, time: float, wait: float) -> None:
    net = network_at(address)
    net.now = time
    strands, loads, due = strands_of(net), loads_of(net), reals_of(net.due)
    for s in range(rows[0], rows[1]):
        strands[s].begin += rows[2]
        if strands[s].parent >= 0:
            strands[s].parent += rows[0]
        due[s] = FOREVER
    for i in range(rows[4], rows[5]):
        loads[i].first += rows[6]
        loads[i].last += rows[6]
    shift_steps(rows[2], rows[3], rows[0], rows[4], net)
    strand = strands[rows[0]]
    strand.step = strand.begin
    strand.load = steps_of(net)[strand.step].row
    strand.phase += PAUSED
    if wait > 0:
        due[rows[0]] = time + wait
    else:
        continue_strand(rows[0], net)


START = Kernel(_start, "void(int64, int64[::1], float64, float64)")
"""Start a job at a time to which the network has advanced.

``(address, rows, time, wait)``: first row, and the row after the last, of the job's strands, steps,
loads and uses; time before it begins. ``phase`` and ``left`` of its first strand say how it begins.
"""


def _stop(address: int, first: int, last: int, time: float) -> None:
    net = network_at(address)
    net.now = time
    settle(net)
    strands, due = strands_of(net), reals_of(net.due)
    for s in range(first, last):
        if strands[s].phase == RUNNING:
            unlink_uses(s, net)
            end_computing(s, progress_of(s, net), net)
        strands[s].phase = IDLE
        due[s] = FOREVER
    settle(net)


STOP = Kernel(_stop, "void(int64, int64, int64, float64)")
"""Stop a job at such a time: ``(address, first strand, row after its last strand, time)``."""


def _count(address: int, time: float) -> None:
    net = network_at(address)
    net.now = time
    strands = strands_of(net)
    for s in range(net.strand_count):
        if strands[s].phase == RUNNING:
            count_computing(s, net)


COUNT = Kernel(_count, "void(int64, float64)")
"""Count what running tasks have computed up to such a time: ``(address, time)``."""


def _share(address: int, time: float, changed: Any) -> None:
    net = network_at(address)
    net.now = time
    begin_group(net)
    resources, touched = resources_of(net), numbers_of(net.touched)
    for r in changed:
        if resources[r].touched != net.stamp:
            resources[r].touched = net.stamp
            touched[net.touched_count] = r
            net.touched_count += 1
    settle(net)


SHARE = Kernel(_share, "void(int64, float64, int64[::1])")
"""Share again from such a time on: ``(address, time, resources whose capacity has changed)``."""


@jit
def pause_strand(s: int, net: Network) -> None:
    """Let a strand stand still."""
    strand, due = strands_of(net)[s], reals_of(net.due)
    if strand.phase == RUNNING:
        unlink_uses(s, net)
        progress = progress_of(s, net)
        end_computing(s, progress, net)
        strand.counted = progress
        strand.left = 1.0 - progress
        strand.rate = 0.0
    elif strand.phase == DELAYED or strand.phase == LATENT:
        strand.left = due[s] - net.now
    else:
        return
    strand.phase += PAUSED
    due[s] = FOREVER


def _pause(address: int, first: int, last: int, time: float) -> None:
    net = network_at(address)
    net.now = time
    settle(net)
    for s in range(first, last):
        pause_strand(s, net)
    settle(net)


PAUSE = Kernel(_pause, "void(int64, int64, int64, float64)")
"""Let a job stand still at such a time; arguments as of `STOP`."""


def _continue(address: int, first: int, last: int, time: float) -> None:
    net = network_at(address)
    net.now = time
    for s in range(first, last):
        continue_strand(s, net)
    settle(net)


CONTINUE = Kernel(_continue, "void(int64, int64, int64, float64)")
"""Let a job that stands still continue at such a time; arguments as of `STOP`."""
