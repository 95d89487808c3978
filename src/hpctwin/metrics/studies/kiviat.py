"""Scores of several metrics for a Kiviat (radar) chart."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["kiviat_area", "kiviat_scores"]

FloatArray = npt.NDArray[np.float64]


def kiviat_scores(raw: FloatArray, larger_is_better: npt.NDArray[np.bool_]) -> FloatArray:
    """Return each metric scaled from 0 (worst) to 1 (best); all 1 if values are equal.

    Args:
        raw: Values [compared, metrics].
        larger_is_better: Direction of each metric [metrics].
    """
    low, high = raw.min(axis=0), raw.max(axis=0)
    # Rounding differences must not span the whole axis.
    differ = high - low > 1e-9 * np.abs(high)
    score = np.where(larger_is_better, raw - low, high - raw) / np.where(differ, high - low, 1.0)
    return np.where(differ, score, 1.0)


def kiviat_area(scores: FloatArray) -> FloatArray:
    """Return the area of the polygon of each row of scores, with axes at equal angles.

    It depends on the order of the axes. Five axes with 1 on all give 2.378.

    Args:
        scores: Scores of `kiviat_scores` [compared, metrics].
    """
    around = np.roll(scores, -1, axis=1)
    area: FloatArray = 0.5 * math.sin(2 * math.pi / scores.shape[1]) * (scores * around).sum(axis=1)
    return area
