"""Large logs, read in one pass by a compiled function.

Only for large logs is the function worth loading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.formats.swf.records import FIELDS, WHOLE, Records

_LINES = 1 << 12  # at a time, so that they fit into a core's cache
_SHORTEST = 2 * len(FIELDS)  # a line has a digit and a blank for each field


class _Column:
    """A field of all lines so far; if it is -1 throughout, it uses no memory.

    Args:
        most: Largest number of lines.
        dtype: Type of the numbers.
    """

    def __init__(self, most: int, dtype: type[np.generic]) -> None:
        self._most = most
        self._dtype = dtype
        self._values: npt.NDArray[Any] | None = None

    def put(self, first: int, values: npt.NDArray[Any]) -> None:
        """Add the next lines, from number ``first`` on."""
        if self._values is None:
            if (values == -1).all():
                return
            self._values = np.empty(self._most, self._dtype)
            self._values[:first] = -1
        self._values[first : first + len(values)] = values

    def of(self, lines: int) -> npt.NDArray[Any]:
        """Return all values."""
        if self._values is None:
            return np.broadcast_to(np.array(-1, self._dtype), lines)
        return self._values[:lines]


def parse_large(body: bytes | memoryview) -> Records | None:
    """Return the records of lines, as `hpctwin.formats.swf.records.parse_fast` does.

    Line ends and blanks need not be normalized.

    Returns:
        The records; None if any line is malformed, or has a number in an unusual form.
    """
    # Numba is imported here so that reading a small log does not load it.
    from hpctwin.engine.containers.number_table import NOT_IN_ORDER, READ_LINES
    from hpctwin.engine.operations.creation import prepare

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
