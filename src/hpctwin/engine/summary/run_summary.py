"""All that a summary asks of a run in whole milliseconds, in one call without Python's lock.

Events are put in order by a radix sort of their times, and ranks are found by counting in bins between the
least and the most, which are narrowed to the bin that has it: neither compares one number with another.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import float64, int64, types

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.state.layout import REJECTED, UNSUBMITTED
from hpctwin.engine.summary import exact_sums, job_figures, level_sums
from hpctwin.engine.summary.exact_sums import (
    LIMBS,
    UNTIL_CARRIED,
    add_one,
    bits_of,
    carry_limbs,
    rounded_over,
)
from hpctwin.engine.summary.level_sums import SUMS

__all__ = [
    "BINS", "COUNTS", "FIRST", "LAST", "LEVELS", "LONGEST", "SHARES", "STATES", "SUM_UP", "USERS", "USERS_AT",
]  # fmt: skip

SHARES = 0.5, 0.95, 0.99
"""Of which quantiles are told."""

ROWS = 7
"""Rows of `hpctwin.metrics.jobs.jobs.ROWS`; quantiles are computed of the second to the sixth."""
FIRST_SPREAD, LAST_SPREAD, BOUNDED = 1, 5, 4
USERS_AT = ROWS + (LAST_SPREAD - FIRST_SPREAD + 1) * (len(SHARES) + 1)
"""Where in what is told users begin."""

STATES = int(UNSUBMITTED)  # what may become of a job is below
FIRST = STATES + ROWS
LAST, USERS, HELD, WORDS, PART, LEVELS = (FIRST + i for i in (1, 2, 3, 7, 10, 10 + len(SUMS)))
LONGEST = HELD + 3
COUNTS = LEVELS + 2 * len(SUMS)
"""Words of what is counted: jobs by state, figures by row, the first submission and last end, users of whom
any job ran, what is held in the end with the longest queue, and sums over time, with some more memory."""

_BIN_BITS = 11
BINS = 1 << _BIN_BITS
"""Words of memory that are needed to count."""

_FEW = 24  # so few numbers are put in order
_SIGNLESS = (1 << 63) - 1
_MOST = _SIGNLESS  # above all numbers
_NO_NUMBER = 0x7FF8000000000000

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

served_figures = jit(job_figures.served_figures)
event_keys = jit(job_figures.event_keys)
add_numbers = jit(exact_sums.add_numbers)
sum_levels = jit(level_sums.sum_levels)


@jit
def move_by_digit(key: _Ints, moved: _Ints, bins: _Ints, least: int, shift: int, mask: int) -> None:
    """Move events to where they belong by a digit of theirs; those alike stay in their order."""
    bins[: mask + 1] = 0
    for i in range(len(key)):
        bins[((key[i] - least) >> shift) & mask] += 1
    before = 0
    for b in range(mask + 1):
        count = bins[b]
        bins[b] = before
        before += count
    for i in range(len(key)):
        b = ((key[i] - least) >> shift) & mask
        moved[bins[b]] = key[i]
        bins[b] += 1


@jit
def sort_by_time(key: _Ints, spare: _Ints, bins: _Ints, shift: int) -> None:
    """Put events in order of what is above so many of their bits.

    Args:
        key: the events [events].
        spare: as much memory [events].
        bins: some more [BINS].
        shift: so many bits are not looked at.
    """
    least, most = _MOST, -_MOST
    for i in range(len(key)):
        least, most = min(least, key[i]), max(most, key[i])
    least = (least >> shift) << shift
    bits = bits_of(max(most - least, 0) >> shift)
    passes = (bits + _BIN_BITS - 1) // _BIN_BITS
    width = (bits + passes - 1) // max(passes, 1)
    for done in range(passes):
        at, mask = shift + done * width, (1 << width) - 1
        if done & 1 == 0:
            move_by_digit(key, spare, bins, least, at, mask)
        else:
            move_by_digit(spare, key, bins, least, at, mask)
    if passes & 1 == 1:
        for i in range(len(key)):
            key[i] = spare[i]


@jit
def tell_users(
    user: npt.NDArray[np.int32],
    which: npt.NDArray[np.bool_],
    bits: _Ints,
    limbs: _Ints,
    counts: _Ints,
    told: _Floats,
) -> int:
    """The mean of each user's numbers; gives how many users have any.

    Args:
        user: whose each job is; negative for nobody's; not looked at if there are no users [jobs].
        which: jobs that have a number [jobs].
        bits: of these numbers, one behind the other [numbers or more].
        limbs: zeros [users * LIMBS].
        counts: zeros; gets how many numbers each has [users].
        told: gets the means [users].
    """
    if len(counts) == 0:
        return 0
    at = 0
    for j in range(len(which)):
        if not which[j]:
            continue
        label = user[j]
        if label >= 0:
            add_one(bits[at], limbs, label * LIMBS)
            counts[label] += 1
            if counts[label] & (UNTIL_CARRIED - 1) == 0:
                carry_limbs(limbs, label * LIMBS)
        at += 1
    found = 0
    for label in range(len(counts)):
        if counts[label] > 0:
            carry_limbs(limbs, label * LIMBS)
            told[found] = rounded_over(limbs, label * LIMBS, counts[label])
            found += 1
    return found


@jit
def put_in_order(bits: _Ints, values: _Floats) -> None:
    """Make the bits of numbers whole numbers that rise as they do; what is no number is the last."""
    for i in range(len(bits)):
        if values[i] != values[i]:
            bits[i] = _NO_NUMBER
        else:
            bits[i] ^= (bits[i] >> 63) & _SIGNLESS


@jit
def extremes(numbers: _Ints) -> tuple[int, int]:
    """The least and the most."""
    least, most = _MOST, -_MOST
    for i in range(len(numbers)):
        least, most = min(least, numbers[i]), max(most, numbers[i])
    return least, most


@jit
def count_in_bins(numbers: _Ints, least: int, most: int, bins: _Ints) -> int:
    """Count numbers between two in bins as wide as each other; gives the bits of half a bin's width."""
    # The difference may have no room, that of their halves has.
    half = least >> 1
    shift = max(bits_of((most >> 1) - half) - _BIN_BITS, 0)
    bins[: (((most >> 1) - half) >> shift) + 1] = 0
    for i in range(len(numbers)):
        bins[((numbers[i] >> 1) - half) >> shift] += 1
    return shift


