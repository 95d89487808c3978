"""Custom strategies: a function that chooses a cluster for a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from types import FunctionType

import numpy as np

from hpctwin.errors import HpctwinError, PolicyError, in_brief
from hpctwin.facility.strategy import Strategy, View

__all__ = ["FunctionStrategy", "function_strategy"]

Pick = Callable[[int, list[int], View], int]


@dataclass(frozen=True)
class FunctionStrategy(Strategy):
    """The cluster that a function chooses, if a job may go to several.

    Args:
        text: Name of the strategy: file and function, as in ``my.py:f``.
        function: ``(row, options, view) -> cluster``: see `Strategy.pick`.
    """

    text: str
    function: Pick

    @property
    def name(self) -> str:
        """File and function."""
        return self.text

    def pick(self, row: int, options: list[int], state: View) -> int:
        """Return the cluster that the function chooses.

        Raises:
            PolicyError: The function fails, or returns another value than one of the options.
        """
        state.advance_all()
        job = state.workload.job_id[row]
        try:
            chosen = self.function(row, list(options), state)
        except HpctwinError:
            raise
        except Exception as error:  # any error of a user's code
            raise PolicyError(f"strategy {self.text!r} fails for job {job}: {error!r}") from error
        whole = isinstance(chosen, int | np.integer) and not isinstance(chosen, bool)
        if not whole or chosen not in options:
            raise PolicyError(
                f"strategy {self.text!r} returns {in_brief(chosen)} for job {job}; it must return one "
                f"of its options, here {', '.join(map(str, options))}"
            )
        return int(chosen)


def function_strategy(function: object, text: str) -> FunctionStrategy:
    """Return a function as a strategy.

    Args:
        function: ``(row, options, view) -> cluster``.
        text: Name of the strategy.

    Raises:
        PolicyError: It is not a function of three arguments.
    """
    if not callable(function):
        raise PolicyError(f"{text} is {type(function).__name__}, not a function or a Strategy")
    try:
        signature(function).bind(0, [], None)
    except TypeError as error:
        where = ""
        if isinstance(function, FunctionType):
            where = f"{function.__code__.co_filename}, line {function.__code__.co_firstlineno}: "
        raise PolicyError(
            f"{where}strategy {text!r} must take three arguments, (row, options, view)"
        ) from error
    return FunctionStrategy(text, function)
