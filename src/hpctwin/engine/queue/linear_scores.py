"""Lines that the scores of pending jobs follow over time.

They describe the scores themselves, or their roots (`Rules.order_power`). A line is drawn through
three scores. If these are not on one line, as on both sides of a saturated age, the line is drawn
for a shorter time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import before, score_at
from hpctwin.engine.state.layout import Arrays

LONGEST_LINE: Any = np.int64(2**36)  # ms
SHORTEST_LINE = 2
STRAIGHT = 1e-14  # maximum relative distance of the middle score from the line
MARGIN = 1e-9  # relative distance of two lines below which scores decide
MARGIN_MS = 1e-3  # … plus this much time
MARGIN_NOW = 1e-14  # … plus this fraction of the present time


@jit
def rooted(value: float, power: float) -> float:
    """Return the root of a score, which changes linearly with time."""
    if power == 1.0:
        return value
    if value < 0.0:
        return -((-value) ** (1.0 / power))
    return value ** (1.0 / power)


@jit
def scored_then(j: int, time: int, sim: Arrays) -> float:
    """Return the root of a job's score at a time, as if all fair-share factors were 1."""
    return rooted(score_at(sim.hooks.order, j, time, 1.0, 0.0, sim), sim.rules.order_power)


@jit
def draw_line(leaf: int, sim: Arrays) -> bool:
    """Draw the line of a leaf's job from now on; return whether there is one."""
    racer = sim.racer[leaf]
    now = sim.clock.now
    # From the time it became eligible, so that equal jobs get the same line.
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
    """Return the time around a crossing of two lines in which scores decide, ms."""
    return MARGIN_MS + MARGIN_NOW * now


@jit
def value_of(node: int, sim: Arrays) -> float:
    """Return the present value of the line of a tree node's first job."""
    racer = sim.racer[node]
    value = racer.level + racer.slope * sim.clock.now
    if sim.rules.fairshare == 1:
        value += sim.fair[sim.job[racer.job].share].shift
    return value


@jit
def wins(a: int, b: int, sim: Arrays) -> bool:
    """Return whether the first job of node a precedes that of node b, by their lines.

    Both must have the same label.
    """
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
