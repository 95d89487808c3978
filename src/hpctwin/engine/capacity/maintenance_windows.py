"""Maintenance windows that are not over: a pass looks at no others, and at those to come as far as it must.

The machine's windows lie in the order in which they begin. Those that have begun and are not over are listed
(``sim.under_way``); of the others the first is known. Both follow the clock, so that hundreds of windows that
are past, or far ahead, cost a pass nothing. All of it is scratch: it is found anew where it is not there, or
where the clock has been put back.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO, Arrays


@jit
def maintenance_is_over(sim: Arrays) -> bool:
    """Whether no window is left."""
    return sim.clock.changes_done == len(sim.change)


@jit
def follow_clock(sim: Arrays) -> None:
    """List the windows that are under way now."""
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
    """How many windows are not over."""
    if len(sim.window) == 0:
        return ZERO
    follow_clock(sim)
    return sim.windows.under_way + len(sim.window) - sim.windows.begun


@jit
def window_left(i: int, sim: Arrays) -> int:
    """The row of a window of those left: first those under way, then the others as they begin."""
    windows = sim.windows
    return sim.under_way[i] if i < windows.under_way else windows.begun + i - windows.under_way


@jit
def windows_before(time: int, sim: Arrays) -> int:
    """How many of those left begin before a time to come: the first."""
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
