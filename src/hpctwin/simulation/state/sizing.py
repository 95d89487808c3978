"""The interface of what decides the sizes of jobs while a simulation runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy

__all__ = ["SizingHook"]


@runtime_checkable
class SizingHook(Protocol):
    """Decides which jobs run, and on how many nodes, such as `hpctwin_sizing.Sizing`.

    Its state is ``simulation.sized``: a value that is replaced and never changed, so that forks may
    share it. `hpctwin.engine.jobs.resizing` has the engine's operations to change a job's size.
    """

    name: str

    def check(self, cluster: Cluster, policy: Policy, workload: Workload) -> None:
        """Raise a `ConfigError` if the sizes of these jobs cannot be decided."""

    def begin(self, simulation: Any) -> Any:
        """Return the state of a `Simulation` in which nothing has happened."""

    def advance(
        self,
        simulation: Any,
        advance: Callable[..., Any],
        *,
        until_s: float | None,
        instants: int | None,
    ) -> Literal["done", "reached", "stepped"]:
        """Advance a simulation as `Simulation.advance` does; ``advance`` does so without sizing."""

    def expected_ms(self, simulation: Any) -> npt.NDArray[np.int64]:
        """Return the expected runtime of each job on the nodes it asks for, in ms [jobs]."""

    def save(self, simulation: Any) -> dict[str, Any]:
        """Return the state as plain values, for a file."""

    def resume(self, simulation: Any, saved: Mapping[str, Any]) -> None:
        """Continue from the values that `save` returned."""
