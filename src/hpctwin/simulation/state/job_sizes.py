"""What a simulation keeps of jobs whose sizes are decided while they run."""

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
    """What is known of jobs whose sizes are decided.

    Args:
        expected_ms: what the scheduler expects each job to run on the nodes it asks for [jobs].
        done: by row, of each job that has run and was stopped: of its runtime, in ms on its nodes, what it
            had done then.
        again_s: when the sizing wants to be asked again, seconds.
        last_s: when something else than that happened last, seconds.
    """

    expected_ms: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    done: Mapping[int, Fraction] = field(default_factory=dict)
    again_s: float | None = None
    last_s: float = 0.0
