"""Sums over time of what holds from event to event, in whole milliseconds and without rounding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit

__all__ = ["HIGH_BITS", "SUMS", "SUM_LEVELS"]

SUMS = (
    "up", "used", "present", "used_loaded", "present_loaded", "queue", "queued_nodes", "loaded",
)  # fmt: skip
"""What is summed, times ms; see docs/metrics.md."""

HIGH_BITS = 32
_LOW = (1 << HIGH_BITS) - 1
_MOST = 1 << 62

_Ints = npt.NDArray[np.int64]


@jit
def carry_over(part: _Ints, sums: _Ints) -> None:
    """Add what has been summed to the whole, each of two numbers."""
    for i in range(len(part)):
        sums[2 * i] += part[i] >> HIGH_BITS
        sums[2 * i + 1] += part[i] & _LOW
        part[i] = 0


@jit
def add_span(width: int, up: int, queue: int, used: int, queued_nodes: int, part: _Ints) -> None:
    """Add what holds for a time."""
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
    """Go through all events, and sum what holds after each until the next.

    Args:
        key: events, rising: time (ms), kind, nodes, each in its bits [events].
        bits: of the nodes, and of the kind [2].
        changes: by how much each kind changes jobs in the queue, and jobs that run [kinds, 2].
        up_from: from when, ms, rising; the first holds before, too [steps].
        up_nodes: so many nodes are up [steps].
        within: from when, until when it is summed, and when the last event's span ends, ms [3].
        held: jobs in the queue, their nodes, nodes used: before, and gets what holds in the end; and gets
            the longest queue that held for a time [4].
        part: zeros, and then again [sums].
        sums: gets `SUMS`, each as two numbers, of which the first counts in 2^`HIGH_BITS` [2 * sums].
    """
    node_bits, kind_bits = bits[0], bits[1]
    first, last = within[0], within[1]
    queue, queued_nodes, used, longest = held[0], held[1], held[2], held[3]
    # No level ever is further from 0, so that in so many ms no sum goes beyond 62 bits.
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
