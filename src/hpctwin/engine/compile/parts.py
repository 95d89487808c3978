"""Functions that are compiled into kernels, orderings and placements, never alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, TypeVar

__all__ = ["Part", "jit", "part_of_score"]

F = TypeVar("F", bound=Callable[..., Any])


class Part:
    """A function that is compiled into its callers, never alone.

    Args:
        function: Python function, or another part of it.
        kind: Kind of function that calls it: ``kernel`` or ``score``.
    """

    def __init__(self, function: Any, kind: str) -> None:
        self.py_func: Callable[..., Any] = getattr(function, "py_func", function)
        self._kind = kind
        update_wrapper(self, self.py_func)

    def __reduce__(self) -> tuple[Any, ...]:
        """Give what it is made of: Numba caches functions by what they use."""
        return Part, (self.py_func, self._kind)

    def __call__(self, *given: Any) -> Any:
        """Call the function in Python."""
        return self.py_func(*given)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's form of the function, which it compiles."""
        from hpctwin.engine.compile.compiler import part

        return part(self.py_func, self._kind)

    @property
    def _numba_type_(self) -> Any:
        """The type by which Numba knows it."""
        return self.dispatcher._numba_type_


def jit(function: F) -> F:
    """Mark a function as a part of kernels: compiled into its callers, never alone."""
    part: Any = Part(function, "kernel")
    return part


def part_of_score(function: F) -> F:
    """Mark a function as a part of orderings and placements that call it.

    It does for them what `jit` does for kernels.
    """
    part: Any = Part(function, "score")
    return part
