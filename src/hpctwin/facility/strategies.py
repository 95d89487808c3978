"""Registry of all strategies by name, the parser of their texts, and custom functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np

from hpctwin.errors import ConfigError, HpctwinError, PolicyError, UnknownNameError, in_brief
from hpctwin.facility.guided import Guided
from hpctwin.facility.objective import parse_objective
from hpctwin.facility.strategy import (
    Always,
    LeastLoaded,
    MostFree,
    Peer,
    Random,
    RoundRobin,
    ShortestQueue,
    Siloed,
    Strategy,
    User,
    View,
)
from hpctwin.model.arguments import check_arguments
from hpctwin.policies.registry import is_file, load_function

__all__ = ["GUIDED", "STRATEGIES", "FunctionStrategy", "function_strategy", "parse_strategy"]

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


_EXAMPLE = re.compile(r"([a-z-]+)(?:\((.*)\))?", re.DOTALL)


def _user(share: str, **options: Any) -> Strategy:
    try:
        return User(float(share or 0.6), **options)
    except ValueError as error:
        raise ConfigError(f"user({share}): {share!r} is not a number from 0 to 1") from error


def _always(cluster: str, **options: Any) -> Strategy:
    if not cluster:
        raise ConfigError("strategy 'always' requires a cluster, such as always(theta)")
    return Always(cluster, **options)


def _plain(cls: Callable[..., Strategy]) -> Callable[..., Strategy]:
    def make(argument: str, **options: Any) -> Strategy:
        if argument:
            raise ConfigError(f"strategy {cls().name!r} takes no argument, found {argument!r}")
        return cls(**options)

    return make


def _guided(argument: str, **options: Any) -> Strategy:
    return Guided(parse_objective(argument or "turnaround"), **options)


def _sgs_t(argument: str, **options: Any) -> Strategy:
    if argument:
        raise ConfigError(f"sgs-t takes no argument; write sgs({argument})")
    return _guided("turnaround", **options)


def _earliest_start(argument: str, **options: Any) -> Strategy:
    if argument:
        raise ConfigError(f"strategy 'earliest-start' takes no argument, found {argument!r}")
    return _guided("wait", **{"label": "earliest-start", **options})


STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "siloed": _plain(Siloed),
    "random": _plain(Random),
    "user": _user,
    "round-robin": _plain(RoundRobin),
    "always": _always,
    "shortest-queue": _plain(ShortestQueue),
    "most-free": _plain(MostFree),
    "least-loaded": _plain(LeastLoaded),
    "earliest-start": _earliest_start,
    "peer": _plain(Peer),
    "sgs": _guided,
    "sgs-t": _sgs_t,
}
"""Functions that make a strategy from the text in its parentheses, by name."""

GUIDED = ("earliest-start", "sgs", "sgs-t")
"""Strategies with forecasts, which take the options of `Guided`."""


@check_arguments()
def parse_strategy(text: str, **options: Any) -> Strategy:
    """Make a strategy from its text.

    Examples are ``random``, ``user(0.6)``, ``sgs-t``, ``sgs(wait)``,
    ``sgs(turnaround + 0.5*energy)``, and a function or `Strategy` in a file, ``my.py:f``.

    Args:
        text: The strategy.
        options: Fields of `hpctwin.facility.guided.Guided`, for strategies with forecasts.

    Raises:
        UnknownNameError: There is no such strategy or objective.
        ConfigError: An argument or option is not valid.
        PolicyError: The file or function cannot be used.
    """
    if is_file(text.strip()):
        return _from_file(text.strip())
    match = _EXAMPLE.fullmatch(text.strip())
    if match is None or match[1] not in STRATEGIES:
        raise UnknownNameError("strategy", match[1] if match else text, STRATEGIES)
    name, argument = match[1], (match[2] or "").strip()
    return STRATEGIES[name](argument, **(options if name in GUIDED else {}))


def _from_file(text: str) -> Strategy:
    """Return the strategy that ``my.py:name`` names."""
    name, found = load_function(text, Strategy, "strategy")
    if isinstance(found, type) and issubclass(found, Strategy):
        try:
            found = found()
        except TypeError as error:
            raise PolicyError(f"{name} cannot be made without arguments: {error}") from error
    return found if isinstance(found, Strategy) else function_strategy(found, name)
