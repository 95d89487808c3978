"""What is carried from one present of a cluster to the next: only what has changed is read and made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpctwin.rms.records.columns import JobRows

if TYPE_CHECKING:
    from hpctwin.policies import Policy
    from hpctwin.simulation import Simulation

__all__ = ["Carried", "Spare"]

MOST_SPARE = 16
"""So many simulations are kept at most: as many as run at once in threads."""


class Spare:
    """Simulations that have been run and read: their memory serves for the next ones.

    To fork into one takes half as long as to fork into new memory.
    """

    def __init__(self) -> None:
        self._left: deque[Simulation] = deque(maxlen=MOST_SPARE)

    def fork(self, simulation: Simulation, policy: Policy) -> Simulation:
        """A fork under a policy, as `Simulation.fork`; nobody else has it until it is given back."""
        try:
            into = self._left.pop()
        except IndexError:
            into = None
        return simulation.fork(policy, into=into)

    def give_back(self, simulation: Simulation) -> None:
        """Whoever had it is done with it, and with all arrays of it."""
        self._left.append(simulation)


@dataclass
class Carried:
    """What presents of one cluster have in common; none of it changes what is found.

    Args:
        rows: the jobs and nodes that were read.
        base: the simulation of the last present: what is known of the machine is known to the next as well.
        spare: what presents are forked into.
    """

    rows: JobRows = field(default_factory=JobRows)
    base: Simulation | None = None
    spare: Spare = field(default_factory=Spare)
