"""The first pending job that fits, in a long queue, without a scan of all jobs.

The pending jobs are the leaves of a binary tree, ordered by number of nodes when it is built. Each
tree node holds the minimum of nodes and of expected runtime in its subtree, and the first job in
order. A search descends only where some job may fit and may precede the best job found so far. It
costs O(log Q) for each job that starts, arrives or leaves. This is a priority search tree
(McCreight, SIAM J. Computing 14, 1985).

Where the ordering changes with time, the first job of a subtree is valid until some time. Scores
are lines over time (`linear_scores`), and a tree node is updated when the lines of its two children
cross (a kinetic tournament; Basch, Guibas and Hershberger, SODA 1997). Lines only exclude jobs that
cannot be first, with a margin for rounding; among the remaining jobs the scores decide.

Fair-share factors change at each event, but shift all jobs of one label by the same amount. Lines
of one label are therefore drawn without them. Tree nodes above several labels exclude no job.

Jobs under the same limits form a group: the jobs of a user, or all jobs with the same bounds.
Leaves are ordered by group first, and tree nodes above several groups skip groups in which no job
may start. When that changes for a group, the tree nodes above both ends of its leaves are updated.
Where limits leave a group some nodes, only jobs of at most that size are searched
(`limits.room_of`).

On shared nodes a kind of job takes the place of both: leaves are ordered by kind, which is the
group too, and only jobs are searched that are shorter than `Tried.below` of their kind.

The tree is rebuilt in O(Q log Q) when an arriving job finds no leaf, or when arrivals have made
searches long. It is scratch: the queue itself is part of the state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.limits import at_limit, is_over, learn_least, room_of
from hpctwin.engine.queue.linear_scores import MARGIN, draw_line, margin_of, value_of, wins
from hpctwin.engine.queue.order import before, drop_started, heap_order, pop_order, score, score_at
from hpctwin.engine.state.layout import NEVER, ONE, RACED, WAITING, ZERO, Arrays

WIDEST: Any = np.int64(2**31 - 1)
NO_LABEL = SEVERAL = -1
STEPS_OF_BUILDING = 64  # building costs as much per leaf


@jit
def take_first(node: int, child: int, sim: Arrays) -> None:
    """Copy the first job of a child to its parent."""
    racer = sim.racer[node]
    first = sim.racer[child]
    racer.job = first.job
    racer.leaf = first.leaf
    racer.label = first.label
    racer.slope = first.slope
    racer.level = first.level


@jit
def take_all(node: int, child: int, sim: Arrays) -> None:
    """Copy everything from a child to its parent; the other child is empty."""
    take_first(node, child, sim)
    racer = sim.racer[node]
    below = sim.racer[child]
    racer.nodes = below.nodes
    racer.expected = below.expected
    racer.until = below.until
    racer.group = below.group


@jit
def group_of(j: int, sim: Arrays) -> int:
    """Return the group of a job; 0 if no limit applies to it."""
    if len(sim.tried) > 0:
        return sim.job[j].kind + 1
    if len(sim.held) > 0:
        return sim.bounds[j, 0] + 1 if sim.bounds[j, 0] < sim.bounds[j, 1] else 0
    return sim.job[j].user if sim.user_running.width > 0 else 0


@jit
def room(node: int, sim: Arrays) -> int:
    """Return the most nodes that limits allow a job in a subtree; 0 if none may start."""
    group = sim.racer[node].group
    if group <= 0 or len(sim.group) == 0:
        return NEVER
    if len(sim.held) > 0:
        return sim.group[group].room
    return ZERO if at_limit(ZERO, group, sim) else NEVER


@jit
def is_out(node: int, sim: Arrays) -> bool:
    """Return whether a subtree holds only one group, in which no job may start."""
    return room(node, sim) == 0


@jit
def are_several(a: int, b: int, sim: Arrays) -> bool:
    """Return whether two subtrees hold jobs of different groups."""
    one = sim.racer[a]
    other = sim.racer[b]
    if one.group == other.group:
        return False
    return (one.job >= 0 or one.group != 0) and (other.job >= 0 or other.group != 0)


@jit
def update(node: int, sim: Arrays) -> None:
    """Recompute a tree node from its children."""
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
def update_path(leaf: int, sim: Arrays) -> None:
    """Recompute all tree nodes above a leaf."""
    node = leaf // 2
    while node > 0:
        update(node, sim)
        node //= 2


@jit
def update_group(group: int, sim: Arrays) -> None:
    """Recompute tree nodes above a group that has become eligible or no longer is."""
    race = sim.race
    first = sim.group[group].first
    last = sim.group[group].last
    while first > 1:
        first //= 2
        last //= 2
        update(first, sim)
        if last != first:
            update(last, sim)
    # Jobs inserted after the tree was built can be at any leaf.
    for leaf in range(race.leaves + race.built, race.leaves + race.seated):
        if sim.racer[leaf].group == group:
            update_path(leaf, sim)
    race.steps += race.seated - race.built


@jit
def readmit_groups(sim: Arrays) -> bool:
    """Readmit groups in which a job may start again."""
    for i in range(sim.race.back):
        update_group(sim.back[i], sim)
    sim.race.back = 0
    limit_groups(sim)
    return True


@jit
def limit_group(number: int, sim: Arrays) -> bool:
    """Recompute what limits leave to a group; return whether its eligibility changed."""
    group = sim.group[number]
    before = group.room
    group.room = room_of(number - 1, group.end, sim)
    return (before == 0) != (group.room == 0)


@jit
def limit_groups(sim: Arrays) -> None:
    """Recompute what limits leave to each group, after jobs started or ended."""
    if len(sim.held) == 0:
        return
    for number in range(1, len(sim.group)):
        if sim.group[number].last > 0 and limit_group(number, sim):
            update_group(number, sim)


@jit
def note_started(j: int, sim: Arrays) -> None:
    """Exclude groups in which no job may start any more, after a job has started."""
    limit_groups(sim)
    user = sim.job[j].user
    if sim.user_running.width > 0 and at_limit(ZERO, user, sim):
        update_group(user, sim)


@jit
def update_expired(sim: Arrays) -> bool:
    """Update tree nodes whose validity has ended; return False if a line is missing."""
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
            update(node, sim)
            depth -= 1
    return True


@jit
def clear(leaf: int, sim: Arrays) -> None:
    """Empty a leaf."""
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
    """Add a leaf to its job's group; the build adds leaves in order."""
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
def size_of(j: int, sim: Arrays) -> int:
    """Return a job's number of nodes; its kind if nodes are shared."""
    return sim.job[j].kind if len(sim.tried) > 0 else sim.job[j].nodes


