"""What is promised on shared nodes to jobs that wait, and the earliest time at which one fits."""

from __future__ import annotations

from hpctwin.engine.heap import heap_pop, heap_push
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import NEVER, TAKE, ZERO, Arrays
from hpctwin.engine.plan import active_from, planned_end
from hpctwin.engine.shared.moving import free_at, put_back, take_resources
from hpctwin.engine.shared.placing import choose
from hpctwin.engine.shared.room import (
    fits_over,
    held,
    is_there,
    mark_pools,
    reckon_least,
    resources_fit,
    stops_early,
    tasks_on,
)


@jit
def new_row(sim: Arrays) -> int:
    """A free row of promises."""
    sharing = sim.sharing
    if sharing.spare > 0:
        row = sharing.spare - 1
        sharing.spare = sim.promise[row].next + 1
        return row
    row = sharing.promises
    sharing.promises = row + 1
    return row


@jit
def link(row: int, sim: Arrays) -> None:
    """Take a promise out of what is left of its node when it and others begin."""
    own = sim.promise[row]
    node = own.node
    kind = sim.job[own.job].kind
    free_at(node, own.start, row, sim)
    for c in range(4):
        mine = held(kind, node, own.tasks, c, sim)
        left = sim.promise_left[row, c] - mine
        p = sim.share[node].promise
        while p >= 0:
            other = sim.promise[p]
            if other.start <= own.start and own.start < other.end:
                left -= held(sim.job[other.job].kind, node, other.tasks, c, sim)
            if own.start <= other.start and other.start < own.end:
                sim.promise_left[p, c] -= mine
            p = other.after
        sim.promise_left[row, c] = left
    own.after = sim.share[node].promise
    sim.share[node].promise = row


@jit
def unlink(row: int, kept: bool, sim: Arrays) -> None:
    """Take a promise off its node, and put back what it took; not so if its job has started there."""
    own = sim.promise[row]
    node = own.node
    p = sim.share[node].promise
    if p == row:
        sim.share[node].promise = own.after
    else:
        while sim.promise[p].after != row:
            p = sim.promise[p].after
        sim.promise[p].after = own.after
    kind = sim.job[own.job].kind
    p = sim.share[node].promise
    while p >= 0 and not kept:
        other = sim.promise[p]
        if own.start <= other.start and other.start < own.end:
            for c in range(4):
                sim.promise_left[p, c] += held(kind, node, own.tasks, c, sim)
        p = other.after


@jit
def promise(j: int, start: int, end: int, sim: Arrays) -> int:
    """Promise a job the chosen nodes for a span; the first row of it."""
    following = -1
    for n in range(sim.sharing.chosen - 1, -1, -1):
        row = new_row(sim)
        own = sim.promise[row]
        own.job = j
        own.start = start
        own.end = end
        own.node = sim.chosen[n]
        own.tasks = sim.given[n]
        own.next = following
        own.first = 0
        link(row, sim)
        following = row
    sim.promise[following].first = 1
    take_resources(j, start, end, TAKE, sim)
    return following


@jit
def forget_all(sim: Arrays) -> None:
    """Nothing is promised to anyone any more."""
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            sim.share[sim.promise[row].node].promise = -1
    sim.sharing.promises = 0
    sim.sharing.spare = 0


@jit
def reserve_shared(j: int, not_before: int, sim: Arrays) -> tuple[int, int]:
    """Promise a job the earliest span that it fits, not before a time; when it begins, and the first row."""
    start = earliest(j, not_before, sim)
    choose(j, sim)
    return start, promise(j, start, start + sim.job[j].expected, sim)


