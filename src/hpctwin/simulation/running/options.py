"""Options that functions pass on to `Simulation`, for type checkers and ``help``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar

import numpy.typing as npt

from hpctwin.policies import OrderingLike, PlacementLike, PowerLike
from hpctwin.simulation.state.base import SimulationBase
from hpctwin.simulation.state.sizing import SizingHook

__all__ = ["RunOptions", "SimulationOptions", "spelled_out"]

F = TypeVar("F", bound=Callable[..., Any])


class RunOptions(TypedDict, total=False):
    """Options of how a simulation runs, whatever its policy; see `Simulation`."""

    overrun: Literal["terminate", "continue"]
    on_dependency_failure: Literal["cancel", "hold"]
    expected_s: npt.ArrayLike | None
    risk: npt.ArrayLike | None
    begin_s: npt.ArrayLike | None
    track_nodes: bool
    log: bool
    seed: int


class SimulationOptions(RunOptions, total=False):
    """All options that `Simulation` takes by name."""

    order: OrderingLike | None
    reservations: int | None
    candidates: OrderingLike | None
    placement: PlacementLike | None
    power: PowerLike | None
    settings: Mapping[str, Any] | None
    sizing: SizingHook | None


def spelled_out(options: type[RunOptions]) -> Callable[[F], F]:
    """Return a decorator that puts the options of ``**options`` into a signature.

    Args:
        options: The options; their defaults are those of `Simulation`.
    """
    named = [
        parameter
        for name, parameter in inspect.signature(SimulationBase.__init__).parameters.items()
        if name in options.__annotations__
    ]

    def name_them(function: F) -> F:
        signature = inspect.signature(function)
        own = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return function

    return name_them
