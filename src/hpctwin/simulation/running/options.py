"""What functions that run a `Simulation` hand on to it, named one by one for type checkers and for `help`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import numpy.typing as npt

from hpctwin.policies import OrderingLike, PlacementLike, PowerLike
from hpctwin.simulation.state.base import SimulationBase

if TYPE_CHECKING:
    from hpctwin.energy.sizing.sizing import Sizing

__all__ = ["RunOptions", "SimulationOptions", "spelled_out"]

F = TypeVar("F", bound=Callable[..., Any])


class RunOptions(TypedDict, total=False):
    """How a simulation runs, whatever its policy; see `Simulation`."""

    overrun: Literal["terminate", "continue"]
    on_dependency_failure: Literal["cancel", "hold"]
    expected_s: npt.ArrayLike | None
    risk: npt.ArrayLike | None
    begin_s: npt.ArrayLike | None
    track_nodes: bool
    log: bool
    seed: int


class SimulationOptions(RunOptions, total=False):
    """All that `Simulation` takes by name."""

    order: OrderingLike | None
    reservations: int | None
    candidates: OrderingLike | None
    placement: PlacementLike | None
    power: PowerLike | None
    settings: Mapping[str, Any] | None
    sizing: Sizing | None


def spelled_out(options: type[RunOptions]) -> Callable[[F], F]:
    """Let a function's signature name each option that its ``**options`` stands for.

    Args:
        options: which there are; their defaults are those of `Simulation`.
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
