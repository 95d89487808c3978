"""Intervals that hold as often as they promise, whatever the forecasts are that they lie around."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Conformal"]

FloatArray = npt.NDArray[np.float64]


class Conformal:
    """What the next residual will be, by the last ones: online conformal prediction.

    Both ends of the interval are quantiles of the last residuals (split conformal prediction; asymmetric as
    in Romano, Patterson, Candès 2019, *Conformalized Quantile Regression*, §3), each at a level that is moved
    after every miss and every hit, so that over time either end is missed as often as it should be even if
    residuals drift (Gibbs, Candès 2021, *Adaptive Conformal Inference Under Distribution Shift*, eq. 2).

    Args:
        coverage: the share that should lie in the interval; below and above it the same shares are left.
        window: so many residuals are remembered.
        step: how far a level is moved after a miss (γ).
    """

    def __init__(self, coverage: float, window: int, step: float) -> None:
        self.target = (1.0 - coverage) / 2.0
        self.step = step
        self.residuals: deque[float] = deque(maxlen=window)
        self.below = self.above = self.target
        self._sorted: FloatArray | None = None

    def __len__(self) -> int:
        """So many residuals are remembered."""
        return len(self.residuals)

    def learn(self, residual: float) -> None:
        """A residual has come to be known."""
        self.residuals.append(residual)
        self._sorted = None

    def missed(self, side: int) -> None:
        """An interval given earlier was missed, or not.

        Args:
            side: -1 if the truth lay below it, 1 if above, 0 if in it.
        """
        self.below += self.step * (self.target - (side < 0))
        self.above += self.step * (self.target - (side > 0))

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Quantiles of the residuals; there must be some [levels].

        Beyond 0 and 1 it goes on by the range of the residuals: where all of them were not wide enough.
        """
        if self._sorted is None:
            self._sorted = np.sort(np.array(self.residuals))
        count = len(self._sorted)
        # Of one residual more, which is to come (Vovk, Gammerman, Shafer 2005).
        place = np.clip(np.array(levels) * (count + 1) - 1.0, 0.0, count - 1.0)
        beyond = np.maximum(np.array(levels) - 1.0, 0.0) + np.minimum(np.array(levels), 0.0)
        reach = self._sorted[-1] - self._sorted[0]
        found: FloatArray = np.interp(place, np.arange(count), self._sorted) + beyond * reach
        return found
