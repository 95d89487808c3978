"""Functions that only kernels can call: they access memory, or call a function at an address.

They are declared here and defined in modules that load Numba, which happens when a function that
uses them is compiled.
"""

from __future__ import annotations

from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "WORDS",
    "Intrinsic",
    "call",
    "call_with_job",
    "copy_row",
    "copy_table",
    "described",
    "go_on",
    "leading_zeros",
    "move_rows",
    "numbers_at",
    "ranked_by",
    "record_at",
    "scored_by",
    "sim_at",
    "view",
]

WORDS = 3
"""Number of words of a descriptor: address, rows, columns."""


class Intrinsic:
    """A function that only kernels can call.

    Args:
        name: Name of its definition, or of the function that makes it.
        arguments: Arguments of the function that makes it.
        module: Module of this package with the definition.
    """

    def __init__(self, name: str, *arguments: Any, module: str = "numba_types") -> None:
        self.where = module, name
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        """Give what it is made of: Numba caches functions by what they use."""
        return partial(Intrinsic, module=self.where[0]), (self.where[1], *self.arguments)

    @cached_property
    def _defined(self) -> Any:
        module, name = self.where
        found = getattr(import_module(f"{__package__}.{module}"), name)
        return found(*self.arguments) if self.arguments else found

    @cached_property
    def _numba_type_(self) -> Any:
        """The type by which Numba knows it."""
        from numba.core.registry import cpu_target

        defined, context = self._defined, cpu_target.typing_context
        context.refresh()  # the definition may be new to it
        return context.resolve_value_type(defined)


sim_at: Any = Intrinsic("sim_at")
"""``(address) -> sim``: return the arrays whose table of descriptors is at an address."""

call: Any = Intrinsic("call")
"""``(address, sim) -> None``: call a hook ``(sim) -> None``."""

call_with_job: Any = Intrinsic("call_with_job")
"""``(address, j, sim) -> None``: call a hook ``(j, sim) -> None``."""

go_on: Any = Intrinsic("go_on")
"""``(address, sim, until, instants) -> code``: call `event_loop.advance`."""

scored_by: Any = Intrinsic("scored_by")
"""``(address, now, view) -> score``: call an ordering."""

ranked_by: Any = Intrinsic("ranked_by")
"""``(address, now, job, node) -> score``: call a placement."""

leading_zeros: Any = Intrinsic("leading_zeros")
"""``(value) -> count``: return how many of the highest bits of a positive integer are 0."""

copy_row: Any = Intrinsic("copy_row")
"""``(target, source, row) -> None``: copy a row to the same row of a table of the same form."""

move_rows: Any = Intrinsic("move_rows")
"""``(table, to, first, last) -> None``: move rows ``first`` to ``last`` (not included)."""

copy_table: Any = Intrinsic("copy_table")
"""``(target, source) -> None``: copy a whole table, or record, into another of the same form."""


def view(record: type) -> Any:
    """Make a function by which kernels see rows of 8-byte numbers as records.

    Args:
        record: Record class; its fields are ``Int`` or ``Real``, one for each column.
    """
    return Intrinsic("view", record)


def record_at(record: type) -> Any:
    """Make a function by which kernels see the record at an address.

    Args:
        record: Record class.
    """
    return Intrinsic("record_at", record)


def numbers_at(dtype: np.dtype[Any]) -> Any:
    """Make a function by which kernels see an array, given its descriptor's address.

    Args:
        dtype: Element type of the array, which has one dimension.
    """
    return Intrinsic("numbers_at", dtype)


def described(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return a descriptor for each row of an array [rows, words].

    The descriptors hold addresses: the array must outlive them.

    Args:
        rows: Contiguous array; each row becomes one described array.
    """
    size = rows[0].size if len(rows) else 0
    found = np.zeros((len(rows), WORDS), np.int64)
    found[:, 0] = rows.ctypes.data + np.arange(len(rows)) * size * rows.itemsize
    found[:, 1] = size
    return found
