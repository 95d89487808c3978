"""Inputs of summaries from job times in whole milliseconds, in one loop.

Exact sums of floating-point numbers, independent of their order and grouping.

Sums over time of levels that hold between events, in whole ms without rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.jit import Kernel, jit

__all__ = [
    "ADD_LABELLED",
    "ADD_NUMBERS",
    "COUNT_LEADING",
    "ELIGIBLE",
    "END",
    "EVENT_KEYS",
    "HIGH_BITS",
    "INFINITE",
    "LEADING_BITS",
    "LEFT",
    "LIMBS",
    "LIMB_BITS",
    "NOT_NUMBERS",
    "START",
    "START_UNQUEUED",
    "SUMS",
    "SUM_LEVELS",
    "TAKE_LEADING",
    "UNTIL_CARRIED",
    "add_one",
    "carry_limbs",
]

_Ints = npt.NDArray[np.int64]

LIMB_BITS = 32
LOW = (1 << LIMB_BITS) - 1
_SIZE = (1 << 63) - 1
INFINITE, NOT_NUMBERS = 67, 68
LIMBS = 69
"""Number of whole numbers of a sum.

The first 67 are limbs, each worth 2^32 times the one before it; the first counts units of the least
double (2^-1074). After them follow the sum of the signs of infinite numbers, and the number of
NaNs.
"""

UNTIL_CARRIED = 1 << 9
"""Number of additions before a carry.

A number adds less than 2^53 to each of its limbs, so this many fit 62 bits.
"""


@jit
def add_at(place: int, value: int, limbs: npt.NDArray[np.int64], base: int) -> None:
    """Add a whole number below 2^62 to a sum, shifted left by ``place`` bits."""
    limb, shift = base + (place >> 5), place & 31
    limbs[limb] += (value & LOW) << shift
    limbs[limb + 1] += (value >> LIMB_BITS) << shift


@jit
def add_one(one: int, limbs: npt.NDArray[np.int64], base: int) -> None:
    """Add a number of any size to a sum."""
    exponent = (one >> 52) & 0x7FF
    mantissa = one & 0xFFFFFFFFFFFFF
    sign = 1 | (one >> 63)
    if exponent == 0x7FF:
        if mantissa == 0:
            limbs[base + INFINITE] += sign
        else:
            limbs[base + NOT_NUMBERS] += 1
        return
    if exponent == 0:
        exponent += 1
    else:
        mantissa |= 1 << 52
    limb, shift = base + ((exponent - 1) >> 5), (exponent - 1) & 31
    limbs[limb] += sign * ((mantissa << shift) & LOW)
    limbs[limb + 1] += sign * (mantissa >> (32 - shift))


@jit
def carry_limbs(limbs: npt.NDArray[np.int64], base: int) -> None:
    """Carry, so that each limb of a sum is below 2^32."""
    for limb in range(base, base + INFINITE - 1):
        limbs[limb + 1] += limbs[limb] >> LIMB_BITS
        limbs[limb] &= LOW


def add_numbers(
    bits: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    limbs: npt.NDArray[np.int64],
) -> None:
    """Add numbers to sums, each exactly.

    This is the small superaccumulator of Neal (2015, arXiv:1505.05571). If the numbers of a block
    differ by less than 2^63 in size, three limbs from the least one take them, without a branch for
    each.

    Args:
        bits: Bits of the numbers [numbers].
        begins: Index of the first number of each sum [sums].
        ends: Index after the last number of each sum [sums].
        limbs: The sums, one after the other [sums * LIMBS].
    """
    for row in range(len(ends)):
        begin, base = begins[row], row * LIMBS
        while begin < ends[row]:
            until = min(ends[row], begin + UNTIL_CARRIED)
            block = bits[begin:until]
            least, most = 0x7FF, 1
            for at in range(len(block)):
                exponent = (block[at] >> 52) & 0x7FF
                least = min(least, exponent if (block[at] & _SIZE) != 0 else 0x7FF)
                most = max(most, exponent)
            if least > 0 and most < 0x7FF and most - least <= 62:
                first, second, third = np.int64(0), np.int64(0), np.int64(0)
                for at in range(len(block)):
                    one = block[at]
                    exponent = (one >> 52) & 0x7FF
                    mantissa = (one & 0xFFFFFFFFFFFFF) | (1 << 52)
                    # Only 0 is below the least.
                    mantissa = mantissa if exponent > 0 else np.int64(0)
                    place = exponent - least if exponent > 0 else np.int64(0)
                    shift, above = place & 31, -(place >> 5)
                    low = (mantissa << shift) & LOW
                    high = mantissa >> (32 - shift)
                    minus = one >> 63
                    low, high = (low ^ minus) - minus, (high ^ minus) - minus
                    first += low & ~above
                    second += (high & ~above) + (low & above)
                    third += high & above
                add_at(least - 1, first, limbs, base)
                add_at(least + 31, second, limbs, base)
                add_at(least + 63, third, limbs, base)
            else:
                for at in range(len(block)):
                    add_one(block[at], limbs, base)
            carry_limbs(limbs, base)
            begin = until


ADD_NUMBERS = Kernel(add_numbers, "void(int64[::1], int64[::1], int64[::1], int64[::1])")


SUMS = (
    "up", "used", "present", "used_loaded", "present_loaded", "queue", "queued_nodes", "loaded",
)  # fmt: skip
"""Sums of levels times ms; see docs/reference/metrics.md."""

HIGH_BITS = 32
_LOW = (1 << HIGH_BITS) - 1
_MOST = 1 << 62


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
    left, step = room, np.int64(0)
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


SUM_LEVELS = Kernel(
    sum_levels,
    "void(int64[::1], int64[::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int64[::1])",
)
"""`sum_levels`, compiled."""


ELIGIBLE, START, END, LEFT, START_UNQUEUED = range(5)
"""Kinds of events; see `hpctwin.metrics.levels`."""

LEADING_BITS = 14
"""Number of leading bits by which numbers are counted.

