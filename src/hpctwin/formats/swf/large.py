"""Large logs, read in one pass by a compiled function, which is worth loading for them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.formats.swf.records import FIELDS, WHOLE, Records

__all__ = ["LARGE", "parse_large"]

LARGE = 1 << 25
"""Bytes; with fewer, loading the function takes longer than Polars takes to read the log."""

_LINES = 1 << 12  # at a time, so that they lie in a core's cache
_SHORTEST = 2 * len(FIELDS)  # a line has a digit and a blank for each field


class _Column:
    """What a field has in all lines so far; one that is -1 throughout takes no room.

    Args:
        most: so many lines at most.
        dtype: of the numbers.
    """

    def __init__(self, most: int, dtype: type[np.generic]) -> None:
        self._most = most
        self._dtype = dtype
        self._values: npt.NDArray[Any] | None = None

    def put(self, first: int, values: npt.NDArray[Any]) -> None:
        """The next lines, from number ``first`` on."""
        if self._values is None:
            if (values == -1).all():
                return
            self._values = np.empty(self._most, self._dtype)
            self._values[:first] = -1
        self._values[first : first + len(values)] = values

    def of(self, lines: int) -> npt.NDArray[Any]:
        """All that was put."""
        if self._values is None:
            return np.broadcast_to(np.array(-1, self._dtype), lines)
        return self._values[:lines]


def parse_large(body: bytes | memoryview) -> Records | None:
    """As `hpctwin.formats.swf.records.parse_fast`, of lines whose ends and blanks are as they are.

    Args:
        body: lines without comments.

    Returns:
        The records; None if any line is not in order, or has a number that is not written as most are.
    """
    # Who reads a small log does not wait for Numba to be loaded.
    from hpctwin.engine.containers.number_table import NOT_IN_ORDER, READ_LINES
    from hpctwin.engine.operations.loading import prepare

    prepare([READ_LINES])
    text = np.frombuffer(body, np.uint8)
    most = len(text) // _SHORTEST + 1
    columns = {f: _Column(most, np.int64 if f in WHOLE else np.float64) for f in FIELDS}
    numbers = np.empty((len(FIELDS), _LINES))
    exact = np.empty((len(WHOLE), _LINES), np.int64)
    whole = np.array([field in WHOLE for field in FIELDS], np.int8)
    found = np.zeros(2, np.int64)
    first = 0
    while lines := READ_LINES(text, int(found[0]), whole, numbers, exact, found):
        if lines == NOT_IN_ORDER:
            return None
        tables = {**dict(zip(FIELDS, numbers, strict=True)), **dict(zip(WHOLE, exact, strict=True))}
        for field, column in columns.items():
            column.put(first, tables[field][:lines])
        first += lines
    return Records({field: column.of(first) for field, column in columns.items()}, int(found[1]))
