"""Data kept from one present of a cluster to the next; only changes are read."""

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
"""Maximum number of spare simulations: as many as run at once in threads."""


class Spare:
    """Finished simulations whose memory is reused for new ones.

    A fork into one takes half as long as a fork into new memory.
    """

    def __init__(self) -> None:
        self._left: deque[Simulation] = deque(maxlen=MOST_SPARE)

    def fork(self, simulation: Simulation, policy: Policy) -> Simulation:
        """Return a fork under a policy; see `Simulation.fork`.

        The caller has it exclusively until it gives it back.
        """
        try:
            into = self._left.pop()
        except IndexError:
            into = None
        return simulation.fork(policy, into=into)

    def give_back(self, simulation: Simulation) -> None:
        """Return a simulation for reuse; the caller must not use it or its arrays again."""
        self._left.append(simulation)


@dataclass
class Reused:
    """Data that successive presents of one cluster share; results never depend on it.

    Args:
        rows: Jobs and nodes read so far.
        base: Simulation of the last present, whose data of the cluster are reused.
        spare: Finished simulations whose memory is reused.
    """

    rows: JobRows = field(default_factory=JobRows)
    base: Simulation | None = None
    spare: Spare = field(default_factory=Spare)
