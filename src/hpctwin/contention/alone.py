"""How long jobs would take if nothing else ran."""

from __future__ import annotations

import math

from hpctwin.contention.network import Network, Position
from hpctwin.contention.phases import Phases, Sharing
from hpctwin.network.platform import Platform

__all__ = ["EmptyNetwork", "contention_slowdown"]


class EmptyNetwork:
    """A network on which each job runs alone.

    Args:
        platform: Hosts and links.
        sharing: How the parts of a job share capacities: ``simgrid`` or ``fair``.
    """

    def __init__(self, platform: Platform, sharing: Sharing) -> None:
        self._network = Network(platform, sharing)

    def run_s(self, phases: Phases, position: Position | None = None) -> float:
        """Return how long a job takes, in seconds; infinity if it never ends.

        Args:
            phases: Its phases.
            position: Where it continues; None for its beginning.
        """
        self._network.start(phases, 0.0, phases, position)
        for ended in self._network.advance(math.inf):
            return ended.time_s
        self._network.stop(phases, 0.0)
        return math.inf


def contention_slowdown(run_s: float, alone_s: float, *, stopped: bool) -> float:
    """Return the run time of a job divided by its run time alone.

    A job that was stopped, such as by its walltime, would also have been stopped alone.

    Args:
        run_s: Run time, in seconds.
        alone_s: Run time of the whole job if nothing else ran, in seconds.
        stopped: Whether something else than its phases ended the job.
    """
    if stopped:
        alone_s = min(alone_s, run_s)
    return run_s / alone_s if alone_s > 0 else 1.0
