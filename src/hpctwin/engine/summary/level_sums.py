"""Sums over time of levels that hold between events, in whole ms without rounding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit

__all__ = ["HIGH_BITS", "SUMS", "SUM_LEVELS"]

SUMS = (
    "up", "used", "present", "used_loaded", "present_loaded", "queue", "queued_nodes", "loaded",
)  # fmt: skip
"""Sums of levels times ms; see docs/reference/metrics.md."""

HIGH_BITS = 32
_LOW = (1 << HIGH_BITS) - 1
_MOST = 1 << 62

_Ints = npt.NDArray[np.int64]


@jit
def carry_over(part: _Ints, sums: _Ints) -> None:
    """Add partial sums to the totals, each of two numbers."""
    for i in range(len(part)):
        sums[2 * i] += part[i] >> HIGH_BITS
        sums[2 * i + 1] += part[i] & _LOW
        part[i] = 0


@jit
def add_span(width: int, up: int, queue: int, used: int, queued_nodes: int, part: _Ints) -> None:
    """Add the levels of one interval."""
    present = max(up, used)
    part[0] += width * up
    part[1] += width * used
    part[2] += width * present
    part[5] += width * queue
    part[6] += width * queued_nodes
    if queue > 0:
        part[3] += width * used
        part[4] += width * present
        part[7] += width


def sum_levels(
    key: _Ints,
    bits: _Ints,
    changes: _Ints,
    up_from: _Ints,
    up_nodes: _Ints,
    within: _Ints,
    held: _Ints,
    part: _Ints,
    sums: _Ints,
) -> None:
    """Sum the levels between each event and the next.

    Args:
        key: Events in ascending order: time (ms), kind and nodes, each in its bits [events].
        bits: Number of bits of the nodes, and of the kind [2].
        changes: Change of the queue and of running jobs by each kind [kinds, 2].
        up_from: Begin of each step of capacity, ms, ascending; the first holds before it too
            [steps].
        up_nodes: Number of nodes that are up [steps].
        within: Begin and end of the sum, and end of the last event's interval, ms [3].
        held: Jobs in the queue, their nodes, and nodes used; both input and output. The fourth is
            an output: the longest queue that lasted for a time [4].
        part: Zeros before and after the call [sums].
        sums: Output: `SUMS`, each as two numbers, the first in units of 2^`HIGH_BITS` [2 * sums].
    """
    node_bits, kind_bits = bits[0], bits[1]
    first, last = within[0], within[1]
    queue, queued_nodes, used, longest = held[0], held[1], held[2], held[3]
    # No level is ever further from 0, so within ``room`` ms no sum exceeds 62 bits.
    most = abs(queue) + abs(queued_nodes) + abs(used) + 1
    for i in range(len(key)):
        most += 1 + (key[i] & ((1 << node_bits) - 1))
    for i in range(len(up_nodes)):
        most = max(most, abs(up_nodes[i]))
    room = max(_MOST // most, 1)
    left, step = room, int64(0)
    shift = node_bits + kind_bits
    for i in range(len(key)):
        nodes = key[i] & ((1 << node_bits) - 1)
        kind = (key[i] >> node_bits) & ((1 << kind_bits) - 1)
        time = key[i] >> shift
        queue += changes[kind, 0]
        queued_nodes += changes[kind, 0] * nodes
        used += changes[kind, 1] * nodes
        begin = min(max(time, first), last)
        until = key[i + 1] >> shift if i + 1 < len(key) else within[2]
        width = min(max(until, first), last) - begin
        if width <= 0:
            continue
        longest = max(longest, queue)
        while step + 1 < len(up_from) and up_from[step + 1] <= time:
            step += 1
        while width > 0:
            if left == 0:
                carry_over(part, sums)
                left = room
            now = min(width, left)
            add_span(now, up_nodes[step], queue, used, queued_nodes, part)
            width -= now
            left -= now
    carry_over(part, sums)
    held[0], held[1], held[2], held[3] = queue, queued_nodes, used, longest


_I = types.Array(int64, 1, "C")
SUM_LEVELS = Kernel(sum_levels, types.void(_I, _I, types.Array(int64, 2, "C"), *(_I,) * 6))
"""`sum_levels`, compiled."""
