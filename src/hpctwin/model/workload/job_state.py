"""States of a job."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["State"]


class State(IntEnum):
    """State of a job."""

    PENDING = 0  # not submitted yet, or a dependency is open
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    WALLTIME = 4  # ended at its walltime
    NODE_FAILURE = 5
    CANCELLED = 6
    REJECTED = 7  # can never run on this cluster
    DEPENDENCY = 8  # a job it depended on did not complete
    FAILED = 9  # ended by itself, with an error
    PREEMPTED = 10  # ended so that another could start

    @property
    def label(self) -> str:
        """Name as results show it."""
        return self.name.lower()
