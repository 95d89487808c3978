"""State of jobs whose sizes are decided while they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["Sized"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sized:
    """State of the jobs of a simulation with a sizing.

    Args:
        expected_ms: Expected runtime of each job on the nodes it asks for, in ms [jobs].
        done: Work done by each job that ran and was stopped, by row: ms of its runtime on the nodes
            it asks for.
        again_s: Time at which the sizing wants to be called again, in seconds.
        last_s: Time of the last event other than such a call, in seconds.
    """

    expected_ms: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    done: Mapping[int, Fraction] = field(default_factory=dict)
    again_s: float | None = None
    last_s: float = 0.0
