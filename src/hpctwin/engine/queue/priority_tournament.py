"""Long queues: who comes first of those that may start, without going through all.

A tournament of the waiting jobs: a binary tree whose leaves are jobs, ordered by width when it is built.
Each node knows the fewest nodes and the shortest expected runtime below it, and who comes first. A search
goes down only where somebody may fit and may come before the best found so far: O(log Q) for each job that
starts, arrives or leaves (a priority search tree; McCreight, SIAM J. Computing 14, 1985).

Where the ordering changes with time, who comes first below a node is true until some time only. Scores are
lines over time (`score_lines`); a node is looked at again when the lines of the two that met there cross (a
kinetic tournament; Basch, Guibas and Hershberger, SODA 1997). Lines only leave out who cannot be first, with
a margin for rounding: among the others the scores decide.

Fair-share factors change all the time, but move all jobs of a label by the same: within a label lines are
drawn without them, and nodes above several labels leave nobody out.

Jobs that the same limits keep back are a group: those of a user, or all that are under the same bounds.
Leaves are ordered by group first, and nodes above several groups pass over those of which nobody may start:
when that changes for one, the nodes above the two ends of its leaves are found out anew. Of a group whose
limits leave it some room only jobs up to so many nodes are looked for (`limits.room_of`).

It is made anew, in O(Q log Q), when no leaf is left for who arrives, or when those that arrived since have
made searches long. All of it is scratch: what the queue is, is in the state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.eligibility import at_limit
from hpctwin.engine.queue.limits import is_over, learn_least, room_of
from hpctwin.engine.queue.linear_scores import MARGIN, draw_line, margin_of, value_of, wins
from hpctwin.engine.queue.order import before, drop_started, heap_order, pop_order, score, score_at
from hpctwin.engine.state.layout import NEVER, ONE, RACED, WAITING, ZERO, Arrays

WIDEST: Any = np.int64(2**31 - 1)
NO_LABEL = SEVERAL = -1
STEPS_OF_BUILDING = 64  # to build costs as much for each leaf


@jit
def take_first(node: int, child: int, sim: Arrays) -> None:
    """The first of a node is that of one of its children."""
    racer = sim.racer[node]
    first = sim.racer[child]
    racer.job = first.job
    racer.leaf = first.leaf
    racer.label = first.label
    racer.slope = first.slope
    racer.level = first.level


@jit
def take_all(node: int, child: int, sim: Arrays) -> None:
    """All that is below a node is below one of its children."""
    take_first(node, child, sim)
    racer = sim.racer[node]
    below = sim.racer[child]
    racer.nodes = below.nodes
    racer.expected = below.expected
    racer.until = below.until
    racer.group = below.group


@jit
def group_of(j: int, sim: Arrays) -> int:
    """Which group a job is of; 0 if no limit keeps it back."""
    if len(sim.held) > 0:
        return sim.bounds[j, 0] + 1 if sim.bounds[j, 0] < sim.bounds[j, 1] else 0
    return sim.job[j].user if sim.user_running.width > 0 else 0


@jit
def room(node: int, sim: Arrays) -> int:
    """How many nodes a job below a node may have at most, by the limits of all; 0 if nobody may start."""
    group = sim.racer[node].group
    if group <= 0:
        return NEVER
    if len(sim.held) > 0:
        return sim.group[group].room
    return ZERO if at_limit(ZERO, group, sim) else NEVER


@jit
def is_out(node: int, sim: Arrays) -> bool:
    """Whether all below a node are of a group of which nobody may start."""
    return room(node, sim) == 0


@jit
def are_several(a: int, b: int, sim: Arrays) -> bool:
    """Whether the jobs below two nodes are of several groups."""
    one = sim.racer[a]
    other = sim.racer[b]
    if one.group == other.group:
        return False
    return (one.job >= 0 or one.group != 0) and (other.job >= 0 or other.group != 0)


@jit
def play(node: int, sim: Arrays) -> None:
    """Find out anew what is below a node, from its children."""
    racer = sim.racer[node]
    left = sim.racer[2 * node]
    right = sim.racer[2 * node + 1]
    several = are_several(2 * node, 2 * node + 1, sim)
    left_in = left.job >= 0 and not (several and is_out(2 * node, sim))
    right_in = right.job >= 0 and not (several and is_out(2 * node + 1, sim))
    if not (left_in and right_in):
        if left_in:
            take_all(node, 2 * node, sim)
        elif right_in:
            take_all(node, 2 * node + 1, sim)
        else:
            clear(node, sim)
        if several:
            racer.group = SEVERAL
        return
    racer.group = SEVERAL if several else left.group
    racer.nodes = min(left.nodes, right.nodes)
    racer.expected = min(left.expected, right.expected)
    racer.until = min(left.until, right.until)
    won = wins(2 * node, 2 * node + 1, sim)
    take_first(node, 2 * node if won else 2 * node + 1, sim)
    if left.label != right.label:
        racer.label = NO_LABEL
        return
    apart = left.slope - right.slope
    if (apart > 0.0) == won and apart != 0.0:
        # The one that is behind comes nearer.
        crossing = (right.level - left.level) / apart
        if crossing < racer.until:
            racer.until = max(sim.clock.now + 1, int(crossing))


@jit
def play_up(leaf: int, sim: Arrays) -> None:
    """Find out anew what is below all nodes above a leaf."""
    node = leaf // 2
    while node > 0:
        play(node, sim)
        node //= 2


@jit
def play_group(group: int, sim: Arrays) -> None:
    """Find out anew what is below nodes above several groups; of one now some, or none, may start."""
    race = sim.race
    first = sim.group[group].first
    last = sim.group[group].last
    while first > 1:
        first //= 2
        last //= 2
        play(first, sim)
        if last != first:
            play(last, sim)
    # Who came after it was built is anywhere.
    for leaf in range(race.leaves + race.built, race.leaves + race.seated):
        if sim.racer[leaf].group == group:
            play_up(leaf, sim)
    race.steps += race.seated - race.built


@jit
def play_back(sim: Arrays) -> bool:
    """Let groups back of which some may start again."""
    for i in range(sim.race.back):
        play_group(sim.back[i], sim)
    sim.race.back = 0
    measure_all(sim)
    return True


@jit
def measure(number: int, sim: Arrays) -> bool:
    """Find out what limits leave to a group; whether only now nobody may start, or only now some may."""
    group = sim.group[number]
    before = group.room
    group.room = room_of(number - 1, group.end, sim)
    return (before == 0) != (group.room == 0)


@jit
def measure_all(sim: Arrays) -> None:
    """Find out what limits leave to each group, after jobs started or ended."""
    if len(sim.held) == 0:
        return
    for number in range(1, len(sim.group)):
        if sim.group[number].last > 0 and measure(number, sim):
            play_group(number, sim)


@jit
def note_started(j: int, sim: Arrays) -> None:
    """Pass over groups of which nobody may start any more, now that a job has."""
    measure_all(sim)
    user = sim.job[j].user
    if sim.user_running.width > 0 and at_limit(ZERO, user, sim):
        play_group(user, sim)


@jit
def play_expired(sim: Arrays) -> bool:
    """Look again at all nodes whose time is over; False if a line cannot be drawn."""
    now = sim.clock.now
    depth = 0
    if sim.racer[1].until <= now:
        sim.path[0] = 1
        depth = 1
    while depth > 0:
        node = sim.path[depth - 1]
        if node >= sim.race.leaves:
            if not draw_line(node, sim):
                return False
            depth -= 1
            continue
        below = depth
        for child in range(2 * node, 2 * node + 2):
            if sim.racer[child].until <= now:
                sim.path[depth] = child
                depth += 1
        if depth == below:
            play(node, sim)
            depth -= 1
    return True


@jit
def clear(leaf: int, sim: Arrays) -> None:
    """Nobody is at a leaf."""
    racer = sim.racer[leaf]
    racer.job = -1
    racer.leaf = leaf
    racer.label = 0
    racer.group = 0
    racer.nodes = WIDEST
    racer.expected = NEVER
    racer.until = NEVER


@jit
def join(j: int, leaf: int, sim: Arrays) -> None:
    """A job of a group gets a leaf, those of one group one after the other when the tournament is built."""
    group = sim.group[sim.racer[leaf].group]
    if group.first == 0:
        group.first = leaf
        group.room = NEVER
    if sim.race.valid == 0 or group.last == 0:
        group.last = leaf
    if len(sim.held) > 0:
        group.end = sim.bounds[j, 1]
        learn_least(j, sim)


@jit
def seat(j: int, leaf: int, sim: Arrays) -> bool:
    """Put a job at a leaf; False if its line cannot be drawn."""
    racer = sim.racer[leaf]
    racer.job = j
    racer.leaf = leaf
    racer.label = sim.job[j].share if sim.rules.fairshare == 1 else 0
    racer.group = group_of(j, sim)
    if racer.group > 0:
        join(j, leaf, sim)
    racer.nodes = sim.job[j].nodes
    racer.expected = sim.job[j].expected
    if sim.rules.order_changes == 1:
        return draw_line(leaf, sim)
    racer.slope = 0.0
    racer.level = sim.state[j].key
    racer.until = NEVER
    return True


@jit
def withdraw(leaf: int, sim: Arrays) -> None:
    """Take who is at a leaf out of the race."""
    clear(leaf, sim)
    play_up(leaf, sim)


@jit
def build(sim: Arrays) -> bool:
    """Make the tournament of all that wait; False if it cannot be."""
    race = sim.race
    drop_started(sim)
    race.gone = 0
    race.fresh = 0
    race.back = 0
    race.valid = 0
    n = sim.clock.queued
    leaves = int(ONE)
    while leaves < n + n // 4 + 32:
        leaves *= 2
    if 2 * leaves > len(sim.racer):
        return False
    for i in range(n):
        j = sim.queue[i]
        sim.order[i].job = j
        sim.order[i].score = float(sim.job[j].nodes)
        if len(sim.group) > 0:
            sim.order[i].score += float(WIDEST) * group_of(j, sim)
        elif sim.rules.fairshare == 1:
            sim.order[i].score += float(WIDEST) * sim.job[j].share
    heap_order(n, sim)
    race.leaves = leaves
    for number in range(len(sim.group)):
        sim.group[number].first = 0
        sim.group[number].last = 0
    for b in range(len(sim.lightest)):
        sim.lightest[b].charge = NEVER
        sim.lightest[b].each = NEVER
    for i in range(n):
        j = pop_order(n - i, sim)
        if not seat(j, leaves + i, sim):
            return False
    for i in range(n, leaves):
        clear(leaves + i, sim)
    for number in range(1, len(sim.group)):
        if len(sim.held) > 0 and sim.group[number].last > 0:
            measure(number, sim)
    for node in range(leaves - 1, 0, -1):
        play(node, sim)
    race.built = n
    race.seated = n
    race.steps = 0
    race.valid = RACED
    return True


@jit
def admit(sim: Arrays) -> bool:
    """Give those that arrived since the last pass a leaf; False if there is none."""
    race = sim.race
    if race.seated + race.fresh > race.leaves:
        return False
    for i in range(race.fresh):
        j = sim.fresh[i]
        if sim.state[j].phase == WAITING:
            leaf = race.leaves + race.seated
            race.seated += 1
            if not seat(j, leaf, sim):
                return False
            play_up(leaf, sim)
    race.fresh = 0
    return True


@jit
def shift_labels(j: int, sim: Arrays) -> None:
    """By how much a label's fair-share factor moves the scores of its jobs: as much as it would a job's."""
    now = sim.clock.now
    order = sim.hooks.order
    without = score_at(order, j, now, 1.0, 0.0, sim)
    for label in range(len(sim.promised)):
        fair = sim.fair[label]
        fair.shift = score_at(order, j, now, fair.factor, fair.current, sim) - without


@jit
def ready(sim: Arrays) -> bool:
    """Bring the tournament up to the present; False if there can be none."""
    race = sim.race
    current = race.valid == RACED and admit(sim) and play_back(sim) and play_expired(sim)
    # Who came after it was built has no place by width and label: when that has cost as much, build again.
    scattered = race.seated > race.built and race.steps > STEPS_OF_BUILDING * race.seated
    if (scattered or not current) and not build(sim):
        race.failed = 1
        return False
    return True


@jit
def may_fit(node: int, free: int, spare: int, length: int, sim: Arrays) -> bool:
    """Whether anybody below a node might fit: few enough nodes, and few or short enough to be no delay."""
    racer = sim.racer[node]
    most = min(free, room(node, sim))
    return racer.nodes <= most and (racer.nodes <= spare or racer.expected <= length)


@jit
def is_behind(node: int, best: int, sim: Arrays) -> bool:
    """Whether nobody below a node can come before the job at a leaf."""
    racer = sim.racer[node]
    if racer.label == NO_LABEL:
        return False
    leader = sim.racer[best]
    mine = value_of(node, sim)
    theirs = value_of(best, sim)
    moving = abs(racer.slope) + abs(leader.slope)
    if moving == 0.0 and sim.rules.order_exact == 1 and racer.label == leader.label:
        return not before(mine, racer.job, theirs, leader.job, sim)
    margin = MARGIN * max(abs(mine), abs(theirs))
    return mine > theirs + margin + moving * margin_of(sim.clock.now)


@jit
def first_fitting(free: int, spare: int, length: int, sim: Arrays) -> int:
    """The leaf of who comes first of those that fit; 0 if nobody does.

    Args:
        free: nodes that there are.
        spare: jobs with more nodes than that
        length: may be expected to run so long at most, ms.
        sim: the simulation; `ready`.
    """
    best = 0
    score_of_best = 0.0
    steps = 0
    sim.path[0] = 1
    depth = 1
    while depth > 0:
        depth -= 1
        steps += 1
        node = sim.path[depth]
        if not may_fit(node, free, spare, length, sim):
            continue
        if best > 0 and is_behind(node, best, sim):
            continue
        if node < sim.race.leaves:
            first = 2 * node
            if sim.racer[first].job < 0 or (
                sim.racer[first + 1].job >= 0 and value_of(first + 1, sim) < value_of(first, sim)
            ):
                first += 1
            sim.path[depth] = first ^ 1
            sim.path[depth + 1] = first
            depth += 2
            continue
        j = sim.racer[node].job
        if sim.state[j].phase != WAITING:
            withdraw(node, sim)
            continue
        if len(sim.held) > 0 and is_over(j, sim):
            continue
        own = sim.state[j].key
        if sim.rules.order_changes == 1:
            own = score(sim.hooks.order, j, sim)
            if own != own:
                sim.clock.bad_job = j
        if best == 0 or before(own, j, score_of_best, sim.racer[best].job, sim):
            best = node
            score_of_best = own
    sim.race.steps += steps
    return best