@jit
def take_bin(numbers: _Ints, half: int, shift: int, wanted: int, taken: _Ints) -> int:
    """Take the numbers of a bin, of which there is one; how many they are. They may be taken in place."""
    count = 0
    for i in range(len(numbers)):
        number = numbers[i]
        taken[count] = number
        count += 1 if ((number >> 1) - half) >> shift == wanted else 0
    return count


@jit
def put_few_in_order(numbers: _Ints) -> None:
    """Sort few numbers."""
    for i in range(1, len(numbers)):
        number, at = numbers[i], i
        while at > 0 and numbers[at - 1] > number:
            numbers[at] = numbers[at - 1]
            at -= 1
        numbers[at] = number


@jit
def pair_of_rank(numbers: _Ints, rank: int, bins: _Ints) -> tuple[int, int]:
    """The number of a rank, from 0 on, and the next one; that may be `_MOST` where it is another.

    Args:
        numbers: they, which are lost [numbers].
        rank: the rank.
        bins: memory [BINS].
    """
    while len(numbers) > _FEW:
        least, most = extremes(numbers)
        if least == most:
            return least, least if rank + 1 < len(numbers) else _MOST
        shift, found = count_in_bins(numbers, least, most, bins), int64(0)
        if most >> 1 == least >> 1:
            count = 0
            for i in range(len(numbers)):
                count += 1 if numbers[i] == least else 0
            first = least if rank < count else most
            if rank + 1 == len(numbers):
                return first, _MOST
            return first, least if rank + 1 < count else most
        while rank >= bins[found]:
            rank -= bins[found]
            found += 1
        numbers = numbers[: take_bin(numbers, least >> 1, shift, found, numbers)]
    put_few_in_order(numbers)
    return numbers[rank], numbers[rank + 1] if rank + 1 < len(numbers) else _MOST


@jit
def least_above(numbers: _Ints, value: int) -> int:
    """The least of the numbers above one."""
    least = _MOST
    for i in range(len(numbers)):
        least = min(least, numbers[i] if numbers[i] > value else _MOST)
    return least


@jit
def tell_quantiles(
    values: _Floats,
    bits: _Ints,
    spare: _Floats,
    spare_bits: _Ints,
    bins: _Ints,
    told: _Floats,
) -> None:
    """Quantiles of numbers, interpolated linearly between neighbours, and the largest of them.

    Args:
        values: the numbers, which are lost [numbers].
        bits: the same memory as whole numbers [numbers].
        spare: memory for as many [numbers, 2 or more].
        spare_bits: the same memory as whole numbers.
        bins: some more [2 * BINS].
        told: gets them [SHARES + 1].
    """
    put_in_order(bits, values)
    least, most = extremes(bits)
    shift = count_in_bins(bits, least, most, bins)
    for i in range(len(SHARES)):
        place = SHARES[i] * (len(values) - 1)
        low = int64(math.floor(place))
        rank, found = low, int64(0)
        while rank >= bins[found]:
            rank -= bins[found]
            found += 1
        size = take_bin(bits, least >> 1, shift, found, spare_bits)
        first, then = pair_of_rank(spare_bits[:size], rank, bins[BINS:])
        if place == low:
            then = first
        elif then == _MOST:
            then = least_above(bits, first)
        spare_bits[0] = first ^ ((first >> 63) & _SIGNLESS)
        spare_bits[1] = then ^ ((then >> 63) & _SIGNLESS)
        # Neighbours may both be infinite.
        told[i] = spare[0]
        if spare[0] != spare[1]:
            told[i] += (spare[1] - spare[0]) * (place - low)
    spare_bits[0] = most ^ ((most >> 63) & _SIGNLESS)
    told[len(SHARES)] = spare[0]


