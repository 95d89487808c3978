"""What one present of a cluster reuses from the present before, so that only changes are read and built."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpctwin.rms.records.columns import JobRows

if TYPE_CHECKING:
    from hpctwin.policies import Policy
    from hpctwin.simulation import Simulation

__all__ = ["Reused", "Spare"]

MOST_SPARE = 16
"""At most this many simulations are kept: as many as run at once in threads."""


class Spare:
    """Simulations that have been run and read; the next forks reuse their memory.

    A fork into one takes half as long as a fork into new memory.
    """

    def __init__(self) -> None:
        self._left: deque[Simulation] = deque(maxlen=MOST_SPARE)

    def fork(self, simulation: Simulation, policy: Policy) -> Simulation:
        """Return a fork under a policy, as `Simulation.fork`; it is the caller's until it is given back."""
        try:
            into = self._left.pop()
        except IndexError:
            into = None
        return simulation.fork(policy, into=into)

    def give_back(self, simulation: Simulation) -> None:
        """Take back a fork whose arrays are no longer used."""
        self._left.append(simulation)


@dataclass
class Reused:
    """What presents of one cluster have in common; it changes no result.

    Args:
        rows: The jobs and nodes that were read.
        base: The simulation of the last present; the next one takes over the facts of the cluster.
        spare: Simulations that presents are forked into.
    """

    rows: JobRows = field(default_factory=JobRows)
    base: Simulation | None = None
    spare: Spare = field(default_factory=Spare)