They are the sign, the exponent, and the first two bits of the mantissa.
"""

_SHIFT = 64 - LEADING_BITS
_BINS = 1 << LEADING_BITS


def event_keys(
    eligible: _Ints,
    start: _Ints,
    end: _Ints,
    nodes: _Ints,
    rejected: npt.NDArray[np.bool_],
    within: _Ints,
    node_bits: int,
    kind_bits: int,
    key: _Ints,
) -> int:
    """Write events of jobs as one number each, and return the number of events.

    A number consists of time, kind and nodes.

    Args:
        eligible, start, end: Times in ms, -1 if it did not happen [jobs].
        nodes: Nodes of each job [jobs].
        rejected: Whether it is never in the queue [jobs].
        within: Interval of events, without its begin, ms [2].
        node_bits: Number of bits for the nodes.
        kind_bits: Number of bits for the kind.
        key: Output [3 * jobs or more].
    """
    after, until = within[0], within[1]
    shift = node_bits + kind_bits
    at = 0
    for j in range(len(eligible)):
        started, ended = start[j] >= 0, end[j] >= 0
        queued = not rejected[j] and eligible[j] >= 0
        # Recorded starts may precede the submission, and cancellations eligibility.
        if started:
            queued = queued and start[j] >= eligible[j]
        elif ended:
            queued = queued and end[j] >= eligible[j]
        if queued and after < eligible[j] <= until:
            key[at] = (eligible[j] << shift) + (ELIGIBLE << node_bits) + nodes[j]
            at += 1
        if started and after < start[j] <= until:
            kind = START if queued else START_UNQUEUED
            key[at] = (start[j] << shift) + (kind << node_bits) + nodes[j]
            at += 1
        if ended and (started or queued) and after < end[j] <= until:
            kind = END if started else LEFT
            key[at] = (end[j] << shift) + (kind << node_bits) + nodes[j]
            at += 1
    return at


def add_labelled(
    bits: _Ints,
    code: npt.NDArray[np.int32],
    limbs: _Ints,
    counts: _Ints,
) -> None:
    """Add each number to the sum of its label.

    Args:
        bits: Bits of the numbers [numbers].
        code: Label of each; negative for none [numbers].
        limbs: The sums, one after the other; see `exact_sums` [labels * LIMBS].
        counts: Count of the numbers of each label, zeros at first [labels].
    """
    for i in range(len(bits)):
        label = code[i]
        if label < 0:
            continue
        add_one(bits[i], limbs, label * LIMBS)
        counts[label] += 1
        if counts[label] & (UNTIL_CARRIED - 1) == 0:
            carry_limbs(limbs, label * LIMBS)
    for label in range(len(counts)):
        carry_limbs(limbs, label * LIMBS)


@jit
def leading(bits: int) -> int:
    """Return the leading bits of a number as an index that grows with the number."""
    # A negative number with larger bits is smaller.
    one = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    return (one >> _SHIFT) + (_BINS >> 1)


def count_leading(bits: _Ints, counts: _Ints) -> None:
    """Count numbers by their leading bits, in the order of the numbers.

    Args:
        bits: Bits of the numbers [numbers].
        counts: Output: the count of each index, negative numbers first [2^LEADING_BITS].
    """
    for i in range(len(bits)):
        counts[leading(bits[i])] += 1


def take_leading(bits: _Ints, wanted: npt.NDArray[np.bool_], taken: _Ints) -> None:
    """Copy the numbers with given leading bits.

    Args:
        bits: Bits of the numbers [numbers].
        wanted: Whether to copy numbers with each index [2^LEADING_BITS].
        taken: Output [as many as there are].
    """
    at = 0
    for i in range(len(bits)):
        if wanted[leading(bits[i])]:
            taken[at] = bits[i]
            at += 1


# The inputs may be memory of Polars, which must not be written.
EVENT_KEYS = Kernel(
    event_keys,
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], bool[::1], int64[::1], int64, int64, int64[::1])",
)
ADD_LABELLED = Kernel(add_labelled, "void(int64[::1], int32[::1], int64[::1], int64[::1])")
COUNT_LEADING = Kernel(count_leading, "void(int64[::1], int64[::1])")
TAKE_LEADING = Kernel(take_leading, "void(int64[::1], bool[::1], int64[::1])")
