"""What is carried from one present of a cluster to the next: only what has changed is read and made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpctwin.rms.columns import JobRows

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation

__all__ = ["Carried"]


@dataclass
class Carried:
    """What presents of one cluster have in common; none of it changes what is found.

    Args:
        rows: the jobs and nodes that were read.
        base: the simulation of the last present: what is known of the machine is known to the next as well.
    """

    rows: JobRows = field(default_factory=JobRows)
    base: Simulation | None = None
