"""The lines that scores of waiting jobs follow over time, as they are or after a root (`Rules.order_power`).

A line is drawn through three scores; where they do not lie on one, as on both sides of a saturated age, it is
drawn for a shorter time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import before, score_at
from hpctwin.engine.state.layout import Arrays

LONGEST_LINE: Any = np.int64(2**36)  # ms
SHORTEST_LINE = 2
STRAIGHT = 1e-14  # relative distance of the middle score from the line
MARGIN = 1e-9  # relative distance of two lines within which scores decide
MARGIN_MS = 1e-3  # … and so much time
MARGIN_NOW = 1e-14  # … and so much of the present time


@jit
def rooted(value: float, power: float) -> float:
    """A score whose changes with time are those of a line."""
    if power == 1.0:
        return value
    if value < 0.0:
        return -((-value) ** (1.0 / power))
    return value ** (1.0 / power)


@jit
def scored_then(j: int, time: int, sim: Arrays) -> float:
    """A job's score at a time, after the root, as if all fair-share factors were 1."""
    return rooted(score_at(sim.hooks.order, j, time, 1.0, 0.0, sim), sim.rules.order_power)


@jit
def draw_line(leaf: int, sim: Arrays) -> bool:
    """Draw the line of a leaf's job from now on; whether there is one."""
    racer = sim.racer[leaf]
    now = sim.clock.now
    # From when it became eligible: jobs that are alike get the same line.
    start = sim.state[racer.job].eligible
    length: int = LONGEST_LINE
    while length >= SHORTEST_LINE:
        first = scored_then(racer.job, start, sim)
        middle = scored_then(racer.job, start + length // 2, sim)
        last = scored_then(racer.job, start + length, sim)
        bend = abs(first - 2.0 * middle + last)
        if start + length > now and bend <= STRAIGHT * max(abs(first), abs(last)):
            racer.slope = (last - first) / length
            racer.level = first - racer.slope * start
            racer.until = start + length
            return True
        if start < now:
            start = now
        else:
            length //= 2
    return False


@jit
def margin_of(now: int) -> float:
    """How long before and after two lines cross their scores decide, ms."""
    return MARGIN_MS + MARGIN_NOW * now


@jit
def value_of(node: int, sim: Arrays) -> float:
    """Where the line of the first of a node is now."""
    racer = sim.racer[node]
    value = racer.level + racer.slope * sim.clock.now
    if sim.rules.fairshare == 1:
        value += sim.fair[sim.job[racer.job].share].shift
    return value


@jit
def wins(a: int, b: int, sim: Arrays) -> bool:
    """Whether the first of node a comes before that of node b, which has the same label, by their lines."""
    one = sim.racer[a]
    other = sim.racer[b]
    now = sim.clock.now
    mine = one.level + one.slope * now
    theirs = other.level + other.slope * now
    if mine != theirs:
        return mine < theirs
    if one.slope != other.slope:
        return one.slope < other.slope
    return before(mine, one.job, theirs, other.job, sim)
