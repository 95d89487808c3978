"""How many examples a property test draws, and what each of them is tried with."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import note

ALL = os.environ.get("HPCTWIN_EXAMPLES") == "all"
"""Whether there is time for all: benchmarks/properties.py says so."""


def examples(count: int) -> int:
    """How many of so many are tried here: a third of them."""
    return count if ALL else max(5, count // 3)


def each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a property hold for each value of an argument, on every example.

    It takes less time than a parameter of the test, and tries less: Hypothesis draws other examples for each
    value of a parameter, and here all values have the same ones. Stands below ``given``; a failure notes the
    value.

    Args:
        name: of the argument.
        values: what it is to be.
    """
    tried = tuple(values)

    def over(test: Callable[..., None]) -> Callable[..., None]:
        whole = inspect.signature(test)
        left = [one for one in whole.parameters.values() if one.name != name]
        signature = whole.replace(parameters=left)

        @functools.wraps(test)
        def tested(*arguments: Any, **more: Any) -> None:
            drawn = signature.bind(*arguments, **more).arguments
            for value in tried:
                note(f"{name}: {value!r}")
                test(**{name: value}, **drawn)

        setattr(tested, "__signature__", signature)  # noqa: B010
        return tested

    return over