def sum_up(
    submit: _Ints,
    eligible: _Ints,
    start: _Ints,
    end: _Ints,
    nodes: _Ints,
    state: npt.NDArray[np.int8],
    user: npt.NDArray[np.int32],
    others: _Ints,
    bits: _Ints,
    changes: _Ints,
    up_from: _Ints,
    up_nodes: _Ints,
    most_ms: int,
    tau_s: float,
    table: npt.NDArray[np.float64],
    table_bits: _Ints,
    which: npt.NDArray[np.bool_],
    key: _Ints,
    limbs: _Ints,
    of_user: _Ints,
    counts: _Ints,
    told: _Floats,
) -> bool:
    """Sum up a run; False if a time has no room in an event.

    Args:
        submit, eligible, start, end: ms, -1 where it did not happen [jobs].
        nodes: of each [jobs].
        state: what became of each [jobs].
        user: whose each is; negative for nobody's; not looked at if there are no users [jobs].
        others: further events, see `level_sums.sum_levels` [others].
        bits: of an event, its nodes' and its kind's [2].
        changes: as of `level_sums.sum_levels`.
        up_from: as there [steps].
        up_nodes: as there [steps].
        most_ms: below so many ms a time has room.
        tau_s: the bound of bounded slowdowns.
        table: memory for the figures of jobs [`ROWS` + 1, jobs, 2 or more].
        table_bits: the same memory as whole numbers.
        which: memory [jobs].
        key: memory for all events, twice, and 2 * `BINS` more.
        limbs: zeros, for the sums of figures and of users [(`ROWS` + users) * LIMBS].
        of_user: zeros; gets how many jobs ran of each [users].
        counts: zeros; gets `COUNTS`.
        told: gets of the figures the means, or sums of those that no quantiles are told of; of the others
            the quantiles and the largest; and the mean bounded slowdown of each user of whom any job ran.
    """
    states, ends = counts[:STATES], counts[STATES : STATES + ROWS]
    first, last, most = int64(0), int64(-1), int64(0)
    for j in range(len(submit)):
        states[state[j]] += 1
        which[j] = state[j] == REJECTED
        first = submit[j] if j == 0 else min(first, submit[j])
        last = max(last, end[j] if start[j] >= 0 else last)
        most = max(most, max(eligible[j], max(start[j], end[j])))
    if most >= most_ms:
        return False
    counts[FIRST], counts[LAST] = first, last
    words = counts[WORDS : WORDS + 3]
    words[0], words[1] = -most_ms, most_ms
    events = event_keys(eligible, start, end, nodes, which, words, bits[0], bits[1], key)
    for i in range(len(others)):
        key[events + i] = others[i]
    events += len(others)
    room = (len(key) - 2 * BINS) // 2
    bins = key[2 * room :]
    if last >= 0:
        sort_by_time(key[:events], key[room : room + events], bins, bits[0] + bits[1])
        words[0], words[1], words[2] = first, max(first, last), max(first, last)
        sum_levels(
            key[:events],
            bits,
            changes,
            up_from,
            up_nodes,
            words,
            counts[HELD : HELD + 4],
            counts[PART : PART + len(SUMS)],
            counts[LEVELS : LEVELS + 2 * len(SUMS)],
        )
    served_figures(submit, start, end, nodes, which, tau_s, table, ends)
    width = table.shape[1]
    begins, until = bins[:ROWS], bins[ROWS : 2 * ROWS]
    for row in range(ROWS):
        begins[row], until[row] = row * width, row * width + ends[row]
    add_numbers(table_bits, begins, until, limbs)
    for row in range(ROWS):
        spread = FIRST_SPREAD <= row <= LAST_SPREAD
        over = max(ends[row], 1) if spread else int64(1)
        told[row] = rounded_over(limbs, row * LIMBS, over)
    counts[USERS] = tell_users(
        user, which, table_bits[BOUNDED * width :], limbs[ROWS * LIMBS :], of_user, told[USERS_AT:]
    )
    spare, spare_bits = table[ROWS], table_bits[ROWS * width :]
    for row in range(FIRST_SPREAD, LAST_SPREAD + 1):
        if ends[row] > 0:
            begin = row * width
            at = ROWS + (row - FIRST_SPREAD) * (len(SHARES) + 1)
            tell_quantiles(
                table[row][: ends[row]],
                table_bits[begin : begin + ends[row]],
                spare,
                spare_bits,
                bins,
                told[at : at + len(SHARES) + 1],
            )
    return True


_GIVEN = types.Array(int64, 1, "C", readonly=True)
_INTS = types.Array(int64, 1, "C")
_FLOATS = types.Array(float64, 1, "C")

SUM_UP = Kernel(
    sum_up,
    types.boolean(
        *(_GIVEN,) * 5,
        types.Array(types.int8, 1, "C", readonly=True),
        types.Array(types.int32, 1, "C", readonly=True),
        *(_INTS,) * 2,
        types.Array(int64, 2, "C"),
        *(_INTS,) * 2,
        int64,
        float64,
        types.Array(float64, 2, "C"),
        _INTS,
        types.Array(types.boolean, 1, "C"),
        *(_INTS,) * 4,
        _FLOATS,
    ),
)
"""`sum_up`, compiled."""