@jit
def insert(j: int, leaf: int, sim: Arrays) -> bool:
    """Insert a job at a leaf; return False if its line cannot be drawn."""
    racer = sim.racer[leaf]
    racer.job = j
    racer.leaf = leaf
    racer.label = sim.job[j].share if sim.rules.fairshare == 1 else 0
    racer.group = group_of(j, sim)
    if racer.group > 0 and len(sim.group) > 0:
        join(j, leaf, sim)
    racer.nodes = size_of(j, sim)
    racer.expected = sim.job[j].expected
    if sim.rules.order_changes == 1:
        return draw_line(leaf, sim)
    racer.slope = 0.0
    racer.level = sim.state[j].key
    racer.until = NEVER
    return True


@jit
def remove(leaf: int, sim: Arrays) -> None:
    """Remove the job at a leaf."""
    clear(leaf, sim)
    update_path(leaf, sim)


@jit
def hide(leaf: int, sim: Arrays) -> None:
    """Exclude the job at a leaf from searches until `show`."""
    sim.racer[leaf].nodes = WIDEST
    update_path(leaf, sim)


@jit
def show(leaf: int, sim: Arrays) -> None:
    """Search the job at a leaf again."""
    sim.racer[leaf].nodes = size_of(sim.racer[leaf].job, sim)
    update_path(leaf, sim)


@jit
def build(sim: Arrays) -> bool:
    """Build the tree of all pending jobs; return False if that is impossible."""
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
        sim.order[i].score = float(size_of(j, sim))
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
        if not insert(j, leaves + i, sim):
            return False
    for i in range(n, leaves):
        clear(leaves + i, sim)
    for number in range(1, len(sim.group)):
        if len(sim.held) > 0 and sim.group[number].last > 0:
            limit_group(number, sim)
    for node in range(leaves - 1, 0, -1):
        update(node, sim)
    race.built = n
    race.seated = n
    race.steps = 0
    race.valid = RACED
    return True


@jit
def insert_arrived(sim: Arrays) -> bool:
    """Insert jobs that arrived since the last pass; return False if no leaf is free."""
    race = sim.race
    if race.seated + race.fresh > race.leaves:
        return False
    for i in range(race.fresh):
        j = sim.fresh[i]
        if sim.state[j].phase == WAITING:
            leaf = race.leaves + race.seated
            race.seated += 1
            if not insert(j, leaf, sim):
                return False
            update_path(leaf, sim)
    race.fresh = 0
    return True


@jit
def shift_labels(j: int, sim: Arrays) -> None:
    """Compute how each label's fair-share factor shifts the scores of its jobs.

    Args:
        j: Any pending job; the shift is the same for all.
        sim: Simulation.
    """
    now = sim.clock.now
    order = sim.hooks.order
    without = score_at(order, j, now, 1.0, 0.0, sim)
    for label in range(len(sim.promised)):
        fair = sim.fair[label]
        fair.shift = score_at(order, j, now, fair.factor, fair.current, sim) - without


@jit
def ready(sim: Arrays) -> bool:
    """Update the tree to the present time; return False if it cannot be built."""
    race = sim.race
    current = (
        race.valid == RACED and insert_arrived(sim) and readmit_groups(sim) and update_expired(sim)
    )
    # Jobs inserted after the build are not sorted by size and label, so searches take longer.
    # Rebuild when the extra steps have cost as much as building.
    scattered = race.seated > race.built and race.steps > STEPS_OF_BUILDING * race.seated
    if (scattered or not current) and not build(sim):
        race.failed = 1
        return False
    return True


@jit
def may_fit(node: int, free: int, spare: int, length: int, sim: Arrays) -> bool:
    """Return whether a job in a subtree may fit now and not delay the reservation."""
    racer = sim.racer[node]
    if len(sim.tried) > 0:
        if racer.nodes > free or racer.expected >= length:
            return False
        return racer.group <= 0 or racer.expected < sim.tried[racer.group - 1].below
    most = min(free, room(node, sim))
    return racer.nodes <= most and (racer.nodes <= spare or racer.expected <= length)


@jit
def is_behind(node: int, best: int, sim: Arrays) -> bool:
    """Return whether no job in a subtree can precede the job at a leaf."""
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
    """Return the leaf of the first job that fits; 0 if none does.

    Args:
        free: Free nodes; the last kind of job that may start, if nodes are shared.
        spare: Free nodes that no reservation needs; jobs with more nodes must end in time.
        length: Longest expected runtime of those jobs, ms. If nodes are shared, all jobs must be
            shorter.
        sim: Simulation; `ready` has updated the tree.
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
            remove(node, sim)
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
