"""Exact sums of floating-point numbers, independent of their order and grouping."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.compile.jit import Kernel, jit

__all__ = [
    "ADD_NUMBERS", "INFINITE", "LIMBS", "LIMB_BITS", "NOT_NUMBERS", "UNTIL_CARRIED", "add_one",
    "carry_limbs",
]  # fmt: skip

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
                first, second, third = int64(0), int64(0), int64(0)
                for at in range(len(block)):
                    one = block[at]
                    exponent = (one >> 52) & 0x7FF
                    mantissa = (one & 0xFFFFFFFFFFFFF) | (1 << 52)
                    # Only 0 is below the least.
                    mantissa = mantissa if exponent > 0 else int64(0)
                    place = exponent - least if exponent > 0 else int64(0)
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


_NUMBERS = types.Array(int64, 1, "C")

ADD_NUMBERS = Kernel(add_numbers, types.void(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS))
