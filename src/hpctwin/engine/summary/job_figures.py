"""Inputs of summaries from job times in whole milliseconds, in one loop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.summary.exact_sums import LIMBS, UNTIL_CARRIED, add_one, carry_limbs

__all__ = [
    "ADD_LABELLED", "COUNT_LEADING", "ELIGIBLE", "END", "EVENT_KEYS", "KERNELS", "LEADING_BITS", "LEFT",
    "START", "START_UNQUEUED", "TAKE_LEADING",
]  # fmt: skip

ELIGIBLE, START, END, LEFT, START_UNQUEUED = range(5)
"""Kinds of events; see `hpctwin.metrics.levels`."""

LEADING_BITS = 14
"""Number of leading bits by which numbers are counted.

They are the sign, the exponent, and the first two bits of the mantissa.
"""

_SHIFT = 64 - LEADING_BITS
_BINS = 1 << LEADING_BITS

_Ints = npt.NDArray[np.int64]


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


# Inputs are read-only because they may be memory of Polars.
_GIVEN = types.Array(int64, 1, "C", readonly=True)
_INTS = types.Array(int64, 1, "C")
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
_CODES = types.Array(types.int32, 1, "C", readonly=True)

EVENT_KEYS = Kernel(
    event_keys,
    int64(_GIVEN, _GIVEN, _GIVEN, _GIVEN, _FLAGS, _INTS, int64, int64, _INTS),
)
ADD_LABELLED = Kernel(add_labelled, types.void(_GIVEN, _CODES, _INTS, _INTS))
COUNT_LEADING = Kernel(count_leading, types.void(_GIVEN, _INTS))
TAKE_LEADING = Kernel(take_leading, types.void(_GIVEN, _FLAGS, _INTS))

KERNELS = EVENT_KEYS, ADD_LABELLED, COUNT_LEADING, TAKE_LEADING
