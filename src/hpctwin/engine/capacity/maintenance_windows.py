"""Maintenance windows that are not over: passes consider only the ones they need.

The windows of the cluster are sorted by begin. Windows that have begun and are not over are listed
in ``sim.under_way``; of the others only the first is tracked. Both follow the clock, so that
hundreds of past or far future windows cost a pass nothing. All of this is scratch: it is rebuilt if
it is missing, or if the clock was set back.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO, Arrays


@jit
def maintenance_is_over(sim: Arrays) -> bool:
    """Return whether no maintenance window is left."""
    return sim.clock.changes_done == len(sim.change)


@jit
def follow_clock(sim: Arrays) -> None:
    """Update the list of windows that are under way now."""
    now = sim.clock.now
    windows = sim.windows
    if windows.valid == 1 and windows.at == now:
        return
    if windows.valid == 0 or windows.at > now:
        windows.begun = 0
        windows.under_way = 0
    windows.valid = 1
    windows.at = now
    listed = ZERO
    for i in range(windows.under_way):
        m = sim.under_way[i]
        if sim.window[m].end > now:
            sim.under_way[listed] = m
            listed += 1
    while windows.begun < len(sim.window) and sim.window[windows.begun].start <= now:
        if sim.window[windows.begun].end > now:
            sim.under_way[listed] = windows.begun
            listed += 1
        windows.begun += 1
    windows.under_way = listed


@jit
def windows_left(sim: Arrays) -> int:
    """Return how many windows are not over."""
    if len(sim.window) == 0:
        return ZERO
    follow_clock(sim)
    return sim.windows.under_way + len(sim.window) - sim.windows.begun


@jit
def window_left(i: int, sim: Arrays) -> int:
    """Return the row of one of the windows that are not over.

    Windows under way come first, then the others by begin.
    """
    windows = sim.windows
    return sim.under_way[i] if i < windows.under_way else windows.begun + i - windows.under_way


@jit
def windows_before(time: int, sim: Arrays) -> int:
    """Return how many of the windows that are not over begin before a future time.

    These are the first ones in the order of `window_left`.
    """
    left = windows_left(sim)
    if left == 0:
        return ZERO
    low = sim.windows.under_way
    high = left
    while low < high:
        middle = (low + high) // 2
        if sim.window[window_left(middle, sim)].start < time:
            low = middle + 1
        else:
            high = middle
    return low