@jit
def earliest(j: int, not_before: int, sim: Arrays) -> int:
    """The earliest time, not before another, from which a job fits; leaves its ``sim.fits``, ``sim.least``.

    Goes through the times at which something becomes free. Where nothing is promised and no maintenance
    comes, only the nodes of jobs that end need be looked at again.
    """
    for node in range(len(sim.share)):
        for c in range(4):
            sim.base[node, c] = sim.left[node, c]
    running = sim.clock.run_end
    now = sim.clock.now
    r = sim.clock.run_first
    n = ZERO
    while r < running and sim.run[r].planned <= now:
        if sim.run[r].job >= 0:
            n = heap_push(sim.times, n, planned_end(sim.run[r].job, sim), sim.run[r].job)
        r += 1
    bare = sim.sharing.promises == 0 and len(sim.window) == 0 and sim.asks.width == 0
    if bare and sim.clock.unpowered == 0 and not_before <= now:
        return _earliest_bare(j, r, n, sim)
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0 and sim.promise[row].first == 1:
            n = heap_push(sim.times, n, sim.promise[row].end, -1)
    for m in range(len(sim.window)):
        if sim.window[m].end > now:
            n = heap_push(sim.times, n, sim.window[m].end, -1)
        if sim.window[m].amount < 0 and sim.window[m].start > now:
            n = heap_push(sim.times, n, sim.window[m].start, -1)
    if sim.clock.unpowered > 0:
        for node in range(len(sim.share)):
            if sim.node[node].hidden == 1 and active_from(node, sim) > now:
                n = heap_push(sim.times, n, active_from(node, sim), -1)
    if not_before > now:
        n = heap_push(sim.times, n, not_before, -1)
    time = now
    while (
        time < not_before
        or not resources_fit(j, time, sim)
        or not fits_over(j, time, sim.base, sim)
    ):
        time = _next_time(r, n, sim)
        assert time < NEVER  # a job that is not skipped fits when all others have gone
        while n > 0 and sim.times[0].time == time:
            other = heap_pop(sim.times, n)
            n -= 1
            if other >= 0:
                put_back(other, sim)
        while r < running and sim.run[r].planned <= time:
            if sim.run[r].job >= 0:
                put_back(sim.run[r].job, sim)
            r += 1
    return time


@jit
def _next_time(r: int, n: int, sim: Arrays) -> int:
    time = NEVER
    while r < sim.clock.run_end and sim.run[r].job < 0:
        r += 1
    if r < sim.clock.run_end:
        time = sim.run[r].planned
    if n > 0:
        time = min(time, sim.times[0].time)
    return time


@jit
def _earliest_bare(j: int, r: int, n: int, sim: Arrays) -> int:
    kind = sim.job[j].kind
    shape = sim.shape[kind]
    most = shape.most
    mark_pools(kind, sim.clock.now, NEVER, sim)
    total = 0
    nodes = 0
    for node in range(len(sim.share)):
        fits = tasks_on(kind, node, sim.base, sim) if is_there(node, sim.clock.now, sim) else 0
        sim.fits[node] = fits
        total += min(fits, most)
        if fits > 0:
            nodes += 1
    time = sim.clock.now
    while total < shape.tasks or nodes < shape.nodes:
        time = _next_time(r, n, sim)
        assert time < NEVER
        while _next_time(r, n, sim) == time:
            if n > 0 and sim.times[0].time == time:
                other = heap_pop(sim.times, n)
                n -= 1
            else:
                other = sim.run[r].job
                r += 1
                if other < 0:
                    continue
            put_back(other, sim)
            row = sim.state[other].first_node
            while row >= 0:
                node = sim.part[row].node
                row = sim.part[row].next
                if is_there(node, time, sim):
                    fits = tasks_on(kind, node, sim.base, sim)
                    total += min(fits, most) - min(sim.fits[node], most)
                    if fits > 0 and sim.fits[node] == 0:
                        nodes += 1
                    sim.fits[node] = fits
    if not stops_early(sim):
        for node in range(len(sim.share)):
            reckon_least(node, time, time, sim.base, sim)
    return time


@jit
def take_off(first: int, kept: bool, sim: Arrays) -> None:
    """Take what a job was promised off its nodes; see `unlink`. Its rows are free then."""
    row = first
    while row >= 0:
        unlink(row, kept, sim)
        following = sim.promise[row].next
        sim.promise[row].node = -1
        sim.promise[row].next = sim.sharing.spare - 1
        sim.sharing.spare = row + 1
        row = following


@jit
def choose_promised(first: int, sim: Arrays) -> None:
    """Choose the nodes that a job was promised."""
    n = ZERO
    row = first
    while row >= 0:
        sim.chosen[n] = sim.promise[row].node
        sim.given[n] = sim.promise[row].tasks
        n += 1
        row = sim.promise[row].next
    sim.sharing.chosen = n
