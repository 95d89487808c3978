"""Fair shares as a tree: users are ranked account by account, from the root down.

Source:
    Slurm's documentation, "Fair Tree Fairshare Algorithm" (Cox and Morrison, Brigham Young
    University).
"""

from __future__ import annotations

import math

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import decayed
from hpctwin.engine.state.layout import ONE, ZERO, Arrays

__all__ = ["keep_ranks"]

NOT_LOOKED_AT = -1.0
TIED = ONE


@jit
def keep_ranks(sim: Arrays) -> None:
    """Rank all users, unless that was done in the present period."""
    period = sim.clock.now // sim.rules.fair_every
    if period == sim.clock.ranked:
        return
    sim.clock.ranked = period
    add_up(sim)
    for row in range(1, len(sim.tree)):
        sim.standings[row].level = level_of(row, sim)
    rank_all(sim)


@jit
def add_up(sim: Arrays) -> None:
    """Sum up the usage of all branches, decayed to now."""
    for row in range(len(sim.tree)):
        sim.standings[row].used = 0.0
    for row in range(len(sim.tree) - 1, 0, -1):
        branch = sim.tree[row]
        if branch.label >= 0:
            sim.standings[row].used = decayed(branch.label, sim)
        sim.standings[branch.parent].used += sim.standings[row].used


@jit
def level_of(row: int, sim: Arrays) -> float:
    """Return a branch's level: its share, over its part of its siblings' usage.

    The level is infinite without usage, and 0 for a share of 0.
    """
    branch = sim.tree[row]
    if branch.share == NOT_LOOKED_AT:
        return math.inf
    if branch.share == 0.0:
        return 0.0
    used = sim.standings[row].used
    by_all = sim.standings[branch.parent].used
    if used <= 0.0 or by_all <= 0.0:
        return math.inf
    return branch.share / (used / by_all)


@jit
def comes_before(a: int, b: int, sim: Arrays) -> bool:
    """Return whether a branch ranks before another: by level, then users first."""
    level_a = sim.standings[a].level
    level_b = sim.standings[b].level
    if level_a != level_b:
        return level_a > level_b
    return sim.tree[a].label >= 0 and sim.tree[b].label < 0


@jit
def push_below(accounts: int, top: int, tied: int, sim: Arrays) -> int:
    """Append all branches below some accounts to the line, best last.

    Each entry is ``2 * row + tied``: ``tied`` is 1 if the branch ranks equal with the one ranked
    before it.

    Args:
        accounts: Number of accounts, in ``sim.merged``.
        top: Present end of the line.
        tied: Whether the best of these branches ranks equal with the branch ranked last.
        sim: Simulation.

    Returns:
        New end of the line.
    """
    first = top
    for m in range(accounts):
        branch = sim.tree[sim.merged[m]]
        for row in range(branch.first, branch.last):
            sim.line[top] = row
            top += 1
    # Shell sort: an account may have thousands of users, and their order changes little.
    gap = (top - first) // 2
    while gap > 0:
        for i in range(first + gap, top):
            row = sim.line[i]
            k = i
            while k - gap >= first and comes_before(sim.line[k - gap], row, sim):
                sim.line[k] = sim.line[k - gap]
                k -= gap
            sim.line[k] = row
        gap //= 2
    for i in range(first, top):
        row = sim.line[i]
        same = tied
        if i + 1 < top:
            same = ZERO
            if sim.standings[row].level == sim.standings[sim.line[i + 1]].level:
                same = TIED
        sim.line[i] = 2 * row + same
    return top


@jit
def rank_all(sim: Arrays) -> None:
    """Rank all users, best first; equal users get the same rank."""
    users = len(sim.rank)
    rank = users
    left = users
    sim.merged[0] = 0
    top = push_below(ONE, ZERO, ZERO, sim)
    while top > 0:
        top -= 1
        row = sim.line[top] // 2
        tied = sim.line[top] % 2
        label = sim.tree[row].label
        if label >= 0:
            if tied == 0:
                rank = left
            sim.rank[label] = rank / users
            left -= 1
            continue
        sim.merged[0] = row
        accounts = ONE
        # Accounts that tie with this one are merged with it and ranked as one.
        while top > 0 and sim.line[top - 1] % 2 == TIED:
            if sim.tree[sim.line[top - 1] // 2].label >= 0:
                break
            top -= 1
            sim.merged[accounts] = sim.line[top] // 2
            accounts += 1
        top = push_below(accounts, top, tied, sim)
