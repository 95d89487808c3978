"""Intervals with a guaranteed coverage, whatever the quality of the forecasts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Conformal"]

FloatArray = npt.NDArray[np.float64]


class Conformal:
    """Online conformal prediction of the next residual from the last ones.

    Both ends of the interval are quantiles of the last residuals (split conformal prediction). The
    level of each end moves after every miss and every hit. Over time either end is therefore missed
    as often as it should be, even if the residuals drift.

    Source:
        Romano, Patterson, Candès 2019, *Conformalized Quantile Regression*, §3, for asymmetric
        ends; Gibbs, Candès 2021, *Adaptive Conformal Inference Under Distribution Shift*, eq. 2,
        for the levels.

    Args:
        coverage: Share of residuals that should be in the interval. The rest is split equally
            below and above it.
        window: Number of residuals that are remembered.
        step: Step of a level after a miss (γ).
    """

    def __init__(self, coverage: float, window: int, step: float) -> None:
        self.target = (1.0 - coverage) / 2.0
        self.step = step
        self.residuals: deque[float] = deque(maxlen=window)
        self.below = self.above = self.target
        self._sorted: FloatArray | None = None

    def __len__(self) -> int:
        """Return the number of remembered residuals."""
        return len(self.residuals)

    def learn(self, residual: float) -> None:
        """Record a new residual."""
        self.residuals.append(residual)
        self._sorted = None

    def missed(self, side: int) -> None:
        """Move the levels by the outcome of an earlier interval.

        Args:
            side: -1 if the true value was below the interval, 1 if above, 0 if inside.
        """
        self.below += self.step * (self.target - (side < 0))
        self.above += self.step * (self.target - (side > 0))

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return quantiles of the residuals; at least one must be known [levels].

        Levels below 0 or above 1 are for cases in which the range of all residuals is too narrow.
        There the quantiles continue linearly, by one range per 1.
        """
        if self._sorted is None:
            self._sorted = np.sort(np.array(self.residuals))
        count = len(self._sorted)
        # The next residual counts as one more value (Vovk, Gammerman, Shafer 2005).
        place = np.clip(np.array(levels) * (count + 1) - 1.0, 0.0, count - 1.0)
        beyond = np.maximum(np.array(levels) - 1.0, 0.0) + np.minimum(np.array(levels), 0.0)
        reach = self._sorted[-1] - self._sorted[0]
        found: FloatArray = np.interp(place, np.arange(count), self._sorted) + beyond * reach
        return found
